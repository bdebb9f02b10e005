"""What is said of the requests of an application, of records that were just read or kept (last.py): the slowest ones,
blame, and the same as JSON."""

from __future__ import annotations

from typing import Any, Protocol

from ...libos.trace import blame
from ...libos.trace.others import Others
from ...libos.trace.stages import Table
from ...runtime.trace import Records
from ..watch import columns


class Source(Protocol):
    """Whose records they are: a segment, or the head of a file."""

    @property
    def pid(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def mode(self) -> str: ...

    @property
    def one_in(self) -> int: ...


def document_of(
    source: Source, records: Records, seen: Table, slowest: int, others: Others = blame.UNKNOWN
) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "pid": source.pid,
        "app": source.name,
        "mode": source.mode,
        "one_in": source.one_in,
        "messages": len(records.messages),
        "waits": len(records.waits),
        "core_losses": int(records.cores["n"].sum()),
        "lost": records.lost,
        "garbage": records.garbage,
        "slowest": slowest_of(seen, slowest),
        "blame": [blame.document_of(one) for one in blame.of_table(seen, others=others)],
    }


def slowest_of(seen: Table, n: int) -> list[dict[str, Any]]:
    """The n slowest, slowest first, with the time in each stage that took some. shared: the requests whose handlers
    have one start and one end between them, this one among them."""
    import numpy

    out = []
    for row in numpy.argsort(-seen.total, kind="stable")[:n]:
        service = int(seen.messages["service"][row])
        times = {blame.name_of(path): round(float(t[row]), 3) for path, t in seen.stages.items() if t[row] > 0}
        name = seen.names[service] if service < len(seen.names) else f"service {service}"
        total = round(float(seen.total[row]), 3)
        shared = int(seen.messages["shared"][row])
        one = {"id": int(seen.messages["id"][row]), "service": name, "us": total, "shared": shared, "stages": times}
        out.append(one)
    return out


def slowest_lines(seen: Table, n: int) -> list[str]:
    """The same for people: stages by how long they took."""
    rows, where = [["SERVICE", "us"]], ["WHERE"]
    for one in slowest_of(seen, n):
        parts = sorted(one["stages"].items(), key=lambda part: -part[1])
        rows.append([one["service"], f"{one['us']:.1f}"])
        told = ", ".join(f"{name} {us:.1f}" for name, us in parts[:4] if us >= 0.05)
        where.append(told + (f"; handler shared by {one['shared']:,} requests" if one["shared"] > 1 else ""))
    if len(rows) == 1:
        return ["nothing was written down: no requests, or tracing is off"]
    return [f"{line}  {stages}".rstrip() for line, stages in zip(columns(rows), where, strict=True)]


def head_lines(document: dict[str, Any]) -> list[str]:
    """How much was seen."""
    how = {"sampled": f"1 of {document['one_in']:,} and the slowest of each ms", "full": "all", "off": "none"}
    lines = [
        f"process {document['pid']} ({document['app']}) writes down {how.get(document['mode'], document['mode'])}: "
        f"{document['messages']:,} requests and {document['waits']:,} waits were read"
    ]
    if document["lost"]:
        lines.append(f"{document['lost']:,} records were written over before they could be read")
    for kthread, ring in enumerate(document.get("rings", ())):
        if ring["overwritten"]:
            said = f"{ring['written']:,} records, and over {ring['overwritten']:,} of them"
            lines.append(f"kthread {kthread} has written {said}; {ring['missed']:,} were missed here")
    if document["garbage"]:
        lines.append(f"{document['garbage']:,} records were none: its trace memory is damaged")
    return lines


def blame_lines(seen: Table, others: Others = blame.UNKNOWN) -> list[str]:
    """Of each service, which stage makes its tail."""
    found = blame.of_table(seen, others=others)
    if not found:
        return ["too few requests were written down to blame a stage: record for longer, or trace in full"]
    lines: list[str] = []
    for one in found:
        lines += [*([""] if lines else []), *blame.lines_of(one)]
    return lines


def render(document: dict[str, Any], seen: Table, blames: bool, others: Others = blame.UNKNOWN) -> str:
    """The end of a recording: how much was seen; the slowest, or blame."""
    shown = blame_lines(seen, others) if blames else slowest_lines(seen, len(document["slowest"]))
    return "\n".join([*head_lines(document), "", *shown])
