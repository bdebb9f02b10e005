"""How co-location is measured over loads, and drawn."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from unittest.mock import Mock

import pytest

from corelane.bench.colocate import colocate, sweep
from corelane.bench.colocate.arms import Beside
from corelane.bench.colocate.wall import Wall
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.plot import Canvas
from corelane.bench.harness.session import Session
from corelane.bench.harness.stops import Evidence


@pytest.fixture
def session() -> Session:
    return Session("colocate", seconds=0.1)


def test_arms_that_the_kernel_refuses_are_left_out(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colocate.netns, "missing", lambda: None)
    monkeypatch.setattr(colocate, "Servers", lambda *_: Mock(peak_rps=1e5))
    monkeypatch.setattr(colocate, "no_fifo", lambda: "not on a Sunday")
    with contextlib.ExitStack() as stack:
        arms, alone = colocate.add_linux(session, stack, (0, 1), Mock())
    under = "Linux, batch under SCHED_IDLE, server under SCHED_FIFO"
    assert list(arms) == [name for name in colocate.LINUX if name != under]
    assert alone is not None
    assert session.skipped == {under: "not on a Sunday"}


def answers(most: float, rate: float, seconds: float) -> Beside:
    """A server alone on the core that answers so many requests a second at most."""
    achieved = min(rate, most)
    return Beside(Point(rate, achieved, int(rate), int(achieved), seconds=1.0), math.nan)


def raw_pairs(rate: float, seconds: float) -> Beside:
    """Each pair of hand-overs takes 5 us of the job's, which does 100 units a second alone."""
    point = Point(rate, rate, int(rate), int(rate), seconds=1.0, extra={"moves_per_s": 2 * rate})
    return Beside(point, 100 * (1 - 5e-6 * rate))


