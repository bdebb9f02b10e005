"""Requests that are preempted: what a preemption does and costs, by hand, and means that have a closed form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from corelane.bench.sim import formulas, preemption, state
from corelane.bench.sim.model import (
    App,
    Bimodal,
    BoundedPareto,
    Constant,
    Costs,
    Exponential,
    LogNormal,
    Simulation,
    Trimodal,
)
from corelane.bench.sim.sampling import carried


def world_of(service: Any, load: float, cores: int = 1, preempt_ns: int = 0, **app: Any) -> Simulation:
    """One application on cores of its own, with one queue unless told otherwise; slowdowns are noted."""
    rate = load * cores / service.moments()[0] * 1e9
    how = {"central": True, "guaranteed": cores} | app
    costs = Costs(preempt_ns=preempt_ns)
    return Simulation(
        [App("a", rate_rps=rate, service=service, **how)], cores, interval_ns=0, costs=costs, shortest_ns=1, seed=3
    )


@pytest.mark.parametrize("central", [True, False])
def test_a_preemption_by_hand(central: bool) -> None:
    """A comes at 6001, B at 12001, C at 18001, and each takes 10 us. At 10001 A goes on, since nothing waits. At 14001
    B takes the core and begins 1 us later; at 19001 A takes it, with 2 us left, and again after 1 us."""
    how: dict[str, Any] = {"constant_gaps": True, "quantum_ns": 4000, "central": central}
    world = world_of(Constant(10_000), 10 / 6, preempt_ns=1000, **how)
    world.run(until_ns=22_000)
    assert world.result("a").done == 0
    world.run(until_ns=22_001)
    seen = world.result("a")
    assert (seen.arrived, seen.done, seen.preemptions) == (3, 1, 2)
    assert seen.mean_latency_ns == 16_000
    assert seen.slowdown(50) == seen.mean_slowdown == pytest.approx(1.6, rel=1 / 64)
    assert world._times[0, state.EXTRA] == 2000  # C follows A, which has ended, for nothing


def test_who_is_alone_is_not_preempted() -> None:
    world = world_of(Constant(10_000), 0.5, preempt_ns=1000, constant_gaps=True, quantum_ns=100)
    world.run(until_ns=10_000_000)
    seen = world.result("a")
    assert seen.preemptions == 0
    assert seen.done > 400
    assert seen.mean_latency_ns == 10_000
    assert seen.slowdown(100) == 1


def test_preemptions_cost_what_they_cost() -> None:
    world = world_of(Exponential(10_000), 0.7, 4, preempt_ns=700, quantum_ns=2000)
    world.run(events=100_000)
    seen = world.result("a")
    assert seen.preemptions > 10_000
    assert world._times[0, state.EXTRA] == 700 * seen.preemptions
    assert seen.cores_extra == pytest.approx(700 * seen.preemptions / world.now_ns)
    world.reset()
    assert world.result("a").preemptions == world.result("a").slowdowns.sum() == 0


def test_with_a_quantum_longer_than_any_request_nothing_changes() -> None:
    service = Bimodal(5000, 50_000, 0.1)
    runs = []
    for quantum_ns in (0, 50_000):
        world = world_of(service, 0.8, 2, preempt_ns=1000, quantum_ns=quantum_ns)
        world.run(events=100_000)
        runs.append(world.result("a"))
    none, long = runs
    assert long.preemptions == 0
    assert np.array_equal(none.histogram, long.histogram)
    assert np.array_equal(none.slowdowns, long.slowdowns)


@pytest.mark.parametrize("one", preemption.CHECKS, ids=lambda one: one.name)
def test_means_are_those_of_theory(one: preemption.Check) -> None:
    """Seeds are fixed, and so is the answer. A quantum that is not 0 is off by some per cent of it."""
    seen = preemption.check(one, 4e6, seed=2)
    bias = one.quantum if one.quantum == preemption.SHORT else 0
    assert abs(seen.error) < 3 * seen.standard_error + bias
    assert seen.standard_error < 0.05


def test_a_cost_that_is_not_charged_is_found() -> None:
    dear = preemption.CHECKS[-1]
    seen = preemption.check(dear, 4e6)
    free = preemption.check(replace(dear, cost=0.0), 4e6)
    assert (1 + free.error) * replace(dear, cost=0.0).expected_ns < dear.expected_ns * (1 - 5 * seen.standard_error)


@pytest.mark.parametrize("service", [Bimodal(50_000, 500_000, 0.1), Trimodal(50_000, 100_000, 200_000)])
def test_with_a_small_quantum_the_slowdown_is_that_of_processor_sharing(service: Any) -> None:
    """1 / (1 - load) on average, of requests of each length; to completion the short ones' is far more."""
    world = world_of(service, 0.6, quantum_ns=1500)
    world.run(events=200_000)
    world.reset()
    world.run(events=4_000_000)
    assert world.result("a").mean_slowdown == pytest.approx(1 / (1 - 0.6), rel=0.05)


