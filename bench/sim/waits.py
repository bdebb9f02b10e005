"""What requests wait for, and where cores' time goes: clocks that go on while a cause lasts, read at a queue's ends.

A simulation that does not ask for the former has no `Waits`, and compiles to an event loop without these functions:
they are chosen by the type of what they would write to. Slowdowns are noted with them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

from .state import (
    ALL_TAKEN,
    FOR_CORES,
    FOR_DECISION,
    FOR_MOVE,
    HELD,
    IN_IOKERNEL,
    MOVED,
    N_SLOW,
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


def _wanted(s: Any) -> bool:
    """Whether the State of this type has Waits."""
    return not isinstance(s.types[s.fields.index("waits")], types.NoneType)


def enqueued(now: Any, a: Any, i: Any, arrived: Any, left: Any, c: Any, s: Any) -> None:
    """Note the clocks at which place i of the queue is taken, and what its request waited before on core c (-1: it is
    new, and `left` is its length)."""


@overload(enqueued, strict=False)
def _enqueued(now: Any, a: Any, i: Any, arrived: Any, left: Any, c: Any, s: Any) -> Any:
    def note(now: Any, a: Any, i: Any, arrived: Any, left: Any, c: Any, s: Any) -> None:
        d, w = now - s.world[SINCE], s.waits.queue[a, i]
        w[0] = s.app_n[a, 7] + (d if s.app_n[a, 4] else 0)
        w[1] = s.app_n[a, 8] + (0 if s.app_n[a, 4] or s.world[ALL_TAKEN] else d)
        if c < 0:
            w[2], w[3], w[4], w[5], w[6] = now - arrived, 0, 0, 0, left
        else:
            for i in range(5):
                w[2 + i] = s.waits.job[c, i]

    return note if _wanted(s) else lambda now, a, i, arrived, left, c, s: None


def dequeued(now: Any, a: Any, i: Any, queued: Any, c: Any, s: Any) -> None:
    """What the request of place i, which core c takes, has waited for."""


@overload(dequeued, strict=False)
def _dequeued(now: Any, a: Any, i: Any, queued: Any, c: Any, s: Any) -> Any:
    def note(now: Any, a: Any, i: Any, queued: Any, c: Any, s: Any) -> None:
        d, w = now - s.world[SINCE], s.waits.queue[a, i]
        move = s.app_n[a, 7] + (d if s.app_n[a, 4] else 0) - w[0]
        decision = s.app_n[a, 8] + (0 if s.app_n[a, 4] or s.world[ALL_TAKEN] else d) - w[1]
        job = s.waits.job[c]
        job[0], job[1], job[2] = w[2], w[3] + move, w[4] + decision
        job[3] = w[5] + now - queued - move - decision
        job[4] = w[6]

    return note if _wanted(s) else lambda now, a, i, queued, c, s: None


def started(now: Any, arrived: Any, length: Any, c: Any, s: Any) -> None:
    """A request that came at `arrived` has an idle core at once."""


@overload(started, strict=False)
def _started(now: Any, arrived: Any, length: Any, c: Any, s: Any) -> Any:
    def note(now: Any, arrived: Any, length: Any, c: Any, s: Any) -> None:
        job = s.waits.job[c]
        job[0], job[1], job[2], job[3], job[4] = now - arrived, 0, 0, 0, length

    return note if _wanted(s) else lambda now, arrived, length, c, s: None


def done(a: Any, c: Any, sojourn: Any, s: Any) -> None:
    """Count the slowdown of the request that core c is done with, and add it to the slow ones, if it is."""


@overload(done, strict=False)
def _done(a: Any, c: Any, sojourn: Any, s: Any) -> Any:
    def note(a: Any, c: Any, sojourn: Any, s: Any) -> None:
        job, slow = s.waits.job[c], s.waits.slow[a]
        slowdown: Any = np.int64(ONE * sojourn / max(job[4], s.settings[SHORTEST]) + 0.5)
        s.waits.slowdowns[a, bucket_of(max(slowdown, ONE))] += 1
        if sojourn <= s.settings[SLOW]:
            return
        slow[N_SLOW] += 1
        slow[IN_IOKERNEL] += job[0]
        slow[FOR_MOVE] += job[1]
        slow[FOR_DECISION] += job[2]
        slow[FOR_CORES] += job[3]
        slow[ON_CORE] += sojourn - job[0] - job[1] - job[2] - job[3]

    return note if _wanted(s) else lambda a, c, sojourn, s: None
