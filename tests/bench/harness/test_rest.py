"""Whoever polls is found before something else is measured."""

from __future__ import annotations

import ctypes
import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.bench.harness import rest, usage
from corelane.bench.harness.session import DISTURBED, Session
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError

PATIENCE_S = 60.0


def test_processes_and_threads_may_have_any_bytes_for_a_name() -> None:
    held = Path("/proc/thread-self/comm").read_bytes().rstrip(b"\n")
    try:
        ctypes.CDLL(None).prctl(15, b"a) \xff", 0, 0, 0)  # PR_SET_NAME; the first thread's is the process's
        assert os.getpid() not in rest.processes()
        assert usage.threads()[threading.get_native_id()] == "a) \ufffd"
        assert usage.of_thread(threading.get_native_id()).voluntary > 0
    finally:
        ctypes.CDLL(None).prctl(15, held, 0, 0, 0)


@pytest.fixture
def polling() -> Iterator[Runtime]:
    """A kthread of this process that polls all the time."""
    ours, theirs = memory_link()
    with ours, theirs, Runtime(nic=ours, poll="spin", address="10.77.0.2/16") as runtime:
        runtime.start()
        yield runtime


def test_nobody_polls_in_a_process_that_sleeps() -> None:
    assert rest.awake(PATIENCE_S) == ""
    rest.demand("anything")


def test_a_kthread_that_polls_is_refused_and_named_until_it_ends(
    polling: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "AWAKE", 0.0)  # of a machine that may be busy
    monkeypatch.setattr(rest, "LOOK_S", 0.3)
    monkeypatch.setattr(rest, "WAIT_S", 0.0)
    with pytest.raises(CorelaneError, match=r"measure the kernel's own: .*thread \S+ \(\d+\) of this process uses \d"):
        rest.demand("the kernel's own")
    polling.stop()
    monkeypatch.undo()
    assert rest.awake(PATIENCE_S) == ""


def test_processes_that_were_started_are_looked_at_and_so_are_theirs() -> None:
    inner = f"{sys.executable!r}, '-c', 'while True: pass'"
    script = (
        f"import subprocess, sys; p = subprocess.Popen([{inner}]); print(p.pid, flush=True); sys.stdin.read(); p.kill()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as outer:
        assert outer.stdout is not None
        busy = int(outer.stdout.readline())
        assert {outer.pid, busy} <= set(rest.processes())
        assert os.getpid() not in rest.processes()
        assert f"process {busy}" in rest._cpu_s()


def test_a_canary_that_was_not_alone_says_so_once(polling: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "awake", lambda wait_s: "thread x (7) of this process uses 0.99 of a core")
    session = Session("any", seconds=0.1, progress=io.StringIO())
    session.take_canary(0.001)
    session.take_canary(0.001)
    (note,) = session.notes
    assert note.startswith(DISTURBED)
    assert "thread x (7)" in note
