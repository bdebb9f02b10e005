"""What is said of a cost whose goal lies where the cost may be (bench/trace/costs.py)."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.harness.tails import Slot
from corelane.bench.trace import costs, turns
from corelane.runtime.hist import Hist

FIGURE = "trace.p99_cost"  # at most 0.05
PAIRS = 40


def turn(p99_us: float, slow_us: float = 0.0) -> turns.Turn:
    """p99 of its middle window, and of all requests: slow_us, if that is more."""
    hist = Hist()
    hist.record(round(1e3 * max(p99_us, slow_us)), 10_000)
    point = Point(1e6, 1e6, 10_000, 10_000, seconds=0.03, hist=hist)
    point.set_percentiles(hist)
    return turns.Turn(1e6, p99_us, 10_000, Slot(point, 0.0))


def figure(full: list[float], again: list[float], slow_us: float = 0.0) -> dict[str, Any]:
    session = Session("trace", seconds=1, cores=[0], progress=io.StringIO())
    cycles = [
        {"off": turn(10.0), "full": turn(added, slow_us), costs.AGAIN: turn(noise)}
        for added, noise in zip(full, again, strict=True)
    ]
    costs._tail(session, FIGURE, turns.Cycles(cycles, cycles), 0.08)
    found: dict[str, Any] = session.figures[FIGURE]
    return found


def about(middle: float, by: float) -> list[float]:
    return [middle + by * (2 * i / (PAIRS - 1) - 1) for i in range(PAIRS)]


@pytest.mark.parametrize(("added", "met"), [(10.2, True), (12.0, False)])
def test_a_cost_is_judged_by_the_interval_of_its_pairs(added: float, met: bool) -> None:
    got = figure(about(added, 0.1), about(10.0, 0.1))
    assert got["met"] is met
    assert got["value"] == pytest.approx(added / 10 - 1)
    assert got["beside"]["95 % from"] < got["value"] < got["beside"]["95 % to"]


def test_one_within_its_noise_says_how_far_turns_without_a_difference_lie_apart() -> None:
    got = figure(about(10.6, 2.0), about(10.0, 2.0))
    assert got["met"] is None
    assert f"within its noise: with 95 % of {PAIRS} pairs" in got["reason"]
    beside = got["beside"]
    low, high = (beside[f"bound: off against off, 95 % {end}"] for end in ("from", "to"))
    assert low < 0 < high
    assert f"off against off: {low:.3g} to {high:.3g}" in got["reason"]


def test_what_middle_windows_do_not_show_is_not_called_met() -> None:
    got = figure(about(10.2, 0.1), about(10.0, 0.1), slow_us=50.0)
    assert got["met"] is None
    assert "of all requests" in got["reason"]
    assert got["beside"]["of all requests"] == pytest.approx(4, rel=0.1)


def test_a_server_that_does_less_has_more_requests_wait_for_a_stop() -> None:
    assert costs.delayed(0.0) == 0
    assert costs.delayed(0.25) == pytest.approx(0.5)
    assert costs.delayed(0.5) == float("inf")


def test_turns_once_more_without_tracing_are_without_it() -> None:
    runtime: Any = SimpleNamespace(trace="")
    served = costs._served(runtime, frozenset(), None)
    modes = []
    for mode in costs.TAILS:
        served.set_mode(mode)
        modes.append(runtime.trace)
    assert modes == ["off", "full", "off"]
