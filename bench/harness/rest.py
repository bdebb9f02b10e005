"""Whether what is to sleep does: before Linux has its turn, and before the canary, nothing of ours may poll.

A loop or a kthread that polls on is measured with whoever comes next: it has the core that they were given. So a turn
of a baseline begins with `demand`, which waits until this process and those that it has started use next to no CPU
time, and refuses if that does not come about.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from ...runtime.errors import CorelaneError
from . import usage

LOOK_S = 0.01
AWAKE = 0.25  # of a core, over a look: one that polls has all of it
WAIT_S = 2.0  # those that sleep after a while do so long before

_PER_THREAD, _SCHED = 4, 2  # of a clock's number: linux/posix-timers_types.h


def processes() -> list[int]:
    """All that this process has started, and that those have."""
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            parents[int(name)] = int(stat.read().rpartition(b")")[2].split()[1])  # of names of any bytes
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _cpu_s() -> dict[str, float]:
    """CPU time so far of each other thread of this process and of each process that it has started, by what it is."""
    me = threading.get_native_id()
    clocks = {
        f"thread {name} ({tid}) of this process": (~tid << 3) | _PER_THREAD | _SCHED
        for tid, name in usage.threads().items()
        if tid != me
    }
    clocks |= {f"process {pid}": (~pid << 3) | _SCHED for pid in processes()}
    out = {}
    for what, clock in clocks.items():
        with contextlib.suppress(OSError):  # it has ended
            out[what] = time.clock_gettime(clock)
    return out


def awake(wait_s: float) -> str:
    """Who polls: empty as soon as nobody does, which is waited for. Takes LOOK_S at least."""
    end = time.monotonic() + wait_s
    while True:
        before, begin = _cpu_s(), time.monotonic()
        time.sleep(LOOK_S)
        after, took = _cpu_s(), time.monotonic() - begin
        used = {what: (s - before[what]) / took for what, s in after.items() if what in before}
        busy = [f"{what} uses {part:.2f} of a core" for what, part in used.items() if part > AWAKE]
        if not busy or time.monotonic() > end:
            return ", ".join(busy)


def demand(turn: str) -> None:
    """Wait until nothing of ours polls. CorelaneError if something still does: `turn` would be measured beside it."""
    if busy := awake(WAIT_S):
        raise CorelaneError(f"measure {turn}", f"after {WAIT_S:g} s {busy}", "what is not measured must sleep")
