"""Latency applications that own the core and do not run: batch work has it meanwhile (iokernel/cores/blocked.c).

Stepped on a clock of their own (a C program), and real processes on a real loop: one sleeps in a read, or is stopped.
That the core changes hands is in the log, and nothing was done to wake it; how long it takes is not looked at.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import wait_until
from cltest.cbuild import ROOT
from cltest.cores import FightingApp, fighting_ground
from cltest.moves import BLOCKED, WANTED, Move, MoveChecker, MoveLog
from cltest.switching import assert_balanced, stats_of

from corelane.drivers.nic.loadgen.loadgen import Loadgen, Phase
from corelane.iokernel import Iokernel

WAIT_S = 60.0
PROGRAM = "tests/iokernel/cores/c/blocked.c"


@pytest.mark.parametrize(
    "scenario",
    [
        "asleep_it_loses_its_core_and_gets_it_back",
        "one_that_computes_keeps_its_core",
        "one_that_runs_uthreads_keeps_its_core",
        "beside_nobody_it_keeps_its_core",
        "one_that_goes_on_without_a_look_is_made_to_leave",
        "made_to_leave_it_gets_its_core_back",
        "one_that_is_back_soon_is_waited_for",
        "a_core_that_nobody_is_given_is_counted",
        "one_that_went_on_is_not_passed_over",
        "a_while_without_it_is_forgiven",
        "owners_of_all_cores_are_found",
        "one_that_computes_is_seldom_looked_at",
        "one_that_goes_is_an_ordinary_thread",
        "a_sibling_goes_on_in_its_place",
        "it_goes_while_it_is_blocked",
        "the_loop_sleeps_no_longer_than_it_looks",
        "one_in_a_call_that_nothing_ends_loses_its_core",
        "what_it_may_run_unseen_is_no_more_than_the_time_since_the_last_look",
        "one_that_goes_on_during_a_move_is_made_to_leave_after_it",
        "who_is_to_begin_is_not_found",
        "what_cannot_be_read_is_counted",
        "one_whose_thread_has_ended_loses_its_core",
        "its_sibling_gets_the_core",
        "whoever_has_its_number",
    ],
)
def test_an_owner_that_sleeps(c_program, scenario):
    assert f"passed {scenario}" in c_program(PROGRAM)(scenario, timeout_s=90)


@pytest.mark.parametrize(
    "scenario",
    [
        "a_sibling_gets_a_core_for_what_waits_behind_it",
        "a_sibling_gets_a_core_for_its_timer",
        "what_cannot_be_taken_wakes_a_sibling_more_and_more_seldom",
        "the_loop_sleeps_no_longer_than_until_it_is_offered_again",
        "frames_go_to_a_sibling",
        "frames_say_by_which_steering_they_came",
        "frames_go_to_it_again",
        "where_all_sleep_nobody_gets_a_core",
        "a_thief_does_not_hide_it",
    ],
)
def test_siblings_of_one_that_sleeps(c_program, scenario):
    assert f"passed {scenario}" in c_program("tests/iokernel/cores/c/sibling.c")(scenario, timeout_s=90)


def test_a_loop_that_leaves_it_the_core_is_found_out(
    c_program: Callable[..., Callable[..., str]], tmp_path: Path
) -> None:
    """Work conservation counts a core whose owner sleeps: with a fault that gives that core to nobody."""
    assert "1 blocked, the other has the core, 0 violations" in c_program(PROGRAM)("count", timeout_s=90)
    name, gives = Path("iokernel/cores/allocate.c"), "!io_blocked_still(loop, core->owner, now)"
    text = (ROOT / name).read_text()
    assert text.count(gives) == 1, "the code has changed: mend the fault"
    (tmp_path / name.name).write_text(text.replace(gives, "true"))
    flags = [f'-DALLOCATE_C="{tmp_path / name.name}"', f"-iquote{ROOT / name.parent}"]
    faulty = c_program(PROGRAM, cflags=flags)
    said = faulty("count", timeout_s=90)
    assert "1 blocked, it has the core, " in said
    assert ", 0 violations" not in said


class Ground:
    """One worker core; a server, which has it when it wants it, and a job beside it."""

    def __init__(
        self, io: Iokernel, generator: Loadgen, folder: Path, stack: contextlib.ExitStack, kthreads: int = 1
    ) -> None:
        self.io, self.generator = io, generator
        self.log, self.checker = MoveLog(io), MoveChecker()
        self.moves: list[Move] = []
        self.echo = FightingApp(io.socket_path, "echo", "latency", folder, kthreads=kthreads)
        self.job = FightingApp(io.socket_path, "job", "probed", folder)
        for app in (self.echo, self.job):
            stack.callback(app.kill)
            app.await_ready(WAIT_S)
            for k in range(len(app.notes)):
                self.checker.came(app.slot + k, 0)
        self.job.await_work(WAIT_S)

    def counted(self, name: str) -> int:
        return int(self.io.stats()["cores"]["allocators"][0][name])

    def read_log(self) -> list[Move]:
        found = self.log.read()
        self.checker.feed(found)
        self.moves += found
        return self.moves

    def given_away(self) -> bool:
        """The server was found blocked, and the core was the job's next."""
        for at, move in enumerate(self.read_log()):
            if move.what == BLOCKED:
                assert (move.old, move.new) == (self.echo.slot, self.echo.slot)
                after = self.moves[at + 1 :]
                return bool(after) and (after[0].what, after[0].new) == (WANTED, self.job.slot)
        return False

    def serve(self) -> None:
        """A run of requests is answered to the last one, rightly."""
        self.generator.start([Phase(0.2, 2000)])
        self.generator.wait(WAIT_S)
        result = self.generator.result()
        assert result.offered > 0
        assert (result.answered, result.wrong, result.errors, result.dropped) == (result.offered, 0, 0, 0)

    def sound(self) -> None:
        self.job.await_work(WAIT_S)
        self.serve()
        self.job.await_work(WAIT_S)
        self.read_log()
        assert self.checker.faults == []
        assert self.counted("violations") + self.counted("violations_asleep") == 0
        assert stats_of(self.io, "echo")["cores"]["blocked"] == self.counted("blocked") == self.checker.seen[BLOCKED]
        assert_balanced(self.io)


