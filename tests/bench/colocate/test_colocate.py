"""How co-location is measured over loads, and drawn."""

from __future__ import annotations

import contextlib
from functools import partial
from unittest.mock import Mock

import pytest

from corelane.bench.colocate import colocate
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session


@pytest.fixture
def session() -> Session:
    return Session("colocate", seconds=0.1)


def test_arms_that_the_kernel_refuses_are_left_out(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colocate.netns, "missing", lambda: None)
    monkeypatch.setattr(colocate, "Servers", lambda *_: Mock())
    monkeypatch.setattr(colocate, "no_fifo", lambda: "not on a Sunday")
    with contextlib.ExitStack() as stack:
        arms = colocate.add_linux(session, stack, (0, 1), Mock())
    under = "Linux, batch under SCHED_IDLE, server under SCHED_FIFO"
    assert list(arms) == [name for name in colocate.LINUX if name != under]
    assert session.skipped == {under: "not on a Sunday", f"{under}, load swept": "not on a Sunday"}


def test_a_sweep_over_loads_ends_where_an_arm_is_overloaded(session: Session) -> None:
    asked: list[tuple[str, float]] = []

    def arm(name: str, capacity: float, rate: float, seconds: float) -> colocate.Beside:
        asked.append((name, rate))
        achieved = min(rate, capacity)
        point = Point(rate, achieved, int(rate), int(achieved), seconds=1.0, window_p99_us=(5.0,))
        return colocate.Beside(point, 10.0)

    swept = colocate.Swept({"ours": partial(arm, "ours", 1e9), "Linux": partial(arm, "Linux", 120_000.0)})
    for _ in range(3):
        swept.add(swept.turn(1.0))
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
