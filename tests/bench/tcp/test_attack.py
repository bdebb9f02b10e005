"""What the figure of attacks is compared with."""

from __future__ import annotations

import math

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