@pytest.fixture
def ground(socket_path: str, tmp_path: Path) -> Iterator[Ground]:
    with contextlib.ExitStack() as stack:
        yield Ground(*stack.enter_context(fighting_ground(socket_path, WAIT_S)), tmp_path, stack)


def test_one_that_sleeps_in_the_kernel_leaves_the_core_to_the_job(ground):
    ground.echo.tell("b")  # a read of a pipe, by its only kthread
    wait_until(ground.given_away, WAIT_S, "the core to go to the job")
    ground.job.await_work(WAIT_S)
    assert stats_of(ground.io, "echo")["cores"]["interrupted"] == 0
    ground.echo.tell("g")
    ground.serve()
    ground.sound()


def test_a_sibling_of_one_that_sleeps_in_the_kernel_serves(socket_path: str, tmp_path: Path) -> None:
    """All requests are answered while one of the two kthreads sleeps, beside a job."""
    with contextlib.ExitStack() as stack:
        io, generator = stack.enter_context(fighting_ground(socket_path, WAIT_S))
        ground = Ground(io, generator, tmp_path, stack, kthreads=2)
        ground.serve()
        ground.echo.tell("b")
        for _ in range(3):
            ground.serve()
        ground.job.await_work(WAIT_S)
        assert ground.counted("blocked") > 0
        ground.echo.tell("g")
        ground.sound()


def test_one_that_is_stopped_leaves_the_core_to_the_job(ground):
    ground.echo.tell("c")  # it computes, with probes
    ground.echo.await_work(WAIT_S)
    ground.echo.signal(signal.SIGSTOP)
    wait_until(ground.given_away, WAIT_S, "the core to go to the job")
    ground.job.await_work(WAIT_S)
    ground.echo.signal(signal.SIGCONT)
    ground.echo.await_work(WAIT_S)  # it goes on where it was
    ground.echo.tell("g")
    ground.serve()
    ground.sound()
