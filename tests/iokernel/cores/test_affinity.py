"""Kthreads that somebody else binds to another CPU: noticed, counted, and bound again (iokernel/cores/affinity.c)."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from cltest import wait_until
from cltest.cores import FightingApp, fighting_ground

from corelane.drivers.nic.loadgen.loadgen import Phase
from corelane.iokernel import main
from corelane.iokernel.control.report import bound_elsewhere

WAIT_S = 60.0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize(
    "scenario",
    [
        "an_owner_is_bound_again",
        "one_without_a_core_is_bound_when_it_gets_one",
        "a_bind_that_failed_is_tried_again",
        "an_owner_whose_thread_has_ended_loses_its_core",
        "a_stranger_with_its_number_is_left_alone",
    ],
)
def test_one_that_somebody_else_binds(c_program, scenario):
    assert f"passed {scenario}" in c_program("tests/iokernel/cores/c/affinity.c")(scenario, timeout_s=90)


def test_what_happens_while_an_iokernel_runs_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two things that come again at each look one is wanted once."""
    monkeypatch.setattr(main, "_LOOK_S", 0.001)
    looks, failed, told = iter(["", "", "it happened", "and again"]), [], []

    def fails() -> str:
        failed.append(1)
        raise OSError("a planted fault")

    def report(event: str, text: str, /, **_: object) -> None:
        told.append((event, text))
        if text == "and again":
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    before = signal.pthread_sigmask(signal.SIG_BLOCK, main._STOP_SIGNALS)
    watched = {"fails": fails, "bound": main._once(lambda: "it is bound"), "evicted": lambda: next(looks)}
    try:
        assert main._wait_for_signal(SimpleNamespace(failure=""), watched, report) == signal.SIGTERM
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert told == [("bound", "it is bound"), ("evicted", "it happened"), ("evicted", "and again")]
    assert failed == [1], "what cannot be found out is not asked again"


def test_an_iokernel_that_was_stopped_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By ^Z and fg, say: continued behind the end of its time, Python's sigtimedwait returns a signal of number 0."""
    found = iter([SimpleNamespace(si_signo=0), None, SimpleNamespace(si_signo=signal.SIGTERM)])
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: next(found))
    io = SimpleNamespace(failure="")
    assert main._wait_for_signal(io, {}, lambda *_, **__: None) == signal.SIGTERM


def test_evictions_are_told_of_by_application_and_ever_more_rarely() -> None:
    class Kernel:
        counts: ClassVar[dict[tuple[int, str], int]] = {}

        def evictions(self) -> dict[tuple[int, str], int]:
            return self.counts

    look = main._Evictions(cast("Any", Kernel()))
    said = []
    for job, other in ((0, 0), (1, 0), (9, 0), (10, 0), (10, 3), (1234, 4), (1235, 29), (1235, 30)):
        Kernel.counts = {(1, "job"): job, (2, "other"): other}
        said.append(look().partition(": ")[2].partition(";")[0])
    assert said == [
        "",
        "job (1 time)",
        "",
        "job (10 times)",
        "other (3 times)",
        "job (1,234 times)",
        "",
        "other (30 times)",
    ]
    Kernel.counts = {(3, "next"): 1}
    assert "next (1 time)" in look()
    assert list(look._next) == [(3, "next")]


def test_a_job_that_was_put_on_the_loops_cpu_comes_back(socket_path: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        io, generator = stack.enter_context(fighting_ground(socket_path, WAIT_S))
        apps = [FightingApp(io.socket_path, name, kind, tmp_path)
                for name, kind in (("echo", "latency"), ("job", "probed"))]  # fmt: skip
        for app in apps:
            stack.callback(app.kill)
            app.await_ready(WAIT_S)
        apps[1].await_work(WAIT_S)
        stats = io.stats()
        loop, worker = stats["loops"][0]["cpu"], stats["cores"]["cpus"][0]["cpu"]
        tids = [int(task.name) for task in Path(f"/proc/{apps[1].process.pid}/task").iterdir()]
        kthreads = [tid for tid in tids if os.sched_getaffinity(tid) == {worker}]
        assert kthreads
        for tid in kthreads:
            os.sched_setaffinity(tid, {loop})
        generator.start([Phase(0.3, 2000)])  # the loop is awake
        wait_until(lambda: all(os.sched_getaffinity(tid) == {worker} for tid in kthreads), WAIT_S, "it to come back")
        generator.wait(WAIT_S)
        counted = io.stats()["cores"]["allocators"][0]["affinities_changed"]
        assert bound_elsewhere(io.ptr, 1) >= counted >= 1
        assert generator.result().answered == generator.result().offered
