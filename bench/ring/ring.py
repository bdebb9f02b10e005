"""What it takes to bring a message from one core to another: our rings against a mutex queue and a pipe.

Streaming counts messages a second, in bursts of 32 and one at a time; the round trip is one message there and one back
with nothing else under way, given in ns and as a multiple of the cache-line round trip measured in the same round. The
rings and the pipe are polled; the mutex queue sleeps on condition variables, as such queues do.
"""

from __future__ import annotations

import errno
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness import machine
from ..harness.plot import Canvas
from ..harness.session import Session

SUMMARY = "descriptor ring and memory NIC across two cores; mutex queue and pipe in the same run"
FIGURES = ()

ROUNDS = 5
PROBE_S = 0.02
BURST = 32

CARRIERS = {
    "ring": lib.CL_BENCH_CARRIER_RING,
    "memory NIC": lib.CL_BENCH_CARRIER_NIC,
    "mutex + condvar": lib.CL_BENCH_CARRIER_MUTEX,
    "pipe": lib.CL_BENCH_CARRIER_PIPE,
}
OURS = ("ring", "memory NIC")
SHAPES = {f"stream, bursts of {BURST}": BURST, "stream, one at a time": 1, "round trip": 0}


@dataclass(frozen=True)
class Sample:
    """One slice of one arm. ns: a message, or a round trip."""

    ns: float
    operations: int


def take(carrier: str, burst: int, cores: tuple[int, int], n: int, limit_s: float) -> Sample:
    """Send n messages in bursts, or make n round trips (burst 0), for limit_s at most, or longer on a busy machine.

    Raises CorelaneError if the threads cannot be started, do not run, or a message is lost or torn.
    """
    out, err = ffi.new("struct cl_bench_ring_result *"), ffi.new("char[256]")
    for seconds in machine.longer(limit_s):
        rc = lib.cl_bench_ring(CARRIERS[carrier], *cores, n, burst, int(seconds * 1e9), out, err)
        if rc != -errno.ETIMEDOUT:
            break
    if rc:
        raise CorelaneError(f"ring: {carrier}: {ffi.string(err).decode()}")
    return Sample(out.ns / out.operations, int(out.operations))


def _arm(carrier: str, burst: int, cores: tuple[int, int], slice_s: float) -> Callable[[], Sample]:
    """A body for Session.interleave: about slice_s seconds, by what the last slice took an operation."""
    last = take(carrier, burst, cores, 1 << 40, PROBE_S)

    def body() -> Sample:
        nonlocal last
        last = take(carrier, burst, cores, max(1000, int(slice_s * 1e9 / max(last.ns, 0.5))), 3 * slice_s)
        return last

    return body


def run(session: Session) -> None:
    """Interleave all carriers and shapes for about session.seconds in all."""
    cores = session.two_cores
    carriers = [name for name in CARRIERS if session.baseline or name in OURS]
    slice_s = session.seconds / (ROUNDS * (len(carriers) * len(SHAPES) + 1))
    arms: dict[str, Callable[[], Any]] = {
        f"{carrier}, {shape}": _arm(carrier, burst, cores, slice_s)
        for shape, burst in SHAPES.items()
        for carrier in carriers
    }
    arms["cache line"] = lambda: statistics.median(machine.cacheline_roundtrip_ns(*cores, seconds=slice_s))
    samples = session.interleave(arms, ROUNDS)
    lines: list[float] = samples.pop("cache line")
    for shape, burst in SHAPES.items():
        for carrier in carriers:
            took: list[Sample] = samples[f"{carrier}, {shape}"]
            row = session.arm(
                f"{carrier}, {shape}",
                ns=statistics.median(s.ns for s in took),
                ns_min=min(s.ns for s in took),
                ns_max=max(s.ns for s in took),
                n=sum(s.operations for s in took),
            )
            if burst:
                row["messages_per_s"] = 1e9 / row["ns"]
            else:
                row["over_cacheline"] = statistics.median(s.ns / line for s, line in zip(took, lines, strict=True))
    session.arm(
        "cache line, round trip", ns=statistics.median(lines), ns_min=min(lines), ns_max=max(lines), n=len(lines)
    )
    session.settings["message"] = (
        "16 bytes from one core to another (the memory NIC: a 64-byte frame); or there and back"
    )
    session.settings["slots"] = lib.CL_BENCH_RING_SLOTS
    session.note("a message of the memory NIC is a buffer taken, filled, sent, received, read and freed")


def plot(document: dict[str, Any]) -> Canvas:
    """Every row on a logarithmic axis."""
    rows = document["arms"]
    canvas = Canvas(
        "ring: a message from core to core", message=document["settings"]["message"], n=sum(row["n"] for row in rows)
    )
    canvas.bars(
        [row["name"] for row in rows],
        [row["ns"] for row in rows],
        ylabel="time of a message or round trip (ns)",
        colours=[[*CARRIERS, "cache line"].index(row["name"].partition(",")[0]) for row in rows],
        log=True,
    )
    canvas.caption(f"Median of {ROUNDS} interleaved rounds. Closed loops on two pinned cores; no load is left out.")
    return canvas
