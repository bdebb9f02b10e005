"""corelane trace --app, --pid: the requests of an application, as its kthreads write them down."""

from __future__ import annotations

import argparse
import errno
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...libos.trace import blame
from ...libos.trace.stages import Table, table
from ...runtime.errors import CorelaneError
from ..watch import columns, snapshot
from . import recording, timeline
from .moves import Beside
from .output import Output

if TYPE_CHECKING:
    from ...runtime.trace import Records, Segment

LOOK_S = 0.02  # a ring of 4096 records holds 0.5 ms of the most that one kthread handles, if all is written down
TELL_S = 1.0
MOST = 2_000_000  # messages of a recording: some 130 MB


def run(options: argparse.Namespace) -> int:
    """Record for so long, telling the slowest each second; then blame."""
    out = Output(options.out) if options.out is not None else None
    failed = None
    try:
        with _opened(options) as segment, Beside(options.socket) if out and options.app else nullcontext() as beside:
            quiet = options.json or options.blame
            records = _record(segment, options.seconds, 0 if quiet else options.slowest, beside)
            names = segment.services()
            seen = table(records, names, segment.hz)
            document = _document(segment, records, seen, options.slowest)
            if out is not None:
                failed = out.write(_events(records, names, segment.hz, beside))
                document |= {"out": str(options.out)} if failed is None else {}
            print(json.dumps(document) if options.json else render(document, seen, options.blame), flush=True)
    finally:
        if out is not None:
            out.close()
    if failed is not None:
        raise failed
    return 0


def _opened(options: argparse.Namespace) -> Segment:
    """The segment of the process that is meant, once it is there."""
    from ...runtime.trace import Segment

    deadline = time.monotonic() + options.wait
    while True:
        try:
            return Segment.of_process(_pid(options))
        except CorelaneError as error:
            if error.errno != errno.ENOENT or time.monotonic() >= deadline:
                raise
        time.sleep(LOOK_S)


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


def _record(segment: Segment, seconds: float, slowest: int, beside: Beside | None) -> Records:
    """All that is written down for so long, until Ctrl-C, or until MOST messages. slowest: lines a second; 0: none.
    beside: is recorded, too."""
    segment.skip()
    parts: list[Records] = []
    begun = told = time.monotonic()
    told_parts = n = 0
    try:
        while (left := begun + seconds - time.monotonic()) > 0 and n < MOST:
            time.sleep(min(left, LOOK_S))
            parts.append(segment.read())
            if beside:
                beside.read()
            n += len(parts[-1].messages)
            if slowest and time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                lines = slowest_lines(table(joined(parts[told_parts:]), segment.services(), segment.hz), slowest)
                print("\n".join(lines), flush=True)
                told_parts = len(parts)
    except KeyboardInterrupt:
        print("interrupted: what was seen until now", file=sys.stderr)
    if n >= MOST:
        print(f"ended after {n:,} requests, which is as many as are kept", file=sys.stderr)
    parts.append(segment.read())
    if beside:
        beside.end()
    return joined(parts)


def _events(records: Records, names: list[str], hz: int, beside: Beside | None) -> Iterator[dict[str, Any]]:
    """Trace events of the requests, and of the moves of cores beside them: on one clock, of this machine's counter."""
    moved = beside.recording if beside else None
    if moved is None:
        yield from timeline.events(records, names, hz, _first(records))
        return
    yield from timeline.events(records, names, hz, moved.begin_tsc)
    yield from recording.events(moved)


def joined(parts: Sequence[Records]) -> Records:
    """Several readings as one."""
    import numpy

    from ...runtime.trace import Records

    def all_of(kind: str) -> Any:
        return numpy.concatenate([getattr(part, kind) for part in parts])

    lost, garbage = sum(part.lost for part in parts), sum(part.garbage for part in parts)
    return Records(all_of("messages"), all_of("waits"), all_of("cores"), lost, garbage)


def _first(records: Records) -> int:
    """The first stamp of all."""
    stamps = [int(of["begin"].min()) for of in (records.messages, records.waits, records.cores) if len(of)]
    return min(stamps, default=0)


def _document(segment: Segment, records: Records, seen: Table, slowest: int) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "pid": segment.pid,
        "app": segment.name,
        "mode": segment.mode,
        "one_in": segment.one_in,
        "messages": len(records.messages),
        "waits": len(records.waits),
        "core_losses": int(records.cores["n"].sum()),
        "lost": records.lost,
        "garbage": records.garbage,
        "slowest": slowest_of(seen, slowest),
        "blame": [blame.document_of(one) for one in blame.of_table(seen)],
    }


def slowest_of(seen: Table, n: int) -> list[dict[str, Any]]:
    """The n slowest, slowest first, with the time in each stage that took some."""
    import numpy

    out = []
    for row in numpy.argsort(-seen.total, kind="stable")[:n]:
        service = int(seen.messages["service"][row])
        times = {blame.name_of(path): round(float(t[row]), 3) for path, t in seen.stages.items() if t[row] > 0}
        name = seen.names[service] if service < len(seen.names) else f"service {service}"
        total = round(float(seen.total[row]), 3)
        out.append({"id": int(seen.messages["id"][row]), "service": name, "us": total, "stages": times})
    return out


def slowest_lines(seen: Table, n: int) -> list[str]:
    """The same for people: stages by how long they took."""
    rows, where = [["SERVICE", "us"]], ["WHERE"]
    for one in slowest_of(seen, n):
        parts = sorted(one["stages"].items(), key=lambda part: -part[1])
        rows.append([one["service"], f"{one['us']:.1f}"])
        where.append(", ".join(f"{name} {us:.1f}" for name, us in parts[:4] if us >= 0.05))
    if len(rows) == 1:
        return ["nothing was written down: no requests, or tracing is off"]
    return [f"{line}  {stages}".rstrip() for line, stages in zip(columns(rows), where, strict=True)]


def render(document: dict[str, Any], seen: Table, blames: bool) -> str:
    """The end of a recording: how much was seen; the slowest, or blame."""
    how = {"sampled": f"1 of {document['one_in']:,} and the slowest of each ms", "full": "all", "off": "none"}
    lines = [
        f"process {document['pid']} ({document['app']}) writes down {how.get(document['mode'], document['mode'])}: "
        f"{document['messages']:,} requests and {document['waits']:,} waits were read"
    ]
    if document["lost"]:
        lines.append(f"{document['lost']:,} records were written over before they could be read")
    if document["garbage"]:
        lines.append(f"{document['garbage']:,} records were none: its trace memory is damaged")
    lines.append("")
    if not blames:
        return "\n".join(lines + slowest_lines(seen, len(document["slowest"])))
    found = blame.of_table(seen)
    for one in found:
        lines += [*blame.lines_of(one), ""]
    if not found:
        lines.append("too few requests were written down to blame a stage: record for longer, or trace in full")
    return "\n".join(lines).rstrip("\n")
