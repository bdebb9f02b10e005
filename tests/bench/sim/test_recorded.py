"""Recorded loads, and the simulator that replays them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane.bench.sim.box import drawn
from corelane.bench.sim.model import App, Costs, Exponential, Simulation
from corelane.bench.sim.recorded import Recorded
from corelane.runtime.errors import CorelaneError

LOAD = Recorded([100, 200, 5000], [50, 60, 70], [0, 1, 0])


def test_it_comes_back_from_a_file(tmp_path: Path) -> None:
    LOAD.write(tmp_path / "load.npz")
    again = Recorded.read(tmp_path / "load.npz")
    for name in ("at_ns", "service_ns", "kind"):
        assert (getattr(again, name) == getattr(LOAD, name)).all()


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        (([1, 2], [5]), "differ in length"),
        (([2, 1], [5, 5]), "not ascending"),
        (([0], [5]), "not ascending"),
        (([1], [0]), "less than 1 ns"),
    ],
)
def test_what_is_no_load_is_refused(arrays: Any, why: str) -> None:
    with pytest.raises(CorelaneError, match=why):
        Recorded(*arrays)


def test_longer_requests() -> None:
    assert LOAD.longer(5).service_ns.tolist() == [55, 65, 75]
    assert LOAD.longer(-55).service_ns.tolist() == [1, 5, 15]
    assert LOAD.longer(5).kind.tolist() == [0, 1, 0]


def test_two_applications_replay_their_own() -> None:
    world = Simulation([App("a", recorded=LOAD, guaranteed=1), App("b", recorded=LOAD.longer(10), guaranteed=1)], 2)
    world.run(until_ns=LOAD.until_ns)
    for name, service in (("a", [50, 60, 70]), ("b", [60, 70, 80])):
        at, latency = world.latencies_ns(name)
        assert at.tolist() == [100, 200, 5000]
        assert latency.tolist() == service
        assert world.result(name).done == 3


def test_a_drawn_load_replayed_is_the_drawn_world() -> None:
    """The mean wait is the same to the ns, as the arrivals and lengths are."""
    app = App("a", rate_rps=40_000, service=Exponential(20_000.0), guaranteed=1, central=True)
    world = Simulation([app], 1, interval_ns=0, seed=4)
    load = drawn(app.rate_rps, app.service, 3000, seed=4)
    world.run(until_ns=int(load.at_ns[-1]))
    again = Simulation([App("a", recorded=load, guaranteed=1, central=True)], 1, interval_ns=0)
    again.run(until_ns=int(load.at_ns[-1]))
    assert world.result("a").mean_wait_ns == again.result("a").mean_wait_ns
    assert (world.result("a").histogram == again.result("a").histogram).all()


def test_pauses_of_the_loop_hold_up_arrivals_and_answers() -> None:
    load = Recorded([1000, 20_000], [3000, 3000])
    pauses = [[500, 1, 2000], [22_500, 1, 4000]]  # before the first comes; when the second one's answer is ready
    world = Simulation([App("a", recorded=load, guaranteed=1)], 1, pauses=pauses, costs=Costs(), interval_ns=0)
    world.run(until_ns=load.until_ns)
    assert world.latencies_ns("a")[1].tolist() == [4500, 6500]


@pytest.mark.parametrize("pauses", [[[5, 2, 1]], [[5, 0, 1], [4, 0, 1]], [[5, -1, 1]]])
def test_pauses_that_cannot_be_are_refused(pauses: Any) -> None:
    with pytest.raises(CorelaneError, match="pauses are not of its cores"):
        Simulation([App("a", recorded=LOAD, guaranteed=1)], 1, pauses=pauses)


def test_an_application_has_drawn_requests_or_recorded_ones() -> None:
    with pytest.raises(CorelaneError, match="recorded"):
        App("a", rate_rps=1.0, recorded=LOAD)
    with pytest.raises(CorelaneError, match="batch work has no requests"):
        App("a", batch=True, recorded=LOAD)
    assert len(np.unique(LOAD.kind)) == 2
