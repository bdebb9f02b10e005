"""Whether the threads that an application names may be managed: they are its own, and we may signal and move them.

An iokernel that manages cores sends signals to threads and changes their CPUs, by numbers that an application gave it.
So each number is looked up in /proc before it is believed, and what the kernel would not let us do is refused at
registration with the reason, not found out when a core should move.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from ...runtime.errors import Refused

_SIGNALS = frozenset((int(signal.SIGURG), *range(signal.SIGRTMIN, signal.SIGRTMAX + 1)))
_PROC = Path("/proc")


def check_threads(pid: int, tids: Sequence[int], number: int) -> None:
    """Refused unless `tids` are threads of process `pid`, whose signal `number` has a handler, and ours to manage.

    number 0: none is sent to them.
    """
    if pid <= 0:
        raise _refused("the application's process cannot be seen from here", "run both in the same PID namespace")
    if len(set(tids)) != len(tids):
        raise _refused(f"a thread is named twice among {list(tids)}", "each kthread has an id of its own (gettid)")
    for tid in tids:
        if tid <= 0 or not (_PROC / str(pid) / "task" / str(tid)).exists():
            raise _refused(
                f"thread {tid} is none of process {pid}",
                "name threads that run; an application in a container needs the iokernel's PID namespace",
            )
    if number and number not in _SIGNALS:
        raise _refused(
            f"signal {number} is not one to interrupt kthreads with",
            f"choose SIGURG ({int(signal.SIGURG)}) or {int(signal.SIGRTMIN)} to {int(signal.SIGRTMAX)}",
        )
    if number and not _caught(pid) >> (number - 1) & 1:
        raise _refused(f"process {pid} has no handler for signal {number}", "install it before the kthreads are named")
    _check_permissions(pid, tids)


def _caught(pid: int) -> int:
    """The signals with a handler, as a mask (proc_pid_status(5), SigCgt)."""
    try:
        for line in (_PROC / str(pid) / "status").read_bytes().splitlines():
            if line.startswith(b"SigCgt:"):  # the first line has the name, any bytes
                return int(line.split()[1], 16)
    except OSError:
        pass  # it has just ended
    return 0


def _check_permissions(pid: int, tids: Sequence[int]) -> None:
    """Both calls change nothing and need what tgkill and sched_setaffinity need: the same user, or the capabilities
    CAP_KILL and CAP_SYS_NICE."""
    try:
        os.kill(pid, 0)
        for tid in tids:
            os.setpriority(os.PRIO_PROCESS, tid, os.getpriority(os.PRIO_PROCESS, tid))
    except PermissionError:
        raise _refused(
            f"the iokernel, user {os.geteuid()}, may not signal and move threads of process {pid}",
            "run both as the same user, or the iokernel as root",
            errno.EPERM,
        ) from None
    except ProcessLookupError:
        raise _refused(f"process {pid} has just ended", "start it again", errno.ESRCH) from None


def _refused(why: str, hint: str, number: int = errno.EINVAL) -> Refused:
    return Refused(why, hint=hint, errno=number)
