"""Group commit among threads: one of those that append writes for all of them.

Whoever comes first leads: it gives the log what all have asked for and waits for the device. What comes meanwhile goes
into the next flush. It wakes those whose records are durable, and once its own are, it hands over to one of the others.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ._native import ffi, lib


def operation(data: bytes, tag: int = 0, kind: int = 0) -> tuple[Any, Any]:
    """A `struct cl_log_op`, and what it points to."""
    held = ffi.from_buffer(data)
    return ffi.new("struct cl_log_op *", {"data": held, "bytes": len(data), "tag": tag, "kind": kind}), held


class Batch:
    """What one call appends."""

    __slots__ = ("asked", "gone", "leads", "rc", "taken", "wake")

    def __init__(self, asked: list[tuple[Any, Any]]) -> None:
        self.asked = asked  # operations, each with its data
        self.taken = 0  # so many of them by the log; they end in this order
        self.rc = 0  # of the first one that it did not take
        self.wake: threading.Event | None = None  # of one that does not begin as the leader
        self.leads = self.gone = False  # it is to write for all; its thread does not wait any more

    @property
    def done(self) -> bool:
        if not self.rc and self.taken < len(self.asked):
            return False
        return not self.taken or self.asked[self.taken - 1][0].result != lib.CL_LOG_PENDING


class Group:
    """Those that append to a log.

    lock: of who is inside the log. take(op) gives the log one operation, 0 or -errno; pump() waits for something to
    happen: both are called with the lock held, and what they raise is raised by `append` of whoever leads.
    """

    def __init__(self, lock: threading.Lock, take: Callable[[Any], int], pump: Callable[[], None]) -> None:
        self._lock, self._take, self._pump = lock, take, pump
        self._turns, self._leading = threading.Lock(), False
        self._waiting: deque[Batch] = deque()  # not taken by the log yet, but for a part of the first
        self._flying: deque[Batch] = deque()

    def __len__(self) -> int:
        """How many batches are not done, as far as was looked."""
        return len(self._waiting) + len(self._flying)

    def append(self, batch: Batch) -> None:
        """Until all of the batch that the log takes is durable, or has failed."""
        with self._turns:
            self._waiting.append(batch)
            batch.leads = not self._leading
            self._leading = True
            if not batch.leads:
                batch.wake = threading.Event()
        try:
            if batch.wake:
                batch.wake.wait()
            if not batch.done:
                with self._lock:
                    self._write_for_all(batch)
        finally:
            self._hand_over(batch)

    def _write_for_all(self, batch: Batch) -> None:
        while True:
            while self._waiting and self._taken(self._waiting[0]):
                self._flying.append(self._waiting.popleft())
            if batch.done:
                break
            self._pump()
            self._wake_those_done()
        self._wake_those_done()

    def _taken(self, batch: Batch) -> bool:
        """Give it to the log. False: that has no buffers left for now."""
        for op, _ in batch.asked[batch.taken :]:
            rc = self._take(op)
            if rc:
                batch.rc = 0 if rc == -errno.EAGAIN else rc
                return rc != -errno.EAGAIN
            batch.taken += 1
        return True

    def _wake_those_done(self) -> None:
        while self._flying and self._flying[0].done:
            if wake := self._flying.popleft().wake:
                wake.set()

    def _hand_over(self, batch: Batch) -> None:
        """Its thread waits no longer: if it leads, another one does, from now on."""
        with self._turns:
            batch.gone = True
            if not batch.leads:
                return
            if batch in self._waiting and not batch.taken:
                self._waiting.remove(batch)
            following = next((b for b in (*self._flying, *self._waiting) if not b.gone), None)
            self._leading = following is not None
            if following:
                following.leads = True
                if following.wake:
                    following.wake.set()
