"""What code costs, in estimated instructions, and what is worth a probe: the estimates that fuel is counted by.

They are rough: they know nothing of caches. refill.py corrects, while the code runs, how long an amount of them
takes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

FEW = 512  # loops that cost less than this altogether are not looked at
CHEAP_TURN = 24  # where two instructions more a turn would show
CALLED = re.compile(r'\bcall\b[^@\n]*@("[^"]*"|[-\w.$]+)\(')

_COSTS = (
    (re.compile(r"\b(phi|bitcast|getelementptr|freeze|inttoptr|ptrtoint|trunc)\b"), 0),
    (re.compile(r"= (sdiv|udiv|srem|urem) "), 12),
    (re.compile(r"= (fdiv|frem) |@llvm\.sqrt"), 8),
    (re.compile(r"call [^@]*@llvm\.(lifetime|assume|dbg|experimental\.noalias)"), 0),
    (re.compile(r"call [^@]*@llvm\.mem(cpy|set|move)"), 40),
    (re.compile(r"call [^@]*@llvm\."), 2),
    (re.compile(r"(\bcall\b|@llvm\.masked\.gather)"), 30),
)


def cost(lines: Iterable[str], inner: dict[str, int]) -> int:
    """Of straight code. inner: costs of functions that have no probes of their own, by name."""
    total = 0
    for line in lines:
        called = CALLED.search(line)
        if called and called[1] in inner:
            total += inner[called[1]]
            continue
        total += next((price for pattern, price in _COSTS if pattern.search(line)), 1)
    return total
