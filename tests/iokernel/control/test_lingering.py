"""Killed processes that do not get to end (lingering.py). One that has exited and is not waited for stands for them: to
the kernel its thread is there, and exits."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import die_with_parent, wait_until

from corelane.iokernel.control import lingering
from corelane.iokernel.control.lingering import NICE, let_end


@pytest.fixture
def child() -> Iterator[Callable[[bool], int]]:
    """`pid = child(exits)`: a process of SCHED_IDLE that has exited, or waits for its end."""
    with contextlib.ExitStack() as stack:

        def start(exits: bool) -> int:
            read, write = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(write)
                if not exits:
                    os.read(read, 1)
                os._exit(0)
            os.close(read)
            if exits:
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
            stack.callback(os.waitpid, pid, 0)
            stack.callback(os.close, write)
            return pid

        yield start


@pytest.mark.skipif(os.geteuid() != 0, reason="raises a thread's class: run as root")
def test_one_that_exits_is_an_ordinary_thread_again(child: Callable[[bool], int]) -> None:
    pid = child(True)
    assert let_end(pid) == 1
    assert os.sched_getscheduler(pid) == os.SCHED_OTHER
    assert os.getpriority(os.PRIO_PROCESS, pid) == NICE
    assert let_end(pid) == 0  # once


@pytest.mark.skipif(os.geteuid() != 0, reason="raises a thread's class: run as root")
def test_one_that_is_nicer_stays_so(child: Callable[[bool], int]) -> None:
    pid = child(True)
    os.setpriority(os.PRIO_PROCESS, pid, 19)
    assert let_end(pid) == 1
    assert os.getpriority(os.PRIO_PROCESS, pid) == 19


def test_one_that_lives_stays_as_it_is(child: Callable[[bool], int]) -> None:
    pid = child(False)
    assert let_end(pid) == 0
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE


def test_one_that_is_gone_is_nobody() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert let_end(pid) == 0


OTHERS_LIVE_ON = """
import ctypes, threading, time
for _ in range(20):
    threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_of_a_process_whose_first_thread_alone_has_ended_the_others_are_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They may be as many as its user may have, each second."""
    looked: list[Path] = []
    exits = lingering._exits

    def note(folder: Path) -> bool | None:
        looked.append(folder)
        return exits(folder)

    monkeypatch.setattr(lingering, "_exits", note)
    with subprocess.Popen([sys.executable, "-c", OTHERS_LIVE_ON], preexec_fn=die_with_parent) as process:
        try:
            wait_until(lambda: exits(Path(f"/proc/{process.pid}")))
            assert let_end(process.pid) == 0
            assert len(looked) <= 3
        finally:
            process.kill()
