"""Arms of unknown cost, by Thompson sampling with a normal posterior. An arm is three words: how often it was tried,
the mean of its costs, and the sum of their squared deviations."""

from __future__ import annotations

import math
from typing import Any

from ..acts import random
from .tool import tool

WORDS = 3


@tool
def _is_pruned(memory: Any, base: Any, a: Any, row: Any) -> Any:
    """Whether an arm that was not tried need not be: an arm before it in its row was not either, or the last one cost
    more than the one before."""
    at, place = base + WORDS * a, a % row
    if place >= 1 and memory[at - WORDS] == 0.0:
        return True
    return place >= 2 and memory[at - WORDS + 1] > memory[at - 2 * WORDS + 1]


@tool
def choose(view: Any, memory: Any, base: Any, arms: Any, row: Any) -> Any:
    """An arm: each untried one first, from the first on; then that with the least cost as drawn from what is known.
    row: of so many arms, one after the other, the cost falls and then rises, so those beyond its rise are left out."""
    for a in range(arms):
        if memory[base + WORDS * a] == 0.0 and not _is_pruned(memory, base, a, row):
            return a
    best, least = 0, 1e300
    for a in range(arms):
        at = base + WORDS * a
        tried, mean = memory[at], memory[at + 1]
        if tried == 0.0:
            continue
        spread = math.sqrt(memory[at + 2] / (tried - 1.0)) if tried > 1.0 else 0.5 * mean
        normal = math.sqrt(-2.0 * math.log(1.0 - random(view))) * math.cos(6.283185307179586 * random(view))
        drawn = mean + max(spread, 0.05 * mean) / math.sqrt(tried) * normal
        if drawn < least:
            best, least = a, drawn
    return best


@tool
def learn(memory: Any, base: Any, arm: Any, cost: Any) -> None:
    """An arm cost that much."""
    at = base + WORDS * arm
    memory[at] += 1.0
    off = cost - memory[at + 1]
    memory[at + 1] += off / memory[at]
    memory[at + 2] += off * (cost - memory[at + 1])
