"""What the figure of attacks is compared with."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from corelane.bench.tcp import attack
from corelane.drivers.nic.tcpload.tcpload import ATTACKS, NEIGHBOUR


def points(*p99_us: float) -> list[Any]:
    return [SimpleNamespace(p99_us=value) for value in p99_us]


def found(**arms: list[Any]) -> dict[str, list[Any]]:
    """All arms: 20 us beside an attack unless said otherwise; alone 10, beside a neighbour 16."""
    of = {attack.ALONE: points(10, 10, 10), attack._arm(NEIGHBOUR): points(15, 16, 40)}
    return of | {attack._arm(kind): points(20, 20, 20) for kind in ATTACKS} | arms


def test_a_neighbour_who_does_no_harm_is_the_bound() -> None:
    said = attack._of_a_neighbour(found(**{attack._arm("SYN flood"): points(30, 48, 400)}))
    assert said == {
        f"bound: {NEIGHBOUR}": pytest.approx(1.6),
        f"the worst over {NEIGHBOUR} (SYN flood)": pytest.approx(3.0),
    }


def test_a_neighbour_whom_the_server_does_not_answer_is_none() -> None:
    assert attack._of_a_neighbour(found(**{attack._arm(NEIGHBOUR): points(15, math.inf, 16)})) == {}
