"""Deadlines: the least satisfactory share of each job, filled in one after the other.

Time is cut into spans (ascending ends, in `memory`), of each of which `used` says how many cores are promised. A row is
ROW words: work left, serial part, what a further core costs, least and most cores, the spans until its deadline, its
share (in: at least that; out). A table has for each row what it has in each span.

Filling in anew when less is left to do may find no way where there was one: a job that may begin earlier takes cores
from one with a later deadline, which has no use for those that it leaves later (as in Graham's anomalies of list
scheduling). So a table that was found good holds until a better one is found: `reaches` says whether it still does."""

from __future__ import annotations

from typing import Any

from .gain import goodput
from .tool import tool

ROW = 7
WORK, SERIAL, SYNC, LEAST, MOST, SPANS, SHARE = 0, 1, 2, 3, 4, 5, 6


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
def lasts(memory: Any, row: Any, share: Any, ends: Any, used: Any, cores: Any, out: Any) -> Any:
    """Whether a row is done in time with up to `share` cores of what is left in each span. out: where the row's part of
    the table is, into which they are entered, as into `used`; -1: they are not."""
    left, before = memory[row + WORK], 0.0
    for s in range(int(memory[row + SPANS])):
        k = step_down(min(share, cores - memory[used + s]), memory[row + LEAST])
        if k > 0.0:
            left -= (memory[ends + s] - before) * goodput(k, 1.0, memory[row + SERIAL], memory[row + SYNC], 0.0)
        before = memory[ends + s]
        if out >= 0:
            memory[used + s] += k
            memory[out + s] = k
        if left <= 1e-6 * memory[row + WORK]:
            return True
    return False


@tool
def fill(memory: Any, base: Any, n: Any, ends: Any, used: Any, spans: Any, cores: Any, table: Any, width: Any) -> Any:
    """Find the share of each of n rows, which are in the order of their deadlines, and enter what it has into the table
    (`width` words a row). Returns how many no share serves in time; these have what is left. A row that came with a
    share keeps at least that, so what was once promised by these shares is mostly found again."""
    late = 0
    for s in range(spans):
        memory[used + s] = 0.0
    for i in range(n):
        row = base + ROW * i
        for s in range(spans):
            memory[table + width * i + s] = 0.0
        share = max(memory[row + SHARE], memory[row + LEAST])
        while share <= memory[row + MOST] and not lasts(memory, row, share, ends, used, cores, -1):
            share *= 2.0
        if share > memory[row + MOST]:
            share = memory[row + MOST]
            late += 1
        memory[row + SHARE] = share
        lasts(memory, row, share, ends, used, cores, table + width * i)
    return late


@tool
def reaches(memory: Any, row: Any, now: Any, ends: Any, spans: Any, line: Any) -> Any:
    """Whether a row is done in time with what a table has for it at `line`, of spans whose ends are at `ends`, from
    `now` on."""
    left, before = memory[row + WORK], now
    for s in range(spans):
        k, end = memory[line + s], memory[ends + s]
        if k > 0.0 and end > before:
            left -= (end - before) * goodput(k, 1.0, memory[row + SERIAL], memory[row + SYNC], 0.0)
        before = max(before, end)
    return left <= 1e-6 * memory[row + WORK] + 1.0
