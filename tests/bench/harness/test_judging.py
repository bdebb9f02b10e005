"""When a run is judged, and patience: by a canary and a clock that the test makes."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import pytest

from corelane.bench.harness import document as doc
from corelane.bench.harness import judging, markdown, session, table
from corelane.bench.harness.jitter import Gaps
from corelane.bench.harness.session import Session

FIGURE = "threads.yield_ns"


class World:
    """A machine on a clock of its own, whose canary loses what `lost` says: slice by slice, the last value for ever."""

    def __init__(self, lost: Sequence[float]) -> None:
        self.now = 0.0
        self._lost: Iterator[float] = iter(lost)
        self._last = 0.0

    def watch(self, cpus: Sequence[int], seconds: float) -> list[Gaps]:
        self._last = next(self._lost, self._last)
        self.now += seconds
        ns = seconds * 1e9
        gap = {2000.0: (max(1, int(self._last * ns / 2000)), self._last * ns)} if self._last else {}
        return [Gaps(cpu, seconds, 1, 2000.0, dict(gap)) for cpu in cpus]


def made(monkeypatch: pytest.MonkeyPatch, lost: Sequence[float], patient_s: float = 0.0) -> tuple[Session, World]:
    world = World(lost)
    monkeypatch.setattr(session, "watch", world.watch)
    monkeypatch.setattr(session.rest, "awake", lambda _s: "")
    return (
        Session("threads", seconds=1, cores=[0], progress=io.StringIO(), patient_s=patient_s, clock=lambda: world.now),
        world,
    )


@pytest.mark.parametrize(("lost", "judged"), [(0.0, True), (0.026, True), (0.2, False)])
def test_a_run_is_judged_where_the_machine_left_the_cores_alone(
    monkeypatch: pytest.MonkeyPatch, lost: float, judged: bool
) -> None:
    run, _ = made(monkeypatch, [lost])
    run.take_canary()
    run.figure(FIGURE, 12.0)
    run.figure("threads.mutex_ns", None, reason="not today")
    document = run.document()
    assert doc.problems(document) == []
    figure = document["figures"][FIGURE]
    assert figure["value"] == 12.0
    assert figure["met"] is (True if judged else None)
    assert document["figures"]["threads.mutex_ns"]["reason"] == "not today"
    first = table.report(document).splitlines()[0]
    assert first.startswith("NOT JUDGED") is not judged
    if not judged:
        assert "20 % of a core" in first
        assert "--patient" in first
        assert "not judged" in table.figure_table(document["figures"])
        assert "| not judged |" in markdown.figures([document])


def test_a_verdict_that_is_left_out_needs_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = made(monkeypatch, [0.0])
    run.figure(FIGURE, 12.0)
    document = run.document()
    document["figures"][FIGURE]["met"] = None
    assert doc.problems(document) == [f"{FIGURE}: has neither a verdict nor a reason"]


def rounds(run: Session, world: World, costs_s: float = 1.0, n: int = 3) -> dict[str, list[int]]:
    """Both arms of n rounds: each gives the number of its call, so that pairs can be told."""
    calls = {"ours": 0, "theirs": 0}

    def arm(name: str) -> int:
        world.now += costs_s
        calls[name] += 1
        return calls[name]

    return run.interleave({name: lambda name=name: arm(name) for name in calls}, n)


def test_without_patience_no_round_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run, world = made(monkeypatch, [0.5])
    assert rounds(run, world) == {"ours": [1, 2, 3], "theirs": [1, 2, 3]}
    assert "patience" not in run.document()["settings"]


def test_patience_measures_a_disturbed_round_again_with_all_its_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    # Slices: before and after each round. The second round is disturbed twice, once before and once behind it.
    run, world = made(monkeypatch, [0.0, 0.0, 0.3, 0.0, 0.0, 0.4, 0.0], patient_s=60)
    assert rounds(run, world) == {"ours": [1, 4, 5], "theirs": [1, 4, 5]}
    run.figure(FIGURE, 12.0)
    document = run.document()
    told = document["settings"]["patience"]
    assert (told["rounds_repeated"], told["lost_beside_them"], told["rounds_kept_disturbed"]) == (2, [0.3, 0.4], 0)
    assert document["canary"]["slices"] == 6  # of the rounds that were kept
    assert document["figures"][FIGURE]["met"]


def test_patience_ends_with_its_time_and_says_what_it_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    run, world = made(monkeypatch, [0.3], patient_s=5)
    assert rounds(run, world) == {"ours": [4, 5, 6], "theirs": [4, 5, 6]}  # three tries of 2.4 s, then what comes
    told = run.document()["settings"]["patience"]
    assert (told["rounds_repeated"], told["rounds_kept_disturbed"]) == (3, 3)
    assert told["spent_s"] >= told["seconds"]
    run.figure(FIGURE, 12.0)
    assert run.document()["figures"][FIGURE]["met"] is None


def test_the_bound_leaves_room_for_the_tick_and_none_for_a_busy_host() -> None:
    assert 0.026 < judging.LOST_BOUND < 0.2
