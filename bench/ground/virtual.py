"""How fast two hosts run on a virtual clock: an exchange over UDP at 10 000 requests a second, virtual over real time.

Both hosts are whole runtimes, with ARP, timers and uthreads; the link between them has a rate, a queue and a delay. All
run on one thread. A second arm adds losses and jitter, a third one asks nothing: then only timers let time pass.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ... import libos
from ...drivers.nic.link.link import ETHERNET_OVERHEAD_BYTES, Link, LinkNic
from ...drivers.nic.memory import memory_link
from ...runtime.clock import VirtualClock
from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.plot import Canvas
from ..harness.session import Session

RATE = 10_000
ROUNDS = 5
PORT = 9000
PROBE_S = 0.02  # virtual: ARP, first touch of buffers and stacks
IDLE_PERIOD_MS = 100.0

GOOD = Link(rate_bps=10e9, overhead_bytes=ETHERNET_OVERHEAD_BYTES, delay_us=20.0)
BAD = Link(rate_bps=10e9, overhead_bytes=ETHERNET_OVERHEAD_BYTES, delay_us=20.0, jitter_us=10.0, loss=0.01, burst=3.0)


@dataclass(frozen=True)
class Sample:
    """One slice. virtual_s, real_s: what it took by either clock."""

    virtual_s: float
    real_s: float
    sent: int
    answered: int

    @property
    def speed(self) -> float:
        """Virtual over real time."""
        return self.virtual_s / self.real_s


class Hosts:
    """A client and an echo server at the two ends of a link; `run` lets them go on for so long by their clock."""

    def __init__(self, stepper: libos.Stepper, exchange: Any) -> None:
        self._stepper = stepper
        self._exchange = exchange
        self.run(PROBE_S)

    def run(self, virtual_s: float) -> Sample:
        """Raises CorelaneError if a call failed or an answer was wrong."""
        before = (int(self._exchange.sent), int(self._exchange.answered))
        began = time.perf_counter()
        self._stepper.run(virtual_s)
        real_s = time.perf_counter() - began
        if self._exchange.error or self._exchange.wrong:
            why = f"error {self._exchange.error}, {self._exchange.wrong} wrong answers"
            raise CorelaneError(f"ground: virtual: the exchange went wrong: {why}")
        sent, answered = int(self._exchange.sent) - before[0], int(self._exchange.answered) - before[1]
        return Sample(virtual_s, real_s, sent, answered)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, link: Link, rate: int) -> Iterator[Hosts]:
        """rate: requests a second; 0: none are sent."""
        clock = VirtualClock()
        a, b = memory_link(clock=clock, ipv4=("10.77.0.1", "10.77.0.2"), ipv4_prefix=24)
        with (
            LinkNic(a, rx=link, tx=link) as near,
            b,
            libos.Runtime(nic=near) as client,
            libos.Runtime(nic=b) as server,
            libos.Stepper(clock) as stepper,
        ):
            server.bind(libos.c_handler(ffi.addressof(lib, "cl_echo"), port=PORT))
            exchange = ffi.new("struct cl_bench_exchange *", {"ipv4": 0x0A4D0002, "port": PORT})
            if rate:
                exchange.interval_ns = 1_000_000_000 // rate
                exchange.socket = ffi.cast("struct cl_udp_socket *", client.open_udp(0).address)
                for uthread in ("cl_bench_exchange_receive", "cl_bench_exchange_send"):
                    if lib.cl_runtime_spawn(client.ptr, ffi.addressof(lib, uthread), exchange):
                        raise CorelaneError("ground: virtual: no uthread could be started")
            else:
                server.bind(libos.every(ms=IDLE_PERIOD_MS, compiled=False)(lambda: None))
            stepper.add(client)
            stepper.add(server)
            yield cls(stepper, exchange)
            client.stop()  # before the uthreads' memory goes
            server.stop()


def _arm(hosts: Hosts, slice_s: float) -> Callable[[], Sample]:
    """A body for Session.interleave: about slice_s real seconds, by how fast the last slice was."""
    last = hosts.run(PROBE_S)

    def body() -> Sample:
        nonlocal last
        last = hosts.run(max(PROBE_S, slice_s * last.speed))
        return last

    return body


def measure(session: Session, seconds: float) -> None:
    """Interleave the arms for about `seconds`, on one core, and set ground.virtual_speed."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {session.cores[0]})
    try:
        _measure(session, seconds)
    finally:
        os.sched_setaffinity(0, before)


def _measure(session: Session, seconds: float) -> None:
    arms = {"exchange": (GOOD, RATE), "exchange, losses and jitter": (BAD, RATE), "idle": (GOOD, 0)}
    slice_s = seconds / (ROUNDS * (len(arms) + 1))
    with contextlib.ExitStack() as stack:
        bodies = {
            f"virtual clock, {name}": _arm(stack.enter_context(Hosts.opened(link, rate)), slice_s)
            for name, (link, rate) in arms.items()
        }
        samples = session.interleave(bodies, ROUNDS)
    for name, took in samples.items():
        sent, answered = sum(s.sent for s in took), sum(s.answered for s in took)
        row = session.arm(
            name,
            virtual_over_real=statistics.median(s.speed for s in took),
            virtual_over_real_min=min(s.speed for s in took),
            virtual_over_real_max=max(s.speed for s in took),
            virtual_s=sum(s.virtual_s for s in took),
            n=answered,
            unanswered=max(0, sent - answered),
        )
        if answered:
            row["ns_per_exchange"] = sum(s.real_s for s in took) / answered * 1e9
    exchange = samples["virtual clock, exchange"]
    lost = sum(s.sent - s.answered for s in exchange)
    speeds = [s.speed for s in exchange]
    if abs(lost) > ROUNDS:  # at the edges of a slice one may be under way
        session.figure("ground.virtual_speed", None, reason=f"{lost} of the requests stayed unanswered")
    else:
        session.figure("ground.virtual_speed", statistics.median(speeds), runs=speeds)
    session.note(
        "virtual clock: two runtimes and a link of 10 Gbit/s and 20 us each way, on one thread; requests of 8 bytes, "
        f"{RATE:,} in a virtual second; idle: a timer each {IDLE_PERIOD_MS:g} ms"
    )


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """Virtual over real time by arm."""
    rows = [row for row in document["arms"] if "virtual_over_real" in row]
    speeds = [row["virtual_over_real"] for row in rows]
    names = [row["name"].removeprefix("virtual clock, ") for row in rows]
    canvas.bars(names, speeds, ylabel="virtual over real time (x)", panel=panel, log=True)
