"""What a run is watched for while it goes on, where invariants are checked: nothing of it is shown to the policy."""

from __future__ import annotations

from typing import Any

from .state import FAR, RESOURCES, State, apart
from .table import MEMORY, N_RESOURCES

# Entries of `watched`: for how long a core was idle beside a job that it would have sufficed for, ns; the longest that
# a job was without a core at a stretch, ns; by how much core time a job was behind its weighted share at most, ns; the
# greatest part that was missing of what a core's job demands of a resource, or of its loop's part for a core if less.
IDLE_NS, WAITED_NS, BEHIND_NS, SHORT = 0, 1, 2, 3
N_WATCHED = 4


@apart
def watch(last: Any, now: Any, s: State) -> None:
    """Between two events, in which nothing changes."""
    view = s.told[0]
    if not view.n_jobs:
        return
    for cls in range(view.n_classes):
        j = view.waiting[cls]
        if j >= 0:
            s.watched[WAITED_NS] = max(s.watched[WAITED_NS], now - s.jobs[j].since_ns)
    if view.n_idle and view.n_waiting and _one_fits(s):
        s.watched[IDLE_NS] += now - last
    if s.settings[RESOURCES]:
        s.watched[SHORT] = max(s.watched[SHORT], _short(s))
    level = _level(s)
    j = view.first
    while j >= 0:
        job = s.jobs[j]
        share = min(job.weight * level, s.kinds[job.kind].max_cores)
        behind = s.hidden[j].behind_ns + (share - job.cores) * (now - last)
        s.hidden[j].behind_ns = max(behind, 0.0)
        s.watched[BEHIND_NS] = max(s.watched[BEHIND_NS], behind)
        j = job.next


@apart
def _short(s: State) -> Any:
    """The greatest part that is missing of any job's floor now. Memory is not shared: who has a core has it."""
    view, short = s.told[0], 0.0
    for loop in range(view.n_loops):
        rows = 0
        for c in range(view.n_cores):
            rows += s.cores[c].loop == loop
        for c in range(view.n_cores):
            if s.cores[c].loop == loop and s.cores[c].job >= 0:
                job = s.jobs[s.cores[c].job]
                for r in range(N_RESOURCES):
                    if r != MEMORY and job.demand[r] > 0.0:
                        has = job.alloc[r] if job.alloc[r] > 0.0 else job.demand[r] * s.squeeze[loop * N_RESOURCES + r]
                        short = max(short, 1.0 - has / min(job.demand[r], view.capacity[r] / rows))
    return short


@apart
def _one_fits(s: State) -> Any:
    """Whether any job that waits wants no more cores than are idle."""
    view = s.told[0]
    for cls in range(view.n_classes):
        j = view.waiting[cls]
        while j >= 0:
            if s.kinds[s.jobs[j].kind].min_cores <= view.n_idle:
                return True
            j = s.jobs[j].after
    return False


@apart
def _level(s: State) -> Any:
    """Cores for a weight of 1 if all jobs that are there share the cores by weight, none with more than it can use."""
    view = s.told[0]
    level = 0.0
    while True:
        left, weights = float(view.n_cores), 0.0
        j = view.first
        while j >= 0:
            job = s.jobs[j]
            most = s.kinds[job.kind].max_cores
            if job.weight * level >= most:
                left -= most
            else:
                weights += job.weight
            j = job.next
        if weights == 0.0:
            return float(FAR)
        if left / weights <= level:
            return level
        level = left / weights
