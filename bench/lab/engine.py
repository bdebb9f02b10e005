"""The event loop, compiled by numba: jobs come, a policy gives them cores, they go on at their rates and end.

An event is an arrival, the end of a job or a phase, the end of a quantum, a tick, or a time at which the policy wants
to be called; or a core stands still for a while, of which no policy is told. Each core has a slot in a winner tree
(that of bench/sim), in which the job that it leads ends; the next arrival, tick, wake-up and stop stand beside the
tree, and come in this order after the cores at one instant. Between two events rates are constant (rates.py), so
nothing is done for jobs that nothing happens to. A policy's words are a list of cores that change hands (`acts.give`):
first those taken, then those given, at the costs in `settings`.

A load is an array of jobs made beforehand. The loop draws nothing but how late a quantum is seen to be over, from the
run's seed: the same load, policy and seed give the same run, to the bit. Nothing in here allocates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..sim.kept import kept
from .calls import call_policy
from .lists import hold, idle, join, leave, let_go, queue, requeue, unidle, unqueue
from .rates import advance, occupied, report, settle, slot_time, touch
from .riders import board, scatter
from .state import (
    ACTUATE,
    ARRIVES,
    ASKS_FOR_EVER,
    BUCKET,
    BUCKET_ENDS,
    CALLS,
    DECIDE,
    DECIDED_NS,
    DONE_JOBS,
    DRAWN,
    EVENTS,
    FAR,
    FREE_SLOTS,
    GIVEN,
    HELD,
    IN_BUCKET,
    INTERVAL,
    LATE,
    LOOK,
    LOOP_MOVE,
    MOST_CALLS,
    MOVE,
    N_DIRTY,
    NEXT,
    NEXT_STOP,
    NOTICE,
    NOW,
    REFUSED_GIFTS,
    RESOURCES,
    SEATS,
    STOPS_AT,
    STUCK,
    SWITCH,
    TICKS_AT,
    TICKS_ONLY,
    WAITED,
    WAKES_AT,
    WATCHED,
    WORKED,
    State,
    apart,
    inner,
)
from .table import (
    ARRIVED,
    DONE,
    FREE,
    JOB_MEMORY,
    MEMORY,
    N_RESOURCES,
    NO_ROOM,
    OVER,
    PHASE,
    QUANTUM,
    REFUSED,
    RUNNING,
    TICK,
    TURNED_AWAY,
    WAITING,
    WOKEN,
)
from .watch import watch


@inner
def set_phase(j: Any, phase: Any, s: State) -> None:
    """A job enters a phase: what it demands from now on."""
    job, truth, hidden = s.jobs[j], s.truth[s.jobs[j].kind], s.hidden[j]
    job.phase = phase
    job.use = truth.use[phase]
    for r in range(N_RESOURCES):
        job.demand[r] = truth.demand[phase * N_RESOURCES + r]
    if phase + 1 < truth.phases:
        hidden.phase_end_ns = job.progress_ns + truth.part[phase] * hidden.total_ns
    else:
        hidden.phase_end_ns = hidden.total_ns


@inner
def arrive(now: Any, s: State) -> Any:
    """The load's next job comes. Returns its slot; -1: there is no room for it."""
    i = s.world[NEXT]
    s.world[NEXT] += 1
    s.world[ARRIVES] = max(s.load[i + 1].at_ns, now) if i + 1 < len(s.load) else FAR
    if not s.world[FREE_SLOTS]:
        s.results[i].outcome = NO_ROOM
        return -1
    s.world[FREE_SLOTS] -= 1
    j = s.free[s.world[FREE_SLOTS]]
    job, given, hidden = s.jobs[j], s.load[i], s.hidden[j]
    job.id, job.kind, job.cls, job.state = i, given.kind, s.kinds[given.kind].cls, WAITING
    job.arrived_ns, job.since_ns, job.as_of_ns, job.held_of_ns = now, now, now, now
    job.deadline_ns = now + given.deadline_ns if given.deadline_ns else 0
    job.weight, job.declared_ns, job.noise = given.weight, given.declared_ns, s.truth[given.kind].noise
    job.cores, job.first_core, job.tail_core = 0, -1, -1
    job.progress_ns, job.rate, job.attained_ns, job.loss = 0.0, 0.0, 0.0, 0.0
    job.preempted, job.promised, job.batch = 0, 0, 1.0
    for r in range(N_RESOURCES):
        job.alloc[r] = 0.0
    for m in range(JOB_MEMORY):
        job.memory[m] = 0.0
    hidden.total_ns, hidden.burn, hidden.behind_ns = given.work_ns, 0.0, 0.0
    hidden.last_core, hidden.last_loop, hidden.dirty, hidden.riders = -1, -1, 0, -1
    set_phase(j, 0, s)
    if len(s.future):
        s.future[j].total_ns = given.work_ns
    report(j, s)
    view = s.told[0]
    join(view, s.jobs, j)
    queue(view, s.jobs, j)
    return j


