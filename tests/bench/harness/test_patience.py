"""Loud runs are not judged, and a patient session measures loud rounds again. The canary's slices are made, and so is
the clock."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from corelane.bench import registry
from corelane.bench.harness import document as doc
from corelane.bench.harness import markdown, rest, table
from corelane.bench.harness import session as session_module
from corelane.bench.harness.jitter import LOST_MOST, Canary, Gaps
from corelane.bench.harness.patience import PAUSE_S
from corelane.bench.harness.session import Session
from corelane.cli.main import main

QUIET, LOUD = 0.01, 0.25
SLICE_S, ARM_S = 0.1, 1.0


def slice_of(lost: float, cpus: Sequence[int] = (0, 1)) -> list[Gaps]:
    """A slice in which the last core lost that share of its time, in gaps of a millisecond."""
    gaps = lost * SLICE_S * 1e9
    return [Gaps(cpu, SLICE_S, 1000, 1e6, {1e6: (10, gaps if cpu == cpus[-1] else 0.0)}) for cpu in cpus]


class Machine:
    """A clock that only sleeping, looking and measuring move, and a canary that says what each look lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lost: Iterable[float], then: float = QUIET) -> None:
        self.now = 0.0
        self.looks = 0
        self.look_s = SLICE_S
        self._lost, self._then = iter(lost), then
        monkeypatch.setattr(rest, "awake", lambda wait_s: "")
        monkeypatch.setattr(session_module, "watch", self.watch)

    def watch(self, cpus: Sequence[int], seconds: float) -> list[Gaps]:
        self.now += self.look_s
        self.looks += 1
        return slice_of(next(self._lost, self._then))

    def session(self, patient: float = 0.0) -> Session:
        made = Session("test", seconds=1.0, cores=[0], patient=patient, progress=io.StringIO())
        made.cores = (0, 1)
        made.canary = Canary(made.cores)
        made.patience.clock = lambda: self.now
        made.patience.sleep = self.sleep
        return made

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def arm(self, into: list[str], name: str) -> Callable[[], str]:
        def body() -> str:
            self.now += ARM_S
            into.append(f"{name}{sum(one.startswith(name) for one in into) + 1}")
            return into[-1]

        return body

    def arms(self, into: list[str]) -> dict[str, Callable[[], str]]:
        return {name: self.arm(into, name) for name in "ab"}


MakeMachine = Callable[..., Machine]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> MakeMachine:
    return lambda *args, **kwargs: Machine(monkeypatch, *args, **kwargs)


def run_of(lost: float, figure: str = "echo.rps_per_core", other: str = "threads.yield_ns") -> dict[str, object]:
    """The document of a run with two figures, one of them without a value."""
    session = Session("test", seconds=1.0, cores=[0], progress=io.StringIO())
    session.canary = Canary((0, 1))
    session.canary.count(slice_of(lost))
    session.figure(figure, 6e6, runs=[6e6, 4e6])
    session.figure(other, None, reason="too slow")
    return session.document()


def test_a_loud_run_is_not_judged_and_keeps_its_values(tmp_path: Path) -> None:
    document = run_of(LOUD)
    figure = document["figures"]["echo.rps_per_core"]  # type: ignore[index]
    assert (figure["value"], figure["met"], figure["runs"]) == (6e6, None, [6e6, 4e6])
    assert "25 % of core 1" in figure["reason"]
    assert document["figures"]["threads.yield_ns"]["reason"] == "too slow"  # type: ignore[index]
    assert document["canary"]["loud"] is True  # type: ignore[index]
    doc.write(document, tmp_path / "x.json")
    assert doc.read(tmp_path / "x.json") == json.loads((tmp_path / "x.json").read_text())


def test_the_first_line_about_a_loud_run_says_so_and_what_to_do() -> None:
    document = run_of(LOUD)
    for text in (table.report(document), markdown.report([run_of(QUIET), document])):
        first = text.splitlines()[0]
        for part in ("test is not judged", "25 %", f"{100 * LOST_MOST:g} %", "repeat", "--patient"):
            assert part in first
    assert "not judged" in table.figure_table(document["figures"])  # type: ignore[arg-type]
    assert "NOT MET" not in table.report(document)
    assert "| not judged |" in markdown.figures([document])


