"""corelane lab: try a policy for jobs, beside published ones and baselines.

    running.py    list, run and compare: on simulated cores
    recording.py  record: what an iokernel or an application saw, as a load
    boxing.py     box: the same load and policy, simulated and on this machine's cores

What they call is bench/lab. numba and numpy are imported when an action needs them.
"""

from __future__ import annotations

import argparse

from .. import values

IMPORTS = ("..bench._native",)
GOAL = "mean_completion_us"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An action, and what it takes."""
    from .running import EXAMPLE, add_run, numbers

    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listed = actions.add_parser("list", help="policies and generators, with their settings")
    listed.add_argument("--json", action="store_true", help="print JSON")
    add_run(actions.add_parser("run", help="run policies on a load, on simulated cores"))
    compare = actions.add_parser("compare", help="the same, each policy with its best settings by a sweep")
    add_run(compare)
    compare.add_argument("--goal", default=GOAL, metavar="NAME", help=f"what is best: least of it (default {GOAL})")
    compare.add_argument("--baseline", metavar="POLICY", help="over which others are told (fifo, if it runs)")
    compare.add_argument("--alone", action="store_true", help="only these policies, without the baselines beside them")
    record = actions.add_parser("record", help="write requests, or what an iokernel does with its cores, as a load")
    record.add_argument("file", metavar="FILE", help="the load file to write")
    record.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    whose = record.add_mutually_exclusive_group()
    whose.add_argument("--app", metavar="NAME", help="requests of this application, which traces all of them meanwhile")
    whose.add_argument("--pid", type=values.positive, metavar="PID", help="of this process, in --trace full")
    record.add_argument("--seconds", type=values.seconds, default=1.0, metavar="S", help="for so long (default 1)")
    record.add_argument("--wait", type=values.seconds, default=0, metavar="S", help="wait so long for the iokernel")
    record.add_argument("--json", action="store_true", help="print JSON")
    box = actions.add_parser("box", help="run a load on this machine's cores too, and compare")
    box.add_argument("--policy", default="fifo", metavar="NAME", help="a name, or module:function (default fifo)")
    box.add_argument("--set", type=numbers, default={}, metavar="K=V", help="its settings")
    box.add_argument("--load", default="poisson:mean_us=100", metavar="LOAD", help=f"as of run: {EXAMPLE}")
    box.add_argument("--cores", type=values.distinct_cpus, metavar="A,B", help="which (default: the first two allowed)")
    box.add_argument("--seed", type=values.whole, default=1, metavar="N", help="the first one (default 1)")
    box.add_argument("--rounds", type=values.positive, default=3, metavar="N", help="seeds (default 3)")
    box.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Dispatch on the action."""
    if options.action == "list":
        from .running import show_list

        return show_list(options.json)
    if options.action == "record":
        from . import recording

        return recording.run(options)
    if options.action == "box":
        from . import boxing

        return boxing.run(options)
    from . import running

    return running.run(options)
