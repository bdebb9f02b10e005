"""By class: jobs of class 0 before those of class 1, and so on; with `preempt` at once, else when a core is idle."""

from __future__ import annotations

from typing import Any

from ..acts import fits, give, wake_at
from ..mechanisms.ranking import begin

SOURCE = "a baseline: static priorities (Cobham, 1954)"
SWEEP: dict[str, tuple[float, ...]] = {"preempt": (0, 1)}


def priority(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, preempt: Any = 0) -> None:
    """The first class in which anything waits gets idle cores; else, if it may preempt and wants one core, the core of
    the job of the lowest class."""
    cls = 0
    while cls < view.n_classes and view.waiting[cls] < 0:
        cls += 1
    if cls == view.n_classes:
        return
    job = view.waiting[cls]
    need = kinds[jobs[job].kind].min_cores
    if begin(view, jobs, cores, job, need, 0):
        wake_at(view, view.now_ns)
    elif preempt and need == 1 and view.n_idle == 0:
        lowest = -1
        for c in range(view.n_cores):
            if lowest < 0 or jobs[cores[c].job].cls > jobs[cores[lowest].job].cls:
                lowest = c
        if jobs[cores[lowest].job].cls > cls and fits(view, jobs, cores, lowest, job):
            give(view, cores, lowest, job)
            wake_at(view, view.now_ns)
