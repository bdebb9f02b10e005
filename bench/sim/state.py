"""The arrays of a simulation, and the names of their columns."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit

FAR = 1 << 62

# What a core does.
FREE, IDLE, BUSY, MOVING, BATCHING = 0, 1, 2, 3, 4
# Why its next request begins late, bits: the core was another application's, it was paused.
ANOTHERS, PAUSED = 1, 2

# Columns of `counts`, a row an application.
ARRIVED, DONE, GAINED, LOST, DROPPED, VIOLATIONS, BIGGEST_QUEUE, PREEMPTED = 0, 1, 2, 3, 4, 5, 6, 7
N_COUNTS = 8
# Columns of `times`, ns summed, a row an application.
WAIT, SOJOURN, WORK, HELD, EXTRA, MOVED = 0, 1, 2, 3, 4, 5
N_TIMES = 6
# Columns of `slow`, a row an application: how many requests were slow, and of these, ns summed, their way through the
# iokernel, what they waited while a core was on its way, while one could have been given, and while latency
# applications had all; and the rest, their service and what comes on top of it on the core. Together their time.
N_SLOW, IN_IOKERNEL, FOR_MOVE, FOR_DECISION, FOR_CORES, ON_CORE = 0, 1, 2, 3, 4, 5
SLOW_COLUMNS = 6
# Entries of `world`.
NOW, EVENTS, TICKS, CHANGED_GRANTS, DECISIONS, NEXT_URGENT = 0, 1, 2, 3, 4, 5
CONTESTED, LOOP_PAUSED, ALL_TAKEN, DECIDED_NS, SINCE, LOGGED, PAUSES_SEEN = 6, 7, 8, 9, 10, 11, 12
BATCH, CROSSING, HALVED, LAST_DECISION = 13, 14, 15, 16  # see `engine.tell_cost`
N_WORLD = 17
# Entries of `settings`.
INTERVAL, MOVE_BUSY, MOVE_IDLE, STEAL, PACKET, DECIDE, ACTUATE = 0, 1, 2, 3, 4, 5, 6
URGENT, NOTICE, TRANSIT, FIRST, SEEN, WAKE, PAUSE_GAP, SLOW = 7, 8, 9, 10, 11, 12, 13, 14
PREEMPT, SHORTEST, SIGHT, RECEIVE, LONGER, NOTES = 15, 16, 17, 18, 19, 20
N_SETTINGS = 21
ANSWER_MOST_NS, ANSWER_MEMORY = 100_000, 16  # as in iokernel/cores/allocate.c
CEDE_NS, CROSSED_MEMORY_NS = 10_000, 1_000_000  # as in iokernel/cores/cores.c

SUB_BITS = 6  # a histogram bucket is 1/64 of an octave: a value is known to 1.6 %
N_BUCKETS = 64 << SUB_BITS
ONE = 1 << SUB_BITS  # what a slowdown of 1 is counted as


@njit
def bucket_of(value: Any) -> Any:
    """Histogram bucket of a time in ns: exact below 64, then 64 buckets an octave."""
    if value < (1 << SUB_BITS):
        return max(value, 0)
    shift = 0
    top = value >> SUB_BITS
    while top > 1:
        top >>= 1
        shift += 1
    return ((shift + 1) << SUB_BITS) + (value >> shift) - (1 << SUB_BITS)


class Waits(NamedTuple):
    """slow: see its columns. slowdowns: a histogram of latency over length, in 64ths. job: of the request on a core,
    the time in the iokernel and of waiting by its reasons, and its length. queue: of a place of a request that waits,
    the clocks (State) when it was taken, what was waited before, and its length.
    """

    slow: Any
    slowdowns: Any
    job: Any
    queue: Any


class Given(NamedTuple):
    """What is replayed. Rows of place: applications.

    at, length: of all recorded requests, one application's behind the other's. place: index of an application's next
    one, and of the first that is not its. log: application, arrival and latency of those that are done, `LOGGED` many.
    pauses: when which core (the last one: the first loop) stands still for how long; none: drawn ones.
    """

    at: Any
    length: Any
    place: Any
    log: Any
    pauses: Any


class State(NamedTuple):
    """The arrays that every step needs. Rows: slots, applications or cores.

    when, tree: times of the slots and the winner tree over them. rng: four words an application, four for pauses, and
    four an application for its queues. core: owner (-1 none), state, whether it was at work when it was taken, last
    owner, next idle core, why its next request begins late, paused until, idle core before it, index in `Queues.held`.
    job: arrived, ns left after this run, started, length of this run. app_n: cores held, idle, in batch work, first
    idle core, on their way, when it got its only core from another (-1: it has answered), how long that lately took it.
    Then, ns: for how long a core was on its way, and for how long none was and latency applications did not have all
    cores. Then the core that it lost last, and that which receives (queues.py). phase: see `draws.next_arrival`.
    """

    when: Any
    tree: Any
    rng: Any
    core: Any
    job: Any
    app_n: Any
    quantum: Any
    phase: Any
    settings: Any
    times: Any
    world: Any
    waits: Waits
