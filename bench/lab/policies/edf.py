"""Earliest deadline first, at once; jobs without a deadline come last, by arrival."""

from __future__ import annotations

from typing import Any

from ..mechanisms.ranking import KEY, TARGET, clear, enact, grant, heap, pop
from ..mechanisms.tool import tool

SOURCE = "a baseline: earliest deadline first (Liu and Layland, 1973)"
SWEEP: dict[str, tuple[float, ...]] = {"grow": (0, 1, 2)}
HOLDS = {"conserving": True}
WORDS = (0, 1, 0, 0)


@tool
def _grow(view: Any, jobs: Any, kinds: Any, memory: Any, free: Any) -> None:
    """So many cores, to the job with the earliest deadline as many as it can use, then to the next."""
    n = heap(view, jobs, memory, 0)
    while n > 0 and free > 0:
        j = pop(jobs, memory, 0, n)
        n -= 1
        had = int(jobs[j].memory[TARGET])
        if had > 0 or kinds[jobs[j].kind].min_cores <= free:
            jobs[j].memory[TARGET] = min(kinds[jobs[j].kind].max_cores, had + free)
            free -= int(jobs[j].memory[TARGET]) - had


def edf(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, grow: Any = 0) -> None:
    """All jobs by their deadline, each with its least cores, until the cores are out. grow 1: what is left goes to the
    earliest ones; 2: each has as many as it can use before the next one has any."""
    j = view.first
    while j >= 0:
        jobs[j].memory[KEY] = jobs[j].deadline_ns if jobs[j].deadline_ns > 0 else 1e300
        j = jobs[j].next
    if grow == 2:
        clear(view, jobs)
    free = view.n_cores if grow == 2 else grant(view, jobs, kinds, memory, 0)
    if grow:
        _grow(view, jobs, kinds, memory, free)
    enact(view, jobs, cores, kinds, 0)
