"""The ratio of two arms' p99, of turns in pairs, and how well the pairs know it.

A turn's p99 is of thousands of requests. But a pause of the machine of some milliseconds may be all of it, and such
pauses come in some turns of either arm. So it is not one ratio of all requests, in which a few pauses decide, but the
middle of the ratios of neighbouring turns: the Hodges-Lehmann estimate, with the interval of Wilcoxon's signed-rank
test of their logarithms (Hollander and Wolfe, Nonparametric Statistical Methods, chapter 3). The test asks that a
pair is as likely to be off to one side as to the other, which holds where two arms differ by a factor and in nothing
else.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Paired:
    """The ratio, and the means of any two pairs' logarithms (and of one with itself), ascending."""

    means: tuple[float, ...]
    pairs: int

    @property
    def value(self) -> float:
        return math.exp(statistics.median(self.means))

    def low(self, error: float) -> float:
        """The ratio lies below this with that probability at most; 0 if the pairs are too few to say."""
        k = left_out(self.pairs, error)
        return math.exp(self.means[k - 1]) if k else 0.0

    def high(self, error: float) -> float:
        """The ratio lies above this with that probability at most; infinite if the pairs are too few to say."""
        k = left_out(self.pairs, error)
        return math.exp(self.means[-k]) if k else math.inf


def paired(above: Sequence[float], below: Sequence[float]) -> Paired:
    """Of above[i] over below[i]; at least one. An infinite value above makes an infinite ratio; those below are
    finite."""
    if len(above) != len(below) or not above:
        raise ValueError(f"turns need as many on both sides, at least one: {len(above)} and {len(below)}")
    logs = [math.inf if math.isinf(a) else math.log(a / b) for a, b in zip(above, below, strict=True)]
    means = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
    return Paired(tuple(means), len(logs))


@lru_cache
def left_out(pairs: int, error: float) -> int:
    """How many of the means lie beyond an end of the interval, and the end itself: the largest k for which the rank sum
    is below k with no more than this probability."""
    ways, k, below = _ways(pairs), 0, 0
    while k < len(ways) and (below := below + ways[k]) <= error * 2**pairs:
        k += 1
    return k


@lru_cache
def _ways(pairs: int) -> tuple[int, ...]:
    """In how many ways some of the ranks 1 to `pairs` have each sum."""
    ways = [1]
    for rank in range(1, pairs + 1):
        longer = [*ways, *[0] * rank]
        for total, n in enumerate(ways):
            longer[total + rank] += n
        ways = longer
    return tuple(ways)
