"""The engine's tables driven by this machine's cores: a thread a core spins for the jobs that the policy gives it.

Time and progress are measured, not computed: a job's work is done when its core has spun for it. Arrivals, decisions
and the tables are the engine's own functions, called under one lock by whichever thread finds that something is due. A
thread that spins looks at the clock, at the next time that is due, and at a word which changes when its core changes
hands; and it shows how far its job is, so that whoever takes the job knows. When a core did not do what the tables say
(the machine stopped its thread, it served an arrival meanwhile, or a job began later than a switch takes, since the
policy thought for long) is noted, for the simulator to do the same.
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
from .state import ARRIVES, FAR, STUCK, SWITCH, TICKS_AT, WAKES_AT, State, apart
from .table import ARRIVED, QUANTUM

# Words that the threads share, a cache line apart.
LOCK, READY, GO, OVER, DUE, ORIGIN = 0, 8, 16, 24, 32, 40
N_WORDS = 48
# Words of each core, a cache line apart: what changes when it changes hands; of the job that it works for, the number
# (-1: none) and how far it is, ns; gaps noted, gaps for which there was no room, and the end of the last one.
EPOCH, IDENT, PROGRESS, GAPS, MISSED, NOTED = 0, 1, 2, 3, 4, 5
LINE = 8
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


@apart
def release_lock(me: Any, words: Any, lines: Any, shown: Any, s: State) -> Any:
    """Tell the threads whose cores changed hands, say when something is due next, and let go. Returns the word that
    changes when core `me` changes hands again."""
    rows = len(s.cores)
    for c in range(rows):
        job = s.cores[c].job
        now_shown = job + s.quantum[c] % 1_000_003 * 4096 if job >= 0 else -1
        if shown[c] != now_shown:
            shown[c] = now_shown
            atomic_add(lines, LINE * c + EPOCH, 1)
    due = min(s.world[ARRIVES], s.world[TICKS_AT], s.world[WAKES_AT])
    store_atomic(words, DUE, due)
    if (due == FAR and s.told[0].n_idle == rows) or s.world[STUCK]:
        store_atomic(words, OVER, 1)
    seen = load_atomic(lines, LINE * me + EPOCH)
    store_atomic(words, LOCK, 0)
    return seen


@apart
def measure(now: Any, lines: Any, s: State) -> None:
    """Bring every job that has a core up to what that core has done for it by now."""
    for c in range(len(s.cores)):
        j = s.cores[c].job
        if j >= 0:
            done = s.jobs[j].progress_ns
            if load_atomic(lines, LINE * c + IDENT) == s.jobs[j].id:
                # Less is shown by a thread that was stopped, and does not know yet that the job has been elsewhere.
                done = max(done, float(load_atomic(lines, LINE * c + PROGRESS)))
            advance(now, j, s)
            s.jobs[j].progress_ns = done


@apart
def tell(now: Any, event: Any, j: Any, c: Any, address: Any, tables: Any, s: State) -> None:
    """Have the policy called. A function of its own, so that the engine's is compiled once."""
    decide(now, event, j, c, address, tables, s)


@apart
def serve(now: Any, address: Any, tables: Any, s: State) -> None:
    """Do what is due: ends and quanta, then arrivals, ticks and wake-ups in the order of their times."""
    for c in range(len(s.cores)):
        j = s.cores[c].job
        if j >= 0 and s.jobs[j].progress_ns >= s.hidden[j].phase_end_ns:
            tell(now, ends(now, c, s), j, c, address, tables, s)
        elif j >= 0 and s.quantum[c] <= now:
            used_up(now, c, s)
            tell(now, QUANTUM, j, c, address, tables, s)
    while True:
        first = ARRIVES
        for other in (TICKS_AT, WAKES_AT):
            if s.world[other] < s.world[first]:
                first = other
        if s.world[first] > now:
            return
        event, j = ARRIVED, -1
        if first == ARRIVES:
            j = arrive(now, s)
        else:
            event = timed(now, first == WAKES_AT, s)
        if j >= 0 or first != ARRIVES:
            tell(now, event, j, -1, address, tables, s)


@apart
def note(me: Any, at: Any, until: Any, lines: Any, gaps: Any) -> None:
    """Core `me` did not do what the tables say. Nothing is noted twice, and nothing of before the first instant."""
    at = max(at, load_atomic(lines, LINE * me + NOTED))
    if at >= until:
        return
    i = load_atomic(lines, LINE * me + GAPS)
    if i < gaps.shape[1]:
        gaps[me, i, 0], gaps[me, i, 1] = at, until - at
        store_atomic(lines, LINE * me + GAPS, i + 1)
    else:
        atomic_add(lines, LINE * me + MISSED, 1)
    store_atomic(lines, LINE * me + NOTED, until)


@apart
def spin(
    me: Any,
    begun: Any,
    left: Any,
    until: Any,
    last: Any,
    origin: Any,
    seen: Any,
    words: Any,
    lines: Any,
    gaps: Any,
    room: Any,
    room_at: Any,
) -> Any:
    """Work on core `me` for a job that is at `begun` and has so much left (FAR: wait, with nobody's). Returns when
    something is to be done, with the time at which it last looked."""
    done = 0
    while True:
        now = clock_ns(room, room_at) - origin
        if now - last > GAP_NS:
            note(me, last, now, lines, gaps)
        else:
            done += now - last
        last = now
        store_atomic(lines, LINE * me + PROGRESS, begun + done)
        if done >= left or now >= until or now >= load_atomic(words, DUE):
            return last
        if load_atomic(lines, LINE * me + EPOCH) != seen or load_atomic(words, OVER):
            return last


# As in the engine: nothing is allocated in here.
@kept(also=Path(__file__).parent, nogil=True, _nrt=False)
def work(
    me: Any,
    words: Any,
    lines: Any,
    shown: Any,
    gaps: Any,
    room: Any,
    room_at: Any,
    address: Any,
    tables: Any,
    s: State,
) -> None:
    """The thread of core `me`, from GO until all jobs are over. gaps: of each core, from when and how long, ns."""
    atomic_add(words, READY, 1)
    while not load_atomic(words, GO):
        pass
    origin = load_atomic(words, ORIGIN)
    last = clock_ns(room, room_at) - origin
    before = -1
    while not load_atomic(words, OVER):
        acquire(words)
        now = clock_ns(room, room_at) - origin
        measure(now, lines, s)
        serve(now, address, tables, s)
        job = s.cores[me].job
        mine, begun, left, until, lost_from = -1, 0, FAR, FAR, last
        if job >= 0:
            mine = s.jobs[job].id
            if mine != before:  # by the tables it has begun; what a switch takes, the simulator knows
                switch = s.settings[SWITCH] if s.cores[me].last_job != mine else 0
                lost_from = min(last, s.cores[me].since_ns) + switch
            begun = int(s.jobs[job].progress_ns)
            left = max(int(s.hidden[job].phase_end_ns - begun) + 1, 0)
            until = s.quantum[me]
        if mine != before:  # nobody reads these without the lock
            store_atomic(lines, LINE * me + PROGRESS, begun)
            store_atomic(lines, LINE * me + IDENT, mine)
        seen = release_lock(me, words, lines, shown, s)
        now = clock_ns(room, room_at) - origin
        note(me, lost_from, now, lines, gaps)
        before = mine
        last = spin(me, begun, left, until, now, origin, seen, words, lines, gaps, room, room_at)
