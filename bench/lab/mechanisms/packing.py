"""Bin packing. Of jobs with demands for several resources into loops; of sessions that are served in batches, within a
latency limit, into cores ("squishy": the size of an item depends on what it is packed with)."""

from __future__ import annotations

import math
from typing import Any

from .tool import tool

ROW = 8
RATE, FIXED, ITEM, LIMIT, MOST, CYCLE, BIN, SIZE = 0, 1, 2, 3, 4, 5, 6, 7


@tool
def water(memory: Any, base: Any, n: Any, capacity: Any, floor: Any) -> None:
    """Share a capacity out among n pairs (demand, cores) at `base`, whose demands become grants, each for one core.
    None gets less than the smaller of its demand and `floor`, its proportional share for one core; what is left is
    dealt evenly among those that want more."""
    left, wanting = capacity, 0.0
    for i in range(n):
        left -= min(memory[base + 2 * i], floor) * memory[base + 2 * i + 1]
    level = floor
    while left > 1e-12 * capacity:
        wanting, nearest = 0.0, 1e300
        for i in range(n):
            if memory[base + 2 * i] > level * (1.0 + 1e-12):
                wanting += memory[base + 2 * i + 1]
                nearest = min(nearest, memory[base + 2 * i])
        if wanting <= 0.0:
            break
        step = min(nearest - level, left / wanting)
        level += step
        left -= step * wanting
    for i in range(n):
        memory[base + 2 * i] = min(memory[base + 2 * i], level)


@tool
def lasts_ns(memory: Any, row: Any, batch: Any) -> Any:
    """How long a core is at work on a batch."""
    return memory[row + FIXED] + memory[row + ITEM] * batch


@tool
def saturating(memory: Any, row: Any) -> Any:
    """The largest batch that may be served back to back: who misses one waits for it and is served by the next."""
    batch = math.floor((memory[row + LIMIT] / 2.0 - memory[row + FIXED]) / memory[row + ITEM])
    return min(batch, memory[row + MOST])


@tool
def alone(memory: Any, row: Any) -> None:
    """Cycle of a session on a core of its own: it gathers the largest batch that it can and serves that in time."""
    rate, fixed, item = memory[row + RATE], memory[row + FIXED], memory[row + ITEM]
    batch = math.floor((memory[row + LIMIT] - fixed) / (item + 1.0 / rate))
    batch = max(min(batch, memory[row + MOST]), 1.0)
    memory[row + CYCLE] = min(batch / rate, memory[row + LIMIT] - lasts_ns(memory, row, batch))
    memory[row + SIZE] = lasts_ns(memory, row, batch) / memory[row + CYCLE]


@tool
def together(memory: Any, base: Any, n: Any, which: Any, extra: Any, cycle: Any) -> Any:
    """Which part of a core the sessions of bin `which`, and row `extra` (-1: none), take with that cycle; above 1: they
    do not go together."""
    work = 0.0
    for i in range(n):
        row = base + ROW * i
        if row == extra or memory[row + BIN] == which:
            batch = math.ceil(memory[row + RATE] * cycle - 1e-9)
            took = lasts_ns(memory, row, batch)
            if batch > memory[row + MOST] or cycle + took > memory[row + LIMIT] * (1.0 + 1e-9):
                return 2.0
            work += took
    return work / cycle


@tool
def squishy(memory: Any, base: Any, n: Any) -> Any:
    """Pack n sessions, none of which fills a core, into cores: by size, each into the core that it fills best, on the
    shorter of the cycles. BIN and CYCLE come out. Returns the number of cores; -1: one of them is never in time."""
    for i in range(n):
        row = base + ROW * i
        memory[row + BIN] = -1.0
        if lasts_ns(memory, row, 1.0) >= memory[row + LIMIT]:
            return -1
        alone(memory, row)
    bins = 0
    for _ in range(n):
        item = -1
        for i in range(n):
            row = base + ROW * i
            if memory[row + BIN] < 0.0 and (item < 0 or memory[row + SIZE] > memory[item + SIZE]):
                item = row
        best, best_size, best_cycle = -1, 0.0, 0.0
        for b in range(bins):
            cycle = memory[item + CYCLE]
            for i in range(n):
                if memory[base + ROW * i + BIN] == b:
                    cycle = min(cycle, memory[base + ROW * i + CYCLE])
            size = together(memory, base, n, b, item, cycle)
            if size <= 1.0 + 1e-9 and size > best_size:
                best, best_size, best_cycle = b, size, cycle
        if best < 0:
            best, best_cycle = bins, memory[item + CYCLE]
            bins += 1
        memory[item + BIN] = best
        for i in range(n):
            if memory[base + ROW * i + BIN] == best:
                memory[base + ROW * i + CYCLE] = best_cycle
    return bins
