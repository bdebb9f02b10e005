"""corelane trace --app, --pid: the requests of an application, as its kthreads write them down."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from ...libos.trace import faults
from ...libos.trace.others import Others
from ...libos.trace.pieces import arrays, joined, number
from ...libos.trace.stages import table
from ...libos.trace.systemcalls import array_of
from ...runtime import control, perf
from ...runtime.errors import CorelaneError
from ...runtime.paths import default_socket
from ...runtime.trace import Segment
from ...runtime.tracing import TRACE_MODES
from ..watch import snapshot
from . import recording, spans, timeline
from .calling import Calling
from .moves import Beside
from .neighbours import Neighbours
from .output import Output
from .profiling import Profiling
from .views import document_of, render, slowest_lines

if TYPE_CHECKING:
    from ...runtime.trace import Records

T = TypeVar("T")
Also = Beside | Profiling | Neighbours | Calling | None

LOOK_S = 0.02  # a ring of 4096 records holds 0.5 ms of the most that one kthread handles, if all is written down
TELL_S = 1.0
MODE_S = 10.0
MOST = 2_000_000  # records of a recording: some 130 MB


def run(options: argparse.Namespace) -> int:
    """Record for so long, telling the slowest each second; then blame."""
    out = Output(options.out) if options.out is not None else None
    failed = None
    deadline = time.monotonic() + options.wait
    try:
        with (
            once_there(lambda: segment_of(options), deadline) as segment,
            Beside(options.socket) if out and options.app else nullcontext() as beside,
            _profiling(segment, options.profile, deadline)
            if options.profile is not None
            else nullcontext() as profiling,
            Neighbours(segment, options.socket) if options.blame or options.json else nullcontext() as near,
            _calling(segment, deadline) if options.system_calls else nullcontext() as calling,
        ):
            quiet = options.json or options.blame or options.profile is not None
            seconds = options.seconds if options.profile is None else options.profile
            records = record(segment, seconds, 0 if quiet else options.slowest, [beside, profiling, near, calling])
            others = near.others() if near else Others()
            names = segment.services()
            calls = None if calling is None else array_of(calling.found, segment.tsc_of)
            seen = table(records, names, segment.hz, faults.cost_us(), calls)
            document = document_of(segment, records, seen, options.slowest, others)
            document |= {"rings": [ring._asdict() for ring in segment.counts()]}
            if calling:
                document |= {"system_calls": len(calling.found), "system_calls_lost": calling.lost}
            if options.otlp is not None:
                clock = spans.Clock(segment.ns_of)
                sent = spans.send(options.otlp, records, names, segment.pid, segment.name, clock)
                document |= {"spans_of": sent}
            if profiling:
                document |= profiling.document(seen, records, options.flame)
            if out is not None:
                failed = out.write(_events(records, names, segment.hz, beside))
                document |= {"out": str(options.out)} if failed is None else {}
            text = json.dumps(document) if options.json else render(document, seen, options.blame, others)
            more = [*([calling.line] if calling else []), *(profiling.lines if profiling else [])]
            print("\n".join([text, *([] if options.json else more)]), flush=True)
    finally:
        if out is not None:
            out.close()
    if failed is not None:
        raise failed
    return 0


def segment_of(options: argparse.Namespace) -> Segment:
    """That of the process that is meant by --app or --pid: by its iokernel, which may see more of it than we do, or by
    its id; switched to --mode, if there is one. CorelaneError (ENOENT): it is not there yet."""
    pid = _pid(options)
    if options.app is None:
        return Segment.of_process(pid)
    how = 0 if options.mode is None else 1 + TRACE_MODES.index(options.mode)
    said, fd = control.trace(options.socket or default_socket(), options.app, pid, how)
    if fd >= 0:
        segment = Segment(fd)
    else:
        try:
            segment = Segment.of_process(pid)
        except CorelaneError as error:
            raise CorelaneError(f"trace {options.app}", str(said["why"]), error.hint, error.errno) from error
    if options.mode is not None:
        _await_mode(segment, options.app, options.mode)
    return segment


def _await_mode(segment: Segment, app: str, mode: str) -> None:
    """Its port looks some times a second, and its kthreads each millisecond."""
    deadline = time.monotonic() + MODE_S
    while segment.mode != mode:
        if time.monotonic() >= deadline:
            segment.close()
            raise CorelaneError(f"trace {app}", f"it has not changed to {mode} in {MODE_S:g} s", "is it stopped?")
        time.sleep(LOOK_S)


def once_there(ask: Callable[[], T], deadline: float) -> T:
    """What `ask` returns once it no longer raises ENOENT, or EPROTO of a segment that is being made; deadline: on the
    monotonic clock."""
    while True:
        try:
            return ask()
        except CorelaneError as error:
            if error.errno not in (errno.ENOENT, errno.EPROTO) or time.monotonic() >= deadline:
                raise
        time.sleep(LOOK_S)


def _profiling(segment: Segment, seconds: float, deadline: float) -> Profiling:
    return Profiling(segment, once_there(lambda: perf.kthreads_of(segment.pid), deadline), seconds)


def _calling(segment: Segment, deadline: float) -> Calling:
    return Calling(once_there(lambda: perf.kthreads_of(segment.pid), deadline))


def _pid(options: argparse.Namespace) -> int:
    """The process that is meant. CorelaneError (ENOENT): it is not there yet."""
    if options.pid is not None:
        return int(options.pid)
    apps = snapshot(options.socket)["apps"]
    pids = [int(app["pid"]) for app in apps if app["name"] == options.app]
    if not pids:
        known = ", ".join(sorted({app["name"] for app in apps})) or "none"
        why = "no application of that name is attached"
        raise CorelaneError(f"trace {options.app}", why, f"there are: {known}", errno.ENOENT)
    if len(pids) > 1:
        one = ", ".join(map(str, pids))
        raise CorelaneError(f"trace {options.app}", f"{len(pids)} processes have that name", f"--pid one of {one}")
    return pids[0]


def record(segment: Segment, seconds: float, slowest: int = 0, others: Sequence[Also] = ()) -> Records:
    """All that is written down for so long, until Ctrl-C, or until MOST records. slowest: lines a second; 0: none.
    others: are recorded, too."""
    beside = [one for one in others if one is not None]
    segment.skip()
    parts: list[Records] = []
    begun = told = time.monotonic()
    told_parts = n = 0
    try:
        while (left := begun + seconds - time.monotonic()) > 0 and n < MOST:
            time.sleep(min(left, LOOK_S))
            parts.append(segment.read(MOST))
            for other in beside:
                other.read()
            n += number(parts[-1])
            if slowest and time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                new = joined(parts[told_parts:])
                lines = slowest_lines(table(new, segment.services(), segment.hz, faults.cost_us()), slowest)
                print("\n".join(lines), flush=True)
                told_parts = len(parts)
    except KeyboardInterrupt:
        print("interrupted: what was seen until now", file=sys.stderr)
    if n >= MOST:
        print(f"ended after {n:,} records, which is as many as are kept", file=sys.stderr)
    else:
        parts.append(segment.read(MOST))
    for other in beside:
        other.end()
    return joined(parts)


def _events(records: Records, names: Sequence[str], hz: int, beside: Beside | None) -> Iterator[dict[str, Any]]:
    """Trace events of the requests, and of the moves of cores beside them: on one clock, of this machine's counter."""
    moved = beside.recording if beside else None
    begin = first_of(records)
    if moved is not None:  # requests may have come before
        begin = min(begin or moved.begin_tsc, moved.begin_tsc)
    yield from timeline.events(records, names, hz, begin)
    if moved is not None:
        yield from recording.events(moved, begin)


def first_of(records: Records) -> int:
    """The first stamp of all; 0: there is none."""
    stamps = [int(of["begin"].min()) for of in arrays(records).values() if len(of)]
    return min(stamps, default=0)