@inner
def release(now: Any, c: Any, s: State) -> None:
    """Take row c from its job."""
    core = s.cores[c]
    j = core.job
    advance(now, j, s)
    if s.settings[RESOURCES]:
        charge(c, 0.0, s)
    let_go(s.jobs, s.cores, c)
    core.last_job = s.jobs[j].id
    s.held_ns[c] += now - core.since_ns
    core.since_ns = now
    s.hidden[j].last_core, s.hidden[j].last_loop = c, core.loop
    s.finish[c], s.quantum[c] = FAR, FAR
    slot_time(c, s)
    idle(s.told[0], s.cores, c)
    occupied(c, -1, s)
    touch(j, s)


@inner
def memory_of(j: Any, s: State) -> Any:
    """Memory that a job takes for each core. What a policy gives it is brought between its floor and its demand."""
    job = s.jobs[j]
    if job.alloc[MEMORY] > 0.0:
        floor = s.kinds[job.kind].memory_floor * job.demand[MEMORY]
        job.alloc[MEMORY] = min(max(job.alloc[MEMORY], floor), job.demand[MEMORY])
        return job.alloc[MEMORY]
    return job.demand[MEMORY]


@inner
def charge(c: Any, memory: Any, s: State) -> None:
    """The job on core c takes that much memory of its loop now."""
    s.told[0].used[s.cores[c].loop * N_RESOURCES + MEMORY] += memory - s.charged[c]
    s.charged[c] = memory


@apart
def renew(c: Any, s: State) -> None:
    """What the job on core c demands or is given has changed."""
    j = s.cores[c].job
    row = s.jobs[j].first_core
    while row >= 0:
        if s.settings[RESOURCES]:
            charge(row, memory_of(j, s), s)
        occupied(row, 0, s)
        row = s.cores[row].next
    touch(j, s)


@inner
def quantum_over(start: Any, c: Any, s: State) -> Any:
    """When a quantum of row c that begins at `start` is seen to be over: on a machine no two are of one length (Knuth's
    MMIX generator)."""
    if not s.cores[c].quantum_ns:
        return FAR
    over = start + s.cores[c].quantum_ns
    if s.settings[LATE]:
        s.world[DRAWN] = s.world[DRAWN] * 6364136223846793005 + 1442695040888963407
        over += (s.world[DRAWN] >> 33 & 0x7FFFFFFF) % (s.settings[LATE] + 1)
    return over


