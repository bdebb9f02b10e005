"""The most requests that any rule could have answered in time: one that knows beforehand when each comes, and what
batches take.

All requests have the same limit. So there is a best schedule whose batches are of requests that came one after the
other, in their order: in a batch, one that came later may take the place of one that came before it. The search goes
through the requests once. It keeps for each number of answers the earliest time at which the service is free again,
where no larger number is free as early. Who is free when the next request comes has no use for having been so before,
so few numbers are left: as many as a limit has room for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

State = list[tuple[int, float]]  # numbers of answers, ascending, and when the service is free, ns; it is by the first


def most_in_time(came_ns: Any, takes_us: Mapping[int, float], limit_us: float) -> int:
    """How many of these requests, ascending, can be answered within the limit by one that handles one batch after the
    other. takes_us: what batches of some sizes take; between two sizes a line. None is larger than the largest."""
    known = sorted(takes_us)
    takes = [0.0, *(1e3 * np.interp(range(1, known[-1] + 1), known, [takes_us[n] for n in known]))]
    came, limit = [float(at) for at in came_ns], 1e3 * limit_us
    states: deque[State] = deque([[(0, 0.0)]], maxlen=len(takes))  # the last one is of all requests before this one
    for j, now in enumerate(came):
        best = dict(states[-1])  # nobody handles this one
        for size in range(1, min(len(takes) - 1, j + 1) + 1):  # it is the last of a batch
            took, until = takes[size], came[j + 1 - size] + limit
            if now + took > until:
                continue
            for number, free in states[-size]:
                end = max(free, now) + took
                if end > until:
                    break
                best[number + size] = min(end, best.get(number + size, math.inf))
        states.append(_useful(best, now))
    return states[-1][-1][0]


def _useful(best: Mapping[int, float], now: float) -> State:
    """Those that are free earlier than any with more answers; of those that are free by now the one with most."""
    kept: State = []
    for number in sorted(best, reverse=True):
        if not kept or best[number] < kept[-1][1]:
            kept.append((number, best[number]))
            if best[number] <= now:
                break
    return kept[::-1]
