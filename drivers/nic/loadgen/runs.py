"""What a generator's run leaves, and what all generators have in common: their limits in C, the wait for a run's end,
the counts of a phase."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....runtime.errors import CorelaneError
from ....runtime.options import Group, option
from ....runtime.typed import typed_class
from ..._native import ffi, lib
from ..nic import mac_to_bytes

LOOK_S = 0.1  # at most so long between two looks at whether a run is over, so that an abort is noticed


@typed_class("make a phase of load")
@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of a run: `rate` requests a second (0: pause) for `seconds`; not measured: warm-up, only counted.

    series: measured phases of the same number share a histogram (Loadgen.series); 0: a phase has its own.
    """

    seconds: float
    rate: float
    measured: bool = True
    label: str = ""
    series: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Group):
    """What counts as late or lost, and when.

    outstanding: requests that may await an answer, a power of two; 0: 262144, or what `flows` permits. late_us: a
    request that is sent later than this after its time is counted as late. drain_s: how long answers are awaited after
    the last request. give_up_s: resolving, and preloading without progress, have failed after this.
    """

    outstanding: int = option(0, "requests that may await an answer", low=0, high=1 << 31)
    late_us: float = option(10.0, "time after which a request is late", low=0, high=1e9)
    drain_s: float = option(0.05, "time for the last answers", low=0, high=3600)
    give_up_s: float = option(5.0, "time for resolving and for progress of a preload", low=0, high=3600)


class Latency:
    """A histogram of latencies, infinite ones included. Copied out of the engine: it does not change any more."""

    def __init__(self, hist: Any) -> None:
        self._hist = ffi.gc(lib.cl_hist_new(lib.CL_HIST_DIGITS, lib.CL_HIST_LIMIT_NS), lib.cl_hist_delete)
        if hist != ffi.NULL:
            lib.cl_hist_merge(self._hist, hist)

    @property
    def ptr(self) -> Any:
        """`struct cl_hist *`, for merging elsewhere."""
        return self._hist

    @property
    def count(self) -> int:
        """Requests, infinite ones included."""
        return int(lib.cl_hist_count(self._hist))

    @property
    def infinite(self) -> int:
        """Requests that were not answered rightly."""
        return int(self._hist.infinite)

    @property
    def max_us(self) -> float:
        """Largest latency in us: inf if a request was not answered, nan if there was none."""
        if self.count == 0:
            return math.nan
        return math.inf if self.infinite else self._hist.max / 1000

    @property
    def mean_us(self) -> float:
        """Mean in us: inf if a request was not answered, nan if there was none."""
        if self.count == 0:
            return math.nan
        return math.inf if self.infinite else self._hist.sum / self.count / 1000

    def percentile_us(self, percent: float) -> float:
        """Latency in us that `percent` % of the requests did not exceed.

        inf if that request was not answered rightly, nan if there was no request.
        """
        if self.count == 0:
            return math.nan
        ns = int(lib.cl_hist_percentile(self._hist, percent))
        return math.inf if ns == lib.CL_HIST_INFINITE else ns / 1000

    def merge(self, other: Latency) -> None:
        """Add the other's values to this one."""
        lib.cl_hist_merge(self._hist, other._hist)


@dataclass(slots=True)
class Result:
    """What became of a phase, or of all measured phases of a run.

    offered = sent + dropped; sent = answered + unanswered (wrong and errors among them). Latencies count from the
    intended send time; a request without a right answer is infinite. span_s: the phase's duration, or the time to its
    last answer if that is longer. late: sent more than late_us after the intended time.
    """

    seconds: float
    offered_rps: float
    offered: int
    sent: int
    answered: int
    late: int
    dropped: int
    wrong: int
    errors: int
    hits: int
    misses: int
    stored: int
    late_max_us: float
    span_s: float
    latency: Latency
    open_loop: bool = True
    label: str = ""
    windows: list[Result] = field(default_factory=list)
    short: Latency | None = None  # with long requests: those of the others, and of the long ones
    long: Latency | None = None
    series: int = 0

    @property
    def unanswered(self) -> int:
        """Sent, and not answered rightly."""
        return self.sent - self.answered

    @property
    def achieved_rps(self) -> float:
        """Right answers a second."""
        return self.answered / self.span_s if self.span_s > 0 else 0.0

    def percentile_us(self, percent: float) -> float:
        """See Latency.percentile_us."""
        return self.latency.percentile_us(percent)

    def percentiles(self, percents: Sequence[float] = (50, 90, 99, 99.9)) -> dict[str, float]:
        """{"p50_us": ..., "p90_us": ..., "p99_us": ..., "p999_us": ...}."""
        return {f"p{str(p).replace('.', '')}_us": self.percentile_us(p) for p in percents}


