"""By estimated demand: what jobs of a kind used before says how many cores one gets and beside whom it fits; jobs that
come together are placed together."""

from __future__ import annotations

from typing import Any

from ..acts import fits, forgo, give, wake_at
from ..mechanisms.ranking import KEY, clear, heap, pop, spare
from ..mechanisms.tool import tool
from ..table import DONE, PHASE, WAITING

SOURCE = "Liquid, TPDS 2022: estimated requirements, immediate and batch placement close together, fine-grained sharing"
SWEEP: dict[str, tuple[float, ...]] = {"batch_us": (0, 10, 100), "headroom": (1.0, 1.2)}
WORDS = (1, 1, 0, 2)
_FROM = 0  # word of memory: since when jobs have been gathered; 0: none are
_SEEN, _USE = 0, 1  # of each kind: reports, and the estimated part of a core that its jobs use
_WEIGHT = 0.2


@tool
def _estimate(jobs: Any, memory: Any, base: Any, j: Any, headroom: Any) -> Any:
    """Part of each core that a job will use; a whole one before any of its kind has been seen."""
    at = base + 2 * jobs[j].kind
    return min(memory[at + _USE] * headroom, 1.0) if memory[at + _SEEN] > 0.0 else 1.0


@tool
def _room_on(view: Any, jobs: Any, cores: Any, c: Any, memory: Any, base: Any, headroom: Any) -> Any:
    """Part of row c's logical core that its jobs will leave, by their estimates."""
    left = 1.0
    r = c
    while r > 0 and cores[r - 1].core == cores[c].core:
        r -= 1
    while r < view.n_cores and cores[r].core == cores[c].core:
        j = cores[r].want if cores[r].changed else cores[r].job
        if j >= 0:
            left -= _estimate(jobs, memory, base, j, headroom)
        r += 1
    return left


@tool
def _fill(view: Any, jobs: Any, cores: Any, memory: Any, base: Any, headroom: Any, j: Any, need: Any, loop: Any) -> Any:
    """Give a job `need` cores of a loop (-1: of any), each that which it fills best, or none. Returns the room that is
    left on such cores; -1: there are not so many."""
    want, left = _estimate(jobs, memory, base, j, headroom), 0.0
    for _ in range(need):
        best, least, left = -1, 2.0, 0.0
        for c in range(view.n_cores):
            if (loop < 0 or cores[c].loop == loop) and spare(cores, c) and fits(view, jobs, cores, c, j):
                room = _room_on(view, jobs, cores, c, memory, base, headroom)
                if room >= want - 1e-9:
                    left += room
                    if room < least:
                        best, least = c, room
        if best < 0:
            forgo(view, cores, j)
            return -1.0
        give(view, cores, best, j)
    return left


@tool
def _place(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, base: Any, headroom: Any, j: Any) -> Any:
    """Give a job its least cores in the loop with least room to spare that has them, else wherever they are. Returns
    whether."""
    need, best, least = kinds[jobs[j].kind].min_cores, -1, 1e300
    for loop in range(view.n_loops):
        left = _fill(view, jobs, cores, memory, base, headroom, j, need, loop)
        if left >= 0.0:
            forgo(view, cores, j)
            if left < least:
                best, least = loop, left
    return (best >= 0 or need > 1) and _fill(view, jobs, cores, memory, base, headroom, j, need, best) >= 0.0


def liquid(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, batch_us: Any = 0.0, headroom: Any = 1.0) -> None:
    """batch_us: jobs that come within it are placed together, the largest first, and who does not fit holds up nobody;
    0: at once, by arrival, and nobody overtakes."""
    base, listed = 1, 1 + 2 * view.n_kinds
    if view.job >= 0 and (view.event == PHASE or view.event == DONE):
        at = base + 2 * jobs[view.job].kind
        memory[at + _SEEN] += 1.0
        memory[at + _USE] += max(_WEIGHT, 1.0 / memory[at + _SEEN]) * (jobs[view.job].use - memory[at + _USE])
    if view.n_waiting == 0 or view.n_idle == 0:
        return
    if batch_us > 0.0:
        if memory[_FROM] == 0.0:
            memory[_FROM] = view.now_ns + 1.0
        if view.now_ns < memory[_FROM] + batch_us * 1000.0 - 1.0:
            wake_at(view, int(memory[_FROM] + batch_us * 1000.0))
            return
    memory[_FROM] = 0.0
    clear(view, jobs)
    j = view.first
    while j >= 0:
        size = kinds[jobs[j].kind].min_cores * _estimate(jobs, memory, base, j, headroom)
        jobs[j].memory[KEY] = -size if batch_us > 0.0 else 0.0
        j = jobs[j].next
    n = heap(view, jobs, memory, listed)
    while n > 0:
        j = pop(jobs, memory, listed, n)
        n -= 1
        placed = jobs[j].state != WAITING or _place(view, jobs, cores, kinds, memory, base, headroom, j)
        if not placed and batch_us == 0.0:
            return
