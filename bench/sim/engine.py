"""The event loop, compiled by numba: applications, cores, and a policy called at every interval.

State lies in flat arrays made by `model.Simulation`. One slot an event source: slot a < n_apps is the next arrival of
application a; slot n_apps + c is what core c does next (finish, quantum over, move done); then the next call of the
policy, and the next request that leaves each loop of the iokernel. A winner tree over the slots' times gives the next
event in O(log slots) without allocating.

A request waits for the core to which its flow hashes (queues.py). A core without any steals one from a sibling's line,
for `steal_ns`; so no request waits beside an idle core of its application. A request whose quantum is over is
preempted, for `preempt_ns` of its core, if others wait in its line; else it begins another quantum. The iokernel is a
server too: each of its loops hands out one packet at a time, and the first loop stands still while it decides and moves
cores. Times are int64 ns. Randomness is two streams an application, for its requests and for its queues (draws.py), so
runs are bit-identical by seed and one application's arrivals do not depend on another's.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from .calls import call_policy, settle
from .draws import GIVEN, draw, next_arrival, uniform
from .kept import kept
from .queues import ARRIVED_AT, HEAD, LEFT, QUEUED_AT, WAITING, gain, line_of, lose, oldest, put, steered, take, victim
from .state import (
    ACTUATE,
    ALL_TAKEN,
    ANOTHERS,
    ANSWER_MEMORY,
    ANSWER_MOST_NS,
    ARRIVED,
    BATCH,
    BATCHING,
    BIGGEST_QUEUE,
    BUSY,
    CEDE_NS,
    CHANGED_GRANTS,
    CONTESTED,
    CROSSED_MEMORY_NS,
    CROSSING,
    DECIDE,
    DECIDED_NS,
    DECISIONS,
    DONE,
    DROPPED,
    EVENTS,
    EXTRA,
    FAR,
    FIRST,
    FREE,
    GAINED,
    HALVED,
    HELD,
    IDLE,
    INTERVAL,
    LAST_DECISION,
    LOGGED,
    LONGER,
    LOOP_PAUSED,
    LOST,
    MOVE_BUSY,
    MOVE_IDLE,
    MOVING,
    NEXT_URGENT,
    NOTICE,
    NOW,
    PACKET,
    PAUSE_GAP,
    PAUSED,
    PAUSES_SEEN,
    PREEMPT,
    PREEMPTED,
    RECEIVE,
    SEEN,
    SIGHT,
    SOJOURN,
    STEAL,
    TICKS,
    TRANSIT,
    URGENT,
    VIOLATIONS,
    WAIT,
    WAKE,
    WORK,
    bucket_of,
)
from .waits import account, dequeued, done, enqueued, started


@kept(inline="always")
def schedule(when: Any, tree: Any, slot: Any, t: Any) -> None:
    """Set the time of a slot and replay its path in the winner tree (leaves at len(when) + slot), up to where it
    neither won nor wins: above nothing changes."""
    if when[slot] != t:
        when[slot] = t
        node = (len(when) + slot) >> 1
        while node:
            left, right = tree[2 * node], tree[2 * node + 1]
            winner = left if when[left] <= when[right] else right
            if winner != slot and winner == tree[node]:
                break
            tree[node] = winner
            node >>= 1


@njit(inline="always")
def start_job(now: Any, a: Any, c: Any, arrived: Any, left: Any, fresh: Any, cost: Any, s: Any) -> None:
    """Core c of application a begins a request, or goes on with one, after `cost` ns."""
    if s.core[c, 5]:
        if s.core[c, 5] & ANOTHERS:
            cost += s.settings[FIRST]
        cost += max(s.core[c, 6] - now, 0)
        s.core[c, 5] = 0
    if fresh:
        s.times[a, WAIT] += now - arrived
    s.core[c, 1] = BUSY
    s.job[c, 0] = arrived
    run = left
    if s.quantum[a] and left > s.quantum[a]:
        run = s.quantum[a]
    s.job[c, 1] = left - run
    s.job[c, 2] = now + cost
    s.job[c, 3] = run
    s.times[a, EXTRA] += cost
    schedule(s.when, s.tree, len(s.app_n) + c, now + run + cost)


@njit
def decide_soon(now: Any, s: Any) -> None:
    """Have the policy called as soon as the iokernel notices and may: it was called a moment ago, or is busy."""
    if s.settings[URGENT]:
        tick = len(s.app_n) + len(s.core)
        t = max(now + s.settings[NOTICE], s.world[NEXT_URGENT])
        if t < s.when[tick]:
            schedule(s.when, s.tree, tick, t)


@njit(inline="always")
def push_job(now: Any, a: Any, line: Any, arrived: Any, left: Any, c: Any, q: Any, counts: Any, s: Any) -> None:
    """Append to a line of the application's: (arrived, ns left or minus that once it has run, queued at). c: core where
    it ran; -1: it is new.

    A full queue drops: the load is beyond what the cores can serve.
    """
    i = put(now, a, line, arrived, left, q)
    if i < 0:
        counts[a, DROPPED] += 1
        return
    enqueued(now, a, i, arrived, left, c, s)
    if q.ends[a, WAITING] > counts[a, BIGGEST_QUEUE]:
        counts[a, BIGGEST_QUEUE] = q.ends[a, WAITING]


@njit(inline="always")
def next_for(now: Any, a: Any, c: Any, cost: Any, q: Any, kinds: Any, s: Any) -> None:
    """What core c of application a does now: the next request, its own or a sibling's, batch work, or nothing. cost: ns
    before the next request."""
    if q.ends[a, WAITING]:
        line = line_of(a, c, q)
        if q.central[a]:
            cost += received(a, c, s)
        elif q.lines[a, line, HEAD] < 0:
            line = victim(a, q, s)
            cost += s.settings[STEAL]
        i = take(a, line, q)
        dequeued(now, a, i, q.places[a, i, QUEUED_AT], c, s)
        left = q.places[a, i, LEFT]
        fresh = left >= 0
        start_job(now, a, c, q.places[a, i, ARRIVED_AT], left if fresh else -left, fresh, cost, s)
    elif kinds[a]:
        s.core[c, 1] = BATCHING
        s.app_n[a, 2] += 1
        schedule(s.when, s.tree, len(s.app_n) + c, FAR)
    else:
        s.core[c, 1] = IDLE
        first = s.app_n[a, 3]
        s.core[c, 4], s.core[c, 7] = first, -1
        if first >= 0:
            s.core[first, 7] = c
        s.app_n[a, 3] = c
        s.app_n[a, 1] += 1
        schedule(s.when, s.tree, len(s.app_n) + c, FAR)
        if s.world[CONTESTED]:
            decide_soon(now, s)


@njit(inline="always")
def receiver(a: Any, c: Any, s: Any) -> Any:
    """Of one queue's idle cores, of which c is the first (-1: there is none), the one that takes a new request."""
    last = s.app_n[a, 10]
    return last if c >= 0 and last >= 0 and s.core[last, 0] == a and s.core[last, 1] == IDLE else c


