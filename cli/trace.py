"""corelane trace: every move of a core for a while, from the iokernel's logs, as a table and as a file for Perfetto."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..runtime.errors import CorelaneError
from . import values
from .traced import Recording, events, summary
from .watch import columns, policy_line, snapshot

LOOK_S = 0.05  # a log has some hundreds of ms of the most that cores move
MOST = 2_000_000  # entries of a recording: some hundred MB
FAULTS_SHOWN = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--socket", metavar="PATH", help="the iokernel's socket (default: the user's own, or root's)")
    parser.add_argument(
        "--seconds", type=values.seconds, default=1.0, metavar="S", help="for so long, or until Ctrl-C (default 1)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE.json", help="write every move for ui.perfetto.dev or chrome://tracing"
    )
    parser.add_argument(
        "--wait", type=values.seconds, default=0, metavar="S", help="wait so long for the iokernel to come up"
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")


def run(options: argparse.Namespace) -> int:
    """Record, then say what was seen."""
    from ..runtime.paths import default_socket

    path = options.socket or default_socket()
    if options.out is not None and not options.out.parent.is_dir():
        raise CorelaneError(f"write {options.out}", f"there is no directory {options.out.parent}", "make it first")
    before = snapshot(path, options.wait)
    if before["cores"] is None:
        hint = "start the iokernel with a policy: corelane up --policy delay"
        raise CorelaneError("trace the moves of cores", policy_line(before).partition(":")[0], hint)
    recording = _record(path, [a["loop"] for a in before["cores"]["allocators"]], options.seconds)
    document = {"socket": path, "policy": before["cores"]["policy"]["name"]} | summary(recording)
    if options.out is not None:
        _write(options.out, recording)
        document["out"] = str(options.out)
    print(json.dumps(document) if options.json else render(document), flush=True)
    return 0


def _write(out: Path, recording: Recording) -> None:
    try:
        with out.open("w") as file:
            file.write('{"displayTimeUnit": "ns", "traceEvents": [\n')
            for i, event in enumerate(events(recording)):
                file.write((",\n" if i else "") + json.dumps(event))
            file.write("\n]}\n")
    except OSError as error:
        raise CorelaneError(f"write {out}", str(error.strerror), "give --out a file that can be written") from error


class _Log:
    """One loop's log, from the moment of construction on."""

    def __init__(self, path: str, loop: int) -> None:
        from ..runtime._native import ffi, lib
        from ..runtime.errors import check

        self._ffi, self._lib, self._check, self._path = ffi, lib, check, path
        self._err = ffi.new("char[256]")
        self._fd = check(lib.cl_control_connect(path.encode(), 1000, self._err), f"connect to {path}", self._err)
        self._ask = ffi.new("struct cl_control_moves *", {"loop": loop, "next": lib.CL_CONTROL_FROM_NOW})
        self._said = ffi.new("struct cl_control_moves_ok *")
        self._entries = ffi.new("char **")
        self.lost = 0
        self.read()
        self.begin_tsc, self.hz = int(self._said.tsc), int(self._said.hz)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._lib.cl_control_close(self._fd)

    @property
    def tsc(self) -> int:
        """Stamp of the last answer."""
        return int(self._said.tsc)

    def read(self) -> bytes:
        """The entries since the last call."""
        rc = self._lib.cl_control_moves(self._fd, self._ask, self._said, self._entries, 2000, self._err)
        self._check(rc, f"read the log of moves of the iokernel on {self._path}", self._err)
        entries = bytes(self._ffi.buffer(self._entries[0], self._said.n * self._said.entry_bytes))
        self._lib.cl_control_free(self._entries[0])
        self._ask.next = self._said.next
        self.lost += int(self._said.lost)
        return entries


