"""Several resources: who is sensitive to one gets more than its part of it, from those who are not; nobody gets less
than its proportional share."""

from __future__ import annotations

from typing import Any

from ..acts import fits, forgo, give, waits_longest, wake_at
from ..mechanisms.packing import water
from ..mechanisms.ranking import spare
from ..mechanisms.tool import tool
from ..table import DONE, N_RESOURCES, PHASE
from ..table import MEMORY as AMOUNT

SOURCE = "Synergy, OSDI 2022: Synergy-TUNE, demands by profile, never below the proportional share; in turn"
SWEEP: dict[str, tuple[float, ...]] = {"tune": (0, 1)}
HOLDS = {"floor": True}
WORDS = (0, 0, 2, 0)


@tool
def _room(view: Any, cores: Any, loop: Any) -> Any:
    """Rows of a loop, and how many of them are spare."""
    rows, free = 0, 0
    for c in range(view.n_cores):
        rows += cores[c].loop == loop
        free += cores[c].loop == loop and spare(cores, c)
    return rows, free


@tool
def _deal(view: Any, jobs: Any, cores: Any, memory: Any, loop: Any, tune: Any) -> None:
    """Share each resource of a loop out among its jobs, but memory, which each has by its demand. tune 0: each has its
    proportional share at most."""
    rows, _ = _room(view, cores, loop)
    for r in range(N_RESOURCES):
        if r == AMOUNT or view.capacity[r] <= 0.0:
            continue
        n = 0
        for c in range(view.n_cores):
            j = cores[c].want if cores[c].changed else cores[c].job
            if cores[c].loop == loop and j >= 0:
                memory[2 * n], memory[2 * n + 1] = jobs[j].demand[r], 1.0
                n += 1
        part = view.capacity[r] / rows
        water(memory, 0, n, view.capacity[r] if tune else 0.0, part)
        n = 0
        for c in range(view.n_cores):
            j = cores[c].want if cores[c].changed else cores[c].job
            if cores[c].loop == loop and j >= 0:
                if memory[2 * n] > 0.0 and jobs[j].alloc[r] != memory[2 * n]:
                    jobs[j].alloc[r] = memory[2 * n]
                    give(view, cores, c, j)
                n += 1


@tool
def _deal_all(view: Any, jobs: Any, cores: Any, memory: Any, tune: Any) -> None:
    """In each loop: a job's cores may be in several."""
    for loop in range(view.n_loops):
        _deal(view, jobs, cores, memory, loop, tune)


@tool
def _place(view: Any, jobs: Any, cores: Any, j: Any, need: Any) -> Any:
    """The loop with so many spare cores in which most of what the job demands is there; of equal ones the fullest. -1:
    none has so many, and the job has to be spread."""
    best, most, least = -1, -1.0, 0
    for loop in range(view.n_loops):
        _, free = _room(view, cores, loop)
        if free < need:
            continue
        part = 1.0
        for r in range(N_RESOURCES):
            demand = need * jobs[j].demand[r]
            left = view.capacity[r] - view.used[loop * N_RESOURCES + r]
            if view.capacity[r] > 0.0 and demand > 0.0:
                part = min(part, max(left, 0.0) / demand)
            if r == AMOUNT and view.capacity[r] > 0.0 and demand > left:
                part = -1.0
        if part > most + 1e-9 or (part > most - 1e-9 and part >= 0.0 and free < least):
            best, most, least = loop, part, free
    return best


def synergy(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, tune: Any = 1) -> None:
    """Who waits longest begins where its demands are met best. Each change deals the loop's resources out anew. tune 0:
    by proportion, as the paper's baseline."""
    if view.event == DONE or view.event == PHASE:
        _deal_all(view, jobs, cores, memory, tune)
    j = waits_longest(view, jobs)
    if j < 0 or kinds[jobs[j].kind].min_cores > view.n_idle:
        return
    need = kinds[jobs[j].kind].min_cores
    loop = _place(view, jobs, cores, j, need)
    if loop < 0 and need == 1:
        return
    for c in range(view.n_cores):
        if need > 0 and spare(cores, c) and (loop < 0 or cores[c].loop == loop) and fits(view, jobs, cores, c, j):
            give(view, cores, c, j)
            need -= 1
    if need > 0:
        forgo(view, cores, j)
        return
    _deal_all(view, jobs, cores, memory, tune)
    wake_at(view, view.now_ns)
