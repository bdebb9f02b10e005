"""Guaranteed jobs have their cores and memory at once; opportunistic ones have what is left, beside them on a core or
on an idle one, and shrink their memory, or leave, when a guaranteed one needs it."""

from __future__ import annotations

from typing import Any

from ..acts import give, take_all, wake_at
from ..mechanisms.ranking import begin, first_waiting
from ..mechanisms.tool import tool
from ..table import MEMORY as AMOUNT
from ..table import N_RESOURCES

SOURCE = "AntMan, OSDI 2020: guaranteed and opportunistic jobs, memory that shrinks, interference bounded by shares"
SWEEP: dict[str, tuple[float, ...]] = {"share": (0.01, 0.1)}


@tool
def _squeeze(view: Any, jobs: Any, cores: Any, kinds: Any) -> Any:
    """Hold an opportunistic job that runs to the least memory that it can do with. Returns whether there was one."""
    if view.capacity[AMOUNT] <= 0.0:
        return False
    j = view.first
    while j >= 0:
        row = jobs[j]
        floor = kinds[row.kind].memory_floor
        lent = row.cores > 0 and not kinds[row.kind].guaranteed
        if lent and row.alloc[AMOUNT] == 0.0 and row.demand[AMOUNT] > 0.0 and floor < 1.0:
            row.alloc[AMOUNT] = max(floor, 1e-3) * row.demand[AMOUNT]
            give(view, cores, row.first_core, j)
            return True
        j = row.next
    return False


@tool
def _last_lent(view: Any, jobs: Any, kinds: Any) -> Any:
    """The opportunistic job with cores that came last; -1: none."""
    last = -1
    j = view.first
    while j >= 0:
        if jobs[j].cores > 0 and not kinds[jobs[j].kind].guaranteed:
            last = j
        j = jobs[j].next
    return last


@tool
def _lent(view: Any, jobs: Any, kinds: Any) -> Any:
    """Cores that opportunistic jobs have."""
    n = 0
    j = view.first
    while j >= 0:
        n += 0 if kinds[jobs[j].kind].guaranteed else jobs[j].cores
        j = jobs[j].next
    return n


@tool
def _shares(view: Any, cores: Any, jobs: Any, kinds: Any, share: Any) -> None:
    """A row whose job is opportunistic weighs `share`, the others 1."""
    for c in range(view.n_cores):
        j = cores[c].want if cores[c].changed else cores[c].job
        if j >= 0:
            weight = 1.0 if kinds[jobs[j].kind].guaranteed else share
            if cores[c].share != weight:
                cores[c].share = weight
                give(view, cores, c, j)


@tool
def _regrow(view: Any, jobs: Any, cores: Any, kinds: Any) -> None:
    """Nobody waits: give a job that was held to less its memory back, if its loop has it."""
    j = view.first
    while j >= 0:
        row = jobs[j]
        if row.cores > 0 and row.alloc[AMOUNT] > 0.0:
            more = (row.demand[AMOUNT] - row.alloc[AMOUNT]) * row.cores
            at = cores[row.first_core].loop * N_RESOURCES + AMOUNT
            if view.used[at] + more <= view.capacity[AMOUNT]:
                row.alloc[AMOUNT] = 0.0
                give(view, cores, row.first_core, j)
                return
        j = row.next


def antman(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, share: Any = 0.05) -> None:
    """A guaranteed job that waits begins; if it cannot, memory shrinks first, then the opportunistic job that came last
    leaves. Then opportunistic ones begin on what is idle. share: their weight beside a guaranteed one."""
    kept = False  # what is idle is for a guaranteed job
    j = first_waiting(view, jobs, kinds, True)
    if j >= 0:
        need = kinds[jobs[j].kind].min_cores
        if begin(view, jobs, cores, j, need, 0):
            wake_at(view, view.now_ns)
        elif view.n_idle >= need and _squeeze(view, jobs, cores, kinds):
            wake_at(view, view.now_ns + 1)
        else:
            kept = view.n_idle + _lent(view, jobs, kinds) >= need
            last = _last_lent(view, jobs, kinds)
            if kept and last >= 0:
                take_all(view, jobs, cores, last)
                wake_at(view, view.now_ns)
        if view.changed >= 0 or kept:
            _shares(view, cores, jobs, kinds, share)
            return
    j = first_waiting(view, jobs, kinds, False)
    if j >= 0 and begin(view, jobs, cores, j, kinds[jobs[j].kind].min_cores, 0):
        wake_at(view, view.now_ns)
    elif view.n_waiting == 0:
        _regrow(view, jobs, cores, kinds)
    _shares(view, cores, jobs, kinds, share)