def test_a_quiet_run_is_judged() -> None:
    document = run_of(QUIET)
    assert document["figures"]["echo.rps_per_core"]["met"] is True  # type: ignore[index]
    assert "reason" not in document["figures"]["echo.rps_per_core"]  # type: ignore[index]
    assert document["canary"]["loud"] is False  # type: ignore[index]
    assert "not judged" not in table.report(document) + markdown.report([document])


def test_what_is_in_virtual_time_is_judged_beside_a_loud_canary() -> None:
    document = run_of(LOUD, "raft-loss.goodput", "raft-loss.over_go_back_n")
    assert document["figures"]["raft-loss.goodput"]["met"] is True  # type: ignore[index]
    assert document["canary"]["worst_lost_fraction"] == pytest.approx(0.25)  # type: ignore[index]
    assert "not judged" not in table.report(document) + markdown.report([document])


def test_one_figure_in_virtual_time_is_judged_in_a_loud_run() -> None:
    document = run_of(LOUD, "raft.batching_modelled")
    assert document["figures"]["raft.batching_modelled"]["met"] is True  # type: ignore[index]
    assert table.loud_line(document).startswith("test is not judged (but for what is in virtual time): ")


def test_a_figure_that_is_not_judged_needs_a_reason() -> None:
    document = run_of(LOUD)
    del document["figures"]["echo.rps_per_core"]["reason"]  # type: ignore[attr-defined]
    assert doc.problems(document) == ["echo.rps_per_core: is not judged and has no reason"]


def test_a_document_from_before_there_was_a_bound_is_read() -> None:
    document = run_of(QUIET)
    for name in ("loud", "worst_cpu", "worst_lost_fraction", "bound_lost_fraction", "left_out"):
        del document["canary"][name]  # type: ignore[attr-defined]
    assert doc.problems(document) == []
    assert "echo.rps_per_core" in table.report(document)


def test_without_patience_no_round_is_repeated(machine: MakeMachine) -> None:
    made = machine([LOUD] * 9)
    session, order = made.session(), []
    assert session.interleave(made.arms(order), rounds=3) == {"a": ["a1", "a2", "a3"], "b": ["b1", "b2", "b3"]}
    assert made.looks == session.canary.slices == 3
    assert session.canary.loud
    assert "patient" not in session.document()["settings"]


def test_a_loud_round_is_measured_again_with_all_its_arms(machine: MakeMachine) -> None:
    made = machine([QUIET, QUIET, LOUD, QUIET])  # before the first round, after it, after the second, waiting
    session, order = made.session(patient=60), []
    got = session.interleave(made.arms(order), rounds=3)
    assert order == ["a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"]
    assert got == {"a": ["a1", "a3", "a4"], "b": ["b1", "b3", "b4"]}
    told = session.document()["settings"]["patient"]
    assert (told["rounds"], told["repeated"], told["left_out"]) == (3, 1, 0)
    (discarded,) = told["discarded"]
    assert discarded == {"part": 1, "round": 2, "what": "measured again", "cpu": 1, "lost_fraction": 0.13}
    assert not session.canary.loud, "the slice of the discarded round is not the others'"
    assert session.canary.slices_left_out == 1
    assert session.canary.slices + 1 == made.looks


def test_the_choice_is_the_canarys_alone(machine: MakeMachine) -> None:
    made = machine([])
    values = iter([1.0, math.inf, 1e9])
    got = made.session(patient=60).interleave({"a": lambda: next(values)}, rounds=3)
    assert got == {"a": [1.0, math.inf, 1e9]}


def test_patience_ends_with_its_time_and_what_is_loud_still_is_kept_and_not_judged(machine: MakeMachine) -> None:
    patient, rounds = 20.0, 4
    made = machine([], then=LOUD)
    session, order = made.session(patient=patient), []
    got = session.interleave(made.arms(order), rounds=rounds)
    assert [len(values) for values in got.values()] == [rounds, rounds]
    without = rounds * (2 * ARM_S + SLICE_S) + SLICE_S
    assert without < made.now <= without + patient
    assert patient - session.patience.spent_s < PAUSE_S + SLICE_S
    session.figure("echo.rps_per_core", 6e6)
    document = session.document()
    assert document["settings"]["patient"]["loud_kept"] == rounds
    assert document["figures"]["echo.rps_per_core"]["met"] is None


