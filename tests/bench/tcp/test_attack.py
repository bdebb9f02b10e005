"""What the figure of attacks is compared with."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.tails import Slot, Taken
from corelane.bench.harness.tails.turns import Turn
from corelane.bench.tcp import attack
from corelane.drivers.nic.tcpload.tcpload import ATTACKS, NEIGHBOUR
from corelane.runtime.hist import Hist


def turns(*p99_us: float) -> list[Turn]:
    """Of a slot each, in which all requests took so long; at first ten times."""
    found: list[Turn] = []
    for value in p99_us:
        hist = Hist()
        if math.isinf(value):
            hist.record_infinite(100)
        else:
            hist.record(round(1e3 * value), 100)
        point = Point(1e3, 1e3, 100, 100, seconds=0.1, hist=hist, extra={attack.AT_FIRST: 10 * value})
        found.append([Slot(point, 0.0)])
    return found


def taken(**arms: list[Turn]) -> Taken:
    """All arms: 20 us beside an attack unless said otherwise; alone 10, beside a neighbour 16."""
    of = {attack.ALONE: turns(10, 10, 10), attack._arm(NEIGHBOUR): turns(16, 16, 16)}
    return Taken(of | {attack._arm(kind): turns(20, 20, 20) for kind in ATTACKS} | arms, {})


def test_a_neighbour_who_does_no_harm_is_the_bound() -> None:
    said = attack._of_a_neighbour(taken(**{attack._arm("SYN flood"): turns(48, 48)}))
    assert said == {
        f"bound: {NEIGHBOUR}": pytest.approx(1.6, rel=2e-3),
        f"the worst over {NEIGHBOUR} (SYN flood)": pytest.approx(3.0, rel=2e-3),
    }


def test_a_neighbour_whom_the_server_does_not_answer_says_nothing() -> None:
    said = attack._of_a_neighbour(taken(**{attack._arm(NEIGHBOUR): turns(16, math.inf, 16)}))
    assert said[f"bound: {NEIGHBOUR}"] == math.inf


def test_what_a_server_takes_at_first_stands_beside() -> None:
    said = attack._at_first(taken(**{attack._arm("ACK flood"): turns(50)}))
    assert said["ACK flood, at first"] == 5
    assert said["SYN flood, at first"] == 2


class Asked(Exception):
    """Of a comparison: seconds, and how long the turns of its arms are."""


@pytest.mark.parametrize(("run_s", "seconds", "turn_s"), [(30.0, attack.LONG_S, attack.TURN_S), (1.0, 0.1, 0.0)])
def test_a_run_that_is_judged_has_time_until_it_is(
    monkeypatch: pytest.MonkeyPatch, run_s: float, seconds: float, turn_s: float
) -> None:
    def compare(session: Any, figure: str, arms: Any, over: Any, seconds: float) -> None:
        raise Asked(seconds, {arm.turn_s for arm in arms.values()})

    monkeypatch.setattr(attack.tails, "compare", compare)
    session: Any = SimpleNamespace(seconds=run_s, two_cores=(0, 1), settings={})
    with pytest.raises(Asked) as asked:
        attack.measure(session, 0.1 * run_s)
    assert asked.value.args == (pytest.approx(seconds), {turn_s})
