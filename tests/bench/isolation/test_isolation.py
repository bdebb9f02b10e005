"""How the figures of the isolation benchmark are formed."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from corelane.bench.harness.goals import GOALS
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.pairs import LOOKS, Rounds, Turn
from corelane.bench.harness.session import Session
from corelane.bench.isolation import isolation, share
from corelane.bench.isolation.victim import ALONE
from corelane.runtime.hist import Hist

N = LOOKS[1]
FIGURE = "isolation.flood_over_silent"


def turn(p99_us: float, core_share: float = 0.04) -> Turn:
    """One in which all requests took as long; inf: in which some stayed unanswered."""
    hist = Hist()
    hist.record(round(1000 * (10 if math.isinf(p99_us) else p99_us)), 100)
    hist.record_infinite(10 if math.isinf(p99_us) else 0)
    point = Point(1e6, 1e6, 10_000, 10_000, seconds=0.01, hist=hist, extra={"neighbour_core_share": core_share})
    point.set_percentiles(hist)
    return Turn(point)


def rounds(p99_us: Mapping[str, Sequence[float]]) -> Rounds[Turn]:
    """Turns of the arms of the benchmark; those that have no others here are 20 us alone, and 40 beside anybody."""
    values = {name + tail: [40.0] * N for name in isolation.FLOODS for tail in ("", isolation.SILENT)}
    values[ALONE] = [20.0] * N
    turns = {name: [turn(value) for value in each] for name, each in {**values, **p99_us}.items()}
    done = Rounds(turns, {one.name: one for one in isolation.comparisons()}, N)
    for one in done.compared.values():
        for pair in zip(turns[one.name], turns[one.other], strict=True):
            one.add(*pair)
        one.look()
    return done


def judged(p99_us: Mapping[str, Sequence[float]], shares: Mapping[str, float] | None = None) -> dict[str, Any]:
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    isolation.judge_all(session, rounds(p99_us), shares)
    return session.document()


def flooded(p99_us: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return judged(p99_us)["figures"][FIGURE]


def test_a_share_of_the_core_that_any_neighbour_takes_is_not_in_the_figure_and_stands_beside_it() -> None:
    figure = flooded({})
    assert (figure["value"], figure["met"]) == (pytest.approx(1, rel=0.04), True)
    assert figure["beside"][isolation.OVER_ALONE] == pytest.approx(2, rel=0.04)


def test_the_figure_is_of_the_worst_flood_and_one_above_the_goal_misses_it_whatever_is_open_of_others() -> None:
    document = judged({"beside full frames": [52.0] * N, isolation.SMALL: [36.0, 48.0] * (N // 2)})
    figure = document["figures"][FIGURE]
    assert (figure["value"], figure["met"]) == (pytest.approx(1.3, rel=0.04), False)
    assert document["settings"]["figures_from"][FIGURE] == "beside full frames"
    assert (figure["beside"]["decided"], figure["beside"]["of"]) == (2, 3)


def test_a_figure_of_which_one_flood_is_open_is_not_judged() -> None:
    """Pauses of the host make single turns of 0.02 and of infinity."""
    figure = flooded({isolation.SMALL: [1.0, 44, 60, 200] * (N // 4)})
    assert figure["met"] is None
    assert figure["reason"] == "beside small frames: not known on which side of 1.1; measure for longer (--seconds)"


def test_a_turn_that_a_pause_spoils_does_not_decide() -> None:
    figure = flooded({isolation.SMALL: [40.0] * (N - 1) + [math.inf]})
    assert (figure["value"], figure["met"]) == (pytest.approx(1, rel=0.04), True)


def test_turns_that_lost_requests_beside_the_flood_count_as_infinite() -> None:
    figure = flooded({isolation.SMALL: [40.0] * 4 + [math.inf] * (N - 4)})
    assert figure["value"] is None
    assert "in half of the turns more than a hundredth" in figure["reason"]


def test_a_pair_whose_silent_turn_lost_requests_is_left_out() -> None:
    figure = flooded({isolation.SMALL + isolation.SILENT: [40.0] * 12 + [math.inf] * (N - 12)})
    assert figure["value"] == pytest.approx(1, rel=0.04)
    figure = flooded({one + isolation.SILENT: [math.inf] * N for one in isolation.FLOODS})
    assert figure["value"] is None
    assert "the machine stood still" in figure["reason"]


def test_two_and_a_limited_one_have_silent_counterparts_of_their_own() -> None:
    p99_us = {isolation.TWO: [60.0] * N, isolation.TWO + isolation.SILENT: [50.0] * N}
    p99_us |= {isolation.LIMITED_FULL: [18.0] * N, isolation.LIMITED_FULL + isolation.SILENT: [16.0] * N}
    figures = judged(p99_us)["figures"]
    values = {name: figure["value"] for name, figure in figures.items()}
    assert values == pytest.approx(dict(zip(isolation.FIGURES, (1.0, 1.2, 18 / 16), strict=True)), rel=0.05)
    assert figures["isolation.two_over_silent"]["beside"][isolation.OVER_ALONE] == pytest.approx(3, rel=0.04)


def test_what_bounds_a_figure_stands_beside_it() -> None:
    less = isolation.SMALL + isolation.QUARTER
    quarter = {less: [22.0] * N, less + isolation.SILENT: [20.0] * N}
    shares = {ALONE: 10e6, **dict.fromkeys(isolation.FLOODS, 5e6)}
    shares |= {name + isolation.SILENT: 8e6 for name in isolation.FLOODS}
    beside = judged(quarter, shares)["figures"][FIGURE]["beside"]
    assert beside["a quarter of the capacity"] == pytest.approx(1.1, rel=0.04)
    assert (beside[share.SHARE], beside[isolation.BUSY]) == (pytest.approx(0.5), pytest.approx(1))
    document = judged(quarter, shares | dict.fromkeys(isolation.FLOODS, 0.9e6))  # less than the victim's load
    assert share.PAUSES not in document["figures"][FIGURE]["beside"]
    assert any("more than it can have" in note for note in document["settings"]["notes"])


def test_what_the_same_ratio_is_of_arms_that_are_alike_stands_beside_a_figure() -> None:
    """Of as many rounds as both have."""
    again = [36.0] + [44.0] * (N - 4) + [48.0]
    beside = flooded({isolation.SMALL + isolation.SILENT + isolation.AGAIN: again})["beside"]
    low, high = (beside[f"{isolation.ITSELF}, 95 % {end}"] for end in ("from", "to"))
    assert low <= beside[isolation.ITSELF] <= high
    assert beside[isolation.ITSELF] == pytest.approx(1.1, rel=0.04)


def neighbour(took: Callable[[str, int], float]) -> isolation.Both:
    """Both of a flood of 1000 frames at a fill. took: of a core, by kind and frames."""

    def beside(kind: str, size: int, frames: int, rate: float) -> Point:
        extra = {"neighbour_core_share": took(kind, frames), "neighbour_fill": 1000.4}
        return Point(rate, rate, 1, 1, extra=extra)

    return isolation.Both(beside, "uplink", 60)


def test_all_arms_have_turns_and_each_flood_has_its_own_next_to_its_silent_one() -> None:
    both = neighbour(lambda kind, frames: 0.04)
    arms = {name + tail: both.flood for name in isolation.FLOODS for tail in ("", isolation.SILENT)}
    bodies = isolation.bodies_of(arms | {ALONE: both.flood}, both, 8.0)
    order = list(bodies)
    assert all(order[order.index(name) + 1] == name + isolation.SILENT for name in isolation.FLOODS)
    assert bodies[isolation.SMALL]().point.offered_rps == 8
    assert bodies[isolation.SMALL + isolation.QUARTER]().point.offered_rps == 4
    wanted = {name for one in isolation.comparisons() for name in (one.name, one.other, *isolation.ALSO[one.name])}
    assert set(bodies) == wanted


def test_a_silent_neighbour_comes_to_take_as_much_time_as_the_flood_and_follows_it() -> None:
    """A frame of the flood takes twice as long, and then three times."""
    times = 2.0
    both = neighbour(lambda kind, frames: 0.02 + 1e-5 * (times * 1000 if kind == "uplink" else frames))
    for times in (2.0, 3.0):
        for _ in range(12):
            both.flood(1.0)
            both.silent(1.0)
        assert both.frames == pytest.approx(1000 * times, rel=0.05)


def test_a_silent_neighbour_that_cannot_take_as_much_writes_no_more_than_a_ring() -> None:
    both = neighbour(lambda kind, frames: 0.9 if kind == "uplink" else 0.01)
    both.flood(1.0)
    for _ in range(20):
        both.silent(1.0)
    assert both.frames == isolation.SILENT_MOST


def test_the_limits_are_those_that_the_goal_names() -> None:
    limits = isolation.NEIGHBOURS["limited"]
    assert (limits.rate_frames_per_s, limits.rate_bytes_per_s) == (50_000, 10_000_000)
    assert "50 000 frames and 10 MB" in GOALS["isolation.limited_over_silent"].meaning
