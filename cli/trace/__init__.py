"""corelane trace: what happened, and when, for a table, for blame, and for Perfetto.

Views. Without an application it shows the moves of cores, from the iokernel's logs; with --app or --pid the requests of
one, from what its kthreads write down (runtime/trace.h).

    moves.py       the moves of cores (recording.py: what the entries of a log say)
    requests.py    the requests of an application: its slowest, live; --blame
    timeline.py    the same records as trace events
    output.py      the file for Perfetto

What records say of stages, and which one makes a tail, is libos/trace/stages.py and blame.py. numpy is imported when
there are records to look at.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import values

IMPORTS = ("..iokernel._native",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    whose = parser.add_mutually_exclusive_group()
    whose.add_argument("--app", metavar="NAME", help="the requests of this application, instead of the moves of cores")
    whose.add_argument(
        "--pid", type=values.positive, metavar="PID", help="the same of this process, which may have no iokernel"
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
        "--out", type=Path, metavar="FILE.json", help="write all that was seen for ui.perfetto.dev or chrome://tracing"
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
    """Record, then say what was seen."""
    if options.app is not None or options.pid is not None:
        from . import requests

        return requests.run(options)
    from . import moves

    return moves.run(options)
