"""Arms of unknown cost, by Thompson sampling with a normal posterior. An arm is three words: how often it was tried,
the mean of its costs, and the sum of their squared deviations."""

from __future__ import annotations

import math
from typing import Any

from ..acts import random
from .tool import tool

WORDS = 3


@tool
def choose(view: Any, memory: Any, base: Any, arms: Any) -> Any:
    """An arm: each untried one first, from the first on; then that with the least cost as drawn from what is known."""
    for a in range(arms):
        if memory[base + WORDS * a] == 0.0:
            return a
    best, least = 0, 1e300
    for a in range(arms):
        at = base + WORDS * a
        tried, mean = memory[at], memory[at + 1]
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
