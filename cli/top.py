"""corelane top: who has the cores, how long work waits, how cores move, and what services answer, every second.

In a terminal it is a screen with keys (screen.py, with the library textual), elsewhere blocks of text.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.util
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..runtime.errors import CorelaneError
from . import values
from .streams import tell
from .tables import details, render
from .traced import Traces
from .watch import Asked, key_of, rates

IMPORTS = ("..iokernel._native",)
NICE = 19  # who looks on gives way to what is looked at, which may poll on all CPUs that there are


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", type=values.socket, metavar="PATH", help=values.SOCKET)
    parser.add_argument(
        "-d", "--delay", type=values.seconds, default=1.0, metavar="S", help="rates over so long (default 1)"
    )
    parser.add_argument(
        "-n", "--count", type=values.positive, metavar="N", help="end after N of them (default: at Ctrl-C)"
    )
    parser.add_argument("--once", action="store_true", help="the same as -n 1")
    parser.add_argument(
        "--wait", type=values.seconds, default=0, metavar="S", help="wait so long for the iokernel to come up"
    )
    parser.add_argument("--app", metavar="NAME", help="everything of one application")
    parser.add_argument("--plain", action="store_true", help="blocks of text, also in a terminal")
    parser.add_argument("--wide", action="store_true", help="all columns (default: those that fit the terminal, or 80)")
    parser.add_argument("--json", action="store_true", help="print all statistics as JSON, a line each time")
    parser.set_defaults(nice=0)  # a command whose process is its own gets NICE


def run(options: argparse.Namespace) -> int:
    """Show until Ctrl-C, the end of -n, or the end of the iokernel."""
    count = 1 if options.once else options.count
    try:
        if _has_keys(options, count):
            from . import screen

            screen.show(lambda wait: _watch(None, options, wait), options.app)
            return 0
        for shown, stats in enumerate(_watch(count, options)):
            if options.json:
                print(json.dumps(stats), flush=True)
                continue
            width = None if options.wide else values.width()
            text = render(stats, width) if options.app is None else details(app_of(stats, options.app), width)
            print(("\n" if shown else "") + text, flush=True)
    except KeyboardInterrupt:
        return 0  # how one ends it
    return 0


def _has_keys(options: argparse.Namespace, count: int | None) -> bool:
    """Whether it is a screen. Says what is missing if that alone prevents it."""
    live = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
    if not live or options.json or options.plain or count is not None:
        return False
    if importlib.util.find_spec("textual") is not None:
        return True
    tell("corelane top: for a screen with keys: pip install 'corelane[top]'")
    return False


def app_of(stats: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The application of that name. CorelaneError if there is none."""
    found = [app for app in stats["apps"] if name in (app["name"], key_of(app))]
    if not found:
        there = ", ".join(app["name"] for app in stats["apps"]) or "none"
        raise CorelaneError(f"show {name}", "no application of that name is attached", f"there are: {there}")
    return dict(found[0])


def _give_way(nice: int) -> None:
    """Have all threads of the process that nice value; 0: leave them."""
    for tid in os.listdir("/proc/self/task") if nice else ():
        with contextlib.suppress(ProcessLookupError):  # it has ended
            os.setpriority(os.PRIO_PROCESS, int(tid), nice)  # never refused: it is upwards


def _watch(
    count: int | None, options: argparse.Namespace, wait: Callable[[float], object] = time.sleep
) -> Iterator[dict[str, Any]]:
    """Statistics with rates, one each delay. CorelaneError if the iokernel is not there, or ends."""
    with Asked(options.socket) as asked, Traces() as traces:
        before = asked.now(options.wait)
        due = time.monotonic()
        traces.begin(before)  # what comes from here on is of the first interval
        try:
            for look in itertools.count() if count is None else range(count):
                if look == 1:  # not before: loading itself, beside who polls on all CPUs, would take it half a minute
                    _give_way(options.nice)
                due = max(due + options.delay, time.monotonic())  # once, if it was suspended for longer
                wait(max(0.0, due - time.monotonic()))
                try:
                    after = asked.now()
                except CorelaneError as error:
                    raise CorelaneError(
                        f"the iokernel on {asked.path} has ended", hint="corelane up starts one"
                    ) from error
                shown = rates(before, after)
                traces.add_to(shown)
                if look == 0:
                    gc.freeze()  # all that was imported: to look through it for garbage takes 6 ms of a CPU at once
                yield shown
                before = after
        finally:
            gc.unfreeze()
