"""Randomness of the simulator: xoshiro256++ (Blackman and Vigna, 2019), a stream an application, and distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

# Kinds of distribution of service and of gaps between arrivals, by the columns of `dist`: kind, mean, second, share.
CONSTANT, EXPONENTIAL, BIMODAL, LOGNORMAL, NEVER = 0, 1, 2, 3, 4


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
    # Log-normal by its mean and the sigma of the logarithm (Box and Muller).
    normal = math.sqrt(-2.0 * math.log(uniform(rng, a))) * math.cos(2.0 * math.pi * uniform(rng, a))
    return dist[a, 1] * math.exp(dist[a, 2] * normal - 0.5 * dist[a, 2] * dist[a, 2])
