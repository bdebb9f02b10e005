"""List scheduling. A policy gives each job a key (word KEY, least first) or a number of cores (word TARGET); these
functions turn keys into targets and targets into cores taken and given, in one call of the policy."""

from __future__ import annotations

from typing import Any

from ..acts import fits, forgo, give, take
from ..table import QUANTUM
from .tool import tool

TARGET, KEY = 6, 7  # words of jobs[j].memory
BARRED = 3  # word of cores[c].memory: `begin` passes this core over


@tool
def _before(jobs: Any, a: Any, b: Any) -> Any:
    """Whether job a comes before b: by its key, then by its arrival."""
    x, y = jobs[a].memory[KEY], jobs[b].memory[KEY]
    return x < y or (x == y and jobs[a].id < jobs[b].id)


@tool
def _sift(jobs: Any, memory: Any, base: Any, i: Any, n: Any) -> None:
    """Let entry i of a heap of n sink to its place."""
    while True:
        child = 2 * i + 1
        if child >= n:
            return
        if child + 1 < n and _before(jobs, int(memory[base + child + 1]), int(memory[base + child])):
            child += 1
        if not _before(jobs, int(memory[base + child]), int(memory[base + i])):
            return
        memory[base + i], memory[base + child] = memory[base + child], memory[base + i]
        i = child


@tool
def heap(view: Any, jobs: Any, memory: Any, base: Any) -> Any:
    """All jobs that are there into a heap by key, in `memory` from `base` on (a word a job). Returns how many."""
    n = 0
    j = view.first
    while j >= 0:
        memory[base + n] = j
        n += 1
        j = jobs[j].next
    for i in range(n // 2 - 1, -1, -1):
        _sift(jobs, memory, base, i, n)
    return n


@tool
def pop(jobs: Any, memory: Any, base: Any, n: Any) -> Any:
    """The first of a heap of n, which has n - 1 then."""
    first = int(memory[base])
    memory[base] = memory[base + n - 1]
    _sift(jobs, memory, base, 0, n - 1)
    return first


@tool
def clear(view: Any, jobs: Any) -> None:
    """No job is to have a core."""
    j = view.first
    while j >= 0:
        jobs[j].memory[TARGET] = 0.0
        j = jobs[j].next


@tool
def grant(view: Any, jobs: Any, kinds: Any, memory: Any, base: Any) -> Any:
    """Targets by key: each job its least number of cores, while there are enough; who does not fit is passed over.
    Returns the cores that are left."""
    clear(view, jobs)
    n, free = heap(view, jobs, memory, base), view.n_cores
    while n > 0 and free > 0:
        j = pop(jobs, memory, base, n)
        n -= 1
        need = kinds[jobs[j].kind].min_cores
        if need <= free:
            jobs[j].memory[TARGET] = need
            free -= need
    return free


@tool
def spare(cores: Any, c: Any) -> Any:
    """Whether core c has nobody, by what has been said in this call."""
    if cores[c].changed:
        return cores[c].want < 0
    return cores[c].job < 0


@tool
def block(view: Any, cores: Any, size: Any) -> Any:
    """First row of a buddy block: `size` spare cores that begin at a multiple of it; -1: there is none."""
    for first in range(0, view.n_cores - size + 1, max(size, 1)):
        c = first
        while c < first + size and spare(cores, c):
            c += 1
        if c == first + size:
            return first
    return -1


@tool
def shrink(view: Any, jobs: Any, cores: Any) -> None:
    """Take from each job the cores beyond its target, the last first."""
    j = view.first
    while j >= 0:
        kept = 0
        c = jobs[j].first_core
        while c >= 0:
            if kept >= jobs[j].memory[TARGET]:
                take(view, cores, c)
            kept += 1
            c = cores[c].next
        j = jobs[j].next


@tool
def _hand(view: Any, jobs: Any, cores: Any, j: Any, more: Any, c: Any, quantum_ns: Any) -> Any:
    """Give job j up to `more` spare cores from c on that have the memory. Returns how many are missing."""
    lead = jobs[j].cores == 0 and more == int(jobs[j].memory[TARGET])
    while more > 0 and c < view.n_cores:
        if spare(cores, c) and fits(view, jobs, cores, c, j):
            cores[c].quantum_ns = quantum_ns if lead else 0
            lead = False
            give(view, cores, c, j)
            more -= 1
        c += 1
    return more


@tool
def enact(view: Any, jobs: Any, cores: Any, kinds: Any, quantum_ns: Any) -> None:
    """Bring every job to its target: take what is over, then give spare cores, a buddy block if there is one. The first
    core of a job that begins gets the quantum (0: none); a job that keeps its core at the end of one gets a new one.
    Who would begin with fewer than its least cores, for want of memory, does not."""
    shrink(view, jobs, cores)
    first = 0
    j = view.first
    while j >= 0:
        more = int(jobs[j].memory[TARGET]) - jobs[j].cores
        if more > 0:
            c = block(view, cores, more) if more > 1 else -1
            if c >= 0:
                more = _hand(view, jobs, cores, j, more, c, quantum_ns)
            more = _hand(view, jobs, cores, j, more, first, quantum_ns)
            if jobs[j].cores == 0 and int(jobs[j].memory[TARGET]) - more < kinds[jobs[j].kind].min_cores:
                forgo(view, cores, j)
            while first < view.n_cores and not spare(cores, first):
                first += 1
            if first == view.n_cores:
                break
        j = jobs[j].next
    again(view, cores)


@tool
def again(view: Any, cores: Any) -> None:
    """A core whose quantum is over, and of which nothing was said, gets another one."""
    if view.event == QUANTUM and cores[view.core].changed == 0 and cores[view.core].job >= 0:
        give(view, cores, view.core, cores[view.core].job)


@tool
def begin(view: Any, jobs: Any, cores: Any, j: Any, need: Any, quantum_ns: Any) -> Any:
    """Have a job that waits begin on `need` idle cores that are not BARRED, if there are so many that have the memory.
    Returns whether."""
    c, lead = view.idle, True
    while c >= 0 and need > 0:
        if cores[c].memory[BARRED] == 0.0 and spare(cores, c) and fits(view, jobs, cores, c, j):
            cores[c].quantum_ns = quantum_ns if lead else 0
            lead = False
            give(view, cores, c, j)
            need -= 1
        c = cores[c].next_idle
    if need > 0:
        forgo(view, cores, j)
    return need == 0


@tool
def first_waiting(view: Any, jobs: Any, kinds: Any, guaranteed: Any) -> Any:
    """Of the jobs that wait and are guaranteed, or are not, the one that came first; -1: none."""
    j = view.first
    while j >= 0:
        if jobs[j].cores == 0 and (kinds[jobs[j].kind].guaranteed != 0) == guaranteed:
            return j
        j = jobs[j].next
    return -1
