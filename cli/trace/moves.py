"""corelane trace, without an application: every move of a core for a while, from the iokernel's logs, as a table and
as a file for Perfetto."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from ...runtime.errors import CorelaneError
from ..watch import columns, snapshot
from .output import Output
from .recording import Recording, events, summary

LOOK_S = 0.05  # a log has some hundreds of ms of the most that cores move
MOST = 500_000  # entries of a recording: some 400 MB
FAULTS_SHOWN = 20
NAMES_S = 0.2  # who came and went in between has no name


def run(options: argparse.Namespace) -> int:
    """Record, then say what was seen."""
    from ...runtime.paths import default_socket

    out = Output(options.out) if options.out is not None else None
    try:
        before = snapshot(options.socket, options.wait)
        path = options.socket or default_socket()
        if before["cores"] is None:
            hint = "start the iokernel with a policy: corelane up --policy delay"
            raise CorelaneError("trace the moves of cores", "cores stay where they were given out", hint)
        recording = record(path, [a["loop"] for a in before["cores"]["allocators"]], options.seconds)
        policy = before["cores"]["policy"]
        decides = "delay" if policy["ejected"] else policy["name"]
        document = {"socket": path, "policy": decides, "ended": recording.ended} | summary(recording)
        failed = None
        if out is not None:
            failed = out.write(events(recording))
            document |= {"out": str(options.out)} if failed is None else {}
        print(json.dumps(document) if options.json else render(document), flush=True)
    finally:
        if out is not None:
            out.close()
    if failed is not None:
        raise failed
    if recording.ended:
        raise CorelaneError(f"the iokernel on {path} has ended", hint="corelane up starts one")
    return 0


class _Log:
    """One loop's log, from the moment of construction on."""

    def __init__(self, path: str, loop: int) -> None:
        from ...runtime._native import ffi, lib
        from ...runtime.errors import check

        self._ffi, self._lib, self._check, self._path = ffi, lib, check, path
        self._err = ffi.new("char[256]")
        self._fd = check(lib.cl_control_connect(os.fsencode(path), 1000, self._err), f"connect to {path}", self._err)
        self._ask = ffi.new("struct cl_control_moves *", {"loop": loop, "next": lib.CL_CONTROL_FROM_NOW})
        self._said = ffi.new("struct cl_control_moves_ok *")
        self._entries = ffi.new("char **")
        self.lost = 0  # of the last answer
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
        from ...iokernel.control.moves import ENTRY_BYTES

        rc = self._lib.cl_control_moves(self._fd, self._ask, self._said, self._entries, 2000, self._err)
        self._check(rc, f"read the log of moves of the iokernel on {self._path}", self._err)
        if self._said.entry_bytes != ENTRY_BYTES:
            self._lib.cl_control_free(self._entries[0])
            why = f"its entries have {self._said.entry_bytes} bytes: it is of another version"
            raise CorelaneError(f"read the log of moves of the iokernel on {self._path}", why, "start it anew")
        entries = bytes(self._ffi.buffer(self._entries[0], self._said.n * self._said.entry_bytes))
        self._lib.cl_control_free(self._entries[0])
        self._ask.next = self._said.next
        self.lost = int(self._said.lost)
        return entries


def record(path: str, loops: list[int], seconds: float) -> Recording:
    """All that the loops log for so long, until Ctrl-C, until MOST entries, or until the iokernel ends."""
    with contextlib.ExitStack() as stack:
        logs = [stack.enter_context(_Log(path, loop)) for loop in loops]
        recording = Recording(logs[0].begin_tsc, logs[0].begin_tsc, logs[0].hz)
        try:
            _learn_names(path, recording, logs[0].begin_tsc)
            _follow(path, recording, logs, seconds)
        except KeyboardInterrupt:
            print("interrupted: what was seen until now", file=sys.stderr)
            _read(recording, logs)
        except CorelaneError:
            if _is_there(path):
                raise
            recording.ended = True
        if len(recording.moves) >= MOST:
            print(f"ended after {len(recording.moves):,} entries, which is as many as are kept", file=sys.stderr)
    return recording


