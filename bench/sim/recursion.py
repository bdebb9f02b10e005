"""The waits of a first-in first-out queue by recursion, from the very draws that the simulator makes.

Kiefer and Wolfowitz ("On the theory of queues with many servers", 1955): an arrival starts on the server that is free
first. That needs no events, no cores and no policy, only a heap of the times at which servers become free. The mean of
these waits is, over all draws, the queue's theoretical mean; on the same draws as a simulation it has the same sampling
error. So it serves as a control variate: what the simulator differs from it by is the simulator's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .draws import draw
from .kept import kept


@kept()
def _sift(free: Any, value: Any) -> None:
    """Replace the smallest of the heap."""
    n, at = len(free), 0
    while True:
        child = 2 * at + 1
        if child >= n:
            break
        if child + 1 < n and free[child + 1] < free[child]:
            child += 1
        if free[child] >= value:
            break
        free[at] = free[child]
        at = child
    free[at] = value


@kept()
def sums(gap: Any, service: Any, rng: Any, servers: Any, skip: Any, count: Any) -> Any:
    """Of arrivals skip .. skip + count - 1: the waits, the gaps after them and the lengths, each summed, ns.

    gap, service: tables of distributions of one row; rng: that application's stream as it was at the start.
    """
    free = np.zeros(servers, np.int64)
    waits: Any = 0
    gaps: Any = 0
    lengths: Any = 0
    now: Any = 1 + np.int64(draw(gap, rng, 0) + 0.5)
    for i in range(skip + count):
        step = np.int64(draw(gap, rng, 0) + 0.5)
        length: Any = max(np.int64(draw(service, rng, 0) + 0.5), 1)
        start: Any = max(now, free[0])
        if i >= skip:
            waits += start - now
            gaps += step
            lengths += length
        _sift(free, start + length)
        now += step
    return waits, gaps, lengths