def merged(parts: Iterable[Latency]) -> Latency:
    """All latencies in one."""
    out = Latency(ffi.NULL)
    for part in parts:
        out.merge(part)
    return out


def summed(parts: Sequence[Result]) -> Result:
    """One result for consecutive parts of a run."""
    # Parts of a series have the same histogram.
    apart = list({part.series or -i: part for i, part in enumerate(parts, 1)}.values())
    latency = merged(part.latency for part in apart)
    kinds = bool(parts) and parts[0].long is not None

    def total(name: str) -> int:
        return sum(int(getattr(part, name)) for part in parts)

    seconds = sum(part.seconds for part in parts)
    return Result(
        seconds,
        sum(part.offered_rps * part.seconds for part in parts) / seconds if seconds else 0.0,
        offered=total("offered"),
        sent=total("sent"),
        answered=total("answered"),
        late=total("late"),
        dropped=total("dropped"),
        wrong=total("wrong"),
        errors=total("errors"),
        hits=total("hits"),
        misses=total("misses"),
        stored=total("stored"),
        late_max_us=max((part.late_max_us for part in parts), default=0.0),
        # An earlier part's overtime lies within the later parts.
        span_s=max((sum(q.seconds for q in parts[:i]) + part.span_s for i, part in enumerate(parts)), default=0.0),
        latency=latency,
        open_loop=all(part.open_loop for part in parts),
        short=merged(part.short for part in apart if part.short) if kinds else None,
        long=merged(part.long for part in apart if part.long) if kinds else None,
    )


def set_common(c: Any, limits: Limits, mac: str | None, server_mac: str | None) -> None:
    """Fields that the configurations of all generators have."""
    times_s = (limits.late_us / 1e6, limits.drain_s, limits.give_up_s)
    c.late_ns, c.drain_ns, c.give_up_ns = (int(s * 1e9) for s in times_s)
    if mac is not None:
        ffi.memmove(c.mac, mac_to_bytes(mac), 6)
    if server_mac is not None:
        ffi.memmove(c.server_mac, mac_to_bytes(server_mac), 6)


def await_end(
    is_over: Callable[[], bool],
    runs: Callable[[], bool],
    abort: Callable[[], None],
    planned_s: float,
    timeout_s: float | None,
) -> None:
    """Wait for the end of a run of so many planned seconds. timeout_s: by default these and 30 s; when it is over the
    run is ended, and CorelaneError raised."""
    limit_s = planned_s + 30 if timeout_s is None else timeout_s
    end, done = time.monotonic() + limit_s, 0.0
    while not is_over():
        if time.monotonic() > end:
            abort()
            why = "is anybody polling its NIC or client?"
            raise CorelaneError(f"the load generator was not done after {limit_s:.1f} s; {why}")
        # Seldom before the phases are over: each look has one of the measured cores for some 40 us.
        if not done and runs():
            done = time.monotonic() + planned_s
        time.sleep(min(max(done - time.monotonic(), 0.001), LOOK_S))


def phase_result(phase: Phase, c: Any, span_s: float, latency: Latency, *, open_loop: bool) -> Result:
    """Of a phase, by its counts in C; a generator that does not count something has 0 of it."""

    def count(name: str) -> int:
        return int(getattr(c, name, 0))

    return Result(
        phase.seconds,
        phase.rate,
        offered=count("offered"),
        sent=count("sent"),
        answered=count("answered"),
        late=count("late"),
        dropped=count("dropped"),
        wrong=count("wrong"),
        errors=count("errors"),
        hits=count("hits"),
        misses=count("misses"),
        stored=count("stored"),
        late_max_us=c.late_max_ns / 1000,
        span_s=max(phase.seconds, span_s),
        latency=latency,
        open_loop=open_loop,
        label=phase.label,
    )
