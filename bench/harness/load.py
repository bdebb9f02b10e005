"""Open-loop load from the loadgen driver, as points of a curve.

The generator runs in a thread of its own (a client thread, or the loop whose NIC it is). `Load.measure` has it offer
one rate for a while and turns what became of it into a Point.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from ...drivers.nic.loadgen.runs import Result
from ...runtime.errors import CorelaneError
from ...runtime.hist import Hist
from .openloop import Point
from .stops import Counts, Watch

WARM_FRACTION = 0.15
WARM_MOST_S = 0.3
ACCEPT_S = 100e-6  # a connection, for a server on kernel sockets to take it and answer it once, with a margin
BEGINS_S = 30.0  # within which the server is found, and given its items
LIGHT_FRACTION, LIGHT_LEAST_RPS = 0.02, 1000.0  # of what is explained: hardly any work, and no time to fall asleep


def point_of(result: Result, busy_s: float = float("nan")) -> Point:
    """A measured phase, or several, as a Point."""
    hist = Hist.view(result.latency.ptr, result.latency).snapshot()
    point = Point(
        result.offered_rps,
        result.achieved_rps,
        result.sent,
        result.answered,
        result.late,
        result.dropped,
        busy_core_s=busy_s,
        seconds=result.seconds,
        hist=hist,
    )
    point.set_percentiles(hist)
    point.window_p99_us = tuple(window.percentile_us(99) for window in result.windows)
    if result.wrong or result.errors:
        point.extra |= {"wrong": result.wrong, "errors": result.errors}
    if result.hits or result.misses or result.stored:
        point.extra |= {"hits": result.hits, "misses": result.misses, "stored": result.stored}
    return point


class Generator(Protocol):
    """What offers a load: Loadgen, TcpLoad."""

    def begin(self, rate: float, seconds: float, warmup_s: float, windows: int) -> None: ...

    def begins_s(self) -> float | None: ...

    def wait(self) -> None: ...

    def result(self) -> Result: ...


def await_begin(generator: Generator) -> float:
    """When what is measured begins or began, as time.monotonic(). CorelaneError: it does not."""
    deadline = time.monotonic() + BEGINS_S
    while (begins_s := generator.begins_s()) is None:
        if time.monotonic() > deadline:
            generator.wait()  # says why, if it has failed
            raise CorelaneError(f"the load did not begin within {BEGINS_S:.0f} s")
        time.sleep(0.001)
    return begins_s


class Load:
    """Measures points with one generator. One caller at a time.

    busy_s: CPU seconds that the server's cores have used so far, if the benchmark can say. counts: reads the server's
    counters, for `explain`.
    """

    def __init__(
        self,
        generator: Generator,
        busy_s: Callable[[], float] | None = None,
        counts: Callable[[], Counts] | None = None,
    ) -> None:
        self.generator = generator
        self.busy_s = busy_s
        self.counts = counts

    def measure(
        self,
        rate_rps: float,
        seconds: float,
        window_s: float | None = None,
        meanwhile: AbstractContextManager[object] | None = None,
        accepted_s: float = 0.0,
    ) -> Point:
        """Offer `rate_rps` for `seconds`, the warm-up included. CorelaneError if the generator failed.

        window_s: keep the p99 of windows of about this length, too. meanwhile: around the time of the load, without
        what is made ready before it and computed after it. accepted_s: a longer warm-up, by so much: connections are
        open before their server has taken them. `meanwhile` is what is measured then.
        """
        warm_s = min(WARM_FRACTION * seconds, WARM_MOST_S) + accepted_s
        seconds += accepted_s
        windows = max(1, round((seconds - warm_s) / window_s)) if window_s else 1
        before = self.busy_s() if self.busy_s else 0.0
        self.generator.begin(rate_rps, seconds - warm_s, warm_s, windows)
        if accepted_s:
            time.sleep(max(await_begin(self.generator) - time.monotonic(), 0.0))
        with meanwhile or nullcontext():
            self.generator.wait()
        result = self.generator.result()
        # The warm-up's CPU time is taken out by its share of the time.
        busy = (self.busy_s() - before) * (1 - warm_s / seconds) if self.busy_s else float("nan")
        return point_of(result, busy)

    def explain(self, rate_rps: float, seconds: float) -> Point:
        """As `measure`, with what the server's counters gained as evidence. Reading them takes a measured core.

        A light load comes first, of the same length, if the server counts its looks: it tells what one takes that
        finds nothing.
        """
        light = Watch(self.counts, seconds)
        if self.counts and self.counts().looks:
            self.measure(max(LIGHT_FRACTION * rate_rps, LIGHT_LEAST_RPS), seconds, meanwhile=light)
        watch = Watch(self.counts, seconds, light.idle)
        point = self.measure(rate_rps, seconds, meanwhile=watch)
        point.evidence = watch.evidence
        return point