def _record(path: str, loops: list[int], seconds: float) -> Recording:
    """All that the loops log for so long, until Ctrl-C, or until MOST entries."""
    import contextlib

    from ..iokernel.moves import entries

    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(_Log(path, loop)) for loop in loops]
        recording = Recording(logs[0].begin_tsc, logs[0].begin_tsc, logs[0].hz)
        _learn_names(path, recording)
        end, told = time.monotonic() + seconds, time.monotonic()
        try:
            while (left := end - time.monotonic()) > 0 and len(recording.moves) < MOST:
                time.sleep(min(left, LOOK_S))
                for log in logs:
                    recording.moves += entries(log.read())
                if time.monotonic() - told >= 1:
                    told = time.monotonic()
                    _learn_names(path, recording)
                    so_far = seconds - max(end - told, 0)
                    print(f"traced {so_far:.0f} of {seconds:g} s: {len(recording.moves):,} entries", file=sys.stderr)
        except KeyboardInterrupt:
            print("interrupted: what was seen until now", file=sys.stderr)
        if len(recording.moves) >= MOST:
            print(f"ended after {len(recording.moves):,} entries, which is as many as are kept", file=sys.stderr)
        recording.end_tsc = max(log.tsc for log in logs)
        recording.lost = sum(log.lost for log in logs)
        _learn_names(path, recording)
    return recording


def _learn_names(path: str, recording: Recording) -> None:
    """Of the kthreads of all who are attached. One that has left keeps its name until its slot is another's."""
    for app in snapshot(path)["apps"]:
        if app["cores"] is not None:
            recording.names |= {app["slot"] + 1 + k: f"{app['name']}.{k}" for k in range(app["kthreads"])}


# Rendering: the summary in, text out.


def render(document: Mapping[str, Any]) -> str:
    """Moves by step and by pair, who had the cores, what went wrong."""
    head = (
        f"traced {document['seconds']:.3g} s of the iokernel on {document['socket']}, policy {document['policy']}: "
        f"{document['moves']:,} moves and wake-ups, {document['entries']:,} entries of its log"
    )
    lines = [head]
    if document["lost"]:
        lines.append(
            f"{document['lost']:,} entries were written over before they could be read: what follows is of the rest"
        )
    if not document["moves"]:
        lines.append("no core moved, and no parked kthread was woken: nothing ran, or nobody wanted another core")
    else:
        lines += ["", *_steps(document), "", *_pairs(document), "", *_cores(document)]
    lines += _faults(document)
    if "out" in document:
        lines += ["", f"wrote {document['out']}: open it in ui.perfetto.dev or chrome://tracing"]
    return "\n".join(lines)


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _steps(document: Mapping[str, Any]) -> list[str]:
    rows = [["STEP", "MOVES", "P50 us", "P90", "P99", "MAX"]]
    marks = ("p50_us", "p90_us", "p99_us", "max_us")
    for step, times in document["steps"].items():
        if times["moves"]:
            rows.append([step, f"{times['moves']:,}", *(_us(times[mark]) for mark in marks)])
    lines = ["from the decision to the new owner's first instruction:", *columns(rows)]
    if document["steps"]["ask"]["moves"]:
        rows = [["PART OF AN ASK", "P50 us", "P90", "P99", "MAX"]]
        for part, times in document["ask_parts"].items():
            rows.append([part, *(_us(times[mark]) for mark in marks)])
        lines += ["", *columns(rows)]
    return lines


def _pairs(document: Mapping[str, Any]) -> list[str]:
    rows = [["FROM", "TO", "MOVES/s"]]
    rows += [[p["from"], p["to"], f"{p['moves'] / document['seconds']:,.0f}"] for p in document["pairs"]]
    return columns(rows, left=2)


def _cores(document: Mapping[str, Any]) -> list[str]:
    rows = [["CORE", "OWNER", "TIME%"]]
    for core in document["cores"]:
        for owner, share in core["owners"].items():
            rows.append([str(core["cpu"]), owner, f"{100 * share:.1f}"])
    return columns(rows, left=2)


def _faults(document: Mapping[str, Any]) -> list[str]:
    faults = document["faults"]
    if not faults:
        return []
    shown = faults[-FAULTS_SHOWN:]
    which = "" if len(shown) == len(faults) else f", the last {len(shown)} of {len(faults):,}"
    return ["", f"what went wrong{which}:", *(f"  {f['at_s']:.6f} s  CPU {f['cpu']}: {f['text']}" for f in shown)]
