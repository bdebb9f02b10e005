"""Fair share of core time by weight: who has had least goes first. A job that comes begins where the others are."""

from __future__ import annotations

from typing import Any

from ..acts import attained_ns
from ..mechanisms.ranking import KEY, TARGET, enact, grant
from ..mechanisms.tool import tool
from ..table import QUANTUM

SOURCE = "a baseline: weighted fair queueing of core time (start-time fair queueing, Goyal et al., 1996), by quanta"
SWEEP: dict[str, tuple[float, ...]] = {"quantum_us": (10, 50, 200, 1000), "grow": (0, 1)}
HOLDS = {"conserving": True}
WORDS = (0, 1, 0, 0)
_BEGAN, _THERE = 0, 1  # words of jobs[j].memory: virtual time at its arrival; whether that is known


@tool
def _share_rest(view: Any, jobs: Any, kinds: Any, free: Any) -> None:
    """Cores that are left, one after the other to the job that has least of them for its weight and can use more."""
    while free > 0:
        best, least = -1, 1e300
        j = view.first
        while j >= 0:
            k = jobs[j].memory[TARGET]
            if 0.0 < k < kinds[jobs[j].kind].max_cores and k / jobs[j].weight < least:
                best, least = j, k / jobs[j].weight
            j = jobs[j].next
        if best < 0:
            return
        jobs[best].memory[TARGET] += 1.0
        free -= 1


def fair(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, quantum_us: Any = 100.0, grow: Any = 0) -> None:
    """Virtual time of a job: core time that it has held over its weight, from the least of the others on. That of a job
    that runs is the one with which its quantum began: so it has the core until that is over, and who comes waits.
    grow 1: what is left once each has its least cores is shared out evenly among those that can use more."""
    least = 1e300
    j = view.first
    while j >= 0:
        if jobs[j].memory[_THERE] > 0.0:
            if jobs[j].cores == 0 or (view.event == QUANTUM and j == view.job):
                jobs[j].memory[KEY] = jobs[j].memory[_BEGAN] + attained_ns(view, jobs, j) / jobs[j].weight
            least = min(least, jobs[j].memory[KEY])
        j = jobs[j].next
    j = view.first
    while j >= 0:
        if jobs[j].memory[_THERE] == 0.0:
            jobs[j].memory[_THERE] = 1.0
            jobs[j].memory[_BEGAN] = least if least < 1e300 else 0.0
            jobs[j].memory[KEY] = jobs[j].memory[_BEGAN]
        j = jobs[j].next
    free = grant(view, jobs, kinds, memory, 0)
    if grow:
        _share_rest(view, jobs, kinds, free)
    enact(view, jobs, cores, kinds, int(quantum_us * 1000.0))