@njit(inline="always")
def received(a: Any, c: Any, s: Any) -> Any:
    """Core c takes from its application's one queue: returns what that costs, ns. The queue is with the core that took
    last from it."""
    cost = 0 if s.app_n[a, 10] == c or s.app_n[a, 10] < 0 else s.settings[RECEIVE]
    s.app_n[a, 10] = c
    return cost


@njit(inline="always")
def unlink_idle(a: Any, c: Any, core: Any, app_n: Any) -> None:
    """Take core c, somewhere in it, from the application's list of idle cores."""
    app_n[a, 1] -= 1
    after, before = core[c, 4], core[c, 7]
    if before < 0:
        app_n[a, 3] = after
    else:
        core[before, 4] = after
    if after >= 0:
        core[after, 7] = before


@njit
def release(now: Any, a: Any, c: Any, q: Any, counts: Any, s: Any) -> None:
    """Take core c from application a. A request that runs goes back to its line with what is left of it."""
    state = s.core[c, 1]
    s.core[c, 2] = 1 if state in (BUSY, BATCHING) else 0
    if state == IDLE:
        unlink_idle(a, c, s.core, s.app_n)
    elif state == BATCHING:
        s.app_n[a, 2] -= 1
        s.times[a, WORK] += s.settings[SEEN]
    elif state == MOVING:
        s.app_n[a, 4] -= 1
    elif state == BUSY:
        ran = max(min(now - s.job[c, 2], s.job[c, 3] - 1), 0)
        s.times[a, WORK] += ran
        s.times[a, EXTRA] -= max(s.job[c, 2] - now, 0)
        left = s.job[c, 1] + s.job[c, 3] - ran
        push_job(now, a, line_of(a, c, q), s.job[c, 0], -left, c, q, counts, s)
    lose(a, c, q, s)
    s.core[c, 0] = -1
    s.core[c, 1] = FREE
    s.core[c, 3] = a
    counts[a, LOST] += 1
    schedule(s.when, s.tree, len(s.app_n) + c, FAR)


