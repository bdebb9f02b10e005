"""The figures of how far the simulator is from the machine."""

from __future__ import annotations

from typing import Any

import pytest

from corelane.bench.harness.session import Session
from corelane.bench.sim import agreement


def row(error: float, again: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {"batch_apart": error / 10, "batch_again_apart": again}
    for what in ("p50", "p99"):
        found |= {f"{what}_error": error, f"{what}_again_error": again}
        found |= {f"box_{what}_us": 10.0, f"plain_{what}_us": 8.0}
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
    assert beside["the median without the machine's gaps"] == pytest.approx(0.2)
    share = found["sim.box_share_error"]
    assert share["value"] == pytest.approx(0.007)
    assert share["beside"]["the largest of all rows"] == pytest.approx(0.09)


def test_an_error_where_the_machine_tells_is_one() -> None:
    assert figures([row(0.4, 0.01)] * 4)["sim.box_p50_error"]["value"] == pytest.approx(0.4)


def test_too_few_rows_that_tell_are_no_figure() -> None:
    found = figures([row(0.01, 0.01), *[row(0.02, 0.5)] * 4])
    for name in agreement.FIGURES.values():
        assert found[name]["value"] is None
        assert "in 1 of 5 rows" in found[name]["reason"]


def test_without_an_iokernel_the_scheduler_alone_is_judged() -> None:
    found = figures([])
    assert found["sim.box_p50_error"]["value"] == pytest.approx(0.04)
    assert "sim.box_share_error" not in found
