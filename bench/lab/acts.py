"""What a policy does, as functions for its body: give and take cores, refuse, ask to be woken; and what it may ask.

They write into the tables that the policy is given and nothing else, so they run in a policy that is tried like any.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from .table import MEMORY, N_RESOURCES, NO_CORE, REFUSED, RUNNING, WAITING

NOBODY = -1

_part = njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)  # only policies call it


@njit(inline="always")
def give(view: Any, cores: Any, c: Any, job: Any) -> None:
    """Have core c run `job` (a slot; NOBODY: nobody) from now on, by what stands in its quantum_ns, pace, share, part
    and take. The last word of a call counts. Giving a core to the job that has it applies a changed quantum, pace,
    share or part. A core that is not there ends the run."""
    if c < 0 or c >= view.n_cores:
        view.astray = NO_CORE
    else:
        if cores[c].changed == 0:
            cores[c].changed = view.changed + 2
            view.changed = c
        cores[c].want = job


@njit(inline="always")
def take(view: Any, cores: Any, c: Any) -> None:
    """Take core c from its job, which goes on later where it was."""
    give(view, cores, c, NOBODY)


@_part
def take_all(view: Any, jobs: Any, cores: Any, job: Any) -> None:
    """Take all cores of a job."""
    c = jobs[job].first_core
    while c >= 0:
        give(view, cores, c, NOBODY)
        c = cores[c].next


@_part
def forgo(view: Any, cores: Any, job: Any) -> None:
    """Unsay what this call gives a job."""
    later, c = -1, view.changed
    while c >= 0:
        core = cores[c]
        before = core.changed - 2
        if core.want == job and core.job < 0:
            core.changed = 0
            if later < 0:
                view.changed = before
            else:
                cores[later].changed = before + 2
        else:
            if core.want == job and core.job != job:  # it was somebody else's before
                core.want = NOBODY
            later = c
        c = before


@njit(inline="always")
def refuse(view: Any, jobs: Any, job: Any) -> None:
    """Turn a job away for good: it leaves after this call, and counts as refused."""
    if jobs[job].promised != REFUSED:
        jobs[job].promised = REFUSED
        view.n_refused += 1


@njit(inline="always")
def wake_at(view: Any, at_ns: Any) -> None:
    """Be called at that time at the latest (event WOKEN). Of several the earliest counts; a call forgets it."""
    if view.wake_ns < 0 or at_ns < view.wake_ns:
        view.wake_ns = at_ns


@njit(inline="always")
def progress_ns(view: Any, jobs: Any, job: Any) -> Any:
    """Work that a job has done by now, ns of a core of speed 1."""
    row = jobs[job]
    if row.state == RUNNING and view.now_ns > row.as_of_ns:
        return row.progress_ns + (view.now_ns - row.as_of_ns) * row.rate
    return row.progress_ns


@njit(inline="always")
def attained_ns(view: Any, jobs: Any, job: Any) -> Any:
    """Core time that a job has held by now, ns times cores."""
    row = jobs[job]
    return row.attained_ns + row.cores * (view.now_ns - row.held_of_ns)


@njit(inline="always")
def waits(jobs: Any, job: Any) -> Any:
    """Whether a job is there and holds no core."""
    return jobs[job].state == WAITING


@_part
def waits_longest(view: Any, jobs: Any) -> Any:
    """Slot of the job without cores that waits longest, of all classes; -1: none waits. Linear in the classes."""
    best = view.waiting[0]
    for cls in range(1, view.n_classes):
        job = view.waiting[cls]
        if job >= 0 and (best < 0 or jobs[job].since_ns < jobs[best].since_ns):
            best = job
    return best


@njit(inline="always")
def _memory_of(jobs: Any, job: Any) -> Any:
    """Memory that a job demands for each core."""
    return jobs[job].alloc[MEMORY] if jobs[job].alloc[MEMORY] > 0.0 else jobs[job].demand[MEMORY]


@_part
def _has_room(view: Any, jobs: Any, cores: Any, c: Any, job: Any) -> Any:
    loop = cores[c].loop
    used = view.used[loop * N_RESOURCES + MEMORY] + _memory_of(jobs, job)
    if cores[c].job >= 0:
        used -= _memory_of(jobs, cores[c].job)
    r = view.changed
    while r >= 0:
        core = cores[r]
        if r != c and core.loop == loop and core.want != core.job:
            used += _memory_of(jobs, core.want) if core.want >= 0 else 0.0
            used -= _memory_of(jobs, core.job) if core.job >= 0 else 0.0
        r = core.changed - 2
    return used <= view.capacity[MEMORY]


@njit(inline="always")
def fits(view: Any, jobs: Any, cores: Any, c: Any, job: Any) -> Any:
    """Whether the loop of core c has the memory that a job demands for it, after what this call has said so far. Where
    memory is bounded, linear in that."""
    return view.capacity[MEMORY] <= 0.0 or _has_room(view, jobs, cores, c, job)


@_part
def random(view: Any) -> Any:
    """A float64 in [0, 1), from the run's seed (splitmix64)."""
    view.random += -7046029254386353131
    z = view.random
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
    z = z ^ ((z >> 31) & 0x1FFFFFFFF)
    return ((z >> 11) & 0x1FFFFFFFFFFFFF) * (1.0 / 9007199254740992.0)
