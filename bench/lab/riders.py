"""Batches: jobs of one kind that begin as one on a core and end together (a model service's requests).

The job that the policy gave the core leads; the others ride: they hold no core, and are in no list of those that wait.
"""

from __future__ import annotations

from typing import Any

from .lists import queue, unqueue
from .state import State, apart
from .table import RUNNING, WAITING


@apart
def board(now: Any, start: Any, j: Any, most: Any, s: State) -> None:
    """Up to most - 1 others of the kind of job j, those that wait longest first, begin with it."""
    view, hidden = s.told[0], s.hidden[j]
    kind = s.kinds[s.jobs[j].kind]
    count = 1
    r = view.waiting[s.jobs[j].cls]
    while r >= 0 and count < most:
        after = s.jobs[r].after
        if s.jobs[r].kind == s.jobs[j].kind:
            unqueue(view, s.jobs, r)
            s.jobs[r].state, s.jobs[r].since_ns = RUNNING, now
            s.results[s.jobs[r].id].start_ns = start
            s.jobs[r].after = hidden.riders
            hidden.riders = r
            count += 1
        r = after
    hidden.total_ns = float(kind.batch_fixed_ns + kind.batch_item_ns * count)
    hidden.phase_end_ns = hidden.total_ns


@apart
def scatter(now: Any, j: Any, s: State) -> None:
    """A batch is stopped before its end: all of it is lost, and its jobs wait again, each for itself."""
    hidden = s.hidden[j]
    kind = s.kinds[s.jobs[j].kind]
    r = hidden.riders
    while r >= 0:
        after = s.jobs[r].after
        s.jobs[r].state, s.jobs[r].since_ns = WAITING, now
        s.jobs[r].preempted += 1
        queue(s.told[0], s.jobs, r)
        r = after
    hidden.riders = -1
    s.jobs[j].progress_ns = 0.0
    hidden.total_ns = float(kind.batch_fixed_ns + kind.batch_item_ns)
    hidden.phase_end_ns = hidden.total_ns
