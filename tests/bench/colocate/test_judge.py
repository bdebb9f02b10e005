"""How co-location is judged: pair by pair, not where the tail is no tail to compare with, and at half of the peak in
the rounds that the machine left room in."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from corelane.bench.colocate import judge as colocate_judge
from corelane.bench.colocate.arms import COMPARED, LOW_TARGET_US, Beside
from corelane.bench.colocate.judge import CALM_LEAST, CALM_US
from corelane.bench.colocate.plot import CANARY, LOWEST
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session


def slot(p99_us: float, work: float = math.nan, kv_core_share: float = 0.0) -> Beside:
    """Two of three windows have this p99, and a pause fell into the third."""
    point = Point(1e5, 1e5, 100, 100, window_p99_us=(p99_us, 1e4, p99_us))
    point.extra["kv_core_share"] = kv_core_share
    return Beside(point, work)


@pytest.fixture
def session() -> Session:
    return Session("colocate", seconds=0.1)


def low(ours: list[float]) -> dict[str, list[Beside]]:
    return {
        "kv alone": [slot(10), slot(20), slot(12)],
        "batch alone": [slot(math.nan, 100), slot(math.nan, 100), slot(math.nan, 200)],
        f"delay target {LOW_TARGET_US:g} us": [slot(p, 80) for p in ours],
        COMPARED: [slot(60, 40), slot(70, 50), slot(80, 20)],
    }


def test_the_low_load(session: Session) -> None:
    colocate_judge.judge_low(session, low([13, 21, 20]), with_linux=True)
    value = {name: figure["value"] for name, figure in session.figures.items()}
    assert value["colocate.low_p99_added_us"] == 3
    assert value["colocate.low_batch_share"] == 0.8
    assert value["colocate.linux_p99_over_ours"] == pytest.approx(4.0)
    assert value["colocate.batch_over_linux"] == 2.0


def test_unanswered_requests_count_against_us(session: Session) -> None:
    colocate_judge.judge_low(session, low([13, math.inf, 20]), with_linux=False)
    assert session.figures["colocate.low_p99_added_us"]["value"] == 8
    colocate_judge.judge_low(session, low([13, math.inf, math.inf]), with_linux=False)
    assert session.figures["colocate.low_p99_added_us"]["value"] is None
    assert "colocate.linux_p99_over_ours" not in session.figures


def test_beside_the_figures_stand_the_middle_windows_and_all_requests(session: Session) -> None:
    got = low([13, 21, 20])
    for name, p99_us in (("kv alone", 30.0), (LOWEST, 1059.0), (COMPARED, 2118.0)):
        for one in got[name]:
            one.point.p50_us, one.point.p90_us, one.point.p99_us = p99_us / 10, p99_us / 2, p99_us
    colocate_judge.judge_low(session, got, with_linux=True)
    added, ratio = (session.figures[f"colocate.{name}"] for name in ("low_p99_added_us", "linux_p99_over_ours"))
    assert added["beside"] == {
        "of the middle windows": 21 - 20,
        "over all requests": 1029,
        "p50 added": pytest.approx(102.9),
        "p90 added": pytest.approx(514.5),
    }
    assert ratio["beside"]["of the middle windows"] == pytest.approx(80 / 21)
    assert ratio["beside"]["over all requests"] == 2


def test_the_floors_stand_beside_the_ratio_to_linux(session: Session) -> None:
    """60, 70 and 80 over kv alone and over the gaps, of neighbouring slots."""
    colocate_judge.judge_low(session, low([13, 21, 20]) | {CANARY: [slot(10), slot(10), slot(8)]}, with_linux=True)
    beside = session.figures["colocate.linux_p99_over_ours"]["beside"]
    assert beside["Linux over kv alone"] == 6
    assert beside["Linux over the machine's gaps alone"] == 7
    assert any("10 us are the machine's gaps alone" in note for note in session.notes)


def rounds_of(rng: random.Random, added_us: float) -> dict[str, list[Beside]]:
    """32 rounds of a machine whose tail wanders, and stalls now and then, whoever's turn it is; Linux has it twice."""

    def p99_us(base: float) -> float:
        return base + rng.gauss(0, 6) + (rng.uniform(50, 3000) if rng.random() < 0.1 else 0)

    floors = [rng.uniform(30, 60) for _ in range(32)]
    return {
        CANARY: [slot(p99_us(f)) for f in floors],
        "kv alone": [slot(p99_us(f)) for f in floors],
        LOWEST: [slot(p99_us(f + added_us), 80) for f in floors],
        COMPARED: [slot(p99_us(2 * f), 40) for f in floors],
        "batch alone": [slot(math.nan, 100) for _ in floors],
    }


@pytest.mark.parametrize("added_us", [0.0, 6.0, 20.0])
def test_the_interval_holds_what_was_put_in(session: Session, seed: int, added_us: float) -> None:
    """In about 95 of 100 runs; fewer than 85 of 100 would come once in 50 000 times if it did."""
    rng, held, centre = random.Random(seed), 0, []
    for _ in range(100):
        colocate_judge.judge_low(session, rounds_of(rng, added_us), with_linux=True)
        figure = session.figures["colocate.low_p99_added_us"]
        held += figure["beside"]["it, 95 % from"] <= added_us <= figure["beside"]["it, 95 % to"]
        centre.append(figure["value"])
        ratio = session.figures["colocate.linux_p99_over_ours"]
        assert ratio["beside"]["it, 95 % from"] <= ratio["value"] <= ratio["beside"]["it, 95 % to"]
    assert held >= 85
    assert abs(statistics.median(centre) - added_us) < 1  # no bias: 0.3 is its standard error


