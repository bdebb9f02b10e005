"""corelane stat: what programs under `corelane run --posix` call, have open, and do not get.

Each keeps its counts in a memfd (libos/posix/counts.h), which is read through /proc: it needs to answer nothing, and
may hang. What is read is another process's word: it is bounded, and shown as text.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import Any

from ..libos._native import ffi, lib
from ..runtime.errors import CorelaneError
from ..runtime.memory_files import link_of, open_at, places
from ..runtime.printable import printable
from . import values

IMPORTS = ("..libos._native",)
_LINK = link_of("corelane-posix")  # CL_POSIX_COUNTS_NAME
MAGIC = int(lib.CL_POSIX_COUNTS_MAGIC)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pid", nargs="*", type=values.positive, metavar="PID", help="of these processes (default: all)")
    parser.add_argument("--json", action="store_true", help="print all counts as JSON")


def run(options: argparse.Namespace) -> int:
    """Print them; 1: there is none, or one of those that were asked for is none."""
    pids = options.pid or sorted(int(p.name) for p in Path("/proc").iterdir() if p.name.isdecimal())
    found = [counts for counts in map(read, pids) if counts is not None]
    if options.pid and len(found) < len(options.pid):
        missing = sorted(set(options.pid) - {c["pid"] for c in found})
        raise CorelaneError(
            f"read the counts of process {missing[0]}",
            "it is no program with sockets on the dataplane, or another user's",
            "start it by corelane run --posix, and ask as its user or as root",
        )
    if options.json:
        print(json.dumps({"programs": found}))
    elif not found:
        print("no program of yours runs under corelane run --posix, or none has a socket yet")
    else:
        print("\n\n".join(map(_shown, found)))
    return 0


def read(pid: int) -> dict[str, Any] | None:
    """The counts of a process. None: it has none, or they are not ours to see."""
    size = ffi.sizeof("struct cl_posix_counts")
    with contextlib.suppress(OSError):  # it has ended, or is not ours to look into
        for _, place in places(pid, _LINK):
            with open(open_at(place), "rb", buffering=0) as file:
                data = file.read(size)
            if len(data) < size:
                continue
            counts = ffi.from_buffer("struct cl_posix_counts *", data)
            if counts.magic == MAGIC and counts.pid == _inner_pid(pid):
                return {"pid": pid, "program": _name(pid), **_values(counts)}
    return None


def _inner_pid(pid: int) -> int:
    """Its number as it sees itself, in a namespace of its own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[-1]) for line in lines if line.startswith(b"NSpid:")), 0)


def _name(pid: int) -> str:
    try:
        return printable(Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n"))
    except OSError:
        return "?"


def _values(counts: Any) -> dict[str, Any]:
    calls: dict[str, dict[str, int | None]] = {}
    for i, name in enumerate(counts.names):
        text = printable(ffi.string(name, len(name)))
        sums = {what: sum(getattr(block[i], what) for block in counts.calls) for what in ("ours", "failed", "passed")}
        if text and any(sums.values()):
            calls[text] = {**sums, "passed": sums["passed"] if counts.traces else None}
    sockets = {
        kind: {
            "open": max(counts.made[k] - counts.gone[k], 0),
            "made": counts.made[k],
            "to_linux": counts.to_linux[k],
        }
        for k, kind in enumerate(("tcp", "udp"))
    }
    wheres = ("home", "away", "away_in_call")
    told = {where: sum(getattr(kthread, where) for kthread in counts.told) for where in wheres}
    told |= {"sent_home": counts.sent_home, "stolen": counts.stolen}
    refused = {printable(ffi.string(r.sentence, len(r.sentence))): r.times for r in counts.reasons if r.times}
    return {"sockets": sockets, "told": told, "calls": calls, "refused": refused}


def _shown(counts: dict[str, Any]) -> str:
    lines = [f"{counts['program']} ({counts['pid']})"]
    for kind, n in counts["sockets"].items():
        lines.append(f"  {kind} sockets: {n['open']} open, {n['made']} made, {n['to_linux']} turned out to be Linux'")
    told = counts["told"]
    if told["home"] + told["away"]:
        where = f"{told['home']} times at the kthread of who polls them, {told['away']} elsewhere"
        moved = f"{told['sent_home']} times handed over, {told['stolen']} times taken by a sibling"
        lines.append(f"  connections were told of: {where}; {moved}")
    lines.append(f"  {'call':16} {'ours':>12} {'failed':>12} {'passed on':>12}")
    for name, n in sorted(counts["calls"].items(), key=lambda item: -item[1]["ours"]):
        passed = "-" if n["passed"] is None else n["passed"]
        lines.append(f"  {name:16} {n['ours']:12} {n['failed']:12} {passed:>12}")
    lines += [f"  {times} x {sentence}" for sentence, times in counts["refused"].items()]
    return "\n".join(lines)
