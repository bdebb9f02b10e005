"""The victim's capacity."""

from __future__ import annotations

from corelane.bench.harness.openloop import Point
from corelane.bench.isolation import victim


def point(rate: float, p99_us: float, answered: float = 1.0) -> Point:
    sent = 10_000
    return Point(rate, rate * answered, sent, int(sent * answered), p99_us=p99_us, seconds=sent / rate)


def test_capacity_is_the_highest_load_within_the_limit():
    assert victim.capacity(lambda rate, s: point(rate, 20 if rate < 3e6 else 80), seconds=60) == (
        victim.FROM_RPS * victim.STEP**6,
        50.0,
    )


def test_a_machine_that_is_slow_at_any_load_has_a_higher_limit():
    assert victim.capacity(lambda rate, s: point(rate, 60 if rate < 1e6 else 130), seconds=60)[1] == 120


def test_a_load_that_loses_requests_is_beyond_the_capacity():
    most, _ = victim.capacity(lambda rate, s: point(rate, 20, answered=1 if rate < 1e6 else 0.9), seconds=60)
    assert most == victim.FROM_RPS * victim.STEP**3


def test_a_pause_of_the_machine_does_not_end_the_search():
    calls = []

    def measure(rate: float, seconds: float) -> Point:
        calls.append(rate)
        paused = len(calls) % victim.TRIES != 0
        return point(rate, 3000 if paused or rate > 1e6 else 20)

    assert victim.capacity(measure, seconds=60)[0] == victim.FROM_RPS * victim.STEP**3


def test_no_capacity_where_others_use_the_cores():
    assert victim.capacity(lambda rate, s: point(rate, 9000), seconds=0)[0] == 0
