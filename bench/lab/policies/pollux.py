"""Goodput: cores where they add most useful work, and for each job the batch that makes the most of its cores."""

from __future__ import annotations

from typing import Any

from ..mechanisms import gain, trace
from ..mechanisms.ranking import TARGET, enact

SOURCE = "Pollux, OSDI 2021: goodput (throughput times statistical efficiency), cores and batch together; greedy"
SWEEP: dict[str, tuple[float, ...]] = {"settle_us": (0, 100, 1000)}
WORDS = (1, gain.ROW, 0, trace.WORDS)
_LAST = 0  # word of memory: when it last shared the cores out


def pollux(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, settle_us: Any = 0.0) -> None:
    """What is shared out is the sum of 1 over each job's speed-up: its mean with exponent -1, as in the paper.
    settle_us: for so long after it shared out nobody is changed; who comes begins on idle cores. With scaling not
    declared, it is fitted to the rates that are seen."""
    rows = 1 + trace.WORDS * view.n_kinds
    trace.note_rates(view, jobs, cores, kinds, memory, 1)
    still = settle_us > 0.0 and view.now_ns < memory[_LAST] + settle_us * 1000.0 and view.n_idle == 0
    n = 0
    j = view.first
    while j >= 0 and not still:
        kind, row = kinds[jobs[j].kind], rows + gain.ROW * n
        memory[row + gain.WEIGHT] = jobs[j].weight
        memory[row + gain.SERIAL] = trace.serial(kinds, memory, 1, jobs[j].kind)
        memory[row + gain.SYNC] = trace.sync(kinds, memory, 1, jobs[j].kind)
        memory[row + gain.LEAST] = kind.min_cores
        memory[row + gain.MOST] = min(kind.max_cores, view.n_cores)
        memory[row + gain.NOISE], memory[row + gain.BATCH] = jobs[j].noise, kind.max_batch
        n += 1
        j = jobs[j].next
    if not still:
        memory[_LAST] = view.now_ns
        gain.allocate(memory, rows, n, view.n_cores)
    n = 0
    j = view.first
    while j >= 0 and not still:
        row = rows + gain.ROW * n
        k = memory[row + gain.OUT]
        jobs[j].memory[TARGET] = k
        if k > 0.0 and memory[row + gain.BATCH] > 1.0:
            serial, sync = memory[row + gain.SERIAL], memory[row + gain.SYNC]
            jobs[j].batch = gain.best_batch(k, serial, sync, jobs[j].noise, memory[row + gain.BATCH])
        n += 1
        j = jobs[j].next
    if not still:
        enact(view, jobs, cores, kinds, 0)
