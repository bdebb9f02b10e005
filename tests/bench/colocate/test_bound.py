"""What moves leave of the line at most."""

from __future__ import annotations

import pytest

from corelane.bench.colocate.arms import Beside
from corelane.bench.colocate.bound import bound, line, pair_us
from corelane.bench.harness.openloop import Point


def beside(work: float, moves_per_s: float = 0.0) -> Beside:
    return Beside(Point(1e5, 1e5, 100, 100, seconds=1.0, extra={"moves_per_s": moves_per_s}), work)


def test_a_bound_grows_with_the_gap_between_requests_and_with_the_time_that_they_may_wait() -> None:
    assert bound(1e6, 0.0, 3.0) == pytest.approx(1 / 4)
    assert bound(1e5, 0.0, 3.0) == pytest.approx(10 / 13)
    assert bound(1e6, 50.0, 3.0) == pytest.approx(51 / 54)
    assert bound(1e6, 50.0, 0.0) == 1.0


def test_no_order_of_serving_and_moving_exceeds_the_bound() -> None:
    """A core that moves to the server when the oldest request has waited long enough, and back when none waits."""
    for gap_us, held_us in ((2.0, 0.0), (2.0, 10.0), (20.0, 5.0)):
        service_us, pair, works, now, due = 0.5, 3.0, 0.0, 0.0, gap_us
        for _ in range(2000):
            begin = max(due + held_us, now)
            works += begin - now
            now = begin + pair / 2
            while due <= now:  # also what comes meanwhile
                now, due = now + service_us, due + gap_us
            now += pair / 2
        left = 1 - service_us / gap_us
        assert works / now / left <= bound(1e6 / gap_us, held_us, pair) + 1e-3


def test_a_pair_is_what_the_job_lost_over_how_many_there_were() -> None:
    assert pair_us(beside(70.0, 2e5), beside(100.0)) == pytest.approx(3.0)
    assert pair_us(beside(70.0), beside(100.0)) is None
    assert pair_us(beside(101.0, 2e5), beside(100.0)) is None


def test_the_line_of_several_turns_is_that_of_their_sums() -> None:
    assert line([(0.5, 0.5), (0.2, 0.3), (0.05, -0.1)]) == pytest.approx(0.75 / 0.7)
    assert line([(0.1, 0.05), (0.1, -0.02)]) is None
    assert line([]) is None