@njit
def apply_grants(now: Any, table: Any, q: Any, kinds: Any, counts: Any, s: Any) -> Any:
    """Move cores so that each application holds what it was granted. Returns how many cores changed hands."""
    n_apps, n_cores = len(s.app_n), len(s.core)
    moved = 0
    now += s.settings[DECIDE] * n_apps
    for a in range(n_apps):
        surplus = s.app_n[a, 0] - np.int64(table[a]["grant"])
        for wanted in (IDLE, MOVING, BATCHING, BUSY):
            if surplus <= 0:
                break
            for c in range(n_cores):
                if surplus > 0 and s.core[c, 0] == a and s.core[c, 1] == wanted:
                    release(now, a, c, q, counts, s)
                    surplus -= 1
    for a in range(n_apps):
        missing = np.int64(table[a]["grant"]) - s.app_n[a, 0]
        # First the cores that were its own last, then any.
        for own in (1, 0):
            if missing <= 0:
                break
            for c in range(n_cores):
                if missing > 0 and s.core[c, 0] < 0 and (s.core[c, 3] == a or not own):
                    cost = s.settings[MOVE_BUSY] if s.core[c, 2] else s.settings[MOVE_IDLE]
                    last = s.core[c, 3]
                    if last >= 0 and kinds[last] != kinds[a]:
                        s.world[CROSSING] += min(cost + s.settings[SIGHT] + s.settings[LONGER], CEDE_NS)
                    if last != a:
                        s.core[c, 5] |= ANOTHERS
                        s.app_n[a, 5] = now if s.core[c, 2] and not s.app_n[a, 0] else -1
                    s.core[c, 0] = a
                    s.core[c, 1] = MOVING
                    gain(a, c, q, s)
                    s.app_n[a, 4] += 1
                    counts[a, GAINED] += 1
                    moved += 1
                    cost = cost if s.core[c, 3] != a or s.core[c, 2] else 0
                    schedule(s.when, s.tree, n_apps + c, max(now, s.core[c, 6]) + moved * s.settings[ACTUATE] + cost)
                    missing -= 1
    return moved


