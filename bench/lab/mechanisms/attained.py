"""Attained service: the level of a job by what it has held, and the Gittins index when its distribution is known."""

from __future__ import annotations

import math
from typing import Any

from .tool import tool

BUCKETS = 40  # of a histogram of service, two for each doubling, from FIRST_NS on
FIRST_NS = 1000.0


@tool
def level(attained_ns: Any, first_ns: Any, ratio: Any, levels: Any) -> Any:
    """Of 0 to levels - 1: how many of the limits first, first * ratio, ... a job has gone beyond."""
    at, limit = 0, first_ns
    while at + 1 < levels and attained_ns >= limit:
        at += 1
        limit *= ratio
    return at


@tool
def bucket(ns: Any) -> Any:
    """Of a histogram."""
    if ns <= FIRST_NS:
        return 0
    return min(int(2.0 * math.log(ns / FIRST_NS) / 0.6931471805599453) + 1, BUCKETS - 1)


@tool
def upper(i: Any) -> Any:
    """End of bucket i, ns."""
    return FIRST_NS * math.exp(0.34657359027997264 * i)


@tool
def gittins(memory: Any, base: Any, attained_ns: Any) -> Any:
    """The Gittins index of a job that has attained so much, by the histogram of BUCKETS words at `base`: the largest
    chance per ns of further service that it ends within some further service. 0: none like it was longer."""
    start = bucket(attained_ns)
    left = 0.0
    for i in range(start, BUCKETS):
        left += memory[base + i]
    if left <= 0.0:
        return 0.0
    best, done, spent = 0.0, 0.0, 0.0
    before, end = attained_ns, upper(start)
    for i in range(start, BUCKETS):
        step = max(end - before, 1.0)
        spent += step * (left - done - 0.5 * memory[base + i])  # who ends in a bucket ends in its middle
        done += memory[base + i]
        before = end
        end *= 1.4142135623730951  # as upper(i + 1), in a tenth of the time: a policy asks for each job at each event
        if spent > 0.0:
            best = max(best, done / spent)
    return best
