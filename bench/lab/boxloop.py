"""The engine's tables driven by this machine's cores: a thread a core spins for the jobs that the policy gives it.

Time and progress are measured, not computed: a job's work is done when its core has spun for it. Arrivals, decisions
and the tables are the engine's own functions, called under one lock by whichever thread finds that something is due. A
thread that spins looks at the clock, at the next time that is due, and at a word which changes when its core changes
hands. What a job did not get of its core (the machine stopped the thread, or it served an arrival) is noted by job.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit, types

from ...libos.numba.atomics import atomic_add, cmpxchg, load_atomic, store_atomic
from ..sim.kept import kept
from .engine import arrive, decide, ends, timed, used_up
from .rates import advance
from .state import FAR, State
from .table import ARRIVED, QUANTUM

# Words that the threads share, a cache line apart.
LOCK, READY, GO, OVER, DUE, ORIGIN = 0, 8, 16, 24, 32, 40
N_WORDS = 48
GAP_NS = 1000  # a thread that was not seen for longer was stopped
_CLOCK_MONOTONIC = 1
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uint64))


@njit(inline="always")
def clock_ns(room: Any, at: Any) -> Any:
    """The machine's monotonic clock. room: two words of the thread's own, whose address is `at`."""
    _clock_gettime(np.int32(_CLOCK_MONOTONIC), at)
    return load_atomic(room, 0) * 1_000_000_000 + load_atomic(room, 1)


@njit(inline="always")
def acquire(words: Any) -> None:
    """Spin for the lock: it is held for a microsecond or so."""
    while cmpxchg(words, LOCK, 0, 1) != 0:
        pass


@njit
def release_lock(me: Any, words: Any, epochs: Any, shown: Any, s: State) -> Any:
    """Tell the threads whose cores changed hands, say when something is due next, and let go. Returns the word that
    changes when core `me` changes hands again."""
    rows = len(s.cores)
    for c in range(rows):
        job = s.cores[c].job
        now_shown = job + s.quantum[c] % 1_000_003 * 4096 if job >= 0 else -1
        if shown[c] != now_shown:
            shown[c] = now_shown
            atomic_add(epochs, 8 * c, 1)
    due = min(s.when[rows], s.when[rows + 1], s.when[rows + 2])
    store_atomic(words, DUE, due)
    if due == FAR and s.told[0].n_idle == rows:
        store_atomic(words, OVER, 1)
    seen = load_atomic(epochs, 8 * me)
    store_atomic(words, LOCK, 0)
    return seen


@njit
def serve(now: Any, address: Any, tables: Any, s: State) -> None:
    """Do what is due: arrivals, ticks, wake-ups, in the order of their times."""
    rows = len(s.cores)
    while True:
        slot = rows
        for other in (rows + 1, rows + 2):
            if s.when[other] < s.when[slot]:
                slot = other
        if s.when[slot] > now:
            return
        event, j = ARRIVED, -1
        if slot == rows:
            j = arrive(now, s)
        else:
            event = timed(now, slot, s)
        if j >= 0 or slot > rows:
            decide(now, event, j, -1, address, tables, s)


@njit
def spin(
    me: Any, left: Any, until: Any, origin: Any, seen: Any, words: Any, epochs: Any, room: Any, room_at: Any
) -> Any:
    """Work on core `me`: returns the ns that were done and those that were lost, and when it ended."""
    done, lost = 0, 0
    last = clock_ns(room, room_at)
    while True:
        now = clock_ns(room, room_at)
        if now - last > GAP_NS:
            lost += now - last
        else:
            done += now - last
        last = now
        at = now - origin
        if done >= left or at >= until or at >= load_atomic(words, DUE) or load_atomic(epochs, 8 * me) != seen:
            return done, lost, at


# As in the engine: nothing is allocated in here.
@kept(also=Path(__file__).parent, nogil=True, _nrt=False)
def work(
    me: Any,
    words: Any,
    epochs: Any,
    shown: Any,
    lost: Any,
    room: Any,
    room_at: Any,
    address: Any,
    tables: Any,
    s: State,
) -> None:
    """The thread of core `me`, from GO until all jobs are over. lost: of each job, ns."""
    atomic_add(words, READY, 1)
    while not load_atomic(words, GO):
        pass
    origin = load_atomic(words, ORIGIN)
    ident, left_at = -1, 0
    while not load_atomic(words, OVER):
        acquire(words)
        now = clock_ns(room, room_at) - origin
        serve(now, address, tables, s)
        job = s.cores[me].job
        if job < 0:
            ident = -1
            seen = release_lock(me, words, epochs, shown, s)
            while clock_ns(room, room_at) - origin < load_atomic(words, DUE) and load_atomic(epochs, 8 * me) == seen:
                if load_atomic(words, OVER):
                    break
            continue
        mine = s.jobs[job].id
        begun = s.jobs[job].progress_ns
        left = max(int(s.hidden[job].phase_end_ns - begun), 0)
        until = s.quantum[me]
        seen = release_lock(me, words, epochs, shown, s)
        if ident == mine:
            lost[mine] += max(clock_ns(room, room_at) - origin - left_at, 0)  # since it last spun for this job
        done, gone, left_at = spin(me, left, until, origin, seen, words, epochs, room, room_at)
        acquire(words)
        ident = -1
        now = clock_ns(room, room_at) - origin
        if s.cores[me].job == job and s.jobs[job].id == mine:
            ident = mine
            lost[mine] += gone
            advance(now, job, s)
            s.jobs[job].progress_ns = begun + done
            event = QUANTUM
            if done >= left:
                event = ends(now, me, s)
            elif now >= until:
                used_up(now, me, s)
            if done >= left or now >= until:
                decide(now, event, job, me, address, tables, s)
        release_lock(me, words, epochs, shown, s)
