"""corelane trace last: what was kept on disk where a limit of latency was broken, by the views of live requests."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...libos.trace import faults, kept
from ...libos.trace.kept import Head
from ...libos.trace.profile import Sampled
from ...libos.trace.stages import table
from ...libos.trace.symbols import Symbols
from ...runtime import paths
from ...runtime.errors import CorelaneError
from ..usage import WrongUsage
from ..watch import columns
from . import timeline
from .output import Output
from .profiling import told
from .requests import first_of
from .views import blame_lines, document_of, head_lines, slowest_lines


def run(options: argparse.Namespace) -> int:
    """Explain one, or list all."""
    if options.kept[:1] != ["last"] or len(options.kept) > 2:
        raise WrongUsage(f"trace {' '.join(options.kept)}".strip(), "", "corelane trace last [NAME], or --list with it")
    if options.app is not None or options.pid is not None:
        raise WrongUsage("trace last", "it is of a file", "leave --app and --pid out")
    folder = options.folder or paths.traces()
    if options.list:
        return _list(folder, options.json)
    return _explain(options, chosen(folder, options.kept[1] if len(options.kept) > 1 else None))


def chosen(folder: Path, name: str | None) -> Path:
    """The file of a name, or a part of it that is its alone; None: the last one. CorelaneError: there is none."""
    if name is not None and "/" in name:
        return Path(name)
    there = kept.names(folder)
    found = [one for one in there if name is None or name in one]
    exact = [one for one in found if name in (one, Path(one).stem)]
    if exact or (found and name is None) or len(found) == 1:
        return folder / (exact or found)[-1]
    if found:
        raise CorelaneError(f"explain {name}", f"{len(found)} traces are called so", "corelane trace last --list")
    if there:
        raise CorelaneError(f"explain {name}", f"there is no such trace in {folder}", "corelane trace last --list")
    why = f"none is kept in {folder}: no limit was broken, or nobody set one"
    raise CorelaneError("explain the last trace", why, "corelane run ... --slo p99=50us sets one")


def _list(folder: Path, as_json: bool) -> int:
    rows, documents = [["NAME", "WHEN", "APPLICATION", "WHAT"]], []
    for name in kept.names(folder):
        try:
            head = kept.head_of(folder / name)
        except CorelaneError as error:
            rows.append([Path(name).stem, "-", "-", error.why])
            documents.append({"name": name, "error": error.why})
            continue
        rows.append([Path(name).stem, head.when, head.name, str(head.broken)])
        documents.append({"name": name} | _facts(head))
    if as_json:
        print(json.dumps({"folder": str(folder), "kept": documents}))
    else:
        print("\n".join(columns(rows, left=4)) if len(rows) > 1 else f"nothing is kept in {folder}")
    return 0


def _facts(head: Head) -> dict[str, Any]:
    broken = head.broken
    of = {"slo": broken.limit, "service": broken.service, "us": round(broken.us, 3), "n": broken.n, "over": broken.over}
    return {"at": head.at, "app": head.name, "pid": head.pid, "broken": of, "more": head.more}


def _explain(options: argparse.Namespace, path: Path) -> int:
    out = Output(options.out) if options.out is not None else None
    failed = None
    try:
        head, records = kept.load(path)
        seen = table(records, head.services, head.hz, faults.cost_us())
        document = {"file": str(path)} | _facts(head) | document_of(head, records, seen, options.slowest)
        profile: list[str] = []
        ran = kept.ran(path)
        if ran is None and options.flame is not None:
            raise CorelaneError(f"draw {options.flame}", "where its kthreads were was not sampled", "leave --flame out")
        if ran is not None:
            sampled = Sampled(ran.samples, ran.hz, lambda stamp: stamp, Symbols(ran.mapped).name_of)
            about, profile = told(seen, sampled, f"Slow requests of {path.stem}", options.flame)
            document |= about
        if out is not None:
            failed = out.write(timeline.events(records, head.services, head.hz, first_of(records)))
            document |= {"out": str(options.out)} if failed is None else {}
        if options.json:
            print(json.dumps(document))
        else:
            slowest = [] if options.blame else [*slowest_lines(seen, options.slowest), ""]
            lines = [*_told(head, time.time()), *head_lines(document), "", *slowest, *blame_lines(seen)]
            print("\n".join([*lines, *([""] if profile else []), *profile]))
    finally:
        if out is not None:
            out.close()
    if failed is not None:
        raise failed
    return 0


def _told(head: Head, now: float) -> Sequence[str]:
    """What was broken, and when."""
    lines = [str(head.broken), f"{head.when} ({_ago(now - head.at)})"]
    if head.more:
        lines.append(f"limits were broken {head.more:,} times more since the trace before, of which nothing is kept")
    return lines


def _ago(seconds: float) -> str:
    for unit, scale in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.0f} {unit} ago"
    return f"{max(seconds, 0):.0f} s ago"
