"""Cores reserved for guaranteed jobs, lent to others while they are not needed (partial) or kept for them (total)."""

from __future__ import annotations

from typing import Any

from ..acts import take_all, wake_at
from ..mechanisms.ranking import begin, first_waiting

SOURCE = "Caladan, OSDI 2020: guaranteed and burstable cores; without its signals of interference"
SWEEP: dict[str, tuple[float, ...]] = {"reserved": (0.25, 0.5, 0.75), "total": (0, 1)}


def caladan(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, reserved: Any = 0.5, total: Any = 0) -> None:
    """reserved: part of the cores. total 0: whoever wants may have an idle core, and a guaranteed job takes back what
    is lent while its kind has less than is reserved, from who came last. total 1: each keeps to its side."""
    mine = int(reserved * view.n_cores + 0.5)
    held, lent, last = 0, 0, -1
    j = view.first
    while j >= 0:
        if kinds[jobs[j].kind].guaranteed:
            held += jobs[j].cores
        elif jobs[j].cores > 0:
            lent += jobs[j].cores
            last = j
        j = jobs[j].next
    j = first_waiting(view, jobs, kinds, True)
    if j >= 0:
        need = kinds[jobs[j].kind].min_cores
        if (not total or held + need <= mine) and begin(view, jobs, cores, j, need, 0):
            wake_at(view, view.now_ns)
            return
        if not total and held + need <= mine and last >= 0:
            take_all(view, jobs, cores, last)
            wake_at(view, view.now_ns)
            return
    j = first_waiting(view, jobs, kinds, False)
    if j >= 0:
        need = kinds[jobs[j].kind].min_cores
        if (not total or lent + need <= view.n_cores - mine) and begin(view, jobs, cores, j, need, 0):
            wake_at(view, view.now_ns)
