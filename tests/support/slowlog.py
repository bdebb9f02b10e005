"""Logs of Python on devices that take their time, the threads that append to them, and a log whose owner was killed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from corelane.drivers.blk.blk import BlkFaults, FaultBlk, memory_blk
from corelane.libos.storage.log.log import Log, format_area
from corelane.runtime.errors import CorelaneError

MIB = 1 << 20
SLOW = BlkFaults(latency_min_ns=1000, latency_max_ns=1000)


class Slow(FaultBlk):
    """A device whose flushes end when `gather` returns: all that the log has in flight by then."""

    def __init__(self, *, virtual: bool) -> None:
        super().__init__(memory_blk(4 * MIB), virtual_clock=virtual)
        self.virtual = virtual
        self.gather: Callable[[], object] = lambda: None
        format_area(self)
        self.log = Log(self)
        self.set(SLOW)

    def wait(self, queue: int = 0, timeout_s: float = -1.0) -> None:
        """With a virtual clock time passes only here."""
        self.gather()
        if self.virtual:
            self.now_ns += 1000
        else:
            super().wait(queue, timeout_s)

    def end(self) -> None:
        """Close log and device."""
        self.set(BlkFaults())
        self.now_ns += 1_000_000
        self.log.close()
        self.close()


def in_threads(n: int, call: Callable[[int], object]) -> list[threading.Thread]:
    threads = [threading.Thread(target=call, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    return threads


def opened_log(path: Path) -> Log | None:
    """The log, or None while another process has it."""
    try:
        return Log.open(path)
    except CorelaneError as e:
        if "open in another place" not in str(e):
            raise
        return None
