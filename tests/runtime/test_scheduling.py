"""A thread's class and CPUs, read and given back, with and without the right to (runtime/scheduling.h)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from cltest import may_raise_limits, sleeping_threads

from corelane.runtime._native import lib

CPUS = os.sched_getaffinity(0)


@pytest.fixture
def other() -> Iterator[int]:
    """A thread that sleeps, by its id."""
    with sleeping_threads(1) as tids:
        yield tids[0]


@pytest.fixture
def noted() -> Iterator[Callable[[int], object]]:
    """`s = noted(tid)`: a struct cl_scheduling with what the thread has."""
    made = []

    def read(tid: int) -> object:
        made.append(lib.cl_scheduling_new())
        lib.cl_scheduling_read(tid, made[-1])
        return made[-1]

    yield read
    for s in made:
        lib.cl_scheduling_delete(s)


def demote(tid: int) -> None:
    os.sched_setscheduler(tid, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setaffinity(tid, {min(CPUS)})


@pytest.mark.skipif(os.geteuid() != 0, reason="to leave SCHED_IDLE takes a right: run as root")
@pytest.mark.parametrize("policy", [os.SCHED_OTHER, os.SCHED_BATCH, os.SCHED_FIFO, os.SCHED_IDLE])
def test_it_gets_back_what_it_had(other: int, noted: Callable[[int], object], policy: int) -> None:
    os.setpriority(os.PRIO_PROCESS, other, 5)
    os.sched_setscheduler(other, policy, os.sched_param(1 if policy == os.SCHED_FIFO else 0))
    before = noted(other)
    demote(other)
    assert lib.cl_scheduling_restore(other, before) == 0
    assert (os.sched_getscheduler(other), os.sched_getaffinity(other)) == (policy, CPUS)
    assert os.getpriority(os.PRIO_PROCESS, other) == 5


def test_what_was_not_changed_is_left_alone(other: int, noted: Callable[[int], object]) -> None:
    before = noted(other)
    os.setpriority(os.PRIO_PROCESS, other, 7)  # by its user
    assert lib.cl_scheduling_restore(other, before) == 0
    assert os.getpriority(os.PRIO_PROCESS, other) == 7


def test_one_that_has_ended(noted: Callable[[int], object]) -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    before = noted(os.getpid())
    thread.join()
    gone = 2**22 - 1  # no thread has so high a number (pid_max)
    assert lib.cl_scheduling_restore(gone, before) < 0
    assert not lib.cl_scheduling_returns(gone, gone)


@pytest.mark.skipif(not may_raise_limits(), reason="needs CAP_SYS_RESOURCE")
def test_a_process_is_given_the_right_to_return_and_no_more() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            resource.prlimit(child.pid, resource.RLIMIT_NICE, (0, 0))
            os.setpriority(os.PRIO_PROCESS, child.pid, 4)
            assert lib.cl_scheduling_returns(child.pid, child.pid)
            assert resource.prlimit(child.pid, resource.RLIMIT_NICE) == (16, 16)
            resource.prlimit(child.pid, resource.RLIMIT_NICE, (30, 40))
            assert lib.cl_scheduling_returns(child.pid, child.pid)
            assert resource.prlimit(child.pid, resource.RLIMIT_NICE) == (30, 40)
        finally:
            child.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs CAP_SYS_NICE: run as root")
@pytest.mark.parametrize("nice", [19, 0, -19, -20])
def test_whoever_has_the_right_brings_it_back_from_any_nice_value(other: int, nice: int) -> None:
    os.setpriority(os.PRIO_PROCESS, other, nice)
    assert lib.cl_scheduling_returns(os.getpid(), other)
    assert os.getpriority(os.PRIO_PROCESS, other) == nice


UNPRIVILEGED = """
import os, resource, sys
from corelane.runtime._native import lib
resource.setrlimit(resource.RLIMIT_NICE, (int(sys.argv[1]),) * 2)
if os.geteuid() == 0:
    os.setgid(65534); os.setuid(65534)
before = lib.cl_scheduling_new()
lib.cl_scheduling_read(0, before)
print(bool(lib.cl_scheduling_returns(os.getpid(), os.getpid())), os.getpriority(os.PRIO_PROCESS, 0))
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
cpus = os.sched_getaffinity(0)
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
print(lib.cl_scheduling_restore(os.getpid(), before), os.sched_getscheduler(0), len(os.sched_getaffinity(0)))
"""


@pytest.mark.parametrize(("limit", "returns"), [(0, False), (20, True)])
def test_without_rights_it_follows_the_limit(limit: int, returns: bool) -> None:
    """The CPUs come back in any case."""
    if limit and not may_raise_limits():
        pytest.skip("RLIMIT_NICE cannot be raised: needs CAP_SYS_RESOURCE")
    args = [sys.executable, "-c", UNPRIVILEGED, str(limit)]
    said = subprocess.run(args, capture_output=True, text=True, check=True).stdout.split()
    rc, policy = (0, os.SCHED_OTHER) if returns else (-1, os.SCHED_IDLE)
    assert said == [str(returns), str(os.getpriority(os.PRIO_PROCESS, 0)), str(rc), str(policy), str(len(CPUS))]
