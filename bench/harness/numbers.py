"""Percentiles and ratios, as DESIGN's measuring rules define them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PERCENTILES: tuple[tuple[str, float], ...] = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999))


def percentile(sorted_values: Sequence[float], q: float, unanswered: int = 0) -> float:
    """The smallest value that at least a fraction `q` of all requests did not exceed (nearest rank).

    sorted_values: latencies of the answered requests, ascending. unanswered: requests without an answer; they count as
    infinite. Returns inf when the rank falls among them, nan when there was no request at all.
    """
    total = len(sorted_values) + unanswered
    if total == 0:
        return math.nan
    rank = max(math.ceil(q * total), 1)
    return sorted_values[rank - 1] if rank <= len(sorted_values) else math.inf


@dataclass(frozen=True)
class Ratio:
    """Ratios of two interleaved arms, pair by pair."""

    pairs: tuple[float, ...]

    @property
    def min(self) -> float:
        return min(self.pairs)

    @property
    def median(self) -> float:
        return statistics.median(self.pairs)

    @property
    def max(self) -> float:
        return max(self.pairs)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.min:.3g} .. {self.max:.3g})"

    @property
    def spread(self) -> str:
        """The median, what half of the pairs lie within, and how many they are: extremes of many say little."""
        if len(self.pairs) < 2:
            return f"{self.median:.3g} (one pair)"
        low, _, high = statistics.quantiles(self.pairs, n=4, method="inclusive")
        return f"{self.median:.3g} (half of {len(self.pairs)} pairs within {low:.3g} .. {high:.3g})"


def pairwise(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """above[i] / below[i] for every round i of an interleaved run. Both have one value a round, at least one."""
    if len(above) != len(below) or not above:
        raise ValueError(f"pairs need as many values on both sides, at least one: {len(above)} and {len(below)}")
    return Ratio(tuple(a / b if b else math.inf for a, b in zip(above, below, strict=True)))


def median_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float] | None:
    """Two of the values between which the median of what they are drawn from lies with this probability, whatever its
    distribution: the k-th from either end, with the largest k that a binomial of one half allows. None: too few."""
    each, n = sorted(values), len(values)
    outside, k = 0.0, 0  # the probability that at most k of n lie below the median
    while (outside := outside + math.comb(n, k) / 2**n) <= (1 - confidence) / 2:
        k += 1
    return (each[k - 1], each[n - k]) if k else None


def plain(value: float | None) -> float | str | None:
    """A number as JSON can hold it: inf becomes the string "inf", nan becomes None."""
    if value is None or math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value


def plain_all(value: Any) -> Any:
    """`plain` for every float within dicts, lists and tuples."""
    if isinstance(value, float):
        return plain(value)
    if isinstance(value, dict):
        return {k: plain_all(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain_all(v) for v in value]
    return value


def number(value: object) -> float:
    """The reverse of `plain`."""
    if value is None:
        return math.nan
    if isinstance(value, int | float | str):
        return float(value)
    raise TypeError(f"not a number: {value!r}")