def test_a_goal_beyond_the_machine_is_told(session: Session, seed: int) -> None:
    """Linux has twice the machine's own tail: a server without a tail of its own would reach 2, not 3."""
    got = rounds_of(random.Random(seed), 0.0)
    colocate_judge.judge_low(session, got, with_linux=True)
    assert sum("a goal of 3 lies beyond" in note for note in session.notes) == 1
    session.notes.clear()
    colocate_judge.judge_low(session, got | {CANARY: [slot(1.0) for _ in range(32)]}, with_linux=True)
    assert not any("lies beyond" in note for note in session.notes)


def half(p99_us: float, machine_us: float = CALM_US, work: float = 46) -> colocate_judge.Round:
    """A round in which kv had half of the core: 46 of 100 units in the other half are 0.92."""
    return {
        "beside": slot(p99_us, work, 0.5),
        "batch alone": slot(math.nan, 100),
        "kv alone": slot(10),
        CANARY: slot(machine_us),
    }


@pytest.mark.parametrize(("p99_us", "value"), [(74.0, 0.92), (76.0, None), (math.inf, None)])
def test_half_of_the_peak(session: Session, p99_us: float, value: float | None) -> None:
    colocate_judge.judge_half(session, [half(p99_us) for _ in range(CALM_LEAST)])
    figure = session.figures["colocate.half_batch_over_core_left"]
    assert figure["value"] == (None if value is None else pytest.approx(value))
    assert figure["value"] is not None or "not under 75" in figure["reason"]
    assert figure["beside"]["kv's p99, us, of the middle window"] == p99_us
    assert value is not None or figure["beside"]["the share all the same"] == pytest.approx(0.92)


def test_half_of_the_peak_is_not_told_where_requests_were_lost(session: Session) -> None:
    rounds = [half(60) for _ in range(CALM_LEAST)]
    for one in rounds[: CALM_LEAST // 2]:  # slots which pauses of the machine may have spoilt
        one["beside"].point.answered = 0
    colocate_judge.judge_half(session, rounds)
    figure = session.figures["colocate.half_batch_over_core_left"]
    assert figure["value"] == pytest.approx(0.92)
    assert figure["beside"]["unanswered, of all requests"] == pytest.approx((CALM_LEAST // 2) / CALM_LEAST)
    for one in rounds[CALM_LEAST // 2 :]:
        one["beside"].point.answered = 99
    colocate_judge.judge_half(session, rounds)
    figure = session.figures["colocate.half_batch_over_core_left"]
    assert figure["value"] is None
    assert "1 % unanswered in the middle slot" in figure["reason"]


@pytest.mark.parametrize("flattering", [True, False])
def test_rounds_count_by_the_machine_alone(session: Session, flattering: bool) -> None:
    """However good or bad kv was in the rounds whose canary saw more than the goal leaves: only those beside see it."""
    good, bad = (74.0, 46.0), (40.0, 60.0) if flattering else (1e4, 1.0)
    calm = [half(good[0], CALM_US - 1, good[1]) for _ in range(CALM_LEAST)]
    loud = [half(bad[0], CALM_US + 1, bad[1]) for _ in range(4 * CALM_LEAST)]
    colocate_judge.judge_half(session, calm + loud)
    figure = session.figures["colocate.half_batch_over_core_left"]
    assert figure["value"] == pytest.approx(0.92)
    assert (figure["beside"]["rounds"], figure["beside"]["of"]) == (CALM_LEAST, 5 * CALM_LEAST)
    assert figure["beside"]["kv's p99, us, of the middle window of all rounds"] == bad[0]
    assert figure["beside"]["the share of all rounds"] == pytest.approx(bad[1] / 50)
    assert figure["beside"]["by load, of all rounds: batch work over 1 - load / peak"] == pytest.approx(bad[1] / 50)
    assert session.settings["half"]["rounds_that_count"] == CALM_LEAST


def test_too_few_rounds_that_count_give_no_figure(session: Session) -> None:
    rounds = [half(60) for _ in range(CALM_LEAST - 1)] + [half(60, 29.0) for _ in range(CALM_LEAST)]
    colocate_judge.judge_half(session, rounds)
    figure = session.figures["colocate.half_batch_over_core_left"]
    assert figure["value"] is None
    assert (
        f"in {CALM_LEAST} of {2 * CALM_LEAST - 1} rounds the machine's own gaps made a p99 above 25 us"
        in figure["reason"]
    )
    assert figure["beside"]["the share of all rounds"] == pytest.approx(0.92)
    colocate_judge.judge_half(session, [])
    assert "kv carried no load" in session.figures["colocate.half_batch_over_core_left"]["reason"]


def test_who_answered_nothing_has_no_bound_on_its_p99() -> None:
    silent = Beside(Point(1e5, 0.0, 100, 0), 1.0)
    assert silent.p99_us == math.inf
    assert colocate_judge.middle_p99_us([silent]) == math.inf
    assert colocate_judge.middle_p99_us([silent, slot(10.0)]) == 10.0
