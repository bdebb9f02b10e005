"""What preemption costs, from made-up loads of which it is known."""

from __future__ import annotations

import math

import pytest

from corelane.bench.bimodal import cost
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session

NAMES = ("bimodal.preemption_ns", "bimodal.throughput_loss")


def load(handled: int, preempted: int, each_ns: float, answered: int = 900) -> Point:
    """A load that used the core up: 3.5 us of service a request, 400 ns of the stack, and its preemptions."""
    service_s = 3.5e-6 * handled
    point = Point(1000.0, float(answered), 1000, answered)
    cpu_s = service_s + 400e-9 * handled + 1e-9 * each_ns * preempted
    point.extra |= {"cpu_s": cpu_s, "service_s": service_s, "handled": handled, "preempted": preempted}
    return point


def test_a_preemption_costs_what_neither_service_nor_requests_took() -> None:
    session = Session("bimodal", seconds=0.1)
    without = [load(10_000, 0, 0.0), load(12_000, 0, 0.0), load(9_000, 0, 0.0)]
    with_it = [load(11_000, 5_000, 250.0, 990), load(10_000, 4_500, 300.0, 990), load(9_500, 4_000, 900.0, 990)]
    cost.set_figures(session, NAMES, without, with_it)
    figure, loss = (session.figures[name] for name in NAMES)
    assert figure["runs"] == pytest.approx([250.0, 300.0, 900.0])
    assert figure["value"] == pytest.approx(300.0)
    assert figure["met"] is None
    assert figure["beside"]["preemptions a long request"] == pytest.approx(4500 / 50)
    expected = [1 - 3.9 / (3.9 + 0.25 * 5 / 11), 1 - 3.9 / (3.9 + 0.3 * 0.45), 1 - 3.9 / (3.9 + 0.9 * 40 / 95)]
    assert loss["runs"] == pytest.approx(expected)
    assert loss["beside"]["answered a second, with / without"] == pytest.approx(1.1)


def test_a_load_without_preemptions_has_no_price_of_one() -> None:
    session = Session("bimodal", seconds=0.1)
    one = load(10_000, 0, 0.0)
    cost.set_figures(session, NAMES, [one], [one])
    assert math.isnan(cost.preemption_ns(cost.Used(2, 1, 3, 0), cost.Used(2, 1, 3, 0)))
    assert session.figures[NAMES[0]]["value"] is None
    assert session.figures[NAMES[0]]["reason"].startswith("no request was preempted")
    assert session.figures[NAMES[1]]["value"] == 0


def test_a_load_whose_rest_was_not_worked_off_is_not_counted() -> None:
    session = Session("bimodal", seconds=0.1)
    cut = Point(1000.0, 900.0, 1000, 900)
    cost.set_figures(session, NAMES, [load(10_000, 0, 0.0)], [cut])
    for name in NAMES:
        assert session.figures[name]["value"] is None
        assert "not worked off in time" in session.figures[name]["reason"]
