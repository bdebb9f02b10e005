"""By introspection: time slices, jobs packed onto one core on trial and undone if the core gets less done, jobs grown
into idle cores and shrunk again, jobs moved into one loop. It goes by rates of progress alone."""

from __future__ import annotations

from typing import Any

from ..acts import fits, give, take, take_all, waits_longest, wake_at
from ..mechanisms.places import empties, gather, neighbour, others, settle_in, snuggest
from ..mechanisms.ranking import again, spare
from ..mechanisms.tool import tool
from ..table import DONE, QUANTUM

SOURCE = "Gandiva, OSDI 2018: suspend and resume, packing, grow and shrink, migration, each by trial"
SWEEP: dict[str, tuple[float, ...]] = {
    "quantum_us": (100, 1000),
    "trial_us": (20, 100),
    "least": (1.0, 1.1),
    "migrate": (0, 1),
}
_HOST_RATE, _FAILED, _GUEST = 0, 1, 2  # words of cores[c].memory: rate before the trial; 1 + id of who failed with whom
_CAP, _RATE, _TRIED = 0, 1, 2  # words of jobs[j].memory: cores beyond which it gains nothing, 0: none known; its rate
# before it grew; with how many cores that is to be judged
_BEFORE = 3  # and its rate before it moved into one loop; -1: that gained nothing, and is not tried again


@tool
def _pack(view: Any, jobs: Any, cores: Any, j: Any, trial_ns: Any) -> Any:
    """Put a job of one core beside another one, on trial. Returns whether."""
    for c in range(view.n_cores):
        if spare(cores, c) and others(view, cores, c) == 1 and fits(view, jobs, cores, c, j):
            host = cores[neighbour(view, cores, c)].job
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
    row = neighbour(view, cores, c)
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
            may = row.memory[_CAP] == 0.0 or row.cores < row.memory[_CAP]
            if may and empties(view, jobs, cores, j, -1):
                row.memory[_RATE], row.memory[_TRIED] = row.rate, row.cores + 1
                near = cores[row.first_core].loop
                settle_in(view, jobs, cores, j, 1, near if empties(view, jobs, cores, j, near) else -1, 0)
                return
        j = row.next


@tool
def _migrate(view: Any, jobs: Any, cores: Any) -> Any:
    """Nobody waits: a job whose cores are in several loops goes into one that has the room. One that is no faster there
    by a fiftieth does not do so again. Returns whether one goes."""
    j = view.first
    while j >= 0:
        row = jobs[j]
        if row.memory[_BEFORE] > 0.0 and row.rate > 0.0:
            row.memory[_BEFORE] = -1.0 if row.rate < 1.02 * row.memory[_BEFORE] else 0.0
        if row.cores > 1 and row.memory[_BEFORE] == 0.0 and row.rate > 0.0 and gather(view, jobs, cores, j):
            row.memory[_BEFORE], row.memory[_TRIED] = row.rate, 0.0
            return True
        j = row.next
    return False


def gandiva(
    view: Any,
    jobs: Any,
    cores: Any,
    kinds: Any,
    memory: Any,
    quantum_us: Any = 100.0,
    trial_us: Any = 50.0,
    least: Any = 1.0,
    migrate: Any = 1,
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
        moves = migrate and view.n_loops > 1 and view.n_idle and _migrate(view, jobs, cores)
        if not moves and (view.event == DONE or view.n_idle):
            _resize(view, jobs, cores, kinds)
        return
    j = waits_longest(view, jobs)
    need = kinds[jobs[j].kind].min_cores
    if empties(view, jobs, cores, j, -1) >= need:
        loop = snuggest(view, jobs, cores, j, need) if view.n_loops > 1 else -1
        settle_in(view, jobs, cores, j, need, loop, int(quantum_us * 1000.0))
        wake_at(view, view.now_ns)
        return
    if need == 1 and _pack(view, jobs, cores, j, int(trial_us * 1000.0)):
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
