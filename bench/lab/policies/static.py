"""A fixed number of cores for each job, first come, first served: with the best number of a sweep, the best static
setting."""

from __future__ import annotations

from typing import Any

from ..acts import waits_longest, wake_at
from ..mechanisms.ranking import begin

SOURCE = "a baseline: the best static setting, by sweep"
SWEEP: dict[str, tuple[float, ...]] = {"each": (1, 2, 4, 8, 16)}


def static(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, each: Any = 4) -> None:
    """Who waits longest begins when there are `each` cores for it, or its least or most where it takes more or less."""
    job = waits_longest(view, jobs)
    if job < 0:
        return
    kind = kinds[jobs[job].kind]
    need = min(max(kind.min_cores, min(each, kind.max_cores)), view.n_cores)
    if begin(view, jobs, cores, job, need, 0):
        wake_at(view, view.now_ns)