@inner
def give(now: Any, c: Any, j: Any, s: State) -> None:
    """Row c, which is idle, begins to work for job j after what the change costs."""
    core, job, hidden, view = s.cores[c], s.jobs[j], s.hidden[j], s.told[0]
    if job.cores >= s.kinds[job.kind].max_cores:
        s.world[REFUSED_GIFTS] += 1
        return
    if s.settings[RESOURCES]:
        memory = memory_of(j, s)
        if view.used[core.loop * N_RESOURCES + MEMORY] + memory > view.capacity[MEMORY]:
            s.world[REFUSED_GIFTS] += 1
            return
        charge(c, memory, s)
    advance(now, j, s)
    cost = 0
    if core.last_job != job.id:
        cost += s.settings[SWITCH]
    if job.attained_ns > 0.0:  # it has run before, or grows
        cost += s.kinds[job.kind].switch_ns
        if core.last_job != job.id and (job.state == WAITING or job.since_ns == now):
            cost += s.settings[MOVE]
        if hidden.last_loop != core.loop:
            cost += s.settings[LOOP_MOVE]
    start = max(now, s.stopped[c])
    if s.settings[ACTUATE]:
        s.loop_free[core.loop] = max(now, s.loop_free[core.loop]) + s.settings[ACTUATE]
        start = max(start, s.loop_free[core.loop])
    start += cost
    if job.state == WAITING:
        unqueue(view, s.jobs, j)
        job.state, job.since_ns = RUNNING, now
        if hidden.last_core < 0:
            s.results[job.id].start_ns = start
    hidden.last_core, hidden.last_loop = c, core.loop
    job.as_of_ns = max(job.as_of_ns, start)
    if core.take > 1 and s.kinds[job.kind].batch_item_ns and not job.cores and hidden.riders < 0:
        board(now, start, j, core.take, s)
    unidle(view, s.cores, c)
    hold(s.jobs, s.cores, j, c)
    core.stage = free_stage(j, c, s) if s.kinds[job.kind].stages else 0
    core.since_ns = now
    s.quantum[c] = quantum_over(start, c, s)
    slot_time(c, s)
    s.world[GIVEN] += 1
    occupied(c, 1, s)
    touch(j, s)


@apart
def free_stage(j: Any, c: Any, s: State) -> Any:
    """The first stage of a job that none of its other cores does; the last one if all are done."""
    seen = 0
    r = s.jobs[j].first_core
    while r >= 0:
        if r != c:
            seen |= 1 << s.cores[r].stage
        r = s.cores[r].next
    stages = s.kinds[s.jobs[j].kind].stages
    for stage in range(stages):
        if not seen & (1 << stage):
            return stage
    return stages - 1


@inner
def stop(now: Any, j: Any, s: State) -> None:
    """A job that runs holds no core any more: it waits."""
    job = s.jobs[j]
    job.state, job.since_ns, job.as_of_ns = WAITING, now, now
    job.preempted += 1
    if s.hidden[j].riders >= 0:
        scatter(now, j, s)
    queue(s.told[0], s.jobs, j)


@inner
def depart(now: Any, j: Any, outcome: Any, s: State) -> None:
    """A job that holds no core and waits for none is gone."""
    job = s.jobs[j]
    leave(s.told[0], s.jobs, j)
    job.state = FREE
    row = s.results[job.id]
    row.outcome, row.finish_ns, row.attained_ns = outcome, now, job.attained_ns
    row.preempted, row.promised = job.preempted, job.promised
    s.free[s.world[FREE_SLOTS]] = j
    s.world[FREE_SLOTS] += 1
    s.world[DONE_JOBS] += outcome == OVER


@inner
def end(now: Any, j: Any, outcome: Any, s: State) -> None:
    """A job leaves for good."""
    job, view = s.jobs[j], s.told[0]
    advance(now, j, s)
    while job.first_core >= 0:
        release(now, job.first_core, s)
    if job.state == WAITING:
        unqueue(view, s.jobs, j)
    depart(now, j, outcome, s)
    rider = s.hidden[j].riders
    while rider >= 0:  # whoever rides with it ends with it
        after = s.jobs[rider].after
        depart(now, rider, outcome, s)
        rider = after


@apart
def unstart(now: Any, j: Any, s: State) -> None:
    """A job that waited was given fewer cores than it can go on with: it gets none, and is the next of its class."""
    job, hidden = s.jobs[j], s.hidden[j]
    s.world[REFUSED_GIFTS] += job.cores
    s.world[GIVEN] -= job.cores
    while job.first_core >= 0:
        release(now, job.first_core, s)
    requeue(s.told[0], s.jobs, j)
    job.state, job.as_of_ns = WAITING, now
    if job.attained_ns == 0.0:
        hidden.last_core, hidden.last_loop, job.since_ns = -1, -1, job.arrived_ns