def test_a_sweep_over_loads_ends_where_an_arm_is_overloaded(session: Session) -> None:
    """A job alone does 100 units, and beside an arm nine tenths of what the load leaves; one carries 390 000/s."""
    asked: list[tuple[str, float]] = []

    def arm(name: str, most: float, rate: float, seconds: float, counted: bool = False) -> Beside:
        asked.append((name, rate))
        achieved = min(rate, most)
        point = Point(rate, achieved, int(rate), int(achieved), seconds=1.0, window_p99_us=(5.0,))
        point.extra |= {"moves_per_s": 20_000.0, "move_ns": 3000.0}
        point.evidence = Evidence(worker=0.6, taken=0.35) if counted else None
        return Beside(point, 90 * (1 - rate / peak[name]) if rate else 100.0)

    raw = next(iter(sweep.SWEPT_RAW.values()))
    most = {sweep.BOUNDED: 2e6, sweep.DEFAULT: 1.2e6, raw: 390_000.0, sweep.COMPARED: 1.1e5}
    peak = dict.fromkeys(most, 1e6) | {sweep.COMPARED: 1e5}
    alone = {sweep.DEDICATED: partial(answers, 1e6), sweep.COMPARED: partial(answers, 1e5)}
    swept = sweep.Swept({name: partial(arm, name, most[name]) for name in most}, alone, raw_pairs, 1e5)
    for _ in range(3):
        swept.add(swept.turn(1e6, 1.0))
    loads = [round(load * 1e6) for load in sweep.LOADS]
    assert [round(rate) for name, rate in asked if name == sweep.DEFAULT] == loads * 3
    assert [round(rate) for name, rate in asked if name == raw] == loads[:3] * 3
    assert [round(rate) for name, rate in asked if name == sweep.COMPARED] == [0, *(load // 10 for load in loads)] * 3
    ends = dict.fromkeys(most, 0)

    def at_peak(measure: Callable[[float], Wall | None]) -> Wall | None:
        """The cores move in the first search of one arm, and in both of another."""
        found = measure(1e6)
        name = asked[-1][0]
        ends[name] += 1
        return None if name == sweep.BOUNDED or (name == raw and ends[name] == 1) else found

    swept.find_walls(at_peak, 0.01)
    assert ends == {sweep.BOUNDED: 2, sweep.DEFAULT: 1, raw: 2, sweep.COMPARED: 1}
    swept.judge(session)
    rows = {(row["name"].removesuffix(sweep.SWEPT), row["of_peak"]): row for row in session.arms if "of_peak" in row}
    assert len(rows) == 3 * len(sweep.LOADS) + 3
    assert all(row["linearity"] == pytest.approx(0.9) for row in rows.values())
    figure = session.figures["colocate.linearity"]
    assert figure["value"] == pytest.approx(0.9)
    assert figure["beside"][f"{raw}, least"] == pytest.approx(0.9)
    left = 1 - figure["beside"]["at load"]
    wanted = {sweep.MOVES: 20_000.0, sweep.BY_CLOCK: 1 - 0.06 / left, sweep.BY_RAW: 1 - 0.05 / left, sweep.LET: 0.9}
    assert {name: figure["beside"][name] for name in wanted} == pytest.approx(wanted)
    assert session.settings["raw_pair_us"] == pytest.approx([5.0] * 3)
    us = {load: 1 / load for load in sweep.LOADS}  # from a request to the next, on average
    bounds = {load: (us[load] + sweep.HELD_US) / (us[load] + sweep.HELD_US + 5) for load in sweep.LOADS}
    assert {load: rows[sweep.DEFAULT, load]["linearity_bound"] for load in sweep.LOADS} == pytest.approx(bounds)
    assert rows[raw, 0.1]["linearity_bound"] == pytest.approx((us[0.1] + 0.01) / (us[0.1] + 0.01 + 5))
    assert "linearity_bound" not in rows[sweep.COMPARED, 0.1]
    assert session.figures["colocate.linearity_of_bound"]["value"] == pytest.approx(0.9 / max(bounds.values()))
    beyond = [round(row["offered_rps"]) for row in session.arms if row["name"] == f"{sweep.DEFAULT}{sweep.SWEPT}"]
    assert beyond == [*loads, 1_000_000, 1_150_000, 1_300_000]
    assert session.stops[f"{raw}{sweep.SWEPT}"].startswith("22 % unanswered at 500,000 requests/s offered: core taken")
    (table,) = session.tables
    assert table["head"] == ["arm", "0.1", "0.3", "0.5", "0.7", "0.9", sweep.LEFT]
    lines = {str(name): cells for name, *cells in table["rows"]}
    assert list(lines) == list(most)
    assert lines[sweep.DEFAULT] == [*(f"0.90 / {bounds[load]:.2f} (5)" for load in sweep.LOADS), "0.90"]
    assert lines[sweep.COMPARED] == [*["0.90 (5)"] * len(sweep.LOADS), "-"]  # of it no bound is known
    assert lines[raw][3:] == ["-", "-", "-"]  # it was overloaded
    because = session.stops_because[f"{sweep.DEFAULT}{sweep.SWEPT}"]
    assert because["resource"] == "core taken"
    assert "worker 60 % busy" in because["said"]
    assert "the cores moved" in session.stops[f"{sweep.BOUNDED}{sweep.SWEPT}"]
    assert session.stops_because[f"{sweep.BOUNDED}{sweep.SWEPT}"]["resource"] == "core taken"
    assert session.stops.keys() == session.stops_because.keys()


def test_a_dedicated_core_leaves_a_job_nothing_and_without_turns_there_is_no_figure(session: Session) -> None:
    point = Point(1e5, 1e5, 100, 100, seconds=1.0, window_p99_us=(5.0,))
    kept = {sweep.DEDICATED: lambda rate, seconds, counted=False: Beside(point, math.nan)}
    swept = sweep.Swept(kept, {sweep.DEDICATED: partial(answers, 1e6)}, raw_pairs)
    swept.add(swept.turn(1e6, 1.0))
    swept.judge(session)
    assert [row["linearity"] for row in session.arms] == [0.0] * len(sweep.LOADS)
    for name in ("linearity", "linearity_of_bound"):
        assert "carried no load" in session.figures[f"colocate.{name}"]["reason"]


def drawn(**p99_us: object) -> Canvas:
    """The plot of a document of the low load, and of one swept, with these p99."""
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")
    names = {"ours": "delay target 5 us", "linux": colocate.COMPARED, "swept": f"{colocate.COMPARED}, load swept"}
    arms: list[dict[str, object]] = [{"name": "batch alone", "work_per_s": 100.0}]
    for key, value in p99_us.items():
        load = 100_000.0 if key == "swept" else colocate.LOW_RPS
        row = {"name": names[key], "load_rps": load, "offered_rps": load, "sent": 10, "windows": 2, "work_per_s": 50.0}
        arms.append(row | {"p99_window_us": value})
    return colocate.plot({"bench": "colocate", "arms": arms, "settings": {"message": "a GET", "stops": {}}})


def test_the_plot_says_which_arms_it_leaves_out() -> None:
    canvas = drawn(ours=30.0, linux="inf", swept="inf")
    assert f"Left, not drawn: {colocate.COMPARED}: p99 of the middle window is inf." in canvas.captions
    assert f"Not drawn: {colocate.COMPARED} at 100,000 requests/s: p99 is inf." in canvas.captions
    assert "corelane, delay target swept" in canvas.expect
    canvas = drawn(ours=30.0, linux=40.0, swept=50.0)
    assert not any("ot drawn" in text for text in canvas.captions)
    assert colocate.COMPARED in canvas.expect


def test_the_plot_has_batch_work_over_the_line_beside_what_bounds_it() -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'corelane[plot]'")
    arms: list[dict[str, object]] = [{"name": "batch alone", "work_per_s": 100.0}]
    for name in sweep.HELD:
        for load in sweep.LOADS:
            row = {"name": f"{name}{sweep.SWEPT}", "offered_rps": 1e6 * load, "sent": 10, "windows": 2}
            row |= {"of_peak": load, "p99_window_us": 9.0, "linearity": 0.5 + load / 4, "linearity_bound": 0.9}
            arms.append(row)
        beyond = {"name": f"{name}{sweep.SWEPT}", "offered_rps": 1.2e6, "sent": 10, "windows": 2}
        arms.append(beyond | {"p99_window_us": "inf"})  # it is not carried
    canvas = colocate.plot({"bench": "colocate", "arms": arms, "settings": {"message": "a GET", "stops": {}}})
    lines = {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in canvas.axes[2].lines}
    loads = list(sweep.LOADS)
    for name in sweep.HELD:
        assert lines[name] == (loads, [0.5 + load / 4 for load in loads])
    bounds = {"at most, target 0.01 us", "at most, target 5 us", "at most, target 50 us", "at most, the default policy"}
    assert set(lines) == {*sweep.HELD, *bounds, "moves cost nothing"}  # a bound of each time that a request may wait
    assert all(lines[name] == (loads, [0.9] * len(loads)) for name in bounds)
