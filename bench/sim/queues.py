"""Where requests wait: a line for each core of an application, as each of its kthreads has a queue, or one for all.

A request is steered to a core by the hash of its flow: each of the application's cores, those on their way to it
included, is as likely as the others (io_steer in iokernel/cores/flows.c: a flow goes to its kthread if that one has a
core, else to one of those that have); while it has none, to the one that it had last. What waits in the line of a core
that was taken away is still there for siblings; a core that comes takes such a line over if its own is empty, since the
kthread that gets a core is one with work of its own ([cores](docs/cores.md)).

Lines are lists through one pool of places an application, so that no step takes longer the more cores there are. The
draws are of streams of their own (`state.State`): arrivals do not depend on how an application's cores queue.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from .draws import uniform

# Columns of `places`, of `lines` and of `ends`.
ARRIVED_AT, LEFT, QUEUED_AT, BEHIND = 0, 1, 2, 3
HEAD, TAIL, AT = 0, 1, 2
FREE_PLACE, WAITING, USED_LINES = 0, 1, 2


class Queues(NamedTuple):
    """Rows: applications.

    places: of a request, when it arrived, ns left or minus that once it has run, when it was queued, the place behind
    it (-1: none; of a free place, the next free one). lines: by core, or the first one alone: first place (-1: empty),
    last place, index in `used`. used: lines in which anything waits, in no order. ends: first free place, how many
    wait, how many lines are in `used`. held: cores that the application has, in no order. central: 1 if all its cores
    share the first line.
    """

    places: Any
    lines: Any
    used: Any
    ends: Any
    held: Any
    central: Any


def empty(n_places: int, n_cores: int, central: Any) -> Queues:
    """Of as many applications as `central` has entries."""
    n = len(central)
    places = np.zeros((n, n_places, 4), np.int64)
    places[:, :, BEHIND] = np.arange(1, n_places + 1)
    places[:, -1, BEHIND] = -1
    lines = np.full((n, n_cores, 3), -1, np.int64)
    used, held = np.zeros((n, n_cores), np.int64), np.zeros((n, n_cores), np.int64)
    return Queues(places, lines, used, np.zeros((n, 3), np.int64), held, np.array(central, np.int64))


@njit(inline="always")
def line_of(a: Any, c: Any, q: Any) -> Any:
    """The line of core c."""
    return 0 if q.central[a] else c


@njit(inline="always")
def put(now: Any, a: Any, line: Any, arrived: Any, left: Any, q: Any) -> Any:
    """Append to a line. Returns the place, or -1 if there is none."""
    i = q.ends[a, FREE_PLACE]
    if i < 0:
        return i
    q.ends[a, FREE_PLACE] = q.places[a, i, BEHIND]
    q.ends[a, WAITING] += 1
    q.places[a, i, ARRIVED_AT] = arrived
    q.places[a, i, LEFT] = left
    q.places[a, i, QUEUED_AT] = now
    q.places[a, i, BEHIND] = -1
    if q.lines[a, line, HEAD] < 0:
        q.lines[a, line, HEAD] = i
        q.lines[a, line, AT] = q.ends[a, USED_LINES]
        q.used[a, q.ends[a, USED_LINES]] = line
        q.ends[a, USED_LINES] += 1
    else:
        q.places[a, q.lines[a, line, TAIL], BEHIND] = i
    q.lines[a, line, TAIL] = i
    return i


@njit(inline="always")
def take(a: Any, line: Any, q: Any) -> Any:
    """Remove the first of a line in which one waits. Its place is free, and as it was until the next `put`."""
    i = q.lines[a, line, HEAD]
    behind = q.places[a, i, BEHIND]
    q.lines[a, line, HEAD] = behind
    if behind < 0:
        q.ends[a, USED_LINES] -= 1
        at, last = q.lines[a, line, AT], q.used[a, q.ends[a, USED_LINES]]
        q.used[a, at] = last
        q.lines[a, last, AT] = at
    q.places[a, i, BEHIND] = q.ends[a, FREE_PLACE]
    q.ends[a, FREE_PLACE] = i
    q.ends[a, WAITING] -= 1
    return i


@njit(inline="always")
def victim(a: Any, q: Any, s: Any) -> Any:
    """A line to steal from, of those in which anything waits; each is as likely."""
    n = q.ends[a, USED_LINES]
    if n == 1:
        return q.used[a, 0]
    return q.used[a, min(np.int64(uniform(s.rng, len(s.app_n) + 1 + a) * n), n - 1)]


@njit(inline="always")
def steered(a: Any, q: Any, s: Any) -> Any:
    """The core to which the flow of a new request hashes."""
    n = s.app_n[a, 0]
    if n == 0:
        return s.app_n[a, 9]
    if n == 1:
        return q.held[a, 0]
    return q.held[a, min(np.int64(uniform(s.rng, len(s.app_n) + 1 + a) * n), n - 1)]


@njit
def gain(a: Any, c: Any, q: Any, s: Any) -> None:
    """Core c is application a's from now on, and takes over what waits for one that is no more, if its own line is
    empty."""
    s.core[c, 8] = s.app_n[a, 0]
    q.held[a, s.app_n[a, 0]] = c
    s.app_n[a, 0] += 1
    if q.central[a] or q.lines[a, c, HEAD] >= 0:
        return
    for at in range(q.ends[a, USED_LINES]):
        line = q.used[a, at]
        if s.core[line, 0] != a:
            for column in (HEAD, TAIL, AT):
                q.lines[a, c, column] = q.lines[a, line, column]
            q.used[a, at] = c
            q.lines[a, line, HEAD] = -1
            return


@njit
def lose(a: Any, c: Any, q: Any, s: Any) -> None:
    """Core c is application a's no more."""
    s.app_n[a, 0] -= 1
    at, last = s.core[c, 8], q.held[a, s.app_n[a, 0]]
    q.held[a, at] = last
    s.core[last, 8] = at
    s.app_n[a, 9] = c


@njit
def oldest(now: Any, a: Any, q: Any) -> Any:
    """For how long the oldest request that is new has waited, and the oldest one that has run; over all lines."""
    new: Any = 0
    old: Any = 0
    for at in range(q.ends[a, USED_LINES]):
        first = q.lines[a, q.used[a, at], HEAD]
        waited = max(now - q.places[a, first, QUEUED_AT], 1)
        if q.places[a, first, LEFT] < 0:
            old = max(old, waited)
        else:
            new = max(new, waited)
    return new, old
