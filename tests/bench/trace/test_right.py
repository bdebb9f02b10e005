"""Blame on records of a server whose requests are delayed at a known stage, in virtual time."""

from __future__ import annotations

import io

import pytest

from corelane.bench.harness.session import Session
from corelane.bench.trace import right
from corelane.bench.trace.right import CAUSES, drawn, trial


@pytest.mark.parametrize("load", [0.1, 0.5])
@pytest.mark.parametrize("cause", CAUSES)
def test_the_stage_that_is_delayed_is_named(cause: str, load: float) -> None:
    assert trial(cause, load, 7).right


def test_a_trial_is_the_same_each_time_and_causes_are_drawn_alike() -> None:
    trials = drawn(2 * len(CAUSES), 3)
    assert trials == drawn(2 * len(CAUSES), 3)
    assert sorted(one.cause for one in trials) == sorted([*CAUSES, *CAUSES])


def test_who_was_taken_for_whom_is_in_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(right, "TRIALS", 2 * len(CAUSES))
    with Session("trace", seconds=0.05, progress=io.StringIO()) as session:
        right.measure(session)
    (table,) = session.tables
    assert {row[0] for row in table["rows"]} == set(CAUSES)
    assert sum(row[2] for row in table["rows"]) == 2 * len(CAUSES)
    rightly = sum(row[2] for row in table["rows"] if row[3])
    assert session.figures["trace.blame_right"]["value"] == rightly / (2 * len(CAUSES))
