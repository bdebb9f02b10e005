"""The lists that the tables hold, so that a policy finds what it wants without a walk over all rows.

Live jobs by arrival (`view.first`, `job.next`), those of each class without cores, longest first (`view.waiting`,
`job.after`), idle cores (`view.idle`, `core.next_idle`), the cores of a job (`job.first_core`, `core.next`). All are
doubly linked by row numbers; -1 ends them.
"""

from __future__ import annotations

from typing import Any

from .state import inner


@inner
def join(view: Any, jobs: Any, j: Any) -> None:
    """A job arrives: last of the live ones."""
    job = jobs[j]
    job.next, job.before = -1, view.last
    if view.last >= 0:
        jobs[view.last].next = j
    else:
        view.first = j
    view.last = j
    view.n_jobs += 1


@inner
def leave(view: Any, jobs: Any, j: Any) -> None:
    """A job is gone."""
    job = jobs[j]
    if job.before >= 0:
        jobs[job.before].next = job.next
    else:
        view.first = job.next
    if job.next >= 0:
        jobs[job.next].before = job.before
    else:
        view.last = job.before
    view.n_jobs -= 1


@inner
def queue(view: Any, jobs: Any, j: Any) -> None:
    """A job holds no core: last of its class to wait."""
    job = jobs[j]
    cls = job.cls
    tail = view.waiting_last[cls]
    job.after, job.ahead = -1, tail
    if tail >= 0:
        jobs[tail].after = j
    else:
        view.waiting[cls] = j
    view.waiting_last[cls] = j
    view.waiting_of[cls] += 1
    view.n_waiting += 1


@inner
def requeue(view: Any, jobs: Any, j: Any) -> None:
    """A job that was to begin waits on: first of its class."""
    job = jobs[j]
    cls = job.cls
    head = view.waiting[cls]
    job.after, job.ahead = head, -1
    if head >= 0:
        jobs[head].ahead = j
    else:
        view.waiting_last[cls] = j
    view.waiting[cls] = j
    view.waiting_of[cls] += 1
    view.n_waiting += 1


@inner
def unqueue(view: Any, jobs: Any, j: Any) -> None:
    """A job waits no longer."""
    job = jobs[j]
    cls = job.cls
    if job.ahead >= 0:
        jobs[job.ahead].after = job.after
    else:
        view.waiting[cls] = job.after
    if job.after >= 0:
        jobs[job.after].ahead = job.ahead
    else:
        view.waiting_last[cls] = job.ahead
    view.waiting_of[cls] -= 1
    view.n_waiting -= 1


@inner
def idle(view: Any, cores: Any, c: Any) -> None:
    """Core c has no job: first of the idle ones."""
    core = cores[c]
    core.next_idle, core.idle_before = view.idle, -1
    if view.idle >= 0:
        cores[view.idle].idle_before = c
    view.idle = c
    view.n_idle += 1


@inner
def unidle(view: Any, cores: Any, c: Any) -> None:
    """Core c gets a job."""
    core = cores[c]
    if core.idle_before >= 0:
        cores[core.idle_before].next_idle = core.next_idle
    else:
        view.idle = core.next_idle
    if core.next_idle >= 0:
        cores[core.next_idle].idle_before = core.idle_before
    view.n_idle -= 1


@inner
def hold(jobs: Any, cores: Any, j: Any, c: Any) -> None:
    """Core c is the job's, the last of its cores."""
    job, core = jobs[j], cores[c]
    core.job, core.next, core.before = j, -1, job.tail_core
    if job.tail_core >= 0:
        cores[job.tail_core].next = c
    else:
        job.first_core = c
    job.tail_core = c
    job.cores += 1


@inner
def let_go(jobs: Any, cores: Any, c: Any) -> None:
    """Core c is its job's no longer."""
    core = cores[c]
    job = jobs[core.job]
    if core.before >= 0:
        cores[core.before].next = core.next
    else:
        job.first_core = core.next
    if core.next >= 0:
        cores[core.next].before = core.before
    else:
        job.tail_core = core.before
    job.cores -= 1
    core.job = -1
