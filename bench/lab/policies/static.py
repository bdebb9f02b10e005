"""A fixed number of cores and a fixed batch for each job, first come, first served: with the best ones of a sweep, the
best static setting."""

from __future__ import annotations

from typing import Any

from ..acts import waits_longest, wake_at
from ..mechanisms.ranking import begin

SOURCE = "a baseline: the best static setting, by sweep"
SWEEP: dict[str, tuple[float, ...]] = {"each": (1, 2, 4, 8, 16), "batch": (0.0, 0.33, 0.67, 1.0)}


def static(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, each: Any = 4, batch: Any = 0.0) -> None:
    """Who waits longest begins when there are `each` cores for it, or its least or most where it takes more or less.
    batch: as a power of the greatest of its kind: 0 is the least one, 1 the greatest."""
    job = waits_longest(view, jobs)
    if job < 0:
        return
    kind = kinds[jobs[job].kind]
    need = min(max(kind.min_cores, min(each, kind.max_cores)), view.n_cores)
    jobs[job].batch = kind.max_batch**batch
    if begin(view, jobs, cores, job, need, 0):
        wake_at(view, view.now_ns)
