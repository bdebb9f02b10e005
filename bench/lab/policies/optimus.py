"""Marginal gain by fitted curves: each job's work left, by how its loss falls, and its speed on more cores, by what was
seen; cores one after the other where the time left falls most."""

from __future__ import annotations

from typing import Any

from ..acts import progress_ns
from ..mechanisms import gain, trace
from ..mechanisms.curve import POINTS, left_by_loss, note_loss
from ..mechanisms.curve import WORDS as CURVE
from ..mechanisms.ranking import KEY, TARGET, enact, heap, pop
from ..table import DONE

SOURCE = "Optimus, EuroSys 2018: convergence curve 1 / (a k + b) + c, speed curve, marginal gain; its own model"
SWEEP: dict[str, tuple[float, ...]] = {"settle_us": (0, 100, 1000), "batch": (0.0, 0.5, 1.0)}
WORDS = (1, 1 + gain.ROW + CURVE, 0, trace.WORDS)
_LAST = 0  # word of memory: when it last shared the cores out


def optimus(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, settle_us: Any = 0.0, batch: Any = 0.0) -> None:
    """Jobs begin by what they have left, the shortest first (the paper leaves open who begins when there are not cores
    for all). A job without a loss has left what its user declared, or what its kind took before. batch: with which
    batch each runs, as a power of its kind's greatest: 0 is the least one, 1 the greatest. It stays as it is."""
    past = 1
    listed = past + trace.WORDS * view.n_kinds
    rows, curves = listed + view.room, listed + view.room * (1 + gain.ROW)
    if view.job >= 0 and view.event == DONE:
        trace.note_done(jobs, memory, past, view.job)
        memory[curves + CURVE * view.job + POINTS] = 0.0
    trace.note_rates(view, jobs, cores, kinds, memory, past)
    if settle_us > 0.0 and view.now_ns < memory[_LAST] + settle_us * 1000.0 and view.n_idle == 0:
        return
    memory[_LAST] = view.now_ns
    j = view.first
    while j >= 0:
        note_loss(memory, curves + CURVE * j, jobs[j].progress_ns, jobs[j].loss, jobs[j].id)
        left = left_by_loss(memory, curves + CURVE * j, kinds[jobs[j].kind].loss_target)
        left -= progress_ns(view, jobs, j) - jobs[j].progress_ns
        jobs[j].memory[KEY] = left if left > 0.0 else trace.expected_ns(view, jobs, memory, past, j)
        j = jobs[j].next
    n = heap(view, jobs, memory, listed)
    for i in range(n):
        j = pop(jobs, memory, listed, n - i)
        kind, row = kinds[jobs[j].kind], rows + gain.ROW * i
        jobs[j].batch = size = kind.max_batch**batch
        serial, sync = trace.serial(kinds, memory, past, jobs[j].kind), trace.sync(kinds, memory, past, jobs[j].kind)
        whole = (1.0 - serial) * size + serial  # of a step on one core; the rest is told in parts of it
        counts = (jobs[j].noise + 1.0) / (jobs[j].noise + size) if jobs[j].noise > 0.0 else 1.0
        memory[row + gain.WEIGHT] = jobs[j].memory[KEY] * whole / (size * counts)
        memory[row + gain.SERIAL], memory[row + gain.SYNC] = serial / whole, sync / whole
        memory[row + gain.LEAST] = kind.min_cores
        memory[row + gain.MOST] = min(kind.max_cores, view.n_cores)
        memory[row + gain.NOISE], memory[row + gain.BATCH] = 0.0, 1.0
        jobs[j].memory[TARGET] = i
    gain.allocate(memory, rows, n, view.n_cores)
    j = view.first
    while j >= 0:
        jobs[j].memory[TARGET] = memory[rows + gain.ROW * int(jobs[j].memory[TARGET]) + gain.OUT]
        j = jobs[j].next
    enact(view, jobs, cores, kinds, 0)
