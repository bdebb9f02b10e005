"""Processes that were killed and have not ended.

Threads that exit on a core that another application has by then were demoted to SCHED_IDLE, by the eviction or so as to
give way (dying.c), and what exits gives back memory: some milliseconds of the processor. Beside an application that
computes, SCHED_IDLE gives 3 thousandths of it, and a slice of 3 ms each second at best; beside several programs that
the iokernel does not manage a killed process stayed for a minute and more, with its memory, its name and its address.
So a thread that has not ended at the check becomes an ordinary one again, though a nice one.

Where the iokernel has no right to raise a thread's class it goes on as it was.
"""

from __future__ import annotations

import os
from pathlib import Path

NICE = 10  # a tenth of what an ordinary thread gets beside it
_PROC = Path("/proc")
_EXITING = 0x4  # PF_EXITING of the kernel's include/linux/sched.h
_FLAGS, _PENDING = 6, 28  # of /proc/PID/stat, counted from the state (proc_pid_stat(5))
_SIGKILL = 1 << 8


def _exits(folder: Path) -> bool | None:
    """Whether a thread exits, or will as soon as it runs. None: it has ended."""
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()  # its name may be any bytes
    except OSError:
        return None
    if len(fields) <= _PENDING:
        return None  # it ended while we read
    return bool(int(fields[_FLAGS]) & _EXITING or int(fields[_PENDING]) & _SIGKILL)


def let_end(pid: int) -> int:
    """Have the threads of a process that exit go on as ordinary ones. Returns how many were held back until now.

    Of a process that was killed every thread exits. Where one does not, only the first thread has ended, and the others
    live for as long as they like: however many they are, they are not looked at.
    """
    folder = _PROC / str(pid)
    if not _exits(folder):
        return 0
    found = 0
    try:
        for thread in (folder / "task").iterdir():
            exits = _exits(thread)
            if exits is None:
                continue
            if not exits:
                break
            tid = int(thread.name)
            if os.sched_getscheduler(tid) == os.SCHED_IDLE:
                os.sched_setscheduler(tid, os.SCHED_OTHER, os.sched_param(0))
                os.setpriority(os.PRIO_PROCESS, tid, max(NICE, os.getpriority(os.PRIO_PROCESS, tid)))
                found += 1
    except OSError:
        pass  # it has just ended, or it is not ours to raise
    return found
