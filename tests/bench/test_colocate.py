"""How co-location is judged: pair by pair, and not where the tail is no tail to compare with."""

from __future__ import annotations

import math
from functools import partial

import pytest

from corelane.bench import colocate
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session


def slot(p99_us: float, work: float = math.nan, kv_core_share: float = 0.0) -> colocate.Beside:
    """Two of three windows have this p99, and a pause fell into the third."""
    point = Point(1e5, 1e5, 100, 100, window_p99_us=(p99_us, 1e4, p99_us))
    point.extra["kv_core_share"] = kv_core_share
    return colocate.Beside(point, work)


@pytest.fixture
def session() -> Session:
    return Session("colocate", seconds=0.1)


def low(ours: list[float]) -> dict[str, list[colocate.Beside]]:
    return {
        "kv alone": [slot(10), slot(20), slot(12)],
        "batch alone": [slot(math.nan, 100), slot(math.nan, 100), slot(math.nan, 200)],
        f"delay target {colocate.LOW_TARGET_US:g} us": [slot(p, 80) for p in ours],
        colocate.COMPARED: [slot(60, 40), slot(70, 50), slot(80, 20)],
    }


def test_the_low_load(session: Session) -> None:
    colocate.judge_low(session, low([13, 21, 20]), with_linux=True)
    value = {name: figure["value"] for name, figure in session.figures.items()}
    assert value["colocate.low_p99_added_us"] == 3
    assert value["colocate.low_batch_share"] == 0.8
    assert value["colocate.linux_p99_over_ours"] == pytest.approx(4.0)
    assert value["colocate.batch_over_linux"] == 2.0


def test_unanswered_requests_count_against_us(session: Session) -> None:
    colocate.judge_low(session, low([13, math.inf, 20]), with_linux=False)
    assert session.figures["colocate.low_p99_added_us"]["value"] == 8
    colocate.judge_low(session, low([13, math.inf, math.inf]), with_linux=False)
    assert session.figures["colocate.low_p99_added_us"]["value"] is None
    assert "colocate.linux_p99_over_ours" not in session.figures


def test_beside_the_figures_stand_the_middle_windows_and_all_requests(session: Session) -> None:
    got = low([13, 21, 20])
    for name, p99_us in (("kv alone", 30.0), (colocate.LOWEST, 1059.0), (colocate.COMPARED, 2118.0)):
        for one in got[name]:
            one.point.p50_us, one.point.p90_us, one.point.p99_us = p99_us / 10, p99_us / 2, p99_us
    colocate.judge_low(session, got, with_linux=True)
    added, ratio = (session.figures[f"colocate.{name}"] for name in ("low_p99_added_us", "linux_p99_over_ours"))
    assert added["beside"] == {
        "of the middle windows": 21 - 20,
        "over all requests": 1029,
        "standard error": pytest.approx(math.sqrt(math.pi / 2 / 3) * 2 / 0.67449),  # of 3, 1 and 8: 2 from the median
        "p50 added": pytest.approx(102.9),
        "p90 added": pytest.approx(514.5),
    }
    assert ratio["beside"] == {"of the middle windows": pytest.approx(80 / 21), "over all requests": 2}


def test_a_sweep_over_loads_ends_where_an_arm_is_overloaded(session: Session) -> None:
    asked: list[tuple[str, float]] = []

    def arm(name: str, capacity: float, rate: float, seconds: float) -> colocate.Beside:
        asked.append((name, rate))
        achieved = min(rate, capacity)
        point = Point(rate, achieved, int(rate), int(achieved), seconds=1.0, window_p99_us=(5.0,))
        return colocate.Beside(point, 10.0)

    swept = colocate.Swept({"ours": partial(arm, "ours", 1e9), "Linux": partial(arm, "Linux", 120_000.0)})
    for _ in range(3):
        swept.turn(1.0)
    assert [rate for name, rate in asked if name == "ours"] == list(colocate.LOADS_RPS) * 3
    assert [rate for name, rate in asked if name == "Linux"] == [20_000, 100_000, 200_000] * 3
    swept.add_rows(session)
    rows = [(row["name"], row["load_rps"], row["windows"], row["work_per_s"]) for row in session.arms]
    assert rows[0] == ("ours, load swept", 20_000, 3, 10.0)
    assert len(rows) == len(colocate.LOADS_RPS) + 3
    assert session.stops["Linux, load swept"] == "120,000 of 200,000 requests/s achieved"
    assert "the last load" in session.stops["ours, load swept"]


def drawn(**p99_us: object) -> tuple[list[str], set[str]]:
    """Captions and labels of the plot of a document of the low load with these p99."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")
    names = {"ours": "delay target 5 us", "linux": colocate.COMPARED, "swept": f"{colocate.COMPARED}, load swept"}
    arms: list[dict[str, object]] = [{"name": "batch alone", "work_per_s": 100.0}]
    for key, value in p99_us.items():
        load = 100_000.0 if key == "swept" else colocate.LOW_RPS
        row = {"name": names[key], "load_rps": load, "offered_rps": load, "sent": 10, "windows": 2, "work_per_s": 50.0}
        arms.append(row | {"p99_window_us": value})
    canvas = colocate.plot({"bench": "colocate", "arms": arms, "settings": {"message": "a GET", "stops": {}}})
    return canvas.captions, canvas.expect


def test_the_plot_says_which_arms_it_leaves_out() -> None:
    captions, labels = drawn(ours=30.0, linux="inf", swept="inf")
    assert any(f"not drawn: {colocate.COMPARED}: p99 of the middle window is inf" in text for text in captions)
    assert any(f"Not drawn: {colocate.COMPARED} at 100,000 requests/s: p99 is inf" in text for text in captions)
    assert "corelane, delay target swept" in labels
    captions, labels = drawn(ours=30.0, linux=40.0, swept=50.0)
    assert not any("ot drawn" in text for text in captions)
    assert colocate.COMPARED in labels


@pytest.mark.parametrize(("p99_us", "value"), [(74.0, 0.92), (76.0, None), (math.inf, None)])
def test_half_of_the_peak(session: Session, p99_us: float, value: float | None) -> None:
    """kv had half of the core: 46 of 100 units in the other half are 0.92."""
    got = {"beside": [slot(p99_us, 46, 0.5)] * 3, "batch alone": [slot(math.nan, 100)] * 3, "kv alone": [slot(10)] * 3}
    colocate.judge_half(session, got)
    figure = session.figures["colocate.half_batch_share"]
    assert figure["value"] == (None if value is None else pytest.approx(value))
    assert figure["value"] is not None or "not under 75" in figure["reason"]
    assert figure["beside"]["kv's p99, us, of the middle window"] == p99_us
    assert value is not None or figure["beside"]["the share all the same"] == pytest.approx(0.92)


def test_half_of_the_peak_is_not_told_where_requests_were_lost(session: Session) -> None:
    got = {"beside": [slot(60, 46, 0.5) for _ in range(3)], "batch alone": [slot(math.nan, 100)] * 3}
    got["beside"][0].point.answered = 0  # one slot, which a pause of the machine may have spoilt
    colocate.judge_half(session, got)
    figure = session.figures["colocate.half_batch_share"]
    assert figure["value"] == pytest.approx(0.92)
    assert figure["beside"]["unanswered, of all requests"] == pytest.approx(1 / 3)
    got["beside"][1].point.answered = 99
    colocate.judge_half(session, got)
    figure = session.figures["colocate.half_batch_share"]
    assert figure["value"] is None
    assert "1 % unanswered in the middle slot" in figure["reason"]
