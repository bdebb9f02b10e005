"""corelane lab record: what was seen as a load file. The requests of an application (--app, --pid) that traces them, or
the moves of cores of an iokernel that runs."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...runtime.errors import CorelaneError
from ..outputs import check_writable
from ..trace import moves
from ..watch import snapshot

if TYPE_CHECKING:
    from ...bench.lab.loads import Load
    from ...bench.lab.recorded import Stretch
    from ...runtime.trace import Segment
    from ..trace.recording import Recording


def stretches(recording: Recording) -> list[Stretch]:
    """Of each core, for how long which application had it, and when that was decided."""
    from ...bench.lab.recorded import Stretch

    out = []
    for handovers, spans, _ in recording.followed.values():
        decided = {(move.new, move.end): move.begin for move in handovers}
        for span in spans:
            at = decided.get((span.owner, span.begin), span.begin) - recording.begin_tsc
            length = 1e3 * recording.us(span.end - span.begin)
            owner = recording.name(span.owner, span.begin).rpartition(".")[0] or str(span.owner)
            out.append(Stretch(1e3 * recording.us(at), length, owner))
    return out


def run(options: argparse.Namespace) -> int:
    """Record, write, and say what there is."""
    from ...bench.lab import loads

    check_writable(Path(options.file))
    of_requests = options.app is not None or options.pid is not None
    load, lost = (_requests if of_requests else _moves)(options)
    loads.write(options.file, load)
    if options.json:
        document = {"file": options.file, "jobs": len(load), "classes": len(load.kinds), "lost": lost}
        print(json.dumps(document | load.said))
        return 0
    job, lost_one, owner = ("request", "request", "service") if of_requests else ("job", "move", "application")
    missing = f"; lost: {_count(lost, lost_one)}" if lost else ""
    print(f"wrote {options.file}: {_count(len(load), job)} of {_count(len(load.kinds), owner)}{missing}")
    if of_requests:
        print(_what_became_of_them(load))
    return 0


def _count(n: int, what: str) -> str:
    """1 job, 2 jobs."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _what_became_of_them(load: Load) -> str:
    """For who runs it again."""
    said, lines = load.said, []
    lines.append(f"there, on {said['kthreads']} kthreads: p50 {said['p50_us']:.4g} us, p99 {said['p99_us']:.4g} us")
    lines.append(f"  {said['besides_ns']} ns of that besides the handler: give it as --costs switch_ns=")
    if said["waited"] >= 0.01:
        lines.append(f"  handlers waited for {100 * said['waited']:.0f} % of their time, which is left out")
    return "\n".join(lines)


def _moves(options: argparse.Namespace) -> tuple[Load, int]:
    """Stretches of core use, and the moves that were lost."""
    from ...bench.lab.recorded import load_of
    from ...runtime.paths import default_socket

    before = snapshot(options.socket, options.wait)
    if before["cores"] is None:
        hint = "start the iokernel with a policy: corelane up --policy delay"
        raise CorelaneError("record a load", "cores stay where they were given out", hint)
    path = options.socket or default_socket()
    recording = moves.record(path, [a["loop"] for a in before["cores"]["allocators"]], options.seconds)
    return load_of(stretches(recording), recording.seconds), recording.lost


def _requests(options: argparse.Namespace) -> tuple[Load, int]:
    """Requests of the application, and the records of it that were lost."""
    from ...bench.lab.recorded import load_of_requests
    from ...libos.trace.stages import table
    from ..trace.requests import once_there, record, segment_of

    as_it_is = argparse.Namespace(**vars(options) | {"mode": None})
    with once_there(lambda: segment_of(as_it_is), time.monotonic() + options.wait) as segment:
        with _all_written_down(options, segment):
            records = record(segment, options.seconds)
        seen = table(records, segment.services(), segment.hz)
        return load_of_requests(seen, options.seconds), records.lost


@contextlib.contextmanager
def _all_written_down(options: argparse.Namespace, segment: Segment) -> Iterator[None]:
    """Meanwhile the application writes down each request, not some of them."""
    from ..trace.requests import segment_of

    before = segment.mode
    if before == "full":
        yield
        return
    if options.app is None:
        hint = "start it with --trace full, or name it by --app"
        raise CorelaneError("record a load", f"its requests are not all written down (trace: {before})", hint)
    segment_of(argparse.Namespace(**vars(options) | {"mode": "full"})).close()
    try:
        yield
    finally:
        with contextlib.suppress(CorelaneError):  # it has ended meanwhile
            segment_of(argparse.Namespace(**vars(options) | {"mode": before})).close()
