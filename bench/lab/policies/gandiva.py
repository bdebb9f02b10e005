"""By introspection: time slices, jobs packed onto one core on trial and undone if the core gets less done, jobs grown
into idle cores and shrunk again. It goes by rates of progress alone."""

from __future__ import annotations

from typing import Any

from ..acts import fits, give, take, take_all, waits_longest, wake_at
from ..mechanisms.ranking import again, spare
from ..mechanisms.tool import tool
from ..table import DONE, QUANTUM

SOURCE = "Gandiva, OSDI 2018: suspend and resume, packing, grow and shrink, each by trial; without its migration"
SWEEP: dict[str, tuple[float, ...]] = {"quantum_us": (100, 1000), "trial_us": (20, 100), "least": (1.0, 1.1)}
_HOST_RATE, _FAILED, _GUEST = 0, 1, 2  # words of cores[c].memory: rate before the trial; 1 + id of who failed with whom
_CAP, _RATE, _TRIED = 0, 1, 2  # words of jobs[j].memory: cores beyond which it gains nothing, 0: none known; its rate
# before it grew; with how many cores that is to be judged


@tool
def _alone(view: Any, cores: Any, c: Any) -> Any:
    """How many other rows of core c's logical core have a job."""
    others = 0
    for r in range(max(c - 8, 0), min(c + 9, view.n_cores)):
        others += r != c and cores[r].core == cores[c].core and not spare(cores, r)
    return others


@tool
def _neighbour(view: Any, cores: Any, c: Any) -> Any:
    """The row of the same logical core that has a job; -1: none."""
    for r in range(max(c - 8, 0), min(c + 9, view.n_cores)):
        if r != c and cores[r].core == cores[c].core and cores[r].job >= 0 and not spare(cores, r):
            return r
    return -1


@tool
def _start(view: Any, jobs: Any, cores: Any, j: Any, need: Any, quantum_ns: Any) -> Any:
    """Have a job begin on logical cores that are empty. Returns whether."""
    found = 0
    for c in range(view.n_cores):
        found += spare(cores, c) and _alone(view, cores, c) == 0 and (c == 0 or cores[c - 1].core != cores[c].core)
    if found < need:
        return False
    for c in range(view.n_cores):
        first = c == 0 or cores[c - 1].core != cores[c].core
        if need > 0 and first and spare(cores, c) and _alone(view, cores, c) == 0:
            cores[c].quantum_ns = quantum_ns
            quantum_ns = 0
            give(view, cores, c, j)
            need -= 1
    return True


@tool
def _pack(view: Any, jobs: Any, cores: Any, j: Any, trial_ns: Any) -> Any:
    """Put a job of one core beside another one, on trial. Returns whether."""
    for c in range(view.n_cores):
        if spare(cores, c) and _alone(view, cores, c) == 1 and fits(view, jobs, cores, c, j):
            host = cores[_neighbour(view, cores, c)].job
            failed = cores[c].memory[_FAILED] == 1 + jobs[host].id and cores[c].memory[_GUEST] == 1 + jobs[j].id
            if jobs[host].cores == 1 and not failed:
                cores[c].memory[_HOST_RATE] = jobs[host].rate
                cores[c].quantum_ns = trial_ns
                give(view, cores, c, j)
                return True
    return False


@tool
def _judge(view: Any, jobs: Any, cores: Any, c: Any, least: Any) -> None:
    """A trial is over: both stay if together they get at least so much more done than one alone."""
    row = _neighbour(view, cores, c)
    j = cores[c].job
    if row >= 0 and cores[c].memory[_HOST_RATE] > 0.0:
        both = jobs[cores[row].job].rate / cores[c].memory[_HOST_RATE] + jobs[j].rate / cores[c].speed
        if both < least:
            cores[c].memory[_FAILED], cores[c].memory[_GUEST] = 1 + jobs[cores[row].job].id, 1 + jobs[j].id
            take(view, cores, c)
    cores[c].memory[_HOST_RATE] = 0.0
    cores[c].quantum_ns = 0


@tool
def _resize(view: Any, jobs: Any, cores: Any, kinds: Any) -> None:
    """Nobody waits: a job that can use more cores gets an idle one; if its rate has not risen by a tenth since it got
    its last one, that is taken back, and it gets no more."""
    j = view.first
    while j >= 0:
        row = jobs[j]
        if row.memory[_TRIED] == row.cores and row.cores > 1 and row.rate > 0.0 and row.rate < 1.1 * row.memory[_RATE]:
            row.memory[_CAP] = row.cores - 1
            c = row.first_core
            while cores[c].next >= 0:
                c = cores[c].next
            take(view, cores, c)
        elif 0 < row.cores < kinds[row.kind].max_cores and kinds[row.kind].stages == 0:
            c = view.idle
            while c >= 0 and (not spare(cores, c) or _alone(view, cores, c) > 0):
                c = cores[c].next_idle
            if c >= 0 and (row.memory[_CAP] == 0.0 or row.cores < row.memory[_CAP]):
                row.memory[_RATE], row.memory[_TRIED] = row.rate, row.cores + 1
                cores[c].quantum_ns = 0
                give(view, cores, c, j)
                return
        j = row.next


def gandiva(
    view: Any,
    jobs: Any,
    cores: Any,
    kinds: Any,
    memory: Any,
    quantum_us: Any = 100.0,
    trial_us: Any = 50.0,
    least: Any = 1.0,
) -> None:
    """Who waits begins on an empty core, else beside another job on trial (where cores have seats), else takes what
    others grew by, else waits for the end of a time slice."""
    if view.event == QUANTUM:
        if cores[view.core].memory[_HOST_RATE] > 0.0:
            _judge(view, jobs, cores, view.core, least)
        elif view.n_waiting:
            take_all(view, jobs, cores, view.job)
            wake_at(view, view.now_ns)
        else:
            again(view, cores)
        return
    if view.n_waiting == 0:
        if view.event == DONE or view.n_idle:
            _resize(view, jobs, cores, kinds)
        return
    j = waits_longest(view, jobs)
    need = kinds[jobs[j].kind].min_cores
    if _start(view, jobs, cores, j, need, int(quantum_us * 1000.0)) or (
        need == 1 and _pack(view, jobs, cores, j, int(trial_us * 1000.0))
    ):
        wake_at(view, view.now_ns)
        return
    other = view.first
    while other >= 0:
        if jobs[other].cores > kinds[jobs[other].kind].min_cores:
            c = cores[jobs[other].first_core].next
            jobs[other].memory[_TRIED] = 0.0
            take(view, cores, c)
            wake_at(view, view.now_ns)
            return
        other = jobs[other].next
