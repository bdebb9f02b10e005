"""Marginal gain: cores one after the other to the row whose time falls most by one more.

A row of `memory` is ROW words: what its time is multiplied with, its serial part, what a further core costs it, its
least and most cores, its noise scale and greatest batch, and, out, its cores."""

from __future__ import annotations

from typing import Any

from .tool import tool

ROW = 8
WEIGHT, SERIAL, SYNC, LEAST, MOST, NOISE, BATCH, OUT = 0, 1, 2, 3, 4, 5, 6, 7


@tool
def goodput(k: Any, batch: Any, serial: Any, sync: Any, noise: Any) -> Any:
    """Useful work a ns on k cores of speed 1: throughput, and what of it counts with that batch."""
    step = (1.0 - serial) * batch / k + serial + sync * (k - 1)
    useful = (noise + 1.0) / (noise + batch) if noise > 0.0 else 1.0
    return batch / step * useful


@tool
def best_batch(k: Any, serial: Any, sync: Any, noise: Any, most: Any) -> Any:
    """The batch with the best goodput. Of batch / (a batch + c) * (n + 1) / (n + batch), that is sqrt(c n / a)."""
    fixed = serial + sync * (k - 1)
    if noise <= 0.0:
        return most if fixed > 0.0 else 1.0
    return min(max((fixed * noise * k / max(1.0 - serial, 1e-9)) ** 0.5, 1.0), most)


@tool
def time_of(memory: Any, row: Any, k: Any) -> Any:
    """What counts of a row that has k cores."""
    serial, sync, noise = memory[row + SERIAL], memory[row + SYNC], memory[row + NOISE]
    batch = best_batch(k, serial, sync, noise, memory[row + BATCH])
    return memory[row + WEIGHT] / goodput(k, batch, serial, sync, noise)


@tool
def allocate(memory: Any, base: Any, n: Any, cores: Any) -> Any:
    """Share cores out among n rows at `base`. First each its least, in the order of the rows, while there are enough;
    then one at a time, to the one whose time falls most; none where no time falls. Returns the cores that are left."""
    for i in range(n):
        row = base + ROW * i
        least = memory[row + LEAST]
        memory[row + OUT] = least if least <= cores else 0.0
        cores -= int(memory[row + OUT])
    while cores > 0:
        best, most = -1, 0.0
        for i in range(n):
            row = base + ROW * i
            k = memory[row + OUT]
            if k > 0.0 and k < memory[row + MOST]:
                gain = time_of(memory, row, k) - time_of(memory, row, k + 1.0)
                if gain > most:
                    best, most = row, gain
        if best < 0:
            return cores
        memory[best + OUT] += 1.0
        cores -= 1
    return 0
