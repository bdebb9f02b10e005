"""A queue for each core of an application, and stealing between them: nothing is lost, no core idles beside what waits,
and where stealing costs nothing the mean wait is that of one queue, which is Erlang's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cltest import soak
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.bench.sim import engine, plain, queues, state
from corelane.bench.sim.model import App, Constant, Costs, Exponential, LogNormal, Simulation


def waiting_in(world: Simulation, a: int, line: int) -> list[int]:
    """Places of those that wait in a line, from its head on."""
    q, found = world._queues, []
    at = int(q.lines[a, line, queues.HEAD])
    while at >= 0:
        found.append(at)
        at = int(q.places[a, at, queues.BEHIND])
    return found


def check(world: Simulation) -> None:
    """Every place is in one line or free, lines in use are those in which anything waits, held cores are those owned,
    and of an application in which anything waits no core is idle."""
    q, core, app_n = world._queues, world._state.core, world._state.app_n
    for a, app in enumerate(world.apps):
        lines = {line: waiting_in(world, a, line) for line in range(world.cores)}
        used = q.used[a, : q.ends[a, queues.USED_LINES]].tolist()
        assert sorted(used) == [line for line, places in lines.items() if places]
        assert all(q.lines[a, line, queues.AT] == at for at, line in enumerate(used))
        assert all(q.lines[a, line, queues.TAIL] == places[-1] for line, places in lines.items() if places)
        assert not app.central or set(used) <= {0}
        behind = q.places[a, :, queues.BEHIND].tolist()
        free, at = [], int(q.ends[a, queues.FREE_PLACE])
        while at >= 0:
            free.append(at)
            at = behind[at]
        taken = [place for places in lines.values() for place in places]
        assert len(taken) == q.ends[a, queues.WAITING]
        assert sorted(taken + free) == list(range(Simulation.QUEUE))
        held = q.held[a, : app_n[a, 0]].tolist()
        assert sorted(held) == np.flatnonzero(core[:, 0] == a).tolist()
        assert all(core[c, 8] == at for at, c in enumerate(held))
        idle, at = [], int(app_n[a, 3])
        while at >= 0:
            idle.append(at)
            at = int(core[at, 4])
        assert sorted(idle) == np.flatnonzero((core[:, 0] == a) & (core[:, 1] == state.IDLE)).tolist()
        assert not (idle and taken)


@pytest.mark.soak(short=True, takes_s=50)
@settings(deadline=None, max_examples=soak.examples(12, 250))
@given(
    policy=st.sampled_from(["static", "shenango", "delay", "fair", "attained"]),
    seed=st.integers(0, 2**31),
    quantum=st.sampled_from([0, 500]),
    load=st.sampled_from([0.2, 0.7, 1.2]),
    central=st.booleans(),
    events=st.integers(1, 20_000),
)
def test_whatever_moves_the_queues_stay_whole(
    policy: str, seed: int, quantum: int, load: float, central: bool, events: int
) -> None:
    costs = Costs(move_busy_ns=2000, move_idle_ns=500, steal_ns=100, packet_ns=30, decide_ns=20, actuate_ns=50)
    rate = load * 3 / 1000 * 1e9
    how: dict[str, Any] = {"guaranteed": 1, "quantum_ns": quantum, "central": central}
    apps = [App(name, rate_rps=rate, service=Exponential(1000.0), **how) for name in ("a", "b")]
    world = Simulation(
        [*apps, App("batch", batch=True)], 6, policy=policy, costs=costs, seed=seed, urgent_ns=1000, slow_ns=1
    )
    for part in (events, 1, 1, 1):
        world.run(events=part)
        check(world)


def waited_ns(world: Simulation) -> int:
    """By all requests of the first application, those that still wait included."""
    q = world._queues
    so_far = [
        world.now_ns - int(q.places[0, place, queues.ARRIVED_AT])
        for line in range(world.cores)
        for place in waiting_in(world, 0, line)
    ]
    return int(world._times[0, state.WAIT]) + sum(so_far)


@pytest.mark.soak(short=True, takes_s=4)
@settings(deadline=None, max_examples=soak.examples(25, 500))
@given(
    cores=st.integers(1, 12), load=st.floats(0.1, 1.1), seed=st.integers(0, 2**31), until_us=st.integers(100, 50_000)
)
def test_free_stealing_of_equal_requests_is_one_queue(cores: int, load: float, seed: int, until_us: int) -> None:
    """Whoever is served first, as many wait at any time: so the waits sum to the same, to the ns."""
    worlds = []
    for central in (True, False):
        rate = load * cores / 10_000 * 1e9
        app = App("a", rate_rps=rate, service=Constant(10_000.0), guaranteed=cores, central=central)
        worlds.append(Simulation([app], cores, interval_ns=0, seed=seed))
        worlds[-1].run(until_ns=until_us * 1000)
    one, many = worlds
    assert one.result("a").done == many.result("a").done
    assert waited_ns(one) == waited_ns(many)


@pytest.mark.parametrize(
    "servers",
    [pytest.param(n, marks=[pytest.mark.soak(takes_s=2)] if n != 2 else ()) for n in plain.ROUNDS],
)
def test_free_stealing_has_erlangs_mean_wait(servers: int) -> None:
    seen = plain.mean_wait(servers, central=False)
    assert 0.001 < seen.standard_error < plain.GOAL
    assert abs(seen.error) < 3 * seen.standard_error


def two_cores(load: float, steal_ns: int, events: int = 400_000, **how: Any) -> Simulation:
    app = App("a", rate_rps=load * 2 / 10_000 * 1e9, service=Exponential(10_000.0), guaranteed=2, **how)
    world = Simulation([app], 2, interval_ns=0, costs=Costs(steal_ns=steal_ns), seed=3)
    world.run(events=events)
    return world


@pytest.mark.parametrize("load", [0.05, 0.5])
def test_a_steal_costs_what_it_costs(load: float) -> None:
    """Of two cores: half of the arrivals that find one core busy are stolen, and half of those that wait while one core
    has nothing of its own, which is more than none and less than all that wait."""
    world = two_cores(load, 1)
    done, steals = world.result("a").done, int(world._times[0, state.EXTRA])
    nobody = (1 - load) / (1 + load)  # M/M/2
    one = 2 * load * nobody
    assert one / 2 * 0.95 < steals / done < (one / 2 + (1 - nobody - one)) * 1.05
    assert int(two_cores(load, 250)._times[0, state.EXTRA]) == pytest.approx(250 * steals, rel=0.02)


def test_stealing_lengthens_the_wait_and_one_queue_pays_nothing() -> None:
    free, dear = two_cores(0.7, 0), two_cores(0.7, 2000)
    assert dear.result("a").mean_latency_ns > free.result("a").mean_latency_ns + 400
    assert two_cores(0.7, 2000, central=True)._times[0, state.EXTRA] == 0
    assert free.result("a").percentile_us(99) > two_cores(0.7, 0, central=True).result("a").percentile_us(99)


def test_with_full_queues_nobody_steals_and_flows_are_spread_evenly() -> None:
    app = App("a", rate_rps=2 * 8e5, service=Constant(10_000.0), guaranteed=8)
    world = Simulation([app], 8, interval_ns=0, costs=Costs(steal_ns=500), seed=5)
    world.run(until_ns=1_000_000)
    world.reset()
    world.run(until_ns=30_000_000)
    assert world._times[0, state.EXTRA] == 0
    received = [len(waiting_in(world, 0, line)) + 3000 for line in range(8)]  # each core did as many
    assert sum(received) == pytest.approx(1.6e6 * 0.03, rel=0.02)
    assert max(received) - min(received) < 8 * (sum(received) / 8) ** 0.5


def test_who_has_one_core_at_a_time_takes_its_queue_along() -> None:
    """Two applications of one core at most swap cores with batch work between them: nothing is a sibling's."""
    apps = [App(n, rate_rps=6e4, service=LogNormal(10_000.0, 1.0), maximum=1) for n in ("a", "b")]
    jobs = [App(n, batch=True) for n in ("c", "d")]
    costs = Costs(move_busy_ns=2000, move_idle_ns=500, steal_ns=700)
    world = Simulation([*apps, *jobs], 3, policy="shenango", costs=costs, urgent_ns=1000, seed=3)
    world.run(events=300_000)
    assert world.result("a").moves > 1000
    assert world._times[:2, state.EXTRA].sum() == 0
    check(world)


def test_policies_see_the_oldest_of_all_queues() -> None:
    world = Simulation([App("a", rate_rps=5e6, service=Constant(10_000.0), guaranteed=4)], 4, seed=2)
    for _ in range(50):
        world.run(events=100)
        first = [waiting_in(world, 0, line)[:1] for line in range(4)]
        queued = [int(world._queues.places[0, at[0], queues.QUEUED_AT]) for at in first if at]
        new, old = engine.oldest(world.now_ns, 0, world._queues)
        assert (new, old) == (max(world.now_ns - min(queued), 1) if queued else 0, 0)
