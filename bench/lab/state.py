"""The arrays of a laboratory run, and the names of their columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import njit

FAR = 1 << 62

# Entries of `settings`.
NOTICE, DECIDE, LOOK, ACTUATE, SWITCH, MOVE, LOOP_MOVE, TICKS_ONLY = 0, 1, 2, 3, 4, 5, 6, 7
SEATS, RESOURCES, BUCKET, INTERVAL, LOSSES, WATCHED, LATE = 8, 9, 10, 11, 12, 13, 14
N_SETTINGS = 15
# Entries of `world`.
NOW, EVENTS, CALLS, GIVEN, REFUSED_GIFTS, NEXT, DONE_JOBS, STUCK, FREE_SLOTS, N_DIRTY = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
DECIDED_NS, ARRIVES, TICKS_AT, WAKES_AT, STOPS_AT, NEXT_STOP, IN_BUCKET, BUCKET_ENDS = 10, 11, 12, 13, 14, 15, 16, 17
DRAWN = 18  # the state of what is drawn
N_WORLD = 19
MOST_CALLS = 100_000  # of a policy at one instant: more, and it is stuck
ASKS_FOR_EVER = 1 << 8  # in STUCK; else what stands in view.astray
# Columns of `series`, a row a bucket of time: summed over it, ns of cores held and of cores at work, of jobs that wait.
HELD, WORKED, WAITED = 0, 1, 2


class State(NamedTuple):
    """What every step needs. Rows of told (one: the view), jobs, cores, kinds, load, truth, hidden, future and results
    are those of table.py.

    when, tree: what comes next on each core, and the winner tree over that. The next arrival, tick, wake-up and stop
    are in `world`: one of each, so they need no tree. finish, quantum: of each core, when the job that it leads has its
    phase done, and when its quantum is over. busy, level, pair: of each physical core, the rows in use, the share of a
    row of weight 1 (below 0: nothing is short), and its sibling. squeeze: of each loop and resource, the part of what
    is demanded that is there. loop_free: when each loop can act again. charged: memory that each core's job takes.
    held_ns: for how long each core has had jobs. free: slots without a job. dirty: jobs whose rate has to be found
    anew. flows: cores at work now. stops: rows of when a core stands still, which, and for how long; stopped: of each
    core, until when it does.
    """

    when: Any
    tree: Any
    told: Any
    jobs: Any
    cores: Any
    kinds: Any
    load: Any
    truth: Any
    hidden: Any
    future: Any
    results: Any
    finish: Any
    quantum: Any
    busy: Any
    level: Any
    pair: Any
    squeeze: Any
    loop_dirty: Any
    loop_free: Any
    charged: Any
    held_ns: Any
    free: Any
    dirty: Any
    flows: Any
    stops: Any
    stopped: Any
    series: Any
    watched: Any
    settings: Any
    world: Any


# What makes of Python's arguments the arrays of a State, for each function, would take most of the compilation.
_WITHIN = {"_nrt": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def inner(function: Callable[..., Any]) -> Any:
    """A function of the loop: part of its caller's machine code, since `State` would be some 190 arguments; without
    numba's reference counts, since nothing is allocated."""
    return njit(forceinline=True, **_WITHIN)(function)


def apart(function: Callable[..., Any]) -> Any:
    """The same, of what is seldom called or large: a function of its own."""
    return njit(**_WITHIN)(function)
