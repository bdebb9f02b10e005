"""Randomness of the simulator: xoshiro256++ (Blackman and Vigna, 2019), a stream an application, and distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from .kept import kept

# Kinds of distribution of service and of gaps between arrivals, by the columns of `dist`: kind, mean, second, share.
# SHIFTING is of gaps alone, see `next_arrival`, as is GIVEN, whose requests are recorded. What the columns hold of the
# others: `draw`.
CONSTANT, EXPONENTIAL, BIMODAL, LOGNORMAL, NEVER, SHIFTING, TRIMODAL, PARETO, GIVEN = 0, 1, 2, 3, 4, 5, 6, 7, 8


@njit(inline="always")
def _rotl(x: Any, k: Any) -> Any:
    return (x << np.uint64(k)) | (x >> np.uint64(64 - k))


@njit
def uniform(rng: Any, a: Any) -> Any:
    """A float64 in (0, 1] from stream `a`."""
    s = rng[a]
    out = _rotl(s[0] + s[3], 23) + s[0]
    t = s[1] << np.uint64(17)
    s[2] ^= s[0]
    s[3] ^= s[1]
    s[1] ^= s[2]
    s[0] ^= s[3]
    s[2] ^= t
    s[3] = _rotl(s[3], 45)
    return (np.float64(out >> np.uint64(11)) + 1.0) * (1.0 / 9007199254740992.0)


@njit(inline="always")
def draw(dist: Any, rng: Any, a: Any) -> Any:
    """One value in ns (float64) from row `a` of a table of distributions."""
    kind = dist[a, 0]
    if kind == EXPONENTIAL:
        return -math.log(uniform(rng, a)) * dist[a, 1]
    if kind == CONSTANT:
        return dist[a, 1]
    if kind == BIMODAL:
        return dist[a, 2] if uniform(rng, a) <= dist[a, 3] else dist[a, 1]
    if kind == TRIMODAL:  # three values, equally likely
        at: Any = min(np.int64(3.0 * uniform(rng, a)), 2)
        return dist[a, 1 + at]
    if kind == PARETO:  # from a least to a greatest value, and the exponent: by inversion
        below: Any = (dist[a, 1] / dist[a, 2]) ** dist[a, 3]
        return dist[a, 1] * (1.0 - uniform(rng, a) * (1.0 - below)) ** (-1.0 / dist[a, 3])
    # Log-normal by its mean and the sigma of the logarithm (Box and Muller).
    normal = math.sqrt(-2.0 * math.log(uniform(rng, a))) * math.cos(2.0 * math.pi * uniform(rng, a))
    return dist[a, 1] * math.exp(dist[a, 2] * normal - 0.5 * dist[a, 2] * dist[a, 2])


@kept(inline="always")
def next_arrival(now: Any, gap: Any, phase: Any, rng: Any, a: Any) -> Any:
    """When the application's next request comes, ns."""
    if gap[a, 0] == SHIFTING:
        return _shifting(now, gap, phase, rng, a)
    return now + np.int64(draw(gap, rng, a) + 0.5)


@njit
def _shifting(now: Any, gap: Any, phase: Any, rng: Any, a: Any) -> Any:
    """Of a Poisson process whose rate is in turns 1 + second and 1 - second times that of the mean gap; turns are
    exponential, of a mean in the column of the share. Columns of `phase`: sign of this turn (0: none began), its end.
    """
    at, left = np.float64(now), -math.log(uniform(rng, a))  # of a process of rate 1
    while True:
        rate = (1.0 + phase[a, 0] * gap[a, 2]) / gap[a, 1]
        if phase[a, 0] and left < (phase[a, 1] - at) * rate:
            return np.int64(at + left / rate + 0.5)
        if phase[a, 0]:
            left -= (phase[a, 1] - at) * rate
            at = phase[a, 1]
        phase[a, 0] = -1.0 if phase[a, 0] > 0 else 1.0
        phase[a, 1] = at - math.log(uniform(rng, a)) * gap[a, 3]
