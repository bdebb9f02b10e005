"""No core idles beside an application that waits for longer than an interval: by what a loop that runs counts itself.

The loop tells what it decided (`violations`, of which there are none) from what it came too late to see
(`violations_late`), so that this holds on a machine that keeps it from running. Sleep beside work that nobody woke it
for is a third count (`violations_asleep`). On a clock of its own, with more cores and at every instant:
c/choice.c, c/random.c.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import wait_until
from cltest.cbuild import ROOT
from cltest.cores import FightingApp, fighting_ground

from corelane.drivers.nic.loadgen.loadgen import Loadgen, Phase
from corelane.iokernel import Idle, Iokernel

WAIT_S = 60.0
ENOUGH_MOVES = 100
ENOUGH_LOOKS = 10_000
OUTSIDE = "tests/iokernel/cores/c/outside.c"
ENOUGH_SPAWNS = 300


class Ground:
    """One worker core; a server that is asked now and then, and two jobs that always want to compute, come to it."""

    def __init__(self, io: Iokernel, generator: Loadgen, folder: Path, stack: contextlib.ExitStack) -> None:
        self.io, self.generator = io, generator
        self._folder, self._stack = folder, stack
        self.apps: dict[str, FightingApp] = {}

    def come(self) -> None:
        for name, kind in {"echo": "latency", "probed": "probed", "unprobed": "unprobed"}.items():
            app = self.apps[name] = FightingApp(self.io.socket_path, name, kind, self._folder)
            self._stack.callback(app.kill)
            app.await_ready(WAIT_S)

    def counted(self, name: str) -> int:
        return int(self.io.stats()["cores"]["allocators"][0][name])

    def looks_in_time(self) -> int:
        return self.counted("decisions") - self.counted("late_decisions")

    def work(self) -> None:
        """Until the core has changed hands often, and the loop has looked often without being late."""
        moves = self.counted("moves") + ENOUGH_MOVES
        looks = self.looks_in_time() + ENOUGH_LOOKS

        def enough() -> bool:
            if not self.generator.running:
                self.generator.start([Phase(0.2, 2000)])
            return self.counted("moves") >= moves and self.looks_in_time() >= looks

        wait_until(enough, WAIT_S, "the core to change hands")
        self.generator.wait(WAIT_S)


@pytest.fixture
def ground(socket_path: str, tmp_path: Path) -> Iterator[Ground]:
    with contextlib.ExitStack() as stack:
        yield Ground(*stack.enter_context(fighting_ground(socket_path, WAIT_S)), tmp_path, stack)


@pytest.mark.parametrize("policy", ["delay", "shenango", "fair", "attained"])
def test_a_loop_that_runs_leaves_no_core_idle_beside_work(ground, policy):
    ground.io.set_policy(policy, "")
    ground.come()
    ground.work()
    ground.apps["probed"].kill()  # whoever is left has all of it
    ground.apps["unprobed"].await_work(WAIT_S)
    ground.work()
    assert ground.counted("violations") + ground.counted("violations_asleep") == 0


def test_a_policy_that_leaves_a_core_idle_is_found_out(ground):
    """What is counted above is counted at all: under `static` jobs that are guaranteed nothing wait for ever."""
    ground.io.set_policy("static", "")
    ground.come()
    wait_until(lambda: ground.counted("violations") > 0, WAIT_S, "the jobs to wait beside an idle core")
    ground.io.set_policy("delay", "")
    for name in ("probed", "unprobed"):
        ground.apps[name].await_work(WAIT_S)
    before = ground.counted("violations")
    ground.work()
    assert ground.counted("violations") == before


@pytest.fixture
def resting(socket_path: str) -> Iterator[Iokernel]:
    """An iokernel with one worker core and nothing to do, whose loop sleeps."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two CPUs that this process may use: taskset -pc 0-1 $$")
    with Iokernel(
        socket_path, loop_cpus=[cpus[0]], worker_cpus=cpus[1:2], policy="delay", idle=Idle(spin_us=20, pause_us=20)
    ) as io:
        yield io


def allocator(io: Iokernel) -> dict[str, int]:
    counters: dict[str, int] = io.stats()["cores"]["allocators"][0]
    return counters


def test_a_loop_that_sleeps_is_woken_for_work_from_outside(resting, c_program, seed):
    """The machine may keep a thread from running between its asking for help and its bell, while the loop wakes up for
    something else. That is seldom: of three runs one is without."""
    asleep = 0
    for run in range(3):
        print(c_program(OUTSIDE)(resting.socket_path, str(ENOUGH_SPAWNS), str(seed + run), timeout_s=WAIT_S))
        before, asleep = asleep, allocator(resting)["violations_asleep"]
        if asleep == before:
            break
    assert asleep == before
    assert resting.stats()["loops"][0]["sleeps"] > ENOUGH_SPAWNS / 3, "most of it came while the loop slept"
    assert allocator(resting)["violations"] == 0


def test_one_that_nobody_wakes_is_found_out(
    resting: Iokernel, c_program: Callable[..., Callable[..., str]], tmp_path: Path, seed: int
) -> None:
    """What is counted above is counted at all: with a port that never rings."""
    name = Path("drivers/port/cores.c")
    text, rings = (ROOT / name).read_text(), "write(a->doorbell, &one, sizeof one)"
    assert text.count("if (a->never_sleeps || ") == text.count(rings) == 1, "the code has changed: mend the fault"
    (tmp_path / name.name).write_text(text.replace("if (a->never_sleeps || ", "if (true || "))
    flags = [f'-DPORT_CORES_C="{tmp_path / name.name}"', f"-iquote{ROOT / name.parent}"]
    deaf = c_program(OUTSIDE, cflags=flags)
    deaf(resting.socket_path, "3", str(seed), timeout_s=WAIT_S)  # brought up by the port's watcher each time
    assert allocator(resting)["violations_asleep"] > 0
    assert allocator(resting)["violations"] == 0
