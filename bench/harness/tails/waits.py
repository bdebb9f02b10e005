"""How long threads that answer requests were ready, while somebody else had their CPU.

The kernel counts for each thread, in ns, how long it ran, how long it was ready and did not run, and how often it was
given a CPU (/proc/TID/schedstat; struct sched_info in include/linux/sched.h). A thread that sleeps, or waits for a
lock, is not ready: what an arm does to itself so is never in the count. Of the rest is taken off

    what the arm's other threads ran that may use the same CPU, those of the kernel for its packets among them
    WAKE_S each time that it was given a CPU: an idle CPU takes as long to begin

What is left is the others'. It may be too small, so that a slot counts that should not; an arm is not spared its own.
The kernel's threads for packets are asked, too: a request waits for them as it does for its server.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..usage import threads as threads_of

WAKE_S = 3e-6
ASIDE_S = 5e-4


@dataclass(frozen=True)
class Look:
    """What the kernel has counted of a thread so far, or in between."""

    ran_s: float
    waited_s: float
    times: int

    def __sub__(self, other: Look) -> Look:
        return Look(self.ran_s - other.ran_s, self.waited_s - other.waited_s, self.times - other.times)


class Waits:
    """Of threads of any process: `threads`, which answer requests, and `own`, whose turns are the arm's doing as well.
    close() when done; a context closes by itself. Cheap to look at: a system call a thread."""

    def __init__(self, threads: Collection[int], own: Collection[int] = ()) -> None:
        self.threads = frozenset((*threads, *(kernels() if threads else ())))
        self._files: dict[int, int] = {}
        self._cpus: dict[int, set[int]] = {}
        for tid in self.threads | frozenset(own):
            with contextlib.suppress(OSError):  # it has ended, or nobody counts
                self._cpus[tid] = os.sched_getaffinity(tid)
                self._files[tid] = os.open(f"/proc/{tid}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._had: dict[int, Look] = {}
        self.gained: dict[int, Look] = {}
        self.others_s = 0.0

    def begin(self) -> None:
        """From now on. The caller sleeps before: a thread that waits for the caller's CPU is counted when it has it."""
        time.sleep(ASIDE_S)
        self._had = self._look()

    def end(self) -> float:
        """Seconds since `begin` in which others had the CPU of the thread that lost most: `others_s` from now on.
        `gained` is what the kernel counted of each thread meanwhile."""
        now = self._look()
        self.gained = {tid: now[tid] - had for tid, had in self._had.items() if tid in now}
        self.others_s = max((0.0, *map(self._lost_s, self.threads & self.gained.keys())))
        return self.others_s

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """From its begin to its end."""
        self.begin()
        yield
        self.end()

    def _lost_s(self, tid: int) -> float:
        beside = (other for other in self.gained if other != tid and self._cpus[other] & self._cpus[tid])
        one, own_s = self.gained[tid], sum(self.gained[other].ran_s for other in beside)
        return one.waited_s - own_s - WAKE_S * one.times

    def _look(self) -> dict[int, Look]:
        found = {}
        for tid, file in self._files.items():
            with contextlib.suppress(OSError, ValueError):  # it has ended
                ran_ns, waited_ns, times = os.pread(file, 100, 0).split()
                found[tid] = Look(int(ran_ns) / 1e9, int(waited_ns) / 1e9, int(times))
        return found

    def close(self) -> None:
        """Give the files back."""
        while self._files:
            os.close(self._files.popitem()[1])

    def __enter__(self) -> Waits:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()


@cache
def kernels() -> tuple[int, ...]:
    """The kernel's threads that do what interrupts leave: packets that were sent and have come."""
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{entry}/comm").read_bytes().startswith(b"ksoftirqd/"):
                found.append(int(entry))
    return tuple(found)


def since(before: Collection[int]) -> frozenset[int]:
    """Threads of this process that are not among `before`."""
    return frozenset(threads_of()) - frozenset(before)
