"""Where the time of cores and of slow requests goes: the sums balance, and the reasons are what they should be."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest

from corelane.bench.sim import state, studies
from corelane.bench.sim.model import App, Bimodal, Constant, Costs, Exponential, Simulation, Slow

COSTS = Costs(move_busy_ns=2000, move_idle_ns=500, steal_ns=100, packet_ns=100, decide_ns=20, actuate_ns=50)


def busy(policy: str, quantum_ns: int = 0, load: float = 0.7, **more: Any) -> Simulation:
    """Two latency applications and one of batch work on four cores; every request counts as slow."""
    service = Bimodal(2000.0, 20_000.0, 0.1)
    rate = load * 2 / service.moments()[0] * 1e9
    apps = [App(name, rate, service, guaranteed=1, quantum_ns=quantum_ns) for name in ("a", "b")]
    how: dict[str, Any] = {"costs": COSTS, "urgent_ns": 1000, "slow_ns": 1, "seed": 3} | more
    return Simulation([*apps, App("batch", batch=True)], 4, policy=policy, **how)


@pytest.mark.parametrize("quantum_ns", [0, 3000])
@pytest.mark.parametrize("policy", ["static", "shenango", "delay", "fair"])
def test_the_reasons_of_a_latency_sum_to_it(policy: str, quantum_ns: int) -> None:
    world = busy(policy, quantum_ns)
    world.run(events=200_000)
    for a, name in enumerate("ab"):
        slow = world.result(name).slow
        assert slow.n == world.result(name).done > 10_000
        assert sum(astuple(slow)[1:]) == world._times[a, state.SOJOURN]
        assert min(astuple(slow)) >= 0
        assert slow.in_iokernel >= slow.n * COSTS.packet_ns
        assert slow.on_core >= 0.9 * slow.n * 2000


@pytest.mark.parametrize("policy", ["static", "shenango", "delay", "fair"])
def test_the_time_of_cores_sums_to_all(policy: str) -> None:
    world = busy(policy)
    world.run(events=200_000)
    batch, held = world.result("batch"), world._times[:, state.HELD]
    # Batch work never idles: it has a core from the end of its move on.
    assert world._times[2, state.WORK] + world._times[2, state.MOVED] == held[2]
    assert held.sum() <= 4 * world.now_ns
    for name in "ab":
        seen = world.result(name)
        assert seen.cores_moving + seen.cores_extra + seen.cores_worked <= seen.cores_held + 1e-3
    nobody = 4 - sum(world.result(name).cores_held for name in ("a", "b", "batch"))
    assert 0 <= nobody < 1e-3 or batch.violations


def test_extra_time_is_that_of_the_costs() -> None:
    """Of each request, on cores of its own: a wake-up where the batch work waits for the core."""
    app = App("a", rate_rps=1e4, service=Constant(1000.0), guaranteed=1, constant_gaps=True)
    costs = Costs(wake_ns=300)
    world = Simulation([app, App("batch", batch=True)], 1, policy="static", urgent_ns=1000, costs=costs)
    world.run(until_ns=100_000_000)
    seen = world.result("a")
    assert world._times[0, state.EXTRA] == 300 * seen.done
    assert world._times[0, state.WORK] == 1000 * seen.done


def test_what_is_taken_in_the_middle_is_not_counted_twice() -> None:
    world = busy("fair", load=0.9)
    world.run(events=200_000)
    assert world._counts[:2, state.LOST].sum() > 1000
    for name in "ab":
        seen = world.result(name)
        assert 0 <= seen.cores_idle < 0.02
        assert 0 < seen.cores_extra < 0.1


def test_a_wait_for_a_core_on_its_way_is_for_the_move() -> None:
    app = App("a", rate_rps=2000, service=Constant(8000.0), constant_gaps=True)
    costs = Costs(move_busy_ns=3000, notice_ns=400)
    how: dict[str, Any] = {"urgent_ns": 1000, "slow_ns": 1, "costs": costs}
    world = Simulation([app, App("batch", batch=True)], 1, policy="shenango", **how)
    world.run(until_ns=100_250_000)
    slow = world.result("a").slow
    assert slow.for_decision == pytest.approx(400 * 200, abs=1000)  # one came right after a decision
    assert slow == Slow(200, 0, 3000 * 200, slow.for_decision, 0, 8000 * 200)


def test_a_wait_beside_other_requests_is_for_cores() -> None:
    world = Simulation(
        [App("a", rate_rps=9e4, service=Exponential(10_000.0), guaranteed=1)], 1, slow_ns=1, interval_ns=5000
    )
    world.run(events=100_000)
    seen = world.result("a")
    assert seen.slow.for_cores > 0.9 * seen.done * seen.mean_wait_ns
    assert seen.slow.for_move == 0


def test_only_slow_requests_are_judged() -> None:
    world = busy("delay", slow_ns=50_000)
    world.run(events=200_000)
    seen = world.result("a")
    over = int(seen.histogram[np.arange(len(seen.histogram)) > 0].sum())
    assert 0 < seen.slow.n < 0.1 * over
    assert sum(astuple(seen.slow)[1:]) > 50_000 * seen.slow.n
    world.reset()
    assert world.result("a").slow == Slow()


def measured(policy: str, cores: int, load: float, loops: int) -> studies.Seen:
    return studies.measure(studies.Point(policy, cores, load, loops), 0.0)


def test_a_loop_that_is_full_is_the_reason() -> None:
    """At 0.6 of 128 cores 7.7 requests a microsecond come, and a loop needs 150 ns for each."""
    seen = measured("delay", 128, 0.6, 1)
    assert not seen.carried
    assert seen.why_full().startswith("an iokernel loop is 1")
    assert sum(seen.shares().values()) == pytest.approx(1)


def test_the_policy_is_the_reason_where_it_gives_no_more() -> None:
    seen = measured("static", 16, 0.5, 1)
    assert not seen.carried
    assert seen.why_full() == "the policy gives the latency applications 25 % of the cores"
    assert seen.shares()["batch"] == pytest.approx(0.75, abs=0.01)


def test_the_cores_are_the_reason_beyond_all_that_they_can_do() -> None:
    seen = measured("shenango", 16, 1.05, 1)
    assert not seen.carried
    assert seen.why_full().startswith("they have 100 % of the cores (requests ")
    assert seen.shares()["requests"] > 0.9
    assert seen.why_slow().endswith(f"({seen.why_full().partition('(')[2]}")


@pytest.mark.parametrize("policy", studies.POLICIES)
def test_every_curve_ends_at_a_load_that_is_not_carried(policy: str) -> None:
    assert studies.LOADS[-1] > 1
    assert not measured(policy, 4, studies.LOADS[-1], 1).carried


def test_a_load_that_is_carried_has_parts_that_sum() -> None:
    seen = measured("delay", 64, 0.7, 4)
    row = seen.row()
    assert seen.carried
    assert sum(part for name, part in row.items() if name.startswith("cores_")) == pytest.approx(1)
    assert sum(part for name, part in row.items() if name.startswith("slow_")) == pytest.approx(
        1 if seen.kv.slow.n else 0
    )
    assert 0 < row["loop_decides"] < row["loop_busy"] < 1
    assert row["cores_requests"] == pytest.approx(0.7, rel=0.05)
