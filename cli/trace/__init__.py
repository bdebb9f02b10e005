"""corelane trace: what happened, and when, for a table, for blame, and for Perfetto.

Views. Without an application it shows the moves of cores, from the iokernel's logs; with --app or --pid the requests of
one, from what its kthreads write down (runtime/trace.h); `last` what was kept where a limit of latency was broken.

    moves.py       the moves of cores (recording.py: what the entries of a log say)
    requests.py    the requests of an application, live
    last.py        those that were kept on disk
    spans.py       the same records as spans of OpenTelemetry
    views.py       what is said of either: the slowest; --blame
    neighbours.py  who else had their CPUs and cores, for blame
    calling.py     their system calls (--system-calls)
    profiling.py   where their handlers were (--profile); flame.py: the same as a graph
    timeline.py    the same records as trace events
    output.py      the file for Perfetto

What records say of stages, and which one makes a tail, is libos/trace/stages.py and blame.py. numpy is imported when
there are records to look at.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ...runtime.tracing import TRACE_MODES
from .. import values
from ..outputs import check_writable
from ..telemetry import endpoint
from ..usage import WrongUsage

IMPORTS = ("..iokernel._native",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "kept",
        nargs="*",
        metavar="last [NAME]",
        help="explain the trace that was kept last where an slo was broken, or the one of that name",
    )
    parser.add_argument("--list", action="store_true", help="last: what is kept")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="last: where (default: as corelane run has it)")
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--app", metavar="NAME", help="the requests of this application, instead of the moves of cores")
    whose.add_argument(
        "--pid", type=values.positive, metavar="PID", help="the same of this process, which may have no iokernel"
    )
    parser.add_argument(
        "--mode",
        choices=TRACE_MODES,
        help="with --app: have it write down so much from now on, by its iokernel; it stays so",
    )
    parser.add_argument(
        "--blame", action="store_true", help="of requests: which stage makes the tail of each service, and what if not"
    )
    parser.add_argument(
        "--slowest", type=values.positive, default=5, metavar="N", help="of requests: lines a second (default 5)"
    )
    parser.add_argument(
        "--seconds", type=values.seconds, default=1.0, metavar="S", help="for so long, or until Ctrl-C (default 1)"
    )
    parser.add_argument(
        "--profile",
        type=values.seconds,
        metavar="S",
        help="of requests: sample for so long where their handlers are, and say what slow ones do that others do not",
    )
    parser.add_argument(
        "--system-calls",
        action="store_true",
        help="of requests: time the system calls of their handlers (root; each call takes longer meanwhile)",
    )
    parser.add_argument(
        "--flame",
        type=Path,
        metavar="FILE.html",
        help="write that as a flame graph, slow requests against ordinary ones",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE.json", help="write all that was seen for ui.perfetto.dev or chrome://tracing"
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="send the requests as spans to an OpenTelemetry collector, as http://127.0.0.1:4318",
    )
    parser.add_argument(
        "--wait",
        type=values.seconds,
        default=0,
        metavar="S",
        help="wait so long for the iokernel, or the application, to come up",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(options: argparse.Namespace) -> int:
    """Record, then say what was seen; or say what was kept."""
    if options.flame is not None and options.profile is None and not options.kept:
        raise WrongUsage("--flame", "nothing is sampled", "give --profile S, too")
    live = options.app is not None or options.pid is not None
    of_requests = {"--profile": options.profile is not None, "--otlp": options.otlp is not None}
    of_requests["--system-calls"] = options.system_calls and not options.kept
    of_requests["--blame"] = options.blame and not options.kept
    for flag, given in of_requests.items():
        if given and not live:
            raise WrongUsage(flag, "it is of the requests of an application", "give --app NAME or --pid PID, too")
    if options.folder is not None and not options.kept:
        raise WrongUsage("--folder", "it is of what was kept", "corelane trace last --folder DIR")
    if options.mode is not None and options.app is None:
        raise WrongUsage("--mode", "it goes by the iokernel of an application", "give --app NAME, too")
    if options.flame is not None:
        check_writable(options.flame)
    if options.otlp is not None:
        endpoint(options.otlp)  # or it is none, and says so before anything is recorded
    if options.kept or options.list:
        from . import last

        return last.run(options)
    if options.app is not None or options.pid is not None:
        from . import requests

        return requests.run(options)
    from . import moves

    return moves.run(options)