class Beside:
    """The moves of cores, recorded beside something else. Without an iokernel that moves cores, none."""

    def __init__(self, path: str | None) -> None:
        from ...runtime.paths import default_socket

        self._stack, self._path = contextlib.ExitStack(), path or default_socket()
        self._logs: list[_Log] = []
        self.recording: Recording | None = None
        try:
            cores = snapshot(self._path)["cores"]
            loops = [a["loop"] for a in cores["allocators"]] if cores is not None else []
            self._logs = [self._stack.enter_context(_Log(self._path, loop)) for loop in loops]
        except CorelaneError:
            return
        if self._logs:
            first = self._logs[0]
            self.recording = Recording(first.begin_tsc, first.begin_tsc, first.hz)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._stack.close()

    def read(self) -> None:
        """What was logged since the last time. Once the iokernel has ended, or MOST entries are there, nothing."""
        if self.recording is None or self.recording.ended or len(self.recording.moves) >= MOST:
            return
        try:
            _read(self.recording, self._logs)
        except CorelaneError:
            self.recording.ended = True

    def end(self) -> None:
        """Read the rest, and learn whose the kthreads are."""
        self.read()
        if self.recording is not None and not self.recording.ended:
            with contextlib.suppress(CorelaneError):
                _learn_names(self._path, self.recording, self.recording.begin_tsc)


def _follow(path: str, recording: Recording, logs: Sequence[_Log], seconds: float) -> None:
    begun = told = named = time.monotonic()
    while (left := begun + seconds - time.monotonic()) > 0 and len(recording.moves) < MOST:
        time.sleep(min(left, LOOK_S))
        _read(recording, logs)
        now = time.monotonic()
        if now - named >= NAMES_S:
            named = now
            _learn_names(path, recording, logs[-1].tsc)
        if now - told >= 1:
            told = now
            print(f"traced {now - begun:.0f} of {seconds:g} s: {len(recording.moves):,} entries", file=sys.stderr)
    _learn_names(path, recording, logs[-1].tsc)


def _read(recording: Recording, logs: Sequence[_Log]) -> None:
    from ...iokernel.control.moves import entries

    for log in logs:
        recording.add(entries(log.read()), log.lost)
        recording.end_tsc = max(recording.end_tsc, log.tsc)


def _learn_names(path: str, recording: Recording, now_tsc: int) -> None:
    """Of the kthreads of all who are attached, about now. Who has left keeps its name, until its slot is another's."""
    for app in snapshot(path)["apps"]:
        if app["cores"] is not None:
            since = now_tsc - round(app["age_s"] * recording.hz)
            for k in range(app["kthreads"]):
                recording.learn(app["slot"] + 1 + k, since, f"{app['name']}.{k}")


def _is_there(path: str) -> bool:
    try:
        snapshot(path)
    except CorelaneError:
        return False
    return True


# Rendering: the summary in, text out.


def render(document: Mapping[str, Any]) -> str:
    """Moves by step and by pair, who had the cores, what went wrong."""
    head = (
        f"traced {document['seconds']:.3g} s of the iokernel on {document['socket']}, policy {document['policy']}: "
        f"{_many(document['moves'], 'move or wake-up', 'moves and wake-ups')}, "
        f"{_many(document['entries'], 'entry', 'entries')} of its log"
    )
    lines = [head]
    if document["lost"]:
        lines.append(
            f"{_many(document['lost'], 'entry was', 'entries were')} written over before they could be read: what "
            "follows is of the rest, and nobody's is the time of the gaps"
        )
    if not document["moves"]:
        lines.append("no core moved, and no parked kthread was woken: nothing ran, or nobody wanted another core")
    else:
        lines += ["", *_steps(document), "", *_pairs(document), "", *_cores(document)]
    lines += _faults(document)
    if "out" in document:
        lines += ["", f"wrote {document['out']}: open it in ui.perfetto.dev or chrome://tracing"]
    return "\n".join(lines)


def _many(n: int, one: str, more: str) -> str:
    return f"{n:,} {one if n == 1 else more}"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _steps(document: Mapping[str, Any]) -> list[str]:
    rows = [["STEP", "MOVES", "P50 us", "P90", "P99", "MAX"]]
    marks = ("p50_us", "p90_us", "p99_us", "max_us")
    for step, times in document["steps"].items():
        if times["moves"]:
            rows.append([step, f"{times['moves']:,}", *(_us(times[mark]) for mark in marks)])
    lines = ["from the decision to the new owner's first instruction:", *columns(rows)]
    if any(times["p50_us"] is not None for times in document["ask_parts"].values()):
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
    n = sum(document["faults_by_kind"].values())
    if not n:
        return []
    shown = document["faults"][-FAULTS_SHOWN:]
    which = "" if len(shown) == n else f", the last {len(shown)} of {n:,}"
    return ["", f"what went wrong{which}:", *(f"  {f['at_s']:.6f} s  CPU {f['cpu']}: {f['text']}" for f in shown)]
