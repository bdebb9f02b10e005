"""How fast a job goes on the cores that it holds. docs/lab.md has the model; README.md names its parameters.

A job goes on at a constant rate between two changes: of its cores, of who shares them, of what its loop has left. A
change makes the jobs that it touches dirty; `settle` finds their rates and when they are done.
"""

from __future__ import annotations

from typing import Any

from ..sim.engine import schedule
from .state import FAR, LOSSES, N_DIRTY, RESOURCES, SEATS, State, apart, inner
from .table import FREE, MEMORY, N_RESOURCES


@inner
def touch(j: Any, s: State) -> None:
    """The job's rate has to be found anew."""
    if not s.hidden[j].dirty:
        s.hidden[j].dirty = 1
        s.dirty[s.world[N_DIRTY]] = j
        s.world[N_DIRTY] += 1


@inner
def advance(now: Any, j: Any, s: State) -> None:
    """Bring what a job has done and held up to now."""
    job = s.jobs[j]
    job.attained_ns += job.cores * (now - job.held_of_ns)
    job.held_of_ns = now
    if now > job.as_of_ns:
        job.progress_ns += (now - job.as_of_ns) * job.rate
        job.as_of_ns = now


@inner
def slot_time(c: Any, s: State) -> None:
    """Schedule what comes first on a core: its job's end or the end of its quantum."""
    schedule(s.when, s.tree, c, min(s.finish[c], s.quantum[c]))


@inner
def occupied(c: Any, by: Any, s: State) -> None:
    """Row c was given (by 1) or taken (-1): what that changes for who shares its core, its sibling and its loop."""
    core = s.cores[c].core
    seats = s.settings[SEATS]
    s.busy[core] += by
    if seats > 1:
        _share_out(core, seats, s)
    pair = s.pair[core]
    if pair >= 0 and s.busy[core] == (1 if by > 0 else 0):  # it began or ended to be in use
        for r in range(pair * seats, (pair + 1) * seats):
            if s.cores[r].job >= 0:
                touch(s.cores[r].job, s)
    if s.settings[RESOURCES]:
        s.loop_dirty[s.cores[c].loop] = 1


@apart
def _share_out(core: Any, seats: Any, s: State) -> None:
    """Max-min shares of a core by weight, among jobs that want `use` of it."""
    wanted, weights = 0.0, 0.0
    for r in range(core * seats, (core + 1) * seats):
        if s.cores[r].job >= 0:
            wanted += s.jobs[s.cores[r].job].use
            weights += s.cores[r].share
            touch(s.cores[r].job, s)
    level = -1.0
    if wanted > 1.0:
        level = 1.0 / weights
        while True:  # each turn finds who wants less than its share, and deals what these leave
            left, rest = 1.0, 0.0
            for r in range(core * seats, (core + 1) * seats):
                if s.cores[r].job >= 0:
                    use = s.jobs[s.cores[r].job].use
                    if use <= s.cores[r].share * level:
                        left -= use
                    else:
                        rest += s.cores[r].share
            if rest <= 0.0 or left / rest <= level:
                break
            level = left / rest
    s.level[core] = level


@apart
def _loop_resources(loop: Any, s: State) -> None:
    """Find what part of the demands for each resource a loop can serve: who was given an amount has it, the others
    share what is left by their demand."""
    for r in range(N_RESOURCES):
        if r == MEMORY:  # is not shared: who finds none left gets no core
            continue
        given, asked = 0.0, 0.0
        for c in range(len(s.cores)):
            if s.cores[c].loop == loop and s.cores[c].job >= 0:
                job = s.jobs[s.cores[c].job]
                if job.alloc[r] > 0.0:
                    given += min(job.alloc[r], job.demand[r])
                else:
                    asked += job.demand[r]
        s.told[0].used[loop * N_RESOURCES + r] = given + asked
        left = max(s.told[0].capacity[r] - given, 0.0)
        part = 1.0 if asked <= left else left / asked
        if part != s.squeeze[loop * N_RESOURCES + r]:
            s.squeeze[loop * N_RESOURCES + r] = part
            for c in range(len(s.cores)):
                if s.cores[c].loop == loop and s.cores[c].job >= 0:
                    touch(s.cores[c].job, s)


