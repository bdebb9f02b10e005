"""The simulator against queueing theory, and what must hold in any world."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cltest import soak
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import cfunc, types

from corelane.bench.sim import engine, formulas, queues, recursion, studies
from corelane.bench.sim.model import (
    App,
    Bimodal,
    Constant,
    Costs,
    Exponential,
    LogNormal,
    Simulation,
    Trimodal,
    bucket_middle_ns,
)
from corelane.runtime.errors import CorelaneError


def alone(service: Any, load: float, servers: int = 1, events: int = 600_000, **more: Any) -> Any:
    """One application on its own cores, warmed up."""
    rate = load * servers / service.moments()[0] * 1e9
    world = Simulation([App("a", rate_rps=rate, service=service, guaranteed=servers)], servers, interval_ns=0, **more)
    world.run(events=100_000)
    world.reset()
    world.run(events=events)
    return world.result("a")


@pytest.mark.parametrize("servers", [1, *(pytest.param(n, marks=pytest.mark.soak(takes_s=1)) for n in (2, 8)), 64])
def test_mean_wait_is_erlangs(servers: int) -> None:
    seen = alone(Exponential(100_000.0), 0.8, servers, events=4_000_000)
    expected = formulas.mean_wait_mmn(servers, 0.8 * servers / 1e5, 1e5)
    assert seen.mean_wait_ns == pytest.approx(expected, rel=0.06)
    assert seen.cores_worked == pytest.approx(0.8 * servers, rel=0.01)


@pytest.mark.parametrize(
    "service",
    [pytest.param(Constant(1e5), marks=pytest.mark.soak(takes_s=1)), LogNormal(1e5, 0.8), Bimodal(5e4, 1e6, 0.02)],
)
def test_mean_wait_is_pollaczek_and_khinchines(service: Any) -> None:
    seen = alone(service, 0.7, events=4_000_000)
    first, second = service.moments()
    assert seen.mean_wait_ns == pytest.approx(formulas.mean_wait_mg1(0.7 / first, first, second), rel=0.04)


def test_the_iokernel_is_a_server_of_constant_service() -> None:
    app = App("a", rate_rps=4e6, service=Constant(10.0), guaranteed=16)
    world = Simulation([app], 16, interval_ns=0, costs=Costs(packet_ns=200))
    world.run(events=100_000)
    world.reset()
    world.run(events=3_000_000)
    expected = formulas.mean_wait_mg1(4e-3, 200, 200**2) + 210
    assert world.result("a").mean_latency_ns == pytest.approx(expected, rel=0.03)


def test_the_loop_is_compiled_once_also_for_whole_numbers() -> None:
    """Else who gives times in whole ns waits for another ten seconds of compilation."""
    for service in (Exponential(1e5), Trimodal(50_000, 100_000, 200_000), Constant(1000)):
        Simulation([App("a", rate_rps=1000, service=service, guaranteed=1)], 1).run(events=10)
    assert len(engine.run.signatures) == 1


@pytest.mark.parametrize("service", [Exponential(1e5), LogNormal(1e5, 1.0)])
@pytest.mark.parametrize("servers", [1, 2, 7, 64])
def test_every_wait_is_the_recursions(servers: int, service: Any) -> None:
    rate = 0.9 * servers / service.moments()[0] * 1e9
    app = App("a", rate_rps=rate, service=service, guaranteed=servers, central=True)
    world = Simulation([app], servers, interval_ns=0, seed=3)
    world.run(events=30_000)
    skip, _ = world.progress("a")
    world.reset()
    waiting, _ = world.progress("a")
    world.run(events=200_000)
    n, waits = world.progress("a")
    assert n - waiting > 90_000
    assert recursion.sums(*world.draws("a"), servers, skip, n - waiting)[0] == waits


def test_the_control_variate_hides_no_error() -> None:
    right = studies.Checked(1000, 101.0, 1.0, 101.0, 10.0, 9.0, 1.0)
    assert studies.judge(right, 100.0, 0.1, 9.0) == 0
    assert studies.judge(replace(right, recursion_wait_ns=100.0), 100.0, 0.1, 9.0) == pytest.approx(0.01)
    assert studies.judge(replace(right, mean_gap_ns=10.2), 100.0, 0.1, 9.0) == pytest.approx(0.02)
    assert studies.judge(replace(right, mean_service_ns=9.9), 100.0, 0.1, 9.0) == pytest.approx(0.1)
    far = replace(right, mean_wait_ns=105.0, recursion_wait_ns=105.0)  # five standard errors
    assert studies.judge(far, 100.0, 0.1, 9.0) == pytest.approx(0.05)


def test_erlang_c_by_hand() -> None:
    assert formulas.erlang_c(1, 0.5) == pytest.approx(0.5)
    assert formulas.erlang_c(2, 1.0) == pytest.approx(1 / 3)


def test_jains_index_by_hand() -> None:
    assert formulas.jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert formulas.jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert formulas.jain([1.0, 2.0]) == pytest.approx(9 / 10)
    assert np.isnan(formulas.jain([0.0, 0.0]))


def mixed(policy: Any, seed: int, **more: Any) -> Simulation:
    """A latency and a batch application on four cores, with every cost."""
    costs = Costs(move_busy_ns=2000, move_idle_ns=500, steal_ns=100, packet_ns=100, decide_ns=20, actuate_ns=50)
    apps = [App("kv", rate_rps=1.5e6, service=Exponential(1000.0), guaranteed=1, **more), App("batch", batch=True)]
    return Simulation(apps, 4, policy=policy, costs=costs, seed=seed)


@pytest.mark.parametrize("policy", ["static", "shenango", "delay", "fair"])
def test_same_seed_same_run(policy: str) -> None:
    runs = []
    for _ in range(2):
        world = mixed(policy, seed=9)
        world.run(events=150_000)
        kv, batch = world.result("kv"), world.result("batch")
        runs.append((world.now_ns, kv.done, kv.moves, kv.mean_latency_ns, batch.cores_worked, kv.histogram.tolist()))
    assert runs[0] == runs[1]
    other = mixed(policy, seed=10)
    other.run(events=150_000)
    assert other.now_ns != runs[0][0]


@settings(deadline=None, max_examples=25)
@given(
    policy=st.sampled_from(["static", "shenango", "delay", "fair", "attained"]),
    seed=st.integers(0, 2**31),
    quantum=st.sampled_from([0, 500, 5000]),
    events=st.integers(1, 30_000),
)
def test_nothing_is_lost_and_no_core_has_two_owners(policy: str, seed: int, quantum: int, events: int) -> None:
    world = mixed(policy, seed, quantum_ns=quantum)
    world.run(events=events)
    kv = world.result("kv")
    core, app_n = world._state[3], world._state[5]
    running = int(np.sum((core[:, 0] == 0) & (core[:, 1] == engine.BUSY)))
    queued = int(world._queues.ends[0, queues.WAITING])
    passing = int(np.sum(world._loops[:, 2] - world._loops[:, 1]))
    assert kv.arrived == kv.done + kv.dropped + running + queued + passing
    for a in range(2):
        assert app_n[a, 0] == np.sum(core[:, 0] == a)
        assert app_n[a, 1] == np.sum((core[:, 0] == a) & (core[:, 1] == engine.IDLE))
        assert app_n[a, 2] == np.sum((core[:, 0] == a) & (core[:, 1] == engine.BATCHING))
        assert app_n[a, 4] == np.sum((core[:, 0] == a) & (core[:, 1] == engine.MOVING))
    assert kv.cores_held + world.result("batch").cores_held <= 4 + 1e-9


@pytest.mark.parametrize("policy", ["shenango", "delay", "fair", "attained"])
def test_work_conserving(policy: str) -> None:
    world = mixed(policy, seed=4)
    world.run(events=500_000)
    assert world.result("kv").violations == 0
    assert world.result("batch").violations == 0


def test_preemption_helps_short_requests() -> None:
    service = Bimodal(1000.0, 500_000.0, 0.005)
    plain = alone(service, 0.6, events=2_000_000, seed=3)
    rate = 0.6 / service.moments()[0] * 1e9
    app = App("a", rate_rps=rate, service=service, guaranteed=1, quantum_ns=5000)
    world = Simulation([app], 1, interval_ns=0, seed=3)
    world.run(events=4_000_000)
    assert world.result("a").percentile_us(90) < plain.percentile_us(90) / 10


SERVICES = Constant(1e5), Exponential(1e5), LogNormal(1e5, 1.2), Bimodal(5e4, 5e5, 0.1)


@pytest.mark.parametrize(("service", "load"), soak.pairs(SERVICES, (0.8, 0.5)))
def test_with_a_small_quantum_the_mean_time_is_that_of_processor_sharing(service: Any, load: float) -> None:
    """It depends on the mean of the service alone, where it would be that of Pollaczek and Khinchine without."""
    mean, second = service.moments()
    rate = load / mean
    app = App("a", rate_rps=rate * 1e9, service=service, guaranteed=1, quantum_ns=int(mean / 30))
    world = Simulation([app], 1, interval_ns=0, seed=5)
    world.run(events=500_000)
    world.reset()
    world.run(events=8_000_000)
    seen = world.result("a").mean_latency_ns
    assert seen == pytest.approx(formulas.mean_sojourn_ps(rate, mean), rel=0.04)
    to_completion = formulas.mean_wait_mg1(rate, mean, second) + mean
    assert abs(seen - to_completion) > 0.1 * to_completion or second == 2 * mean**2


def test_a_policy_of_the_users_own_and_one_that_gives_nothing() -> None:
    @cfunc(types.void(types.uint64, types.uint64))  # type: ignore[untyped-decorator]
    def asks_for_nothing(view: int, apps: int) -> None:
        """A policy that leaves every grant as it was: 0."""

    world = mixed(asks_for_nothing, seed=1)
    world.run(events=20_000)
    kv = world.result("kv")
    # The mechanism still gives a guaranteed core to whoever has work.
    assert kv.done > 0
    assert kv.cores_held <= 1.0 + 1e-9
    # The other three stand idle beside batch work at every decision, which is seen.
    assert world.result("batch").violations == world._world[engine.TICKS] > 0


def test_an_unknown_policy_is_refused_by_name() -> None:
    with pytest.raises(CorelaneError, match="shenango"):
        mixed("nonesuch", seed=1)


@given(st.integers(0, 1 << 50))
def test_buckets_hold_their_values(value: int) -> None:
    middle = bucket_middle_ns(engine.bucket_of(value))
    assert middle == pytest.approx(value, rel=1 / 64, abs=0.5)
