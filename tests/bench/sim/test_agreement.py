"""The figures of how far the simulator is from the machine."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.bench.harness.session import Session
from corelane.bench.sim import agreement


def row(error: float, again: float | None, gaps: float = 0.05) -> dict[str, Any]:
    """gaps: what the machine's gaps make of the simulator's values."""
    found: dict[str, Any] = {"batch_apart": error / 10, "batch_again_apart": again}
    found |= {"model_batch_share": 0.5, "plain_batch_share": 0.5 + gaps}
    for what in ("p50", "p99"):
        found |= {f"{what}_error": error, f"{what}_again_error": again}
        found |= {f"box_{what}_us": 10.0, f"model_{what}_us": 9.0, f"plain_{what}_us": 9 * (1 - gaps)}
    return found


SCHEDULER = [row(0.04, None), row(-0.02, None)]


def figures(iokernel: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    session = Session("sim", seconds=0.1)
    agreement.judge(session, SCHEDULER, iokernel)
    return session.figures


def test_rows_in_which_the_machine_is_not_near_to_itself_are_told_and_not_judged() -> None:
    found = figures([row(0.07, 0.02), row(-0.5, 0.3), row(0.9, None), row(-0.06, -0.1)])
    p99 = found["sim.box_p99_error"]
    assert p99["value"] == pytest.approx(0.07)
    assert p99["runs"] == pytest.approx([0.04, 0.02, 0.07, 0.06])
    beside = p99["beside"]
    assert beside["rows of an iokernel that tell"] == 2
    assert beside["the largest of all rows"] == beside["the largest of an iokernel"] == pytest.approx(0.9)
    assert beside["the largest of the scheduler"] == pytest.approx(0.04)
    assert beside["the machine from itself, the largest"] == pytest.approx(0.3)
    assert beside["the median without the machine's gaps"] == pytest.approx(1 - 9 * 0.95 / 10)
    assert beside["what the machine's gaps moved, the median"] == pytest.approx(0.05)
    share = found["sim.box_share_error"]
    assert share["value"] == pytest.approx(0.007)
    assert share["beside"]["the largest of all rows"] == pytest.approx(0.09)


def test_an_error_where_the_machine_tells_is_one() -> None:
    assert figures([row(0.4, 0.01)] * 4)["sim.box_p50_error"]["value"] == pytest.approx(0.4)


def test_rows_that_the_machines_gaps_moved_by_more_than_the_goal_are_told_and_not_judged() -> None:
    found = figures([row(0.07, 0.02), row(0.4, 0.02, gaps=0.2), row(-0.3, 0.02, gaps=-0.2), row(0.03, 0.02)])
    for what, name in agreement.FIGURES.items():
        assert found[name]["value"] == pytest.approx(0.007 if what == "share" else 0.07)
        assert found[name]["beside"]["rows of an iokernel that tell"] == 2
        assert found[name]["beside"]["the largest of all rows"] == pytest.approx(0.04 if what == "share" else 0.4)


def test_a_scheduler_that_the_gaps_moved_is_not_judged_either() -> None:
    session = Session("sim", seconds=0.1)
    agreement.judge(session, [row(0.18, None, gaps=0.35), row(0.02, None)], [row(0.03, 0.01)])
    assert session.figures["sim.box_p50_error"]["value"] == pytest.approx(0.03)


def test_too_few_rows_that_tell_are_no_figure() -> None:
    found = figures([row(0.01, 0.01), *[row(0.02, 0.5)] * 2, *[row(0.02, 0.01, gaps=0.3)] * 2])
    for what, name in agreement.FIGURES.items():
        assert found[name]["value"] is None
        assert found[name]["reason"].startswith("1 of 5 rows of an iokernel can tell")
        rows = 5 if what == "share" else 7
        assert f"in 2 of all {rows} the machine's gaps moved the value by more than 0.1" in found[name]["reason"]


def test_without_an_iokernel_the_scheduler_alone_is_judged() -> None:
    found = figures([])
    assert found["sim.box_p50_error"]["value"] == pytest.approx(0.04)
    assert "sim.box_share_error" not in found
