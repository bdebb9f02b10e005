"""When requests come: a Poisson process of a steady rate, or of one that jumps between two (a Markov-modulated one), as
the requests of people do whom something brings at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BURST_SHARE, BURST_TIMES, BURST_S = 0.2, 4.0, 0.01  # of time in bursts; the rate in them over that between; one's mean


@dataclass(frozen=True)
class Load:
    """rate: requests a second on average. bursty: whether it jumps."""

    rate: float
    bursty: bool = False

    def at_ns(self, seconds: float, seed: int) -> Any:
        """When each request is due, ascending, uint64; at least one."""
        draw = np.random.default_rng(seed)
        if not self.bursty:
            return _poisson(draw, self.rate, 0.0, seconds)
        quiet = self.rate / (1 - BURST_SHARE + BURST_SHARE * BURST_TIMES)
        parts, at, burst = [], 0.0, bool(draw.random() < BURST_SHARE)
        while at < seconds:
            mean_s = BURST_S if burst else BURST_S * (1 - BURST_SHARE) / BURST_SHARE
            end = min(at + draw.exponential(mean_s), seconds)
            parts.append(_poisson(draw, quiet * (BURST_TIMES if burst else 1), at, end))
            at, burst = end, not burst
        return np.concatenate(parts)


def _poisson(draw: Any, rate: float, begin: float, end: float) -> Any:
    n = draw.poisson(rate * (end - begin))
    at = np.sort(draw.uniform(begin, end, max(n, 1 if begin == 0 else n)))
    return np.maximum(at * 1e9, 1).astype(np.uint64)