@inner
def apply(now: Any, s: State) -> None:
    """Do what the policy said: take cores, then give them, in the order in which it said so."""
    view = s.told[0]
    c, order = view.changed, -1
    while c >= 0:
        core = s.cores[c]
        after = core.changed - 2
        core.changed = order + 2
        order = c
        core.pace = core.pace if 0.0 < core.pace <= 1.0 else 1.0
        core.share = core.share if core.share > 0.0 else 1.0
        core.quantum_ns = max(core.quantum_ns, 0)
        if core.job >= 0 and core.want != core.job:
            j = core.job
            release(now, c, s)
            if not s.jobs[j].cores:
                stop(now, j, s)
            else:  # it goes on with fewer
                s.jobs[j].as_of_ns = max(s.jobs[j].as_of_ns, now + s.kinds[s.jobs[j].kind].switch_ns)
        c = after
    view.changed = -1
    while order >= 0:
        core = s.cores[order]
        after, j = core.changed - 2, core.want
        core.changed = 0
        if j >= 0:
            riding = j < len(s.jobs) and s.jobs[j].state == RUNNING and not s.jobs[j].cores
            if j >= len(s.jobs) or s.jobs[j].state == FREE or s.jobs[j].promised == REFUSED or riding:
                s.world[REFUSED_GIFTS] += 1
            elif core.job == j:
                s.quantum[order] = quantum_over(max(now, s.jobs[j].as_of_ns), order, s)
                slot_time(order, s)
                renew(order, s)
            else:
                give(now, order, j, s)
        order = after
    for i in range(s.world[N_DIRTY]):
        j = s.dirty[i]
        if s.jobs[j].rate == 0.0 and 0 < s.jobs[j].cores < s.kinds[s.jobs[j].kind].min_cores:
            unstart(now, j, s)
    if view.n_refused:
        view.n_refused = 0
        j = view.first
        while j >= 0:
            after = s.jobs[j].next
            if s.jobs[j].promised == REFUSED:
                if s.jobs[j].state == RUNNING:  # it has begun
                    s.jobs[j].promised = 0
                else:
                    end(now, j, TURNED_AWAY, s)
            j = after


@inner
def decide(now: Any, event: Any, j: Any, c: Any, address: Any, tables: Any, s: State) -> None:
    """Have the policy called, now, or when an iokernel would: it needs `notice_ns`, may be at work, or only scans."""
    view = s.told[0]
    settle(now, s)
    if s.settings[TICKS_ONLY] and event != TICK and event != WOKEN:
        return
    if event != TICK and event != WOKEN and (s.settings[NOTICE] or s.loop_free[0] > now):
        at = max(now + s.settings[NOTICE], s.loop_free[0])
        s.world[WAKES_AT] = min(at, s.world[WAKES_AT])
        return
    for _ in range(MOST_CALLS):
        view.now_ns, view.event, view.job, view.core = now, event, j, c
        view.wake_ns = -1
        call_policy(address, tables)
        s.world[CALLS] += 1
        if view.astray:
            s.world[STUCK] = view.astray
            return
        if s.settings[DECIDE] or s.settings[LOOK]:
            took = s.settings[DECIDE] + s.settings[LOOK] * view.n_jobs
            s.loop_free[0] = max(s.loop_free[0], now) + took
            s.world[DECIDED_NS] += took
        same = True
        if view.changed >= 0 or view.n_refused:
            given, there, free = s.world[GIVEN], view.n_jobs, view.n_idle
            apply(now, s)
            settle(now, s)
            same = given == s.world[GIVEN] and there == view.n_jobs and free == view.n_idle
        if same and 0 <= view.wake_ns <= now:  # nothing has changed, so it would say the same
            view.wake_ns = -1
        if view.wake_ns < 0 or view.wake_ns > now:
            s.world[WAKES_AT] = view.wake_ns if view.wake_ns > now else FAR
            return
        event, j, c = WOKEN, -1, -1
    s.world[STUCK] = ASKS_FOR_EVER


@inner
def account(last: Any, now: Any, s: State) -> None:
    """Add what cores did between two events to the series."""
    if s.settings[WATCHED] and now > last:
        watch(last, now, s)
    while last < now:
        row = s.series[s.world[IN_BUCKET]]
        until = min(now, s.world[BUCKET_ENDS])
        row[HELD] += (until - last) * (s.told[0].n_cores - s.told[0].n_idle)
        row[WORKED] += (until - last) * s.flows[0]
        row[WAITED] += (until - last) * s.told[0].n_waiting
        last = until
        if until == s.world[BUCKET_ENDS]:
            s.world[IN_BUCKET] += 1
            there = s.world[IN_BUCKET] < len(s.series) - 1
            s.world[BUCKET_ENDS] = until + s.settings[BUCKET] if there else FAR


