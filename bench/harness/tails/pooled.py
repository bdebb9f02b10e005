"""The ratio of the p99 of all requests of two arms, and how well it is known.

Requests of a slot are no samples of their own: a gap delays all that come in it. So what is drawn again are pairs of
slots, each with all of its requests (the bootstrap of clusters: Davison and Hinkley, Bootstrap Methods and their
Application, chapter 3.8). n - 1 of n pairs are drawn each time, which widens the interval of a few pairs to what it
should be (Rao and Wu, JASA 83, 1988).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ....runtime.hist import Hist

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

QUANTILE = 0.99
DRAWS = 4000
LEAST_PAIRS = 8  # fewer say nothing of how they differ
SEED = 20261130


@dataclass(frozen=True)
class Pooled:
    """p99 of either arm in us, over `pairs` slots of each; and the ratios of what was drawn again, ascending. A ratio
    over an infinite p99 is not known: it is not among them."""

    above_us: float
    below_us: float
    pairs: int
    drawn: tuple[float, ...]

    @property
    def value(self) -> float:
        """nan: it is not known."""
        return _ratio(self.above_us, self.below_us)

    def low(self, error: float) -> float:
        """The ratio lies below this with about that probability at most; 0 if the pairs are too few to say."""
        return self._drawn(int(error * DRAWS), 0.0)

    def high(self, error: float) -> float:
        """The ratio lies above this with about that probability at most; infinite if the pairs are too few to say."""
        return self._drawn(len(self.drawn) - 1 - int(error * DRAWS), math.inf)

    def _drawn(self, place: int, unknown: float) -> float:
        return self.drawn[place] if len(self.drawn) == DRAWS and self.pairs >= LEAST_PAIRS else unknown


def pooled(above: Sequence[Hist], below: Sequence[Hist]) -> Pooled:
    """Of the latencies in ns of the slots of two arms, above[i] paired with below[i]; at least one of each."""
    if len(above) != len(below) or not above:
        raise ValueError(f"slots need as many on both sides, at least one: {len(above)} and {len(below)}")
    import numpy

    n = len(above)
    rng = numpy.random.default_rng(SEED)
    drawn: list[float] = []
    sides = [_Side(above), _Side(below)]
    if n >= LEAST_PAIRS:
        times = rng.multinomial(n - 1, [1 / n] * n, size=DRAWS).astype(float)
        drawn = [_ratio(*both) for both in zip(*(side.p99_us(times) for side in sides), strict=True)]
    first, second = (side.p99_us(numpy.ones((1, n)))[0] for side in sides)
    return Pooled(first, second, n, tuple(sorted(ratio for ratio in drawn if not math.isnan(ratio))))


class _Side:
    """Slots of an arm, a column each: how many requests took at most how long. The last row is of all, with those that
    were not answered."""

    def __init__(self, hists: Sequence[Hist]) -> None:
        import numpy

        found = [{high: n for _, high, n in hist.buckets()} for hist in hists]
        self.upto_ns = sorted(set().union(*found))
        counts = [[one.get(ns, 0) for one in found] for ns in self.upto_ns]
        self.sums = numpy.cumsum([*counts, [hist.infinite for hist in hists]], axis=0, dtype=float)

    def p99_us(self, times: Array) -> list[float]:
        """Of each row of `times`, which says how often each slot is counted; all rows at once, by bisection."""
        import numpy

        rank = numpy.ceil(QUANTILE * (times @ self.sums[-1]) - 1e-6)
        low, high = numpy.zeros(len(times), int), numpy.full(len(times), len(self.sums) - 1)
        while (low < high).any():
            middle = (low + high) // 2
            enough = (times * self.sums[middle]).sum(axis=1) >= rank
            low, high = numpy.where(enough, low, numpy.minimum(middle + 1, high)), numpy.where(enough, middle, high)
        return [self.upto_ns[at] / 1e3 if at < len(self.upto_ns) else math.inf for at in low]


def _ratio(above: float, below: float) -> float:
    return math.nan if math.isinf(below) else above / below
