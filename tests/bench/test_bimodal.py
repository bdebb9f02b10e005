"""How bimodal sums up: windows of all turns in a row, and a pause of the machine in some of them."""

from __future__ import annotations

import math

import pytest

from corelane.bench import bimodal
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session


def turn(*short_p99_us: float) -> Point:
    """Of some windows, each of 100 short requests and one long."""
    point = Point(1e5, 1e5, 101 * len(short_p99_us), 101 * len(short_p99_us))
    for kind, requests, windows in (("short", 100, list(short_p99_us)), ("long", 1, [900.0])):
        point.extra[f"{kind}_requests"] = requests * len(short_p99_us)
        point.extra |= {f"{kind}_{name}_us": 1.0 for name in ("p50", "p90", "p99", "p999")}
        point.extra[f"{kind}_p99_windows_us"] = windows
    return point


def test_a_row_has_the_median_of_all_windows() -> None:
    session = Session("bimodal", seconds=0.1)
    bimodal.add_row(session, "quantum", 0.6, [turn(8.0, 9.0, 4000.0), turn(10.0, math.inf, 7.0)])
    (row,) = session.arms
    assert row["load"] == 0.6
    assert row["short_requests"] == 600
    assert row["short_windows"] == 6
    assert row["short_p99_window_us"] == pytest.approx(9.5)
    assert (row["short_p99_window_lower_us"], row["short_p99_window_upper_us"]) == (8.0, 4000.0)
    assert row["long_p99_window_us"] == 900.0
    assert "short_p99_windows_us" not in row


def test_a_window_without_long_requests_says_nothing_of_them() -> None:
    assert math.isnan(bimodal.middle_us([]))
    assert bimodal.middle_us([1.0, 2.0, 3.0]) == 2.0
