"""Where cores lie: rows of one logical core (its seats), logical cores of one loop. A job whose cores are in several
loops is slower, and one that comes to another loop pays for that, so it is placed in one where that is possible."""

from __future__ import annotations

from typing import Any

from ..acts import fits, forgo, give, take
from .ranking import spare
from .tool import tool

_NEAR = 8  # rows on either side of one, among which the others of its logical core are


@tool
def others(view: Any, cores: Any, c: Any) -> Any:
    """How many other rows of core c's logical core have a job, by what has been said in this call."""
    n = 0
    for r in range(max(c - _NEAR, 0), min(c + _NEAR + 1, view.n_cores)):
        n += r != c and cores[r].core == cores[c].core and not spare(cores, r)
    return n


@tool
def neighbour(view: Any, cores: Any, c: Any) -> Any:
    """The row of the same logical core that has a job; -1: none."""
    for r in range(max(c - _NEAR, 0), min(c + _NEAR + 1, view.n_cores)):
        if r != c and cores[r].core == cores[c].core and cores[r].job >= 0 and not spare(cores, r):
            return r
    return -1


@tool
def _empty(view: Any, jobs: Any, cores: Any, c: Any, j: Any, loop: Any) -> Any:
    """Whether row c stands for a logical core of that loop (-1: of any) that nobody is on and that has job j's memory:
    the first of its rows does."""
    first = c == 0 or cores[c - 1].core != cores[c].core
    here = first and (loop < 0 or cores[c].loop == loop) and spare(cores, c)
    return here and others(view, cores, c) == 0 and fits(view, jobs, cores, c, j)


@tool
def empties(view: Any, jobs: Any, cores: Any, j: Any, loop: Any) -> Any:
    """How many empty logical cores a loop (-1: all of them) has for job j, by giving it all of them and taking that
    back: they share the loop's memory."""
    n = 0
    for c in range(view.n_cores):
        if _empty(view, jobs, cores, c, j, loop):
            give(view, cores, c, j)
            n += 1
    forgo(view, cores, j)
    return n


@tool
def snuggest(view: Any, jobs: Any, cores: Any, j: Any, need: Any) -> Any:
    """The loop with the fewest empty cores that has `need` of them; -1: none has."""
    best, least = -1, 1 << 30
    for loop in range(view.n_loops):
        n = empties(view, jobs, cores, j, loop)
        if need <= n < least:
            best, least = loop, n
    return best


@tool
def settle_in(view: Any, jobs: Any, cores: Any, j: Any, need: Any, loop: Any, quantum_ns: Any) -> None:
    """Give job j `need` empty cores of a loop (-1: of any), the first with a quantum."""
    for c in range(view.n_cores):
        if need > 0 and _empty(view, jobs, cores, c, j, loop):
            cores[c].quantum_ns = quantum_ns
            quantum_ns = 0
            give(view, cores, c, j)
            need -= 1


@tool
def _held_in(jobs: Any, cores: Any, j: Any, loop: Any) -> Any:
    """How many cores a job has in a loop."""
    n = 0
    c = jobs[j].first_core
    while c >= 0:
        n += cores[c].loop == loop
        c = cores[c].next
    return n


@tool
def gather(view: Any, jobs: Any, cores: Any, j: Any) -> Any:
    """Bring a job whose cores are in several loops into the one where it has most of them, of those that have room for
    all. Its first core keeps its quantum if it stays. Returns whether it moves."""
    best, most = -1, -1
    for loop in range(view.n_loops):
        held = _held_in(jobs, cores, j, loop)
        if held == jobs[j].cores:
            return False
        if held > most and held + empties(view, jobs, cores, j, loop) >= jobs[j].cores:
            best, most = loop, held
    if best < 0:
        return False
    quantum_ns = 0
    c = jobs[j].first_core
    while c >= 0:
        if cores[c].loop != best:
            quantum_ns = max(quantum_ns, cores[c].quantum_ns)
            take(view, cores, c)
        c = cores[c].next
    settle_in(view, jobs, cores, j, jobs[j].cores - most, best, quantum_ns)
    return True
