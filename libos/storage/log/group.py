"""Group commit among threads: one of those that append writes for all of them.

Whoever comes first leads: it gives the log what all have asked for and waits for the device. What comes meanwhile goes
into the next flush. It wakes those whose records are durable, and once its own are, it hands over to one of the others.
Records that nobody waits for (promise.py) have a thread of their own, which leads when nobody else does.
"""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from ....runtime.errors import CorelaneError
from ..._native import ffi, lib

Submit = Callable[[Any, Any], int]
"""Gives a log an operation: submit(log, op), 0 or -errno."""

_OP = ffi.typeof("struct cl_log_op *")
_PENDING = lib.CL_LOG_PENDING
_MOST = (1 << 32) - 1  # bytes that an operation can say; no log takes so many


def operation(data: bytes, tag: int = 0, kind: int = 0) -> tuple[Any, Any]:
    """A `struct cl_log_op`, and what it points to: all bytes of it, of whatever size its items are."""
    try:
        held = ffi.from_buffer(data)
        op = ffi.new(_OP)
        op.data, op.bytes, op.tag, op.kind = held, min(len(held), _MOST), tag, kind
    except (TypeError, OverflowError) as error:
        raise CorelaneError("write to the log", str(error), "give bytes; tag and kind are whole numbers") from error
    return op, held


class Batch:
    """What one call appends, or has the log do in its turn among those that append."""

    __slots__ = ("asked", "error", "gone", "leads", "promised", "rc", "submit", "taken", "wake")

    def __init__(self, asked: list[tuple[Any, Any]], submit: Submit = lib.cl_log_append) -> None:
        self.asked = asked  # operations, each with its data
        self.submit = submit
        self.taken = 0  # so many of them by the log; they end in this order
        self.rc = 0  # of the first one that it did not take
        self.wake: threading.Event | None = None  # of one that does not begin as the leader
        self.leads = self.gone = False  # it is to write for all; its thread does not wait any more
        self.promised = False  # its thread never did
        self.error: Exception | None = None  # that ended a promised one

    @property
    def done(self) -> bool:
        if self.error:
            return True
        if not self.rc and self.taken < len(self.asked):
            return False
        return not self.taken or self.asked[self.taken - 1][0].result != _PENDING


class Group:
    """Those that append to a log.

    lock: of who is inside the log. take(op, submit) gives the log one operation, 0 or -errno; pump() waits for
    something to happen: both are called with the lock held, and what they raise is raised by `append` of whoever leads.
    """

    def __init__(self, lock: threading.Lock, take: Callable[[Any, Submit], int], pump: Callable[[], None]) -> None:
        self._lock, self._take, self._pump = lock, take, pump
        self._turns, self._leading, self._alone = threading.Lock(), False, False
        self._waiting: deque[Batch] = deque()  # not taken by the log yet, but for a part of the first
        self._in_flight: deque[Batch] = deque()

    def __len__(self) -> int:
        """How many batches are not done, as far as was looked."""
        return len(self._waiting) + len(self._in_flight) + self._alone

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

    def append_alone(self, asked: tuple[Any, Any]) -> int | None:
        """The same with one operation, if nobody else appends, nor has asked to, at the moment: that costs less.

        What the log said to it; None: nothing was done, use `append`.
        """
        if self._leading or self._waiting or not self._begin(alone=True):
            return None
        op = asked[0]
        try:
            with self._lock:
                self._alone = True
                rc = self._take(op, lib.cl_log_append)
                while not rc and op.result == _PENDING and not self._waiting:
                    self._pump()
                if not rc and op.result == _PENDING:
                    batch = Batch([asked])
                    batch.taken, batch.gone = 1, True
                    self._in_flight.append(batch)
                    self._alone = False
                    self._write_for_all(batch)
                elif self._in_flight:  # left behind by one that was interrupted
                    self._wake_those_done()
        finally:
            self._end()
        return None if rc == -errno.EAGAIN else rc

    def promise(self, batch: Batch, wake: threading.Event) -> None:
        """Put it into the queue, in which nobody waits for it: `wake` is set when it is done, and when nobody leads."""
        batch.wake, batch.gone, batch.promised = wake, True, True
        with self._turns:
            self._waiting.append(batch)
            if not self._leading:
                wake.set()

    def lead_for(self, batch: Batch) -> None:
        """Until a promised batch is done, unless another leads. What is raised meanwhile ends all that are promised."""
        if batch.done or not self._begin():
            return
        try:
            with self._lock:
                self._write_for_all(batch)
        except Exception as error:
            with self._turns:
                for b in [b for b in (*self._in_flight, *self._waiting) if b.promised]:
                    b.error = error
                    if b in self._waiting and not b.taken:
                        self._waiting.remove(b)
        finally:
            self._end()

    def _begin(self, alone: bool = False) -> bool:
        """Lead, if nobody does; alone: and nobody waits, who would be overtaken."""
        with self._turns:
            if self._leading or (alone and self._waiting):
                return False
            self._leading = True
            return True

    def _write_for_all(self, batch: Batch) -> None:
        while True:
            while self._waiting and self._taken(self._waiting[0]):
                self._in_flight.append(self._waiting.popleft())
            if batch.done:
                break
            self._pump()
            self._wake_those_done()
        self._wake_those_done()

    def _taken(self, batch: Batch) -> bool:
        """Give it to the log. False: that has no buffers left for now."""
        for op, _ in batch.asked[batch.taken :]:
            rc = self._take(op, batch.submit)
            if rc:
                batch.rc = 0 if rc == -errno.EAGAIN else rc
                return rc != -errno.EAGAIN
            batch.taken += 1
        return True

    def _wake_those_done(self) -> None:
        while self._in_flight and self._in_flight[0].done:
            if wake := self._in_flight.popleft().wake:
                wake.set()

    def _hand_over(self, batch: Batch) -> None:
        """Its thread waits no longer: if it leads, another one does, from now on."""
        with self._turns:
            batch.gone = True
            if batch.leads and batch in self._waiting and not batch.taken:
                self._waiting.remove(batch)
        if batch.leads:
            self._end()

    def _end(self) -> None:
        """Lead no longer: one of those that wait does, from now on."""
        with self._turns:
            self._leading = self._alone = False
            if not self._waiting and not self._in_flight:
                return
            those = (*self._in_flight, *self._waiting)
            following = next((b for b in those if not b.gone), None)
            if following:
                following.leads = self._leading = True
            else:
                following = next((b for b in those if b.promised), None)
            if following and following.wake:
                following.wake.set()
