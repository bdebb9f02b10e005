"""What the simulator refuses: each value that no world has, with its name and what would do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

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
from corelane.runtime.errors import CorelaneError

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize("value", [0, -5, NAN, INF, "7", None, True])
@pytest.mark.parametrize("of", [Constant, Exponential, lambda ns: LogNormal(ns, 1.0)])
def test_times_that_are_none(of: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(CorelaneError, match=r"mean time is .*a time in ns, more than 0"):
        of(value)


@pytest.mark.parametrize(
    ("of", "given", "said"),
    [
        (Bimodal, (0, 10, 0.5), "a Bimodal: short_ns is 0"),
        (Bimodal, (1, -10, 0.5), "long_ns is -10"),
        (Bimodal, (1, 10, 1.7), "long_share is 1.7 .a probability"),
        (Bimodal, (1, 10, NAN), "long_share is nan"),
        (LogNormal, (1, -1), "a LogNormal: sigma is -1"),
        (LogNormal, (1, INF), "sigma is inf"),
        (Trimodal, (0, 10, 100), "a Trimodal: short_ns is 0"),
        (Trimodal, (1, NAN, 100), "middle_ns is nan"),
        (Trimodal, (1, 10, -1), "long_ns is -1"),
        (BoundedPareto, (0, 10, 1.5), "a BoundedPareto: least_ns is 0"),
        (BoundedPareto, (1, INF, 1.5), "most_ns is inf"),
        (BoundedPareto, (10, 10, 1.5), "most_ns is 10 .more than least_ns"),
        (BoundedPareto, (1, 10, 0), "alpha is 0"),
        (BoundedPareto, (1, 10, NAN), "alpha is nan"),
    ],
)
def test_distributions_that_are_none(of: Callable[..., Any], given: tuple[Any, ...], said: str) -> None:
    with pytest.raises(CorelaneError, match=said):
        of(*given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rate_rps": -1e5}, "application 'a': rate_rps is -100000.0 .requests a second"),
        ({"rate_rps": INF}, "rate_rps is inf"),
        ({"rate_rps": NAN}, "rate_rps is nan"),
        ({"rate_rps": 1, "batch": True}, "batch work has no requests"),
        ({"service": 1000.0}, "service is 1000.0 .give Constant"),
        ({"guaranteed": -1}, "guaranteed is -1"),
        ({"guaranteed": 1.5}, "guaranteed is 1.5 .a whole number"),
        ({"maximum": 0}, "maximum is 0 .at least one core"),
        ({"maximum": 1, "guaranteed": 2}, "maximum is 1"),
        ({"weight": 0}, "weight is 0 .a whole number from 1 to 1000"),
        ({"weight": 1001}, "weight is 1001"),
        ({"weight": NAN}, "weight is nan"),
        ({"deadline_ns": -1}, "deadline_ns is -1"),
        ({"quantum_ns": -5}, "quantum_ns is -5"),
        ({"quantum_ns": 0.5}, "quantum_ns is 0.5"),
        ({"swing": 1.5, "phase_ns": 1}, "swing is 1.5 .a part of the rate"),
        ({"swing": NAN, "phase_ns": 1}, "swing is nan"),
        ({"swing": 0.5}, "phase_ns is 0 .the mean length of a turn"),
        ({"phase_ns": 5}, "phase_ns is 5"),
        ({"swing": 0.5, "phase_ns": 100, "constant_gaps": True}, "evenly spaced arrivals have none"),
    ],
)
def test_applications_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(CorelaneError, match=said):
        App("a", **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"move_busy_ns": -1}, "costs: move_busy_ns is -1"),
        ({"steal_ns": NAN}, "steal_ns is nan"),
        ({"preempt_ns": -1}, "preempt_ns is -1"),
        ({"pauses_ns": (100, -1), "pauses_per_s": 1.0}, "pauses_ns is -1"),
        ({"pauses_ns": (100,)}, "give both, or neither"),
        ({"pauses_per_s": 1.0}, "give both, or neither"),
        ({"pauses_ns": (100,), "pauses_per_s": NAN}, "pauses_per_s is nan"),
    ],
)
def test_costs_that_cannot_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(CorelaneError, match=said):
        Costs(**given)


LONE = App("a", rate_rps=1e5, guaranteed=1)


@pytest.mark.parametrize(
    ("apps", "cores", "given", "said"),
    [
        ([], 1, {}, "there is no application"),
        ([LONE], 0, {}, "cores is 0"),
        ([LONE], 1.5, {}, "cores is 1.5"),
        ([LONE], 1, {"loops": 0}, "loops is 0"),
        ([LONE], 1, {"interval_ns": -1}, "interval_ns is -1"),
        ([LONE], 1, {"slow_ns": -1}, "slow_ns is -1"),
        ([LONE], 1, {"shortest_ns": -1}, "shortest_ns is -1"),
        ([LONE, LONE], 2, {}, "two applications have the name 'a'"),
        ([App("a", guaranteed=2), App("b", guaranteed=1)], 2, {}, "3 guaranteed cores are more than 2"),
        ([App("a", rate_rps=1.0)], 2, {}, "static gives 'a' no core ever"),
    ],
)
def test_worlds_that_cannot_be(apps: list[App], cores: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(CorelaneError, match=said):
        Simulation(apps, cores, **given)


def test_what_is_at_the_edge_runs() -> None:
    """No rate at all, all of a bimodal long, more offered than can be served: these worlds are."""
    apps = [App("none", guaranteed=1), App("much", rate_rps=3e6, service=Bimodal(1, 1000, 1.0), guaranteed=1)]
    world = Simulation(apps, 2, seed=1)
    world.run(events=300_000)
    assert world.result("none").arrived == 0
    much = world.result("much")
    assert much.dropped > 0
    assert much.cores_worked == pytest.approx(1.0, rel=0.01)
