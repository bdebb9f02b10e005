"""`corelane run --work --deadline` as a user starts it: done in time, refused, forbidden."""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest.commands import ask

from corelane.cli import deadline, ps
from corelane.cli.main import main
from corelane.cli.usage import Parser, WrongUsage
from corelane.libos import Promised
from corelane.runtime.errors import CorelaneError

two_cpus = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: none is left to be managed")
LONG = "3600"  # a machine full of tests makes it in that


@two_cpus
def test_work_is_admitted_shown_and_done_in_time(start: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "io.sock")
    start("up", "--socket", path, "--set", "user_defaults.deadline_cores=0.5", "--json").event("iokernel")
    words = ("--socket", path, "--size", "16", "--json", "--every", "100", "--deadline", LONG)
    job = start("run", "batch", *words, "--work", "1000000")
    assert job.event("measuring")["cores"] <= 0.1
    assert "cores, at" in job.event("admitted")["text"]
    told = json.loads(ask("ps", "--socket", path, "--interval", "0", "--json").stdout)
    (app,) = told["apps"]
    assert (app["deadline"]["state"], app["deadline"]["work"]) == ("admitted", 1_000_000)
    assert 0 < app["deadline"]["promised_cores"] <= 0.5
    assert 0 < app["deadline"]["done"] < 1_000_000
    assert "batch deadline: admitted, " in ps.render(told, 400)
    done = job.event("done")
    assert (done["state"], done["done"] >= 1_000_000) == ("met", True)
    assert job.process.wait(60) == 0
    told = json.loads(ask("ps", "--socket", path, "--interval", "0", "--json").stdout)
    expected = {"asked": 1, "admitted": 1, "met": 1, "refused": 0, "missed": 0, "withdrawn": 0}
    assert {key: told["deadlines"][key] for key in expected} == expected


class Says:
    """Stands for a runtime: `promised` says one after the other, and stays with the last."""

    def __init__(self, *states: str) -> None:
        self.states = list(states)
        self.asked: list[tuple[int, float, int]] = []

    def promise(self, work: int, within_s: float, *, done: int, counter: str) -> Promised:
        self.asked.append((work, within_s, done))
        return self.promised()

    def promised(self, done: int = 0) -> Promised:
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if state == "gone":
            raise CorelaneError("ask", "no iokernel is there", errno=errno.ENOTCONN)
        return Promised(state, "because", 0.25, 3, None)

    def wait(self, timeout_s: float) -> bool:
        return False


def work_of(says: Says, counts: Iterator[int], *words: str) -> deadline.Work:
    parser = Parser(prog="run")
    deadline.add_arguments(parser)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(["--work", "10", "--deadline", "60", *words])
    return deadline.Work(options, "job", says, lambda: {"units": next(counts)})  # type: ignore[arg-type]


def test_a_refusal_ends_the_run_with_its_sentence() -> None:
    with pytest.raises(CorelaneError, match="run job with a deadline: because"):
        work_of(Says("none", "refused"), itertools.count()).wait(None)


def test_a_refusal_is_said_and_the_run_goes_on_if_that_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    work = work_of(Says("none", "refused"), itertools.count(), "--json", "--best-effort")
    work.wait(None)
    assert not work.late
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [event["event"] for event in told] == ["refused", "done"]
    assert told[0]["text"] == "job has no deadline: because; it goes on without"


@pytest.mark.parametrize(("state", "late"), [("met", False), ("missed", True)])
def test_a_run_ends_when_its_work_is_done(
    state: str, late: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "_LOOK_S", 0.0)
    says = Says("none", "measuring", "admitted", state)
    work = work_of(says, itertools.count(100), "--json")
    work.wait(None)
    assert work.late == late
    (asked,) = says.asked
    assert (asked[0], asked[2], asked[1] <= 60) == (10, 100, True)
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert told[-1]["event"] == "done"
    assert told[-1]["done"] >= 10
    assert {event["event"] for event in told} <= {"measuring", "admitted", state, "done"}


def test_another_iokernel_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "_LOOK_S", 0.0)
    says = Says("none", "admitted", "gone", "none", "admitted")
    work_of(says, itertools.count(0), "--json").wait(None)
    assert [(work, done) for work, _, done in says.asked] == [(10, 0), (10, 0)]  # in the time that is left
    assert says.asked[1][1] < says.asked[0][1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--deadline", "5s"], "give --work N, too"),
        (["--deadline", "5s", "--work", "3", "--nic", "pcap:none"], "attach to one by --socket"),
        (["--deadline", "5d", "--work", "3"], "seconds, from 0 to a day"),
        (["--deadline", "0", "--work", "3"], "is no time of 1 ms to 30 days"),
        (["--work", "0"], "--work"),
    ],
)
def test_options_that_do_not_go_together(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "batch", *words]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("30", 30), ("30s", 30), ("0.5s", 0.5), ("5m", 300), ("2h", 7200)])
def test_times_of_a_deadline(text: str, seconds: float) -> None:
    parser = Parser(prog="run")
    deadline.add_arguments(parser)
    assert parser.parse_args(["--deadline", text]).deadline == seconds


def test_a_counter_that_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "echo", "--nic", "loadgen:echo,seconds=1", "--work", "3", "--counter", "units"]) == 1
    assert "it has no counter units" in capfd.readouterr().err


def test_the_class_of_wrong_words_is_that_of_all() -> None:
    parser = Parser(prog="run")
    deadline.add_arguments(parser)
    with pytest.raises(WrongUsage, match="seconds, from 0"):
        parser.parse_args(["--deadline", "x"])
