"""Weighted completion on unequal cores: by weight over work left, each job to the core where it would end first, be it
one that is still at work; tasks are short, and a core changes to another job between two of them."""

from __future__ import annotations

from typing import Any

from ..acts import fits, forgo, give, take, wake_at
from ..mechanisms import trace
from ..mechanisms.ranking import KEY, again, heap, pop, spare
from ..mechanisms.tool import tool
from ..table import DONE, QUANTUM

SOURCE = "Hare, HPDC 2022: list scheduling of tasks on unequal cores; by Smith's ratio, not its relaxation"
SWEEP: dict[str, tuple[float, ...]] = {"quantum_us": (0, 50, 200, 1000)}
WORDS = (0, 1, 1, trace.WORDS)
_LEFT = 0  # word of jobs[j].memory: work that it is expected to have left


@tool
def _free(view: Any, cores: Any, c: Any) -> Any:
    """Whether core c can change to another job now: it is spare, or its task has just ended."""
    return spare(cores, c) or (view.event == QUANTUM and c == view.core and cores[c].changed == 0)


@tool
def _gang(view: Any, jobs: Any, cores: Any, kinds: Any, j: Any, quantum_ns: Any) -> None:
    """A job of several cores begins on the fastest spare ones."""
    for _ in range(kinds[jobs[j].kind].min_cores):
        best = -1
        for c in range(view.n_cores):
            if spare(cores, c) and (best < 0 or cores[c].speed > cores[best].speed) and fits(view, jobs, cores, c, j):
                best = c
        if best < 0:
            forgo(view, cores, j)
            return
        cores[best].quantum_ns = 0
        give(view, cores, best, j)


def hare(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, quantum_us: Any = 200.0) -> None:
    """What a job has left is declared, or taken from its kind's past. quantum_us: of a task; 0: the whole job."""
    past, ends, listed = 0, trace.WORDS * view.n_kinds, trace.WORDS * view.n_kinds + view.n_cores
    quantum_ns = int(quantum_us * 1000.0)
    if view.event == DONE:
        trace.note_done(jobs, memory, past, view.job)
    j = view.first
    while j >= 0:
        jobs[j].memory[_LEFT] = trace.expected_ns(view, jobs, memory, past, j)
        own = view.event == QUANTUM and j == view.job and jobs[j].cores == 1
        jobs[j].memory[KEY] = jobs[j].memory[_LEFT] / jobs[j].weight if jobs[j].cores == 0 or own else 1e300
        j = jobs[j].next
    for c in range(view.n_cores):
        memory[ends + c] = 0.0  # when it can begin what comes next, from now on
        if not _free(view, cores, c):
            task = jobs[cores[c].job].memory[_LEFT] / cores[c].speed / max(jobs[cores[c].job].cores, 1)
            memory[ends + c] = min(task, float(quantum_ns)) if quantum_ns > 0 else task
    n = heap(view, jobs, memory, listed)
    for _ in range(min(n, 2 * view.n_cores)):  # who comes later than that gets no core now
        j = pop(jobs, memory, listed, n)
        n -= 1
        if jobs[j].memory[KEY] == 1e300:
            break
        if kinds[jobs[j].kind].min_cores > 1:
            _gang(view, jobs, cores, kinds, j, quantum_ns)
            continue
        best, soonest = -1, 1e300
        for c in range(view.n_cores):
            end = memory[ends + c] + jobs[j].memory[_LEFT] / cores[c].speed
            if end < soonest or (end == soonest and cores[c].job == j):
                best, soonest = c, end
        if memory[ends + best] == 0.0 and _free(view, cores, best):
            if cores[best].job == j and not spare(cores, best):
                again(view, cores)
            elif fits(view, jobs, cores, best, j):
                if jobs[j].cores:  # it goes from its own core to a faster one
                    take(view, cores, view.core)
                cores[best].quantum_ns = quantum_ns
                give(view, cores, best, j)
        memory[ends + best] = soonest
    if view.event == QUANTUM and cores[view.core].changed == 0:
        again(view, cores)  # nobody is better served there
    if view.changed >= 0 and view.n_waiting and view.event != QUANTUM:
        wake_at(view, view.now_ns)
