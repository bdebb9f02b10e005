"""How the ratios of the isolation benchmark are formed."""

from __future__ import annotations

import io
import math

import pytest

from corelane.bench.harness.goals import GOALS
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.isolation import isolation, share


def point(rate: float, p99_us: float, answered: float = 1.0) -> Point:
    sent = 10_000
    return Point(rate, rate * answered, sent, int(sent * answered), p50_us=1.0, p99_us=p99_us, seconds=sent / rate)


def judged(silent: list[float], flooded: list[float], alone: float = 10.0) -> dict:
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    got = {"alone": [alone] * len(silent), **dict.fromkeys(isolation.FLOODS, flooded), isolation.SILENT: silent}
    isolation.judge(session, {name: [point(1e6, p) for p in found] for name, found in got.items()})
    return session.document()["figures"]["isolation.flood_over_silent"]


def test_the_figure_is_the_median_of_neighbouring_slices():
    assert judged([20, 20, 20], [24, 22, 4000])["value"] == pytest.approx(1.2)


def test_a_share_of_the_core_that_any_neighbour_takes_is_not_in_the_figure_and_stands_beside_it():
    figure = judged([30] * 6, [30, 30, 31, 31, 33, 33], alone=10)
    assert figure["value"] == pytest.approx(31 / 30)
    assert figure["met"] is True
    assert figure["beside"] == {"victim_p99_ratio": pytest.approx(3.1)}


def test_a_figure_whose_interval_has_the_goal_in_it_is_not_judged() -> None:
    """Pauses of the host make single ratios of 0.02 and of infinity: the median of seven of them says little."""
    figure = judged([20] * 7, [0.4, 18, 20, 32, 40, 600, math.inf])
    assert (figure["value"], figure["met"]) == (pytest.approx(1.6), None)
    assert "beside small frames: 0.02 to inf with 95 %" in figure["reason"]
    assert judged([20] * 7, [30] * 6 + [math.inf])["met"] is False
    assert judged([20] * 7, [20] * 6 + [math.inf])["met"] is None
    assert judged([20] * 9, [20] * 8 + [math.inf])["met"] is True
    assert judged([20] * 3, [20] * 3)["met"] is None  # too few to tell


def test_one_flood_above_the_goal_misses_it_whatever_is_open_of_others() -> None:
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    open_one, above = [10.0, 20, 20, 21, 23, 60, 90], [23.0, 25, 25, 26, 27, 60, 90]
    p99_us = {"alone": [10.0] * 7, isolation.SILENT: [20.0] * 7, **dict.fromkeys(isolation.FLOODS, open_one)}
    p99_us["beside full frames"] = above
    isolation.judge(session, {name: [point(1e6, p) for p in each] for name, each in p99_us.items()})
    assert session.figures["isolation.flood_over_silent"]["met"] is False
    p99_us["beside full frames"] = [20.0] * 7
    isolation.judge(session, {name: [point(1e6, p) for p in each] for name, each in p99_us.items()})
    assert session.figures["isolation.flood_over_silent"]["met"] is None


def test_the_figure_is_of_the_worst_flood():
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    p99_us = {"alone": 10.0, isolation.SILENT: 20.0, **dict.fromkeys(isolation.FLOODS, 21.0)}
    p99_us["beside full frames"] = 26.0
    isolation.judge(session, {name: [point(1e6, p)] * 3 for name, p in p99_us.items()})
    assert session.figures["isolation.flood_over_silent"]["value"] == pytest.approx(1.3)
    assert session.settings["figures_from"] == {"isolation.flood_over_silent": "beside full frames"}


def test_a_slice_that_lost_requests_beside_the_flood_counts_as_infinite():
    figure = judged([20, 20, 20], [24, math.inf, math.inf])
    assert figure["value"] is None
    assert figure["runs"][1:] == ["inf", "inf"]


def test_a_pair_whose_silent_slice_lost_requests_is_left_out():
    assert judged([20, math.inf, 20], [24, 10, 26])["runs"] == pytest.approx([1.2, 1.3])
    figure = judged([math.inf, math.inf, 20], [24, 10, 26])
    assert figure["value"] is None
    assert "the machine stood still" in figure["reason"]


def test_two_and_a_limited_one_have_silent_counterparts_of_their_own():
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    p99_us = {"alone": 10.0, **dict.fromkeys(isolation.FLOODS, 22.0), isolation.SILENT: 20.0}
    p99_us |= {isolation.TWO: 60.0, isolation.TWO_SILENT: 40.0, isolation.LIMITED_FULL: 18.0}
    p99_us |= {isolation.LIMITED: 12.0, isolation.LIMITED_SILENT: 16.0}
    isolation.judge(session, {name: [point(1e6, p)] * 3 for name, p in p99_us.items()})
    value = {name: figure["value"] for name, figure in session.figures.items()}
    assert value == pytest.approx(dict(zip(isolation.FIGURES, (1.1, 1.5, 18 / 16), strict=True)))
    assert session.figures["isolation.two_over_silent"]["beside"] == {"victim_p99_ratio": 6.0}
    assert session.figures["isolation.limited_over_silent"]["beside"] == {"victim_p99_ratio": 1.8}


def test_what_bounds_a_figure_stands_beside_it() -> None:
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    p99_us = {"alone": 10.0, isolation.SILENT: 20.0, **dict.fromkeys(isolation.FLOODS, 30.0)}
    p99_us |= {isolation.SMALL + isolation.QUARTER: 11.0, isolation.SILENT + isolation.QUARTER: 10.0}
    shares = {"alone": 10e6, isolation.SILENT: 8e6, **dict.fromkeys(isolation.FLOODS, 5e6)}
    isolation.judge(session, {name: [point(1e6, p)] * 3 for name, p in p99_us.items()}, shares)
    beside = session.figures["isolation.flood_over_silent"]["beside"]
    assert beside["a quarter of the capacity"] == pytest.approx(1.1)
    assert beside[share.SHARE] == pytest.approx(0.5)
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    shares |= dict.fromkeys(isolation.FLOODS, 0.9e6)  # less than the victim's load
    isolation.judge(session, {name: [point(1e6, p)] * 3 for name, p in p99_us.items()}, shares)
    assert share.PAUSES not in session.figures["isolation.flood_over_silent"]["beside"]
    assert any("more than it can have" in note for note in session.notes)


def test_what_the_same_ratio_is_of_arms_that_are_alike_stands_beside_a_figure() -> None:
    session = Session("isolation", seconds=1, cores=[0], progress=io.StringIO())
    p99_us = {"alone": [10.0] * 7, isolation.SILENT: [20.0] * 7, **dict.fromkeys(isolation.FLOODS, [30.0] * 7)}
    p99_us[isolation.SILENT + isolation.AGAIN] = [18.0, 22, 22, 22, 22, 22, 24]
    isolation.judge(session, {name: [point(1e6, p) for p in each] for name, each in p99_us.items()})
    beside = session.figures["isolation.flood_over_silent"]["beside"]
    assert beside[isolation.ITSELF] == pytest.approx(1.1)
    assert beside[f"{isolation.ITSELF}, 95 % from"] == pytest.approx(0.9)
    assert beside[f"{isolation.ITSELF}, 95 % to"] == pytest.approx(1.2)


def test_the_limits_are_those_that_the_goal_names():
    limits = isolation.NEIGHBOURS["limited"]
    assert (limits.rate_frames_per_s, limits.rate_bytes_per_s) == (50_000, 10_000_000)
    assert "50 000 frames and 10 MB" in GOALS["isolation.limited_over_silent"].meaning
