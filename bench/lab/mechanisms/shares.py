"""Deadlines: the least satisfactory share of each job, filled in one after the other.

Time is cut into spans (ascending ends, in `memory`), of each of which `used` says how many cores are promised. A row is
ROW words: work left, serial part, what a further core costs, least and most cores, the spans until its deadline, its
share (in: at least that; out), and, out, what it has in the first span."""

from __future__ import annotations

from typing import Any

from .gain import goodput
from .tool import tool

ROW = 8
WORK, SERIAL, SYNC, LEAST, MOST, SPANS, SHARE, NOW = 0, 1, 2, 3, 4, 5, 6, 7


@tool
def step_down(most: Any, least: Any) -> Any:
    """The largest of least, 2 least, 4 least, ... up to `most`; 0: not even the least."""
    if most < least:
        return 0.0
    k = least
    while 2.0 * k <= most:
        k *= 2.0
    return k


@tool
def lasts(memory: Any, row: Any, share: Any, ends: Any, used: Any, cores: Any, keep: Any) -> Any:
    """Whether a row is done in time with up to `share` cores of what is left in each span. keep: enter them as used."""
    left, before = memory[row + WORK], 0.0
    for s in range(int(memory[row + SPANS])):
        k = step_down(min(share, cores - memory[used + s]), memory[row + LEAST])
        if k > 0.0:
            left -= (memory[ends + s] - before) * goodput(k, 1.0, memory[row + SERIAL], memory[row + SYNC], 0.0)
        before = memory[ends + s]
        if keep:
            memory[used + s] += k
            if s == 0:
                memory[row + NOW] = k
        if left <= 1e-6 * memory[row + WORK]:
            return True
    return False


@tool
def fill(memory: Any, base: Any, n: Any, ends: Any, used: Any, spans: Any, cores: Any) -> Any:
    """Find the share of each of n rows, which are in the order of their deadlines. Returns how many no share serves in
    time; these have what is left. A row that came with a share keeps at least that, so what was once promised by these
    shares is found again."""
    late = 0
    for s in range(spans):
        memory[used + s] = 0.0
    for i in range(n):
        row = base + ROW * i
        memory[row + NOW] = 0.0
        share = max(memory[row + SHARE], memory[row + LEAST])
        while share <= memory[row + MOST] and not lasts(memory, row, share, ends, used, cores, False):
            share *= 2.0
        if share > memory[row + MOST]:
            share = memory[row + MOST]
            late += 1
        memory[row + SHARE] = share
        lasts(memory, row, share, ends, used, cores, True)
    return late
