"""Kthreads get back the scheduling class, nice value and CPUs that they had (iokernel/cores/before.c): from an iokernel
that stops, and by themselves after one that was killed."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import die_with_parent, may_raise_limits, wait_until
from cltest.cores import FightingApp

from corelane.iokernel import Iokernel

WAIT_S = 60.0
NICE = 3
pytestmark = [
    pytest.mark.root,  # of an unprivileged iokernel nobody is demoted
    pytest.mark.skipif(os.geteuid() != 0, reason="a class is given back by who has the right to: run as root"),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs"),
]


@pytest.mark.parametrize(
    "scenario",
    [
        "demoted_and_bound_they_get_back_what_they_had",
        "one_whose_application_leaves_gets_it_back",
        "one_whose_process_runs_in_idle_goes_back_to_it",
        "one_that_was_left_in_idle_goes_back_to_its_process_class",
        "one_that_nobody_could_bring_back_is_not_demoted",
    ],
)
def test_what_they_had(c_program, scenario):
    assert f"passed {scenario}" in c_program("tests/iokernel/cores/c/before.c")(scenario, timeout_s=90)


class Fight:
    """Two jobs on one worker core: kthreads of both are bound to it, and demoted, as if they had not ceded."""

    def __init__(self, socket_path: str, folder: Path, stack: contextlib.ExitStack) -> None:
        self.apps = [
            FightingApp(socket_path, name, kind, folder, nice=NICE)
            for name, kind in (("one", "probed"), ("other", "probed"))
        ]
        for app in self.apps:
            stack.callback(app.kill)
        for app in self.apps:
            app.await_ready(WAIT_S)

    def tids(self) -> list[int]:
        tasks = [task for app in self.apps for task in Path(f"/proc/{app.process.pid}/task").iterdir()]
        found = [int(task.name) for task in tasks if (task / "comm").read_text().startswith("cl-kthread")]
        assert len(found) == len(self.apps)
        return found

    def kthreads(self) -> list[tuple[int, int, set[int]]]:
        """Class, nice value and CPUs of each."""
        return [
            (os.sched_getscheduler(tid), os.getpriority(os.PRIO_PROCESS, tid), os.sched_getaffinity(tid))
            for tid in self.tids()
        ]

    def demote(self) -> None:
        wait_until(lambda: all(len(k[2]) == 1 for k in self.kthreads()), WAIT_S, "kthreads to be bound")
        for tid in self.tids():
            os.sched_setscheduler(tid, os.SCHED_IDLE, os.sched_param(0))

    def given_back(self) -> bool:
        return self.kthreads() == [(os.SCHED_OTHER, NICE, os.sched_getaffinity(0))] * 2


def test_an_iokernel_that_stops_gives_it_back(socket_path: str, tmp_path: Path) -> None:
    """To applications that are stopped, which do nothing about it themselves."""
    loop, worker = sorted(os.sched_getaffinity(0))[:2]
    with contextlib.ExitStack() as stack:
        io = stack.enter_context(Iokernel(socket_path, loop_cpus=[loop], worker_cpus=[worker], policy="delay"))
        fight = Fight(socket_path, tmp_path, stack)
        fight.demote()
        for app in fight.apps:
            app.signal(signal.SIGSTOP)
        io.stop()
        assert fight.given_back(), fight.kthreads()


def test_applications_of_one_that_was_killed_give_it_back_themselves(
    child: Callable[..., subprocess.Popen[str]], socket_path: str, tmp_path: Path
) -> None:
    worker = sorted(os.sched_getaffinity(0))[1]
    iokernel = child("iokernel.py", socket_path, "adaptive", str(worker))
    with contextlib.ExitStack() as stack:
        fight = Fight(socket_path, tmp_path, stack)
        fight.demote()
        iokernel.kill()
        iokernel.wait()
        wait_until(fight.given_back, WAIT_S, lambda: f"what they had: {fight.kthreads()}")


PROGRAMS = Path(__file__).parents[1] / "programs"


@contextlib.contextmanager
def without(right: str, nice_limit: int, script: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A script of PROGRAMS that runs as root without that capability, and has printed "ready"."""

    def prepare() -> None:
        die_with_parent()
        resource.setrlimit(resource.RLIMIT_NICE, (nice_limit, nice_limit))

    command = ["setpriv", f"--bounding-set=-{right}", sys.executable, str(PROGRAMS / script), *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=prepare) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="gives up capabilities: apt-get install util-linux")
@pytest.mark.parametrize("limit", [0, 20])  # of RLIMIT_NICE: 20 is nice 0
def test_who_may_not_leave_idle_says_so_and_is_brought_back_by_the_next_iokernel(socket_path: str, limit: int) -> None:
    """Of an iokernel that may demote others' threads, and not give them the right to come back."""
    if limit and not may_raise_limits():
        pytest.skip("RLIMIT_NICE cannot be raised: needs CAP_SYS_RESOURCE")
    worker = sorted(os.sched_getaffinity(0))[1]
    with (
        without("sys_resource", 0, "iokernel.py", socket_path, "adaptive", str(worker)) as iokernel,
        without("sys_nice", limit, "told.py", socket_path, "app") as app,
    ):
        tasks = Path(f"/proc/{app.pid}/task").iterdir()
        (tid,) = (int(task.name) for task in tasks if (task / "comm").read_text().startswith("cl-kthread"))
        wait_until(lambda: os.sched_getaffinity(tid) == {worker}, WAIT_S, "it to be bound")
        os.sched_setscheduler(tid, os.SCHED_IDLE, os.sched_param(0))
        iokernel.kill()
        iokernel.wait()
        assert app.stdout is not None
        said = app.stdout.readline()
        assert said.startswith("gone ")
        assert ("1 kthreads stay in SCHED_IDLE: raise RLIMIT_NICE to 20" in said) == (limit == 0)
        assert os.sched_getscheduler(tid) == (os.SCHED_IDLE if limit == 0 else os.SCHED_OTHER)
        assert os.sched_getaffinity(tid) == os.sched_getaffinity(0)
        with Iokernel(socket_path, worker_cpus=[worker], policy="delay"):
            wait_until(lambda: os.sched_getscheduler(tid) == os.SCHED_OTHER, WAIT_S, "it to be an ordinary thread")
