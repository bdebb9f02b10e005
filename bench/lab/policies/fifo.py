"""First come, first served: each job gets the cores that it asks for at least, when those before it have theirs; in
batches of a fixed size, if wanted."""

from __future__ import annotations

from typing import Any

from ..acts import fits, forgo, give, waits_longest, wake_at

SOURCE = "the baseline"
SWEEP: dict[str, tuple[float, ...]] = {"batch": (1, 4, 16, 64)}


def fifo(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, batch: Any = 1) -> None:
    """The job that waits longest gets its least number of cores as soon as so many are idle, and their loops have the
    memory. Nobody overtakes. batch: with it begin others of its kind that wait, so many together at most."""
    job = waits_longest(view, jobs)
    if job < 0 or kinds[jobs[job].kind].min_cores > view.n_idle:
        return
    core = view.idle
    for _ in range(kinds[jobs[job].kind].min_cores):
        while core >= 0 and not fits(view, jobs, cores, core, job):
            core = cores[core].next_idle
        if core < 0:
            forgo(view, cores, job)
            return
        cores[core].take = batch
        give(view, cores, core, job)
        core = cores[core].next_idle
    if core >= 0 and view.n_waiting > 1:
        wake_at(view, view.now_ns)  # once more, for who is first then
