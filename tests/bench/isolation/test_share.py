"""What a neighbour leaves of the victim's capacity, and what that makes of a tail."""

from __future__ import annotations

import math

import pytest

from corelane.bench.harness.jitter import Gaps, delay_us
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.isolation import share

QUIET = [Gaps(0, 1.0, buckets={1e6: (100, 1e8)}), Gaps(1, 1.0)]  # 100 gaps of 1 ms in a second
SHARES = {"flood": 4e6, "silent": 8e6, "alone": 10e6}


def test_what_queues_up_in_a_gap_drains_at_what_is_left() -> None:
    """Of random arrivals, with a queue that a gap of g leaves and that drains for g / (1 - load) from its begin."""
    for load in (0.0, 0.5, 0.8):
        slope = 1e3 / (100 * 1e-3 / (1 - load))  # us of delay for a part of all time
        part = min(0.01, 0.1 / (1 - load))
        assert share.queued_us(QUIET, 1 - part, load) == pytest.approx(1e3 - part * slope)
    assert share.queued_us(QUIET, 0.99, 0.0) == delay_us(QUIET, 0.99)
    assert share.queued_us(QUIET, 0.99, 1.0) == math.inf


def test_the_bound_is_the_ratio_of_two_such_tails() -> None:
    found = share.beside(QUIET, SHARES, 3e6, "flood", "silent", "alone", p50_us=1.0)
    assert found[share.SHARE] == pytest.approx(0.4)
    ours, theirs = share.queued_us(QUIET, 0.99, 0.75), share.queued_us(QUIET, 0.99, 3 / 8)
    assert ours > theirs
    assert found[share.PAUSES] == pytest.approx((1 + ours) / (1 + theirs))


def test_a_share_below_the_load_bounds_nothing_and_without_gaps_there_is_nothing_to_drain() -> None:
    assert share.beside(QUIET, SHARES, 5e6, "flood", "silent", "alone", 1.0)[share.PAUSES] == math.inf
    calm = [Gaps(0, 1.0), Gaps(1, 1.0)]
    assert share.beside(calm, SHARES, 3e6, "flood", "silent", "alone", 1.0)[share.PAUSES] == 1.0
    assert share.beside(calm, {}, 3e6, "flood", "silent", "alone", 1.0) == {}


def test_shares_are_answers_of_an_overload() -> None:
    session = Session("isolation", seconds=0.1, cores=[0])

    def slice_(rate: float) -> Point:
        return Point(rate, 0.6 * rate, 100, 60, p50_us=1.0, p99_us=math.inf, seconds=1.0)

    assert share.measure(session, {"alone": slice_}, 5e6) == {"alone": 3e6}
    assert session.settings["shares_rps"] == {"alone": 3e6}
    assert [row["name"] for row in session.arms] == ["alone, overloaded"]
