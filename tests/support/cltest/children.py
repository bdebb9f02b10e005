"""Processes and threads that tests start end with the tests, however those end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from .waiting import wait_until

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """For `preexec_fn` of subprocess.Popen: SIGKILL when the thread that started the process ends (prctl(2))."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def stop_process(pid: int) -> None:
    """SIGSTOP, and wait until none of its threads runs any more: kill() returns before that."""
    os.kill(pid, signal.SIGSTOP)

    def stopped() -> bool:
        threads = Path(f"/proc/{pid}/task").iterdir()
        return all((thread / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"T" for thread in threads)

    wait_until(stopped, 60, f"process {pid} to stop")


@contextlib.contextmanager
def sleeping_threads(n: int) -> Iterator[list[int]]:
    """n threads of this process that sleep meanwhile, by their ids."""
    end, tids = threading.Event(), list[int]()

    def sleep() -> None:
        tids.append(threading.get_native_id())
        end.wait()

    threads = [threading.Thread(target=sleep) for _ in range(n)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(tids) == n, what="the threads to run")
        yield tids
    finally:
        end.set()
        for thread in threads:
            thread.join()


def may_raise_limits() -> bool:
    """Whether this process may raise hard limits of another one (CAP_SYS_RESOURCE)."""
    with subprocess.Popen(["true"]) as child, contextlib.suppress(PermissionError):
        resource.prlimit(child.pid, resource.RLIMIT_NICE, (40, 40))
        return True
    return False