def test_shared_servers_by_hand() -> None:
    """One server is processor sharing, several are Erlang's, and a cost halves what is there beyond the servers."""
    assert formulas.mean_sojourn_shared(1, 0.005, 100) == pytest.approx(formulas.mean_sojourn_ps(0.005, 100))
    expected = formulas.mean_wait_mmn(8, 0.06, 100) + 100
    assert formulas.mean_sojourn_shared(8, 0.06, 100) == pytest.approx(expected)
    # Weights 1, 1/4, then each half of the one before: 1/8, 1/16 and so on.
    present, number = 1 + 1 / 2, 1 / 4 + sum(n / 2 ** (n + 1) for n in range(2, 60))
    assert formulas.mean_sojourn_shared(1, 0.0025, 100, slowed=2) == pytest.approx(number / present / 0.0025)


@pytest.mark.parametrize(
    ("service", "often"),
    [
        (Constant(10_000), 3),  # at 3, 6 and 9 us
        (Constant(9000), 2),  # and done at the third
        (Bimodal(1000, 10_000, 0.1), 0.3),
        (Trimodal(1000, 4000, 7000), 1),
        (Exponential(3000), 1 / (np.e - 1)),
    ],
)
def test_how_often_a_request_is_preempted_at_most(service: Any, often: float) -> None:
    assert formulas.preemptions(service.over, 3000) == pytest.approx(often)


@pytest.mark.parametrize(("part", "has_time"), [(0.95, True), (1.05, False)])
def test_no_load_is_carried_beyond_the_one_at_which_no_time_is_left(part: float, has_time: bool) -> None:
    service = Bimodal(2000, 50_000, 0.1)
    most = formulas.most_load(service.moments()[0], formulas.preemptions(service.over, 5000), 2000)
    assert most == pytest.approx(6800 / (6800 + 0.9 * 2000))
    world = world_of(service, part * most, 4, preempt_ns=2000, quantum_ns=5000)
    world.run(until_ns=2_000_000)
    world.reset()
    world.run(until_ns=40_000_000)
    seen = world.result("a")
    assert carried(seen) is has_time
    assert (seen.cores_worked + seen.cores_extra > 3.99) is not has_time


@pytest.mark.parametrize("service", [LogNormal(1000, 2.0), BoundedPareto(500, 1e6, 1.2), Exponential(1000)])
def test_short_requests_count_as_longer_where_that_is_asked(service: Any) -> None:
    """The bound is in the slowdown alone, which is never below 1."""
    runs = []
    for shortest_ns in (1, 2000):
        app = App("a", rate_rps=2e6, service=service, guaranteed=4, quantum_ns=5000)
        world = Simulation([app], 4, interval_ns=0, shortest_ns=shortest_ns, seed=3)
        world.run(events=50_000)
        runs.append(world.result("a"))
    exact, bounded = runs
    assert np.array_equal(exact.histogram, bounded.histogram)
    assert bounded.slowdowns.sum() == exact.slowdowns.sum() == exact.done
    assert bounded.slowdowns[: state.ONE].sum() == exact.slowdowns[: state.ONE].sum() == 0
    assert bounded.slowdown(99.9) < exact.slowdown(99.9)


def test_without_being_asked_for_there_are_no_slowdowns() -> None:
    world = Simulation([App("a", rate_rps=1e5, guaranteed=1)], 1, interval_ns=0)
    world.run(events=1000)
    assert world.result("a").slowdowns.sum() == 0
    assert np.isnan(world.result("a").slowdown(50))
