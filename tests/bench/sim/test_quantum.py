"""The studies of the quantum: the search, and what they claim is there in a run with few points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from corelane.bench.sim import quantum
from corelane.bench.sim.quantum import BIMODAL, LOADS, Case

from .test_studies import Notes


@dataclass(frozen=True)
class Known:
    """In a measurement's place: it meets the goal up to a load."""

    load: float
    most: float

    @property
    def meets(self) -> bool:
        return self.load <= self.most


@pytest.mark.parametrize("most", [1, 2, 7, 30, len(LOADS), None])
@pytest.mark.parametrize("answer", [0.0, *LOADS[:3], 0.5, LOADS[-2], LOADS[-1]])
def test_the_largest_load_is_found(answer: float, most: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantum, "measure", lambda case, load, events: Known(load, answer))
    found = quantum.largest(Case(BIMODAL, 0, 0), 0, most)
    assert found.load == min(answer, LOADS[(most or len(LOADS)) - 1])
    assert len(found.tried) <= (11 if most else 6)


def test_no_load_is_tried_at_which_no_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantum, "measure", lambda case, load, events: Known(load, 1.0))
    found = quantum.largest(Case(BIMODAL, 5, 14), 0)
    assert found.load == 0.3 < found.case.most_load < 0.32


def test_the_largest_load_of_none_is_none() -> None:
    found = quantum.largest(Case(BIMODAL, 5, 1), 0, 0)
    assert (found.load, found.best, found.tried) == (0.0, None, {})
    assert quantum._goal_row(found)["n"] == 0


def test_every_workload_is_asked_with_every_quantum_and_some_with_every_cost() -> None:
    cases = [case for family in quantum.families() for case in family]
    assert len(set(cases)) == len(cases)
    for workload in quantum.WORKLOADS:
        assert {c.quantum_us for c in cases if c.workload == workload} == set(quantum.QUANTA_US)
    for workload in quantum.WHAT_IF:
        for quantum_us in quantum.QUANTA_US[1:]:
            costs = [c.cost_us for c in cases if c == Case(workload, quantum_us, c.cost_us)]
            assert costs == list(quantum.COSTS_US) == sorted(costs)
    assert {c.cores for c in cases} == set(quantum.CORES)
    assert {c.central for c in cases} == {True, False}


def test_a_quantum_keeps_short_requests_short_and_its_cost_takes_load_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantum, "WORKLOADS", {BIMODAL: quantum.WORKLOADS[BIMODAL]})
    monkeypatch.setattr(quantum, "WHAT_IF", (BIMODAL,))
    monkeypatch.setattr(quantum, "QUANTA_US", (0, 5))
    monkeypatch.setattr(quantum, "COSTS_US", (0, 14))
    monkeypatch.setattr(quantum, "CORES", (16,))
    session: Any = Notes()
    quantum.loads_for_a_goal(session, 0.0)
    rows = {(r["quantum_us"], r["preempt_us"], r["central"]): r for r in session.arms}
    loads = {key: row["load_for_goal"] for key, row in rows.items()}
    assert loads[5, 0, True] > loads[5, 1, False] > loads[5, 14, True]
    assert loads[5, 0, True] > loads[0, 0, True] > loads[5, 14, True]
    for row in rows.values():
        assert 0 < row["load_for_goal"] < row["most_load"]
        assert row["p999_slowdown"] <= quantum.GOAL
    assert session.settings["slowdown_goal"] == quantum.GOAL


def test_curves_end_at_a_load_that_is_not_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantum, "CURVES", ((BIMODAL, 16),))
    monkeypatch.setattr(quantum, "QUANTA_US", (0, 5))
    monkeypatch.setattr(quantum, "CURVES_LOADS", (0.2, 0.7, 1.05))
    session: Any = Notes()
    quantum.tails_against_load(session, 0.1)
    none, with_it = "no quantum, bimodal 99.5-0.5, 16 cores", "quantum 5 us at 1 us, bimodal 99.5-0.5, 16 cores"
    rows = {(r["name"], r["load"]): r for r in session.arms}
    assert list(rows) == [(name, load) for name in (none, with_it) for load in (0.2, 0.7, 1.05)]
    assert [r["carried"] for r in rows.values()] == [True, True, False] * 2
    assert rows[none, 0.7]["p999_slowdown"] > 2 * rows[with_it, 0.7]["p999_slowdown"]
    assert rows[none, 0.7]["preemptions_per_request"] == rows[none, 0.7]["cores_preempting"] == 0
    at = rows[with_it, 0.7]
    assert 0 < at["preemptions_per_request"] < 0.5  # 99 of each long one, where others always wait
    assert at["cores_requests"] == pytest.approx(0.7, rel=0.1)
    assert session.stops[none].endswith("load 1.05 is not carried: the cores are full (requests 100 %)")
    assert "preemptions" in session.stops[with_it]


def test_no_time_is_left_where_all_are_preempted_as_often_as_they_can_be() -> None:
    assert Case(BIMODAL, 5, 1).most_load == pytest.approx(2.9975 / (2.9975 + 0.005 * 99))
    assert Case(BIMODAL, 0, 0).most_load == 1
    for workload in quantum.WORKLOADS:
        dearer = [Case(workload, 5, cost_us).most_load for cost_us in quantum.COSTS_US]
        assert dearer == sorted(dearer, reverse=True)
        assert dearer[0] == 1