@inner
def _scarce(job: Any, loop: Any, s: State) -> Any:
    """By which factor the scarcest resource slows a job on a core of that loop."""
    least = 1.0
    for r in range(N_RESOURCES):
        if job.demand[r] > 0.0:
            given = job.alloc[r] > 0.0
            least = min(least, job.alloc[r] / job.demand[r] if given else s.squeeze[loop * N_RESOURCES + r])
    return least


@inner
def _rate(j: Any, s: State) -> Any:
    """A job's rate, and the cores' worth of time that it takes."""
    job, truth, kind = s.jobs[j], s.truth[s.jobs[j].kind], s.kinds[s.jobs[j].kind]
    job.batch = min(max(job.batch, 1.0), kind.max_batch)
    if job.cores < kind.min_cores or job.cores == 0:
        return 0.0, 0.0
    burn, total, slowest, fastest, bound, scarce = 0.0, 0.0, 1e300, 0.0, 1e300, 1.0
    loops = 0
    c = job.first_core
    while c >= 0:
        core = s.cores[c]
        v = core.speed * core.pace
        part = job.use * core.pace
        level = s.level[core.core]
        if level >= 0.0 and core.share * level < job.use:
            v *= core.share * level / job.use
            part = core.share * level * core.pace
        pair = s.pair[core.core]
        if pair >= 0 and s.busy[pair]:
            v *= s.told[0].pair_speed
        if s.settings[RESOURCES]:
            scarce = min(scarce, _scarce(job, core.loop, s))
        burn += part
        total += v
        slowest, fastest = min(slowest, v), max(fastest, v)
        loops |= 1 << core.loop
        piece = kind.stage[core.stage] if kind.stages else core.part
        if piece > 0.0:
            bound = min(bound, v / piece)
        c = core.next
    k = job.cores
    if k == 1 and not kind.stages and job.batch == 1.0:
        return slowest * scarce, burn
    whole = bound if bound < 1e300 else k * slowest
    spread = -1
    while loops:
        spread += 1
        loops &= loops - 1
    step = (1.0 - truth.serial) * job.batch / whole + truth.serial / fastest
    step += truth.sync * (k - 1) + truth.spread * spread
    useful = (truth.noise + 1.0) / (truth.noise + job.batch) if truth.noise > 0.0 else 1.0
    return job.batch / step * useful * scarce, burn


@inner
def settle(now: Any, s: State) -> None:
    """Find the rates of all dirty jobs, and when they are done."""
    if s.settings[RESOURCES]:
        for loop in range(s.told[0].n_loops):
            if s.loop_dirty[loop]:
                s.loop_dirty[loop] = 0
                _loop_resources(loop, s)
    for i in range(s.world[N_DIRTY]):
        j = s.dirty[i]
        s.hidden[j].dirty = 0
        job = s.jobs[j]
        if job.state == FREE:  # it is over
            s.flows[0] -= s.hidden[j].burn
            job.rate = 0.0
            continue
        advance(now, j, s)
        rate, burn = _rate(j, s)
        s.flows[0] += burn - s.hidden[j].burn
        s.hidden[j].burn = burn
        job.rate = rate
        lead = job.first_core
        if lead >= 0:
            s.finish[lead] = FAR
            if rate > 0.0:
                left = max(s.hidden[j].phase_end_ns - job.progress_ns, 0.0)
                s.finish[lead] = max(job.as_of_ns, now) + int(left / rate + 0.5)
            slot_time(lead, s)
    s.world[N_DIRTY] = 0


@inner
def report(j: Any, s: State) -> None:
    """What a job says of itself beside its progress: its loss; and what oracles see of it."""
    job, truth = s.jobs[j], s.truth[s.jobs[j].kind]
    if s.settings[LOSSES] and truth.loss_scale > 0.0:
        job.loss = truth.loss_floor + 1.0 / (1.0 + job.progress_ns / truth.loss_scale)
    if len(s.future):
        s.future[j].remaining_ns = s.hidden[j].total_ns - job.progress_ns
