"""The ratio of the p99 of all requests of two arms, that of their middle slots, and how well each is known.

Requests of a turn are no samples of their own: a gap delays all that come in it. So what is drawn again are pairs of
turns, each with all of its requests (the bootstrap of clusters: Davison and Hinkley, Bootstrap Methods and their
Application, chapter 3.8). n - 1 of n pairs are drawn each time, which widens the interval of a few pairs to what it
should be (Rao and Wu, JASA 83, 1988).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ....runtime.hist import Hist

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

QUANTILE = 0.99
DRAWS = 4000
LEAST_TURNS = 8  # fewer say nothing of how they differ
SEED = 20261130


@dataclass(frozen=True)
class Pooled:
    """p99 of either arm in us, or that of its middle slot, over so many `turns` of the arm that has fewer; and the
    ratios of what was drawn again, ascending. A ratio over an infinite p99 is not known: it is not among them."""

    above_us: float
    below_us: float
    turns: int
    drawn: tuple[float, ...]

    @property
    def value(self) -> float:
        """nan: it is not known."""
        return _ratio(self.above_us, self.below_us)

    def low(self, error: float) -> float:
        """The ratio lies below this with about that probability at most; 0 if the turns are too few to say."""
        return self._drawn(int(error * DRAWS), 0.0)

    def high(self, error: float) -> float:
        """The ratio lies above this with about that probability at most; infinite if the turns are too few to say."""
        return self._drawn(len(self.drawn) - 1 - int(error * DRAWS), math.inf)

    def _drawn(self, place: int, unknown: float) -> float:
        return self.drawn[place] if len(self.drawn) == DRAWS and self.turns >= LEAST_TURNS else unknown


def pooled(above: Sequence[Hist | None], below: Sequence[Hist | None]) -> Pooled:
    """Of the latencies in ns of the turns of two arms, above[i] paired with below[i]. None: of a turn nothing counts.
    Of each arm something does."""
    if len(above) != len(below) or not any(above) or not any(below):
        raise ValueError(f"turns need as many on both sides, one that counts: {len(above)} and {len(below)}")
    turns = min(sum(hist is not None for hist in side) for side in (above, below))
    return _drawn(len(above), turns, [_Side(above), _Side(below)])


def middles(above: Sequence[Sequence[float]], below: Sequence[Sequence[float]]) -> Pooled:
    """Of the p99s in us of the slots of each turn that count. Of each arm there is one."""
    if len(above) != len(below) or not any(above) or not any(below):
        raise ValueError(f"turns need as many on both sides, one that counts: {len(above)} and {len(below)}")
    turns = min(sum(bool(turn) for turn in side) for side in (above, below))
    return _drawn(len(above), turns, [_Slots(above), _Slots(below)])


def more_often(some: int, of: int, others: int, of_others: int) -> float:
    """How likely chance alone gives one arm that many of its turns or more, and the other so few, if both have them as
    often: Fisher's exact test (Statistical Methods for Research Workers, section 21.02)."""
    both, all_of = some + others, of + of_others
    likely = sum(math.comb(of, k) * math.comb(of_others, both - k) for k in range(some, min(both, of) + 1))
    return likely / math.comb(all_of, both)


class _Arm(Protocol):
    def p99_us(self, times: Array) -> list[float]: ...


def _drawn(n: int, turns: int, sides: Sequence[_Arm]) -> Pooled:
    """Of two arms with n turns, of `turns` of which something counts."""
    import numpy

    drawn: list[float] = []
    if turns >= LEAST_TURNS:
        times = numpy.random.default_rng(SEED).multinomial(n - 1, [1 / n] * n, size=DRAWS).astype(float)
        drawn = [_ratio(*both) for both in zip(*(side.p99_us(times) for side in sides), strict=True)]
    first, second = (side.p99_us(numpy.ones((1, n)))[0] for side in sides)
    return Pooled(first, second, turns, tuple(sorted(ratio for ratio in drawn if not math.isnan(ratio))))


class _Slots:
    """Slots of an arm by their p99, and the turn of each."""

    def __init__(self, turns: Sequence[Sequence[float]]) -> None:
        ordered = sorted((p99_us, i) for i, turn in enumerate(turns) for p99_us in turn)
        self._p99s_us, self._turns = [p99_us for p99_us, _ in ordered], [i for _, i in ordered]

    def p99_us(self, times: Array) -> list[float]:
        """Of the slot in the middle, for each row of `times`, which says how often each turn counts. nan: none does."""
        import numpy

        sums = numpy.cumsum(times[:, self._turns], axis=1)
        place = (sums < sums[:, -1:] / 2).sum(axis=1)
        found = numpy.array(self._p99s_us, float)[numpy.minimum(place, len(self._p99s_us) - 1)]
        found[sums[:, -1] <= 0] = math.nan
        return [float(value) for value in found]


class _Side:
    """Turns of an arm, a column each: how many requests took at most how long. The last row is of all, with those that
    were not answered."""

    def __init__(self, hists: Sequence[Hist | None]) -> None:
        import numpy

        found = [{high: n for _, high, n in hist.buckets()} if hist else {} for hist in hists]
        self.upto_ns = sorted(set().union(*found))
        counts = numpy.zeros((len(self.upto_ns) + 1, len(found)))
        for i, (hist, one) in enumerate(zip(hists, found, strict=True)):
            counts[numpy.searchsorted(self.upto_ns, list(one)), i] = list(one.values())
            counts[-1, i] = hist.infinite if hist else 0
        self.sums = numpy.cumsum(counts, axis=0)

    def p99_us(self, times: Array) -> list[float]:
        """Of each row of `times`, which says how often each turn is counted; all rows at once, by bisection. nan: none
        is."""
        import numpy

        rank = numpy.ceil(QUANTILE * (times @ self.sums[-1]) - 1e-6)
        low, high = numpy.zeros(len(times), int), numpy.full(len(times), len(self.sums) - 1)
        while (low < high).any():
            middle = (low + high) // 2
            enough = (times * self.sums[middle]).sum(axis=1) >= rank
            low, high = numpy.where(enough, low, numpy.minimum(middle + 1, high)), numpy.where(enough, middle, high)
        p99_us = numpy.append(numpy.array(self.upto_ns) / 1e3, math.inf)[low]
        p99_us[rank <= 0] = math.nan
        return [float(value) for value in p99_us]


def _ratio(above: float, below: float) -> float:
    return math.nan if math.isinf(below) else above / below
