"""Latency against load, and the highest rate that keeps a limit of latency.

A sweep offers ascending rates until a load is not carried, or its tail is over the limit, twice in a row.

The search for a limit has noise in it: near the border a rate keeps the limit at one time and breaks it at the next. So
a load *keeps* it if the whole interval of its percentile is below the limit, *breaks* it if the whole interval is above
or the load was not carried, and else is *open*. The search halves between the highest rate that keeps and the lowest
that breaks; what is open is repeated, and the samples of both times are judged together. The answer is the highest rate
that keeps the limit, and the interval runs from there to the lowest rate above it that breaks it.

Both are generators that go on after each load, so that those of two servers can take turns (`in_turns`). One that is
not resumed was interrupted, and says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...runtime.errors import CorelaneError
from .measuring import Measured
from .trust import interval

Measure = Callable[[float], Measured]
Seen = Callable[[Measured], None]
UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
CLOSE = 1.05  # the search ends when both ends are so near
FAILURES = 2  # in a row end a sweep
OPEN_MOST = 3  # times that an open rate is offered
INTERRUPTED = "it was interrupted"


@dataclass(frozen=True)
class Limit:
    """A percentile and what it may be at most. q: 0..1."""

    q: float
    us: float

    @property
    def name(self) -> str:
        return f"p{100 * self.q:g}"

    def __str__(self) -> str:
        return f"{self.name} of {self.us:,.10g} us at most"

    def of(self, measured: Measured) -> float:
        """That percentile, us."""
        hist = measured.point.hist
        return hist.percentile(100 * self.q) / 1e3 if hist else math.nan

    def verdict(self, measured: Measured, repeats: list[Measured] | None = None) -> str:
        """keeps, breaks or open. repeats: earlier loads of the same rate, judged with it."""
        every = [*(repeats or []), measured]
        if not measured.carried or measured.point.hist is None:
            return "breaks"
        hist = measured.point.hist.snapshot()
        for other in every[:-1]:
            if other.point.hist is not None:
                hist.merge(other.point.hist)
        low, high = interval(hist, self.q, sum(m.seen.n for m in every))
        return "keeps" if high / 1e3 <= self.us else "breaks" if low / 1e3 > self.us else "open"


def parse_limit(text: str) -> Limit:
    """From "p99=100us". CorelaneError if it is no limit."""
    found = re.fullmatch(r"p(\d{1,5}(?:\.\d{1,4})?)\s*[=<]\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s)", text, re.ASCII)
    percent = float(re.sub(r"^99(9+)$", r"99.\1", found[1])) if found else 0.0  # p999: 99.9
    if not found or not 0 < percent < 100 or not float(found[2]):
        raise CorelaneError(f"{text!r} is no limit of latency", "", "write it as p99=100us or p99.9=2ms")
    return Limit(round(percent / 100, 8), float(found[2]) * UNITS_US[found[3]])


@dataclass
class Swept:
    """The loads of a sweep, ascending, and why there are no more."""

    points: list[Measured] = field(default_factory=list)
    stop: str = ""


def rates(low: float, high: float, count: int) -> list[float]:
    """`count` rates from low to high, each so many times the one before."""
    if count < 2 or low == high:
        return [high]
    return [low * (high / low) ** (i / (count - 1)) for i in range(count)]


def in_turns(loads: list[Iterator[Measured]]) -> None:
    """Take a load of each in turns, until all have ended or a load was interrupted."""
    while loads:
        for each in [*loads]:
            measured = next(each, None)
            if measured is None:
                loads.remove(each)
            elif measured.result.aborted:
                return


def sweep(measure: Measure, ladder: list[float], limit: Limit | None, seen: Seen, out: Swept) -> Iterator[Measured]:
    """Offer the rates of a ladder. Each load is appended to `out`, shown by `seen` and given as it is measured."""
    failed, first, out.stop = 0, "", INTERRUPTED
    for rate in ladder:
        measured = measure(rate)
        out.points.append(measured)
        seen(measured)
        yield measured
        why = measured.why_not()
        if not why and limit and limit.of(measured) > limit.us:
            why = f"{limit.name} is {limit.of(measured):.4g} us at {rate:,.0f} requests/s, over {limit.us:g} us"
        failed = failed + 1 if why else 0
        first = why if failed == 1 else first
        if failed == FAILURES:
            break
    out.stop = first if failed else f"the highest rate that was asked for, {ladder[-1]:,.0f} requests/s, was carried"


@dataclass
class Found:
    """The highest rate that keeps a limit, and the lowest above it that breaks it; 0 and inf if there is none."""

    limit: Limit
    keeps_rps: float = 0.0
    breaks_rps: float = math.inf
    points: list[Measured] = field(default_factory=list)
    why: str = ""

    def __str__(self) -> str:
        if not self.points:
            return f"nothing was tried for {self.limit}"
        if not self.keeps_rps:
            return f"no rate that was tried keeps {self.limit}{f' ({self.why})' if self.why else ''}"
        high = f"{self.breaks_rps:,.0f}" if math.isfinite(self.breaks_rps) else "not known"
        return (
            f"{self.limit}: kept up to {self.keeps_rps:,.0f} requests/s (95 % interval {self.keeps_rps:,.0f} .. {high})"
            f"{f'; {self.why}' if self.why else ''}"
        )


def search(
    measure: Measure, low: float, high: float, limit: Limit, tries: int, seen: Seen, found: Found
) -> Iterator[Measured]:
    """Search between two rates, ascending from the lower one until a rate breaks the limit, then halving. `found` is
    filled as it goes; each load is given."""
    rate, left = low, tries
    before: dict[float, list[Measured]] = {}
    opened: list[float] = []
    found.why = INTERRUPTED
    while left > 0:
        left -= 1
        measured = measure(rate)
        found.points.append(measured)
        seen(measured)
        yield measured
        verdict = limit.verdict(measured, before.get(rate))
        before.setdefault(rate, []).append(measured)
        if verdict == "open" and len(before[rate]) < OPEN_MOST:
            continue
        if verdict == "keeps":
            found.keeps_rps = max(found.keeps_rps, rate)
        elif verdict == "breaks":
            found.breaks_rps = min(found.breaks_rps, rate)
        else:
            opened.append(rate)
        step = next_rate(found.keeps_rps, found.breaks_rps, opened, low, high)
        if step is None:
            found.why = ""
            break
        rate = step
    else:
        found.why = f"{tries} loads did not come closer: give more --tries"
    if found.keeps_rps >= high and math.isinf(found.breaks_rps):
        found.why = "the highest rate that was asked for keeps it"
    if opened and not found.keeps_rps:
        found.why = f"of {len(opened)} rates the samples do not say whether they do: give more --seconds"


def next_rate(keeps: float, breaks: float, opened: list[float], low: float, high: float) -> float | None:
    """Where to look next; None: close enough. What stayed open lies on the border: beside it is looked, not at it."""
    if math.isinf(breaks):
        reached = max([keeps, *opened])
        return None if reached >= high else min(max(2 * reached, low), high)
    between = [rate for rate in opened if keeps < rate < breaks]
    if not keeps:
        bottom = min([breaks, *between])
        return None if bottom <= low / 64 else bottom / 2
    gaps = list(zip([keeps, *sorted(between)], [*sorted(between), breaks], strict=True))
    first, last = gaps[0], gaps[-1]
    if first[1] / first[0] > CLOSE:
        return (first[0] + first[1]) / 2
    if last[1] / last[0] > CLOSE and between:
        return (last[0] + last[1]) / 2
    return None