@inner
def ends(now: Any, c: Any, s: State) -> Any:
    """The job that core c leads is done with its phase. Returns the event that this is."""
    j = s.cores[c].job
    advance(now, j, s)
    s.jobs[j].progress_ns = s.hidden[j].phase_end_ns
    report(j, s)
    if s.jobs[j].phase + 1 < s.truth[s.jobs[j].kind].phases:
        set_phase(j, s.jobs[j].phase + 1, s)
        renew(c, s)
        return PHASE
    end(now, j, OVER, s)
    return DONE


@inner
def used_up(now: Any, c: Any, s: State) -> None:
    """The quantum of core c is over."""
    j = s.cores[c].job
    s.quantum[c] = FAR
    slot_time(c, s)
    advance(now, j, s)
    report(j, s)


@inner
def timed(now: Any, woken: Any, s: State) -> Any:
    """A tick is due, or a wake-up (woken). Returns the event that this is."""
    if woken:
        s.world[WAKES_AT] = FAR
        return WOKEN
    # Nothing is there and nothing will come: no more ticks.
    more = s.told[0].n_jobs or s.world[NEXT] < len(s.load)
    s.world[TICKS_AT] = max(now + s.settings[INTERVAL], s.loop_free[0]) if more else FAR
    j = s.told[0].first
    while j >= 0:
        advance(now, j, s)
        report(j, s)
        j = s.jobs[j].next
    return TICK


@apart
def stand_still(now: Any, s: State) -> None:
    """A core does nothing for a while, as the next row of `stops` says. Whoever has it goes on after that. While all of
    them do nothing, nobody sees what comes, or that a quantum is over."""
    i = s.world[NEXT_STOP]
    c, length = s.stops[i, 1], s.stops[i, 2]
    s.world[NEXT_STOP] = i + 1
    s.world[STOPS_AT] = s.stops[i + 1, 0] if i + 1 < len(s.stops) else FAR
    for row in range(c * s.settings[SEATS], (c + 1) * s.settings[SEATS]):
        s.stopped[row] = max(s.stopped[row], now) + length
        j = s.cores[row].job
        if j >= 0:
            advance(now, j, s)
            s.jobs[j].as_of_ns = max(s.jobs[j].as_of_ns, now) + length
            touch(j, s)
    settle(now, s)
    first = FAR
    for row in range(len(s.cores)):
        first = min(first, s.stopped[row])
    for event in (ARRIVES, TICKS_AT, WAKES_AT):
        s.world[event] = max(s.world[event], first)
    for row in range(len(s.cores)):
        if s.quantum[row] < first:
            s.quantum[row] = first
            slot_time(row, s)


# As in bench/sim: nothing is allocated in here, so numba's reference counts are off. Without the interpreter's lock, so
# that a thread can see that a policy does not come back.
@kept(also=Path(__file__).parent, nogil=True, _nrt=False)
def run(max_events: Any, until: Any, address: Any, tables: Any, s: State) -> None:
    """Run until `max_events` more events have happened, the clock is at `until`, or nothing is left to happen."""
    now, rows = s.world[NOW], len(s.cores)
    for _ in range(max_events):
        slot = s.tree[1]
        t = s.when[slot]
        for other in (ARRIVES, TICKS_AT, WAKES_AT, STOPS_AT):
            if s.world[other] < t:
                slot, t = rows + other, s.world[other]
        if t > until or s.world[STUCK]:
            break
        account(now, t, s)
        now = t
        s.world[EVENTS] += 1
        event, j, c = QUANTUM, -1, -1
        if slot < rows:
            c = slot
            j = s.cores[c].job
            if s.finish[c] <= now:
                event = ends(now, c, s)
            else:
                used_up(now, c, s)
        elif slot == rows + ARRIVES:
            event = ARRIVED
            j = arrive(now, s)
            if j < 0:  # there is no room for it
                continue
        elif slot == rows + STOPS_AT:
            stand_still(now, s)
            continue
        else:
            event = timed(now, slot == rows + WAKES_AT, s)
        decide(now, event, j, c, address, tables, s)
    s.world[NOW] = now
