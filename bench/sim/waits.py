"""What requests wait for, and where cores' time goes: clocks that go on while a cause lasts, read at a queue's ends.

A simulation that does not ask for the former does not note it: NOTES of its settings says so. (An event loop of its
own without these functions, chosen by a type, was up to 2 % faster, and took numba twenty seconds more to compile.)
Slowdowns are noted with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from .state import (
    ALL_TAKEN,
    FOR_CORES,
    FOR_DECISION,
    FOR_MOVE,
    HELD,
    IN_IOKERNEL,
    MOVED,
    N_SLOW,
    NOTES,
    ON_CORE,
    ONE,
    SHORTEST,
    SINCE,
    SLOW,
    WORK,
    bucket_of,
)


@njit(inline="always")
def account(now: Any, s: Any) -> None:
    """Bring the integrals of cores held, on their way and in batch work, and the clocks of waiting, up to now."""
    d = now - s.world[SINCE]
    if d:
        for a in range(len(s.app_n)):
            s.times[a, HELD] += s.app_n[a, 0] * d
            s.times[a, WORK] += s.app_n[a, 2] * d
            s.times[a, MOVED] += s.app_n[a, 4] * d
            if s.app_n[a, 4]:
                s.app_n[a, 7] += d
            elif not s.world[ALL_TAKEN]:
                s.app_n[a, 8] += d
        s.world[SINCE] = now


@njit
def enqueued(now: Any, a: Any, i: Any, arrived: Any, left: Any, c: Any, s: Any) -> None:
    """Note the clocks at which place i of the queue is taken, and what its request waited before on core c (-1: it is
    new, and `left` is its length)."""
    if s.settings[NOTES]:
        d, w = now - s.world[SINCE], s.waits.queue[a, i]
        w[0] = s.app_n[a, 7] + (d if s.app_n[a, 4] else 0)
        w[1] = s.app_n[a, 8] + (0 if s.app_n[a, 4] or s.world[ALL_TAKEN] else d)
        if c < 0:
            w[2], w[3], w[4], w[5], w[6] = now - arrived, 0, 0, 0, left
        else:
            for i in range(5):
                w[2 + i] = s.waits.job[c, i]


@njit
def dequeued(now: Any, a: Any, i: Any, queued: Any, c: Any, s: Any) -> None:
    """What the request of place i, which core c takes, has waited for."""
    if s.settings[NOTES]:
        d, w = now - s.world[SINCE], s.waits.queue[a, i]
        move = s.app_n[a, 7] + (d if s.app_n[a, 4] else 0) - w[0]
        decision = s.app_n[a, 8] + (0 if s.app_n[a, 4] or s.world[ALL_TAKEN] else d) - w[1]
        job = s.waits.job[c]
        job[0], job[1], job[2] = w[2], w[3] + move, w[4] + decision
        job[3] = w[5] + now - queued - move - decision
        job[4] = w[6]


@njit
def started(now: Any, arrived: Any, length: Any, c: Any, s: Any) -> None:
    """A request that came at `arrived` has an idle core at once."""
    if s.settings[NOTES]:
        job = s.waits.job[c]
        job[0], job[1], job[2], job[3], job[4] = now - arrived, 0, 0, 0, length


@njit
def done(a: Any, c: Any, sojourn: Any, s: Any) -> None:
    """Count the slowdown of the request that core c is done with, and add it to the slow ones, if it is."""
    if s.settings[NOTES]:
        job, slow = s.waits.job[c], s.waits.slow[a]
        slowdown: Any = np.int64(ONE * sojourn / max(job[4], s.settings[SHORTEST]) + 0.5)
        s.waits.slowdowns[a, bucket_of(max(slowdown, ONE))] += 1
        if sojourn > s.settings[SLOW]:
            slow[N_SLOW] += 1
            slow[IN_IOKERNEL] += job[0]
            slow[FOR_MOVE] += job[1]
            slow[FOR_DECISION] += job[2]
            slow[FOR_CORES] += job[3]
            slow[ON_CORE] += sojourn - job[0] - job[1] - job[2] - job[3]
