"""What the host took of each CPU of this virtual machine, to the nanosecond.

The kernel keeps two clocks for each CPU: one of time, and one of time that tasks could have. The second stands still
while the host has the CPU for others, as the hypervisor says. Their difference is what `steal` in /proc/stat counts in
steps of 10 ms, which is longer than most gaps. Both clocks are in sched/debug of debugfs, for root alone. The file
system is opened without a place in the tree of files. Source: print_cpu in kernel/sched/debug.c, update_rq_clock_task
in kernel/sched/core.c.

A machine that is not virtual, or whose hypervisor does not say, has lost nothing to it by these clocks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
from collections.abc import Sequence

from ..affinity import started_on

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # alike on all architectures
_CREATE = 6  # FSCONFIG_CMD_CREATE
_FILE = "sched/debug"
_CPU = re.compile(rb"^cpu#(\d+)[^\n]*\n(?:[^\n]+\n)*?  \.clock +: (\d+\.\d+)\n  \.clock_task +: (\d+\.\d+)\n", re.M)


class Host:
    """Reads the clocks of some CPUs. close() when done; a context closes by itself.

    why_not: why they cannot be read; "" if they can."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self.cpus = tuple(cpus)
        self.why_not = ""
        self._fd = -1
        try:
            self._fd = _open()
            self._read()
        except (OSError, ValueError) as error:
            self.close()
            self.why_not = f"what the host takes is not known: {error}"

    def taken_s(self) -> dict[int, float] | None:
        """Seconds that the host took so far, by CPU. None: not known. The caller's thread visits each CPU: a clock goes
        on when something happens there. The file is read twice: a clock that goes on between its two lines makes the
        difference too small."""
        if self._fd < 0:
            return None
        for cpu in self.cpus:
            with started_on({cpu}):
                pass
        first, second = self._read(), self._read()
        return {cpu: max(first[cpu], second[cpu]) for cpu in self.cpus}

    def _read(self) -> dict[int, float]:
        found = clocks(_whole(self._fd))
        return {cpu: found[cpu] for cpu in self.cpus}

    def close(self) -> None:
        """Give the file back."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


def clocks(text: bytes) -> dict[int, float]:
    """Of sched/debug, by CPU: seconds by which the clock of tasks is behind. ValueError: there are no clocks in it."""
    found = {int(cpu): (float(of_all) - float(of_tasks)) / 1e3 for cpu, of_all, of_tasks in _CPU.findall(text)}
    if not found:
        raise ValueError(f"{_FILE} of this kernel has no clocks")
    return found


def _open() -> int:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *words: object) -> int:
        got = int(libc.syscall(number, *words))
        if got < 0:
            raise OSError(ctypes.get_errno(), f"debugfs: {os.strerror(ctypes.get_errno())}")
        return got

    with contextlib.ExitStack() as stack:
        context = call(_FSOPEN, b"debugfs", 1)
        stack.callback(os.close, context)
        call(_FSCONFIG, context, _CREATE, None, None, 0)
        mount = call(_FSMOUNT, context, 1, 0)
        stack.callback(os.close, mount)
        return os.open(_FILE, os.O_RDONLY | os.O_CLOEXEC, dir_fd=mount)


def _whole(fd: int) -> bytes:
    parts: list[bytes] = []
    at = 0
    while part := os.pread(fd, 1 << 20, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
