"""The ratio of two arms' p99, each over all of its requests, and how well the turns know it.

Over all requests, since an attack that stops its victim for some milliseconds now and then is seen in few of many short
turns, and in all of the tail. What is resampled is turns, each with the turn beside it: requests of one turn wait for
the same neighbour and for the same pauses of the machine, so they say less than as many requests of their own would.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...runtime.hist import Hist

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLES, AT_ONCE = 6000, 1000
SEED = 28  # of what is drawn: the same turns give the same interval
Q = 0.99
STEPS = 50  # of the logarithm: latencies that differ by less than a fiftieth count as one


@dataclass(frozen=True)
class Pooled:
    """The ratio, and what it is of turns drawn from those that there were, ascending."""

    value: float
    samples: tuple[float, ...]

    def low(self, error: float) -> float:
        """The ratio lies below this with that probability at most."""
        return self.samples[int(error * len(self.samples))]

    def high(self, error: float) -> float:
        """The ratio lies above this with that probability at most."""
        return self.samples[len(self.samples) - 1 - int(error * len(self.samples))]


def pooled(above: Sequence[Hist], below: Sequence[Hist]) -> Pooled:
    """The p99 of all requests of `above` over that of `below`; turn i of one was beside turn i of the other. At least
    one turn. Unanswered requests are infinite, and so is a ratio of which they are the p99."""
    if len(above) != len(below) or not above:
        raise ValueError(f"turns need as many on both sides, at least one: {len(above)} and {len(below)}")
    rng, n = np.random.default_rng(SEED), len(above)
    arms = [_Counts(above), _Counts(below)]
    found: list[float] = []
    for _ in range(SAMPLES // AT_ONCE):
        drawn = rng.multinomial(n, [1 / n] * n, AT_ONCE).astype(float)
        top, bottom = (arm.p99(drawn) for arm in arms)
        found += _over(top, bottom)
    whole = np.ones((1, n))
    (value,) = _over(arms[0].p99(whole), arms[1].p99(whole))
    return Pooled(value, tuple(sorted(found)))


def _over(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> Iterable[float]:
    """Of each draw. Infinite if the top one is, whatever the other."""
    return [math.inf if math.isinf(a) else float(a / b) for a, b in zip(top, bottom, strict=True)]


class _Counts:
    """Requests of each turn by latency: rows are turns, columns are classes of latency, ascending, infinite last. What
    turns have together lies between their own values, so all that is below the least of these is one class."""

    def __init__(self, turns: Sequence[Hist]) -> None:
        least = min(hist.percentile(100 * Q) for hist in turns)
        each = [_classes(hist, least) for hist in turns]
        keys = sorted({key for one in each for key in one})
        at = {key: i for i, key in enumerate(keys)}
        self._counts = np.zeros((len(turns), len(keys)))
        for row, one in enumerate(each):
            for key, n in one.items():
                self._counts[row, at[key]] = n
        self._values = np.exp(np.array(keys) / STEPS)

    def p99(self, drawn: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of each row of `drawn`, which says how often each turn is there; nearest rank."""
        sums = np.cumsum(drawn @ self._counts, axis=1)
        most = sums[:, -1:]
        found: NDArray[np.float64] = self._values[np.argmax(sums >= np.ceil(Q * most), axis=1)]
        return found


def _classes(hist: Hist, least_ns: float) -> dict[float, int]:
    """As many requests by the logarithm of their latency."""
    found: dict[float, int] = {math.inf: hist.infinite} if hist.infinite else {}
    lowest = round(STEPS * math.log(max(least_ns, 1))) - 2 if math.isfinite(least_ns) else 0
    for low, high, n in hist.buckets():
        key = max(round(STEPS * math.log(max((low + high) / 2, 1))), lowest)
        found[key] = found.get(key, 0) + n
    return found
