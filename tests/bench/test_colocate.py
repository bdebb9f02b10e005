"""How co-location is judged: pair by pair, and not where the tail is no tail to compare with."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize(("p99_us", "value"), [(74.0, 0.92), (76.0, None), (math.inf, None)])
def test_half_of_the_peak(session: Session, p99_us: float, value: float | None) -> None:
    """kv had half of the core: 46 of 100 units in the other half are 0.92."""
    got = {"beside": [slot(p99_us, 46, 0.5)] * 3, "batch alone": [slot(math.nan, 100)] * 3, "kv alone": [slot(10)] * 3}
    colocate.judge_half(session, got)
    figure = session.figures["colocate.half_batch_share"]
    assert figure["value"] == (None if value is None else pytest.approx(value))
    assert figure["value"] is not None or "not under 75" in figure["reason"]