@njit
def tell_cost(now: Any, view: Any, kinds: Any, s: Any) -> None:
    """What moves cost batch work lately (`tell_cost` of iokernel/cores/allocate.c). Cores are taken by decisions only,
    so each was held since the last one."""
    for a in range(len(s.app_n)):
        if kinds[a]:
            s.world[BATCH] += s.app_n[a, 0] * (now - s.world[LAST_DECISION])
    s.world[LAST_DECISION] = now
    times = min((now - s.world[HALVED]) // CROSSED_MEMORY_NS, 63)
    if times:
        s.world[BATCH] >>= times
        s.world[CROSSING] >>= times
        s.world[HALVED] = now
    view[0]["batch_ns"] = np.uint64(s.world[BATCH])
    view[0]["moving_ns"] = np.uint64(s.world[CROSSING])


@njit
def fill_table(now: Any, table: Any, q: Any, kinds: Any, app_n: Any, times: Any) -> None:
    """The signals of this instant, as an iokernel would read them: a core on its way takes one that waits."""
    for a in range(len(app_n)):
        packet, thread = oldest(now, a, q)
        table[a]["packet_delay_ns"] = np.uint64(packet)
        table[a]["thread_delay_ns"] = np.uint64(thread)
        table[a]["cores"] = np.uint32(app_n[a, 0])
        table[a]["idle"] = np.uint32(app_n[a, 1])
        maximum = np.int64(table[a]["maximum"])
        use = app_n[a, 0] - app_n[a, 1] + max(q.ends[a, WAITING] - app_n[a, 4], 0)
        table[a]["demand"] = np.uint32(maximum if kinds[a] else min(use, maximum))
        table[a]["attained_ns"] = np.uint64(times[a, HELD])
        table[a]["answer_ns"] = np.uint64(app_n[a, 6])


@njit(inline="always")
def deliver(now: Any, a: Any, arrived: Any, length: Any, q: Any, counts: Any, s: Any) -> None:
    """A request reaches the core that its flow hashes to: that one starts it if it is idle, or an idle sibling steals
    it, or it waits."""
    c = s.app_n[a, 3]
    line = 0
    cost = 0
    if q.central[a]:
        c = receiver(a, c, s)
        if c >= 0:
            cost = received(a, c, s)
    else:
        line = steered(a, q, s)
        if s.core[line, 0] == a and s.core[line, 1] == IDLE:
            c = line
        else:
            cost = s.settings[STEAL]
    if c >= 0:
        unlink_idle(a, c, s.core, s.app_n)
        started(now, arrived, length, c, s)
        # Beside others who want its core it has parked.
        start_job(now, a, c, arrived, length, True, cost + s.settings[WAKE] * s.world[CONTESTED], s)
    else:
        push_job(now, a, line, arrived, length, -1, q, counts, s)
        if s.app_n[a, 0] == 0:
            decide_soon(now, s)


@njit
def enter_iokernel(now: Any, a: Any, length: Any, passing: Any, loops: Any, counts: Any, s: Any) -> None:
    """A packet queues at its loop.

    Columns of `loops`: free at, head, tail, ns of work; of `passing`: application, arrived, length, out at.
    """
    loop = a % len(loops)
    size = passing.shape[1]
    if loops[loop, 2] - loops[loop, 1] == size:
        counts[a, DROPPED] += 1
        return
    loops[loop, 0] = max(loops[loop, 0], now) + s.settings[PACKET]
    loops[loop, 3] += s.settings[PACKET]
    p = passing[loop, loops[loop, 2] & (size - 1)]
    p[0], p[1], p[2], p[3] = a, now, length, loops[loop, 0]
    if loops[loop, 2] == loops[loop, 1]:
        schedule(s.when, s.tree, len(s.app_n) + len(s.core) + 1 + loop, p[3])
    loops[loop, 2] += 1


@njit
def next_pause(now: Any, pauses: Any, slot: Any, given: Any, s: Any) -> Any:
    """Which core stands still now (the last number: the first loop), and for how long; the next one is scheduled."""
    n_apps, n_cores = len(s.app_n), len(s.core)
    if len(given.pauses):
        i = s.world[PAUSES_SEEN]
        s.world[PAUSES_SEEN] += 1
        schedule(s.when, s.tree, slot, max(given.pauses[i + 1, 0], now) if i + 1 < len(given.pauses) else FAR)
        return given.pauses[i, 1], given.pauses[i, 2]
    schedule(s.when, s.tree, slot, now + 1 + np.int64(-math.log(uniform(s.rng, n_apps)) * s.settings[PAUSE_GAP]))
    length: Any = pauses[min(np.int64(uniform(s.rng, n_apps) * len(pauses)), len(pauses) - 1)]
    c: Any = min(np.int64(uniform(s.rng, n_apps) * (n_cores + 1)), n_cores)
    return c, length


@njit
def pause(now: Any, pauses: Any, loops: Any, given: Any, s: Any) -> None:
    """One of the cores, or the first loop's, stands still for a while: a timer's tick, or the host."""
    n_apps, n_cores = len(s.app_n), len(s.core)
    c, length = next_pause(now, pauses, n_apps + n_cores + 1 + len(loops), given, s)
    if c < n_cores:
        s.core[c, 5] |= PAUSED
        s.core[c, 6] = max(s.core[c, 6], now + length)
        if s.core[c, 1] == BUSY or s.core[c, 1] == MOVING:
            s.job[c, 2] += length
            schedule(s.when, s.tree, n_apps + c, s.when[n_apps + c] + length)
        return
    loops[0, 0] = max(loops[0, 0], now) + length
    s.world[LOOP_PAUSED] = loops[0, 0]
    s.world[NEXT_URGENT] = max(s.world[NEXT_URGENT], loops[0, 0])
    schedule(s.when, s.tree, n_apps + n_cores, max(s.when[n_apps + n_cores], loops[0, 0]))


@njit
def leave_iokernel(now: Any, loop: Any, passing: Any, loops: Any, q: Any, counts: Any, s: Any) -> None:
    """The oldest packet of a loop is handed to its application."""
    mask = passing.shape[1] - 1
    p = passing[loop, loops[loop, 1] & mask]
    loops[loop, 1] += 1
    more = loops[loop, 1] != loops[loop, 2]
    schedule(
        s.when,
        s.tree,
        len(s.app_n) + len(s.core) + 1 + loop,
        max(passing[loop, loops[loop, 1] & mask, 3], now) if more else FAR,
    )
    deliver(now, p[0], p[1], p[2], q, counts, s)


@njit(inline="always")
def answered(now: Any, a: Any, app_n: Any) -> None:
    """The first request since application a got its only core from another is done (io_cores_answered)."""
    took = min(now - app_n[a, 5], ANSWER_MOST_NS)
    app_n[a, 5] = -1
    app_n[a, 6] += (took - app_n[a, 6]) // ANSWER_MEMORY if app_n[a, 6] else took


@njit
def all_taken(kinds: Any, app_n: Any, n_cores: Any) -> Any:
    """1 if latency applications have every core."""
    held: Any = 0
    for a in range(len(app_n)):
        held += 0 if kinds[a] else app_n[a, 0]
    return 1 if held >= n_cores else 0


@njit
def contested(table: Any, q: Any, kinds: Any, app_n: Any) -> Any:
    """1 if an application could use more cores than it has."""
    for a in range(len(app_n)):
        use = app_n[a, 0] if kinds[a] else app_n[a, 0] - app_n[a, 1]
        wants = q.ends[a, WAITING] > app_n[a, 4] or kinds[a]
        if wants and use < np.int64(table[a]["maximum"]):
            return 1
    return 0


# Nothing is allocated in here, so numba's reference counts are off, which it would keep of every view of an array, by
# atomic instructions: with them it is a quarter to a fifth as fast.
@kept(_nrt=False)
def run(
    max_events: Any,
    until: Any,
    world: Any,
    view: Any,
    table: Any,
    addresses: Any,
    kinds: Any,
    gap: Any,
    service: Any,
    q: Any,
    counts: Any,
    hist: Any,
    passing: Any,
    loops: Any,
    pauses: Any,
    given: Any,
    s: Any,
) -> None:
    """Run until `max_events` more events have happened or the clock is at `until`."""
    n_apps, n_cores = len(s.app_n), len(s.core)
    tick = n_apps + n_cores
    now = world[NOW]
    for _ in range(max_events):
        slot = s.tree[1]
        t = s.when[slot]
        if t > until:
            now = until
            break
        now = t
        world[EVENTS] += 1
        if slot < n_apps:
            a = slot
            length: Any = 0
            if gap[a, 0] == GIVEN:
                length = given.length[given.place[a, 0]]
                given.place[a, 0] += 1
                i = given.place[a, 0]
                schedule(s.when, s.tree, slot, given.at[i] if i < given.place[a, 1] else FAR)
            else:
                schedule(s.when, s.tree, slot, next_arrival(now, gap, s.phase, s.rng, a))
                length = max(np.int64(draw(service, s.rng, a) + 0.5), 1)
            counts[a, ARRIVED] += 1
            if s.settings[PACKET] or s.settings[PAUSE_GAP]:
                enter_iokernel(now, a, length, passing, loops, counts, s)
            else:
                deliver(now, a, now, length, q, counts, s)
        elif slot > tick + len(loops):
            pause(now, pauses, loops, given, s)
        elif slot > tick:
            leave_iokernel(now, slot - tick - 1, passing, loops, q, counts, s)
        elif slot < tick:
            c = slot - n_apps
            a = s.core[c, 0]
            cost: Any = 0
            if s.core[c, 1] == BUSY:
                s.times[a, WORK] += s.job[c, 3]
                if s.job[c, 1]:  # its quantum is over
                    line = line_of(a, c, q)
                    if q.lines[a, line, HEAD] < 0:  # and nothing waits behind it
                        start_job(now, a, c, s.job[c, 0], s.job[c, 1], False, 0, s)
                        continue
                    counts[a, PREEMPTED] += 1
                    cost = s.settings[PREEMPT]
                    push_job(now, a, line, s.job[c, 0], -s.job[c, 1], c, q, counts, s)
                else:
                    counts[a, DONE] += 1
                    sojourn = max(now, world[LOOP_PAUSED]) - s.job[c, 0] + s.settings[TRANSIT]
                    done(a, c, sojourn, s)
                    if s.app_n[a, 5] >= 0:
                        answered(now, a, s.app_n)
                    s.times[a, SOJOURN] += sojourn
                    if gap[a, 0] == GIVEN:
                        row = given.log[world[LOGGED]]
                        row[0], row[1], row[2] = a, s.job[c, 0], sojourn
                        world[LOGGED] += 1
                    hist[a, bucket_of(sojourn)] += 1
            elif s.core[c, 1] == MOVING:
                account(now, s)
                s.app_n[a, 4] -= 1
            next_for(now, a, c, cost, q, kinds, s)
        else:
            account(now, s)
            fill_table(now, table, q, kinds, s.app_n, s.times)
            tell_cost(now, view, kinds, s)
            view[0]["now_ns"] = np.uint64(now)
            call_policy(addresses[0], addresses[2], addresses[3])  # numba passes the context
            world[CHANGED_GRANTS] += settle(addresses[1], addresses[2], addresses[3])
            world[TICKS] += 1
            moved = apply_grants(now, table, q, kinds, counts, s)
            world[DECISIONS] += moved
            conserve(now, q, kinds, s.core, s.app_n, table, s.settings, counts)
            decided_ns = s.settings[DECIDE] * n_apps + s.settings[ACTUATE] * moved
            loops[0, 0] = max(loops[0, 0], now) + decided_ns
            loops[0, 3] += decided_ns
            world[DECIDED_NS] += decided_ns
            world[ALL_TAKEN] = all_taken(kinds, s.app_n, n_cores)
            later = max(now + s.settings[INTERVAL], loops[0, 0])
            world[NEXT_URGENT] = max(now + s.settings[URGENT], loops[0, 0])
            world[CONTESTED] = contested(table, q, kinds, s.app_n) if s.settings[URGENT] else 0
            schedule(s.when, s.tree, slot, later if s.settings[INTERVAL] else FAR)
    account(now, s)
    world[NOW] = now


@njit
def conserve(now: Any, q: Any, kinds: Any, core: Any, app_n: Any, table: Any, settings: Any, counts: Any) -> None:
    """Count an application that has waited a whole interval, may have more cores, and is left with one unowned. One of
    batch work always waits."""
    unowned = 0
    for c in range(len(core)):
        unowned += core[c, 0] < 0
    if not unowned:
        return
    for a in range(len(app_n)):
        if app_n[a, 0] >= np.int64(table[a]["maximum"]):
            continue
        if kinds[a] or max(oldest(now, a, q)) > settings[INTERVAL]:
            counts[a, VIOLATIONS] += 1