def test_a_round_that_does_not_fit_into_the_time_left_is_not_begun_again(machine: MakeMachine) -> None:
    made = machine([QUIET, LOUD, QUIET])
    session, order = made.session(patient=2 * ARM_S), []
    session.interleave(made.arms(order), rounds=3)
    assert len(order) == 6
    assert session.patience.repeated == 0
    assert session.patience.spent_s <= session.patience.seconds


def test_a_look_that_does_not_fit_into_the_time_left_is_not_repeated(machine: MakeMachine) -> None:
    made = machine([], then=LOUD)
    made.look_s = 5.0  # asked for a tenth of a second, by a canary that others keep from its cores
    session = made.session(patient=2.0)
    session.interleave(made.arms([]), rounds=2)
    assert session.patience.spent_s == 0
    assert made.looks == 3


def test_rounds_that_stay_loud_are_left_out_pairwise_and_told(machine: MakeMachine) -> None:
    made = machine([QUIET, QUIET, QUIET, LOUD])  # after the third round, with no time to measure it again
    session, order = made.session(patient=PAUSE_S + 2 * SLICE_S), []
    got = session.interleave(made.arms(order), rounds=4)
    assert got == {"a": ["a1", "a2", "a4"], "b": ["b1", "b2", "b4"]}
    document = session.document()
    told = document["settings"]["patient"]
    assert (told["repeated"], told["left_out"], told["loud_kept"]) == (0, 1, 0)
    assert [(one["round"], one["what"]) for one in told["discarded"]] == [(3, "left out")]
    (note,) = (note for note in document["settings"]["notes"] if note.startswith("--patient"))
    assert "0 rounds measured again and 1 of 4 left out" in note
    assert note in table.report(document)
    assert note in markdown.report([document])
    assert document["canary"]["left_out"]["slices"] == session.canary.slices_left_out == 1
    assert not document["canary"]["loud"]


def test_several_parts_of_a_run_share_the_time(machine: MakeMachine) -> None:
    made = machine([], then=LOUD)
    session, order = made.session(patient=5.0), []
    session.interleave(made.arms(order), rounds=2)
    spent_s, looks = session.patience.spent_s, made.looks
    session.interleave(made.arms(order), rounds=2)
    assert session.patience.spent_s == spent_s
    assert made.looks == looks + 3, "no look is repeated when the time is over"
    assert session.patience.rounds == 4


def test_arms_that_go_back_and_forth_do_so_in_a_repeated_round(machine: MakeMachine) -> None:
    made = machine([QUIET, QUIET, LOUD, QUIET])
    order: list[str] = []
    made.session(patient=60).interleave(made.arms(order), rounds=2, back_and_forth=True)
    assert order == ["a1", "b1", "b2", "a2", "b3", "a3"]


@pytest.mark.parametrize("words", [["canary"], ["all"]])
@pytest.mark.parametrize("seconds", ["-1", "3601"])
def test_patience_has_bounds(words: list[str], seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words, "--patient", seconds]) == 2
    assert "--patient takes a number from 0 to 3600" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["canary", "all"])
def test_the_command_line_gives_the_session_its_patience(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    only = {"canary": registry.find("canary")}
    monkeypatch.setattr(registry, "entries", lambda: only)
    monkeypatch.setattr(session_module, "watch", lambda cpus, seconds: slice_of(LOUD, cpus))
    out = tmp_path / "canary.json"
    to = out if name == "canary" else tmp_path
    assert main(["bench", name, "--seconds", "0.1", "--patient", "7", "--json", str(to)]) == 0
    assert doc.read(out)["settings"]["patient"]["seconds"] == 7


def test_the_command_line_says_first_that_a_run_is_not_judged(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(session_module, "watch", lambda cpus, seconds: slice_of(LOUD, cpus))
    assert main(["bench", "canary", "--seconds", "0.1"]) == 0
    assert capsys.readouterr().out.startswith("canary is not judged: the canary lost 25 % of core")
