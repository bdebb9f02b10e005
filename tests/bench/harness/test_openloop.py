"""Peak search and sweeps, against servers that are formulas."""

import math

import pytest

from corelane.bench.harness.openloop import (
    EXTRA_LOADS,
    NEAR_STEP,
    Measure,
    Point,
    guess_peak,
    middle,
    search_peak,
    stop_in,
    sweep,
    sweep_in_turns,
    was_carried,
)


class Server:
    """Carries `capacity` requests a second; the rest stay unanswered. Records what it was asked."""

    def __init__(self, capacity: float, interruptions: frozenset[int] = frozenset()) -> None:
        self.capacity = capacity
        self.asked: list[tuple[float, float]] = []
        self.interruptions = interruptions

    def measure(self, rate: float, seconds: float) -> Point:
        self.asked.append((rate, seconds))
        capacity = 0.5 * rate if len(self.asked) in self.interruptions else self.capacity
        sent = max(int(rate * seconds), 1)
        answered = int(min(rate, capacity) * seconds)
        load = min(rate / self.capacity if self.capacity else 1, 0.999)
        return Point(
            rate, answered / seconds, sent, answered, p50_us=1 / (1 - load), p99_us=5 / (1 - load), seconds=seconds
        )


@pytest.mark.parametrize("capacity", [3e3, 1e5, 5.3e6])
def test_peak_is_found_within_the_tries(capacity: float) -> None:
    server = Server(capacity)
    curve = search_peak(server.measure, start_rps=1e5, seconds=12, tries=28)
    assert curve.peak_rps == pytest.approx(capacity, rel=0.1)
    assert curve.peak_rps <= capacity
    assert len(server.asked) <= 28
    assert sum(s for _, s in server.asked) <= 12
    assert [p.offered_rps for p in curve.points] == sorted(p.offered_rps for p in curve.points)
    assert "unanswered" in curve.stop


@pytest.mark.parametrize("capacity", [3.1e4, 1.7e5, 5.3e6, 2.1e7])
def test_a_slow_and_a_fast_server_are_searched_alike(capacity: float) -> None:
    """From the guess on, the default tries find the peak to the slack of "carried", whatever the rate."""
    server = Server(capacity)
    guess = guess_peak(server.measure, seconds=1)
    assert guess == pytest.approx(capacity, rel=0.05)
    before = len(server.asked)
    curve = search_peak(server.measure, start_rps=0.8 * guess, step=NEAR_STEP, seconds=10)
    assert curve.peak_rps == pytest.approx(capacity, rel=0.03)
    assert len(server.asked) - before <= 14


def test_one_interruption_does_not_end_the_search() -> None:
    calm = search_peak(Server(1e6).measure, start_rps=1e5, seconds=12, tries=20)
    disturbed = search_peak(Server(1e6, frozenset({3})).measure, start_rps=1e5, seconds=12, tries=20)
    assert disturbed.peak_rps == pytest.approx(calm.peak_rps, rel=0.05)


def test_search_is_bounded_for_a_server_without_limit() -> None:
    server = Server(math.inf)
    curve = search_peak(server.measure, start_rps=1e6, seconds=1, most_rps=8e6)
    assert curve.peak_rps == pytest.approx(8e6)
    assert "still carried" in curve.stop


def test_a_dead_server_has_no_peak() -> None:
    curve = search_peak(Server(0).measure, start_rps=1e5, seconds=1)
    assert curve.peak is None
    assert curve.peak_rps == 0
    assert curve.stop.startswith("100 % unanswered")


def test_sweep_stops_at_two_loads_that_are_not_carried() -> None:
    curve = sweep(Server(1e5).measure, peak_rps=1e5, seconds=1, fractions=(0.5, 0.9, 1.2, 1.5, 2.0))
    assert [p.carried for p in curve.points] == [True, True, False, False]
    assert "unanswered at 120,000 requests/s" in curve.stop


