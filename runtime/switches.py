"""Which threads had a CPU, and when: each switch that the kernel makes there (perf_event_open(2)).

    with Switches({1}) as switches:
        ...
        found = switches.read()         # what has come since; then again and again

It is of all processes, so the kernel lets root see it (CAP_PERFMON), or all if kernel.perf_event_paranoid is 0 or less.
Without it `used` tells how much CPU time each thread has had, ever: two looks, and what lies between.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .closing import Closing
from .errors import SystemLimit
from .perf import LOST, TID, TIME, Ring, open_event
from .printable import printable

_DUMMY = 9  # PERF_COUNT_SW_DUMMY
_SAMPLE_ID_ALL, _CONTEXT_SWITCH = 1 << 18, 1 << 26
_SWITCH, _OUT = 15, 1 << 13  # PERF_RECORD_SWITCH_CPU_WIDE, PERF_RECORD_MISC_SWITCH_OUT


@dataclass(frozen=True)
class Switch:
    """At a time of CLOCK_MONOTONIC a CPU went from one thread to another; thread ids, 0: nobody."""

    cpu: int
    ns: int
    old: int
    new: int


class Switches(Closing):
    """Of some CPUs. lost: records for which there was no room. Raises SystemLimit: the kernel refuses it."""

    def __init__(self, cpus: set[int]) -> None:
        self.lost = 0
        self._rings: list[tuple[int, Ring]] = []
        try:
            for cpu in sorted(cpus):
                flags = _SAMPLE_ID_ALL | _CONTEXT_SWITCH
                self._rings.append((cpu, Ring(open_event(_DUMMY, 0, TID | TIME, flags, -1, cpu))))
            for _, ring in self._rings:
                ring.enable()
        except OSError as error:
            self.close()
            hint = "ask as root; in a container: --cap-add PERFMON"
            raise SystemLimit("see what runs on a CPU", error.strerror or str(error), hint) from error

    def close(self) -> None:
        """End it. May be called twice."""
        for _, ring in self._rings:
            ring.close()
        self._rings.clear()

    def read(self) -> list[Switch]:
        """What has come since the last call, of each CPU in order."""
        found = []
        for cpu, ring in self._rings:
            for kind, misc, data in ring.read():
                if kind == _SWITCH and misc & _OUT and len(data) >= 24:
                    _, new, _, old, ns = struct.unpack_from("<IIIIQ", data)
                    found.append(Switch(cpu, ns, old, new))
                elif kind == LOST and len(data) >= 16:
                    self.lost += struct.unpack_from("<Q", data, 8)[0]
        return found


@dataclass(frozen=True)
class Used:
    """CPU time of a thread, ever, and the CPU that it was on last."""

    ns: int
    cpu: int


def used() -> dict[int, Used]:
    """Of all threads that this process may see, by their ids."""
    out = {}
    for tid, folder in _threads():
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has ended
            with open(f"{folder}/schedstat", "rb") as file:
                ns = int(file.read().split()[0])
            out[tid] = Used(ns, cpu_of(folder))
    return out


def cpu_of(folder: str) -> int:
    """The CPU that a thread was on last. folder: its own in /proc. Raises OSError, ValueError, IndexError."""
    with open(f"{folder}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[36])  # `processor`, the 39th; the name may hold anything


def name_of(tid: int) -> str:
    """A thread's command, with its process; of one that has ended, its number."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{tid}/comm", "rb") as file:
            comm = printable(file.read().strip())
        with open(f"/proc/{tid}/status", "rb") as file:
            group = next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))
        return f"{comm} (process {group})"
    return f"thread {tid}"


def _threads() -> Iterator[tuple[int, str]]:
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            with contextlib.suppress(OSError):
                for tid in os.listdir(f"/proc/{pid}/task"):
                    yield int(tid), f"/proc/{pid}/task/{tid}"