def test_a_search_that_starts_far_below_the_peak_still_finds_it() -> None:
    curve = search_peak(Server(1e6).measure, start_rps=5e4, step=NEAR_STEP, seconds=10, tries=20)
    assert curve.peak_rps == pytest.approx(1e6, rel=0.05)


def test_sweeps_of_several_arms_take_turns_at_every_load() -> None:
    asked: list[str] = []
    servers = {"slow": Server(1e4), "fast": Server(1e6)}

    def measure(name: str) -> Measure:
        def one(rate: float, seconds: float) -> Point:
            asked.append(f"{name} {rate / servers[name].capacity:g}")
            return servers[name].measure(rate, seconds)

        return one

    loads: list[int] = []
    found = sweep_in_turns(
        {name: measure(name) for name in servers},
        {name: server.capacity for name, server in servers.items()},
        seconds=1,
        fractions=(0.1, 0.5, 0.9),
        before_load=loads.append,
    )
    assert asked[:6] == ["slow 0.1", "fast 0.1", "slow 0.5", "fast 0.5", "slow 0.9", "fast 0.9"]
    assert loads == list(range(1, len(loads) + 1))
    for name, curve in found.items():
        alone = sweep(
            Server(servers[name].capacity).measure,
            peak_rps=servers[name].capacity,
            seconds=0.5,
            fractions=(0.1, 0.5, 0.9),
        )
        assert [p.offered_rps for p in curve.points] == [p.offered_rps for p in alone.points]
        assert curve.stop == alone.stop


def test_one_interruption_does_not_end_a_sweep() -> None:
    server = Server(1e5, frozenset({2, 3, 4}))
    curve = sweep(server.measure, peak_rps=1e5, seconds=1, fractions=(0.5, 0.7, 0.9))
    assert [p.carried for p in curve.points][:3] == [True, False, True]
    assert "unanswered" in curve.stop


def test_sweep_goes_on_when_the_peak_was_underestimated() -> None:
    curve = sweep(Server(2e5).measure, peak_rps=1e5, seconds=1, fractions=(0.5, 1.0))
    assert curve.peak_rps > 1.5e5
    assert not curve.points[-1].carried
    assert "unanswered" in curve.stop


def test_sweep_that_saw_no_wall_says_so() -> None:
    curve = sweep(Server(math.inf).measure, peak_rps=1e5, seconds=1, fractions=(0.5, 1.0))
    assert len(curve.points) == 2 + EXTRA_LOADS
    assert "was carried" in curve.stop


def test_rows_of_a_curve_stop_where_the_curve_does() -> None:
    curve = sweep(Server(1e6).measure, peak_rps=1e6, seconds=1.0, fractions=(0.5, 1.0, 1.1, 1.25))
    rows = [point.row("a") for point in curve.points]
    assert [was_carried(row) for row in rows] == [point.carried for point in curve.points] == [True, True, False, False]
    assert curve.points[stop_in(rows)].why_not() == curve.stop
    assert stop_in(rows[:2]) == 1, "the last load, which was carried"
    assert stop_in(rows[2:]) == 0
    disturbed = [rows[0], rows[2], rows[1], rows[3]]
    assert stop_in(disturbed) == 3, "a disturbed load in the middle is no end"


def test_carried_needs_the_rate_as_well() -> None:
    assert Point(1000, 1000, 1000, 1000).carried
    assert not Point(1000, 900, 900, 900).carried
    assert "900 of 1,000" in Point(1000, 900, 900, 900).why_not()
    drawn = Point(1000, 1010, 2400, 2400, seconds=2.0)  # by chance more arrivals were drawn than offered
    assert "1,010 of 1,200" in drawn.why_not()
    assert not Point(1000, 1000, 10_000, 9_980).carried


def test_middle_adds_counts_and_takes_medians() -> None:
    points = [Point(10, 9, 100, 90, p50_us=v, max_us=v, seconds=1.0) for v in (1.0, 5.0, 2.0)]
    one = middle(points)
    assert (one.sent, one.answered, one.p50_us, one.max_us, one.seconds) == (300, 270, 2.0, 5.0, 3.0)
    assert one.row("x")["runs"] == 3
