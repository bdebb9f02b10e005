"""Connections: the transport that libos/asyncio has in C, here its own protocol, and the tasks that wait for it."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import outcome
import trio

from .._asyncio import Transport
from ..asyncio.sockets import TcpSocket

READ_MOST = 65536  # bytes that wait to be received, beyond which the peer is held back
WRITE_MOST = 65536  # bytes that are kept beyond TCP's own buffer, beyond which senders wait
PIECE = 131072  # bytes that one send takes, at most


class Waiter:
    """At most one task that waits for something."""

    __slots__ = ("_task",)

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None

    async def wait(self) -> None:
        """Until `wake`. Raises trio.BusyResourceError: another task does."""
        if self._task is not None:
            raise trio.BusyResourceError("another task is already using this socket in the same way")
        self._task = trio.lowlevel.current_task()

        def abort(_: Any) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def wake(self, error: Exception | None = None) -> None:
        """Let it go on, or raise an error in it."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task, outcome.Value(None) if error is None else outcome.Error(error))


class Connection(Transport):
    """A connection that a socket of trio's has. Public attributes: sock, reading, writing (who waits), ended."""

    def __init__(self, sock: TcpSocket, call: Callable[..., Any]) -> None:
        # Not asyncio's own beginning, which takes a loop of asyncio's.
        self.sock = sock
        self.reading, self.writing = Waiter(), Waiter()
        self.ended = False  # nothing more comes
        self._error = 0
        self._pieces: deque[bytes] = deque()
        self._taken = 0  # of the first piece
        self._waiting = 0  # bytes that have come
        self._high_water, self._low_water = WRITE_MOST, WRITE_MOST // 4
        self._begin(sock, call)
        self._use(self, False)
        self._made()
        sock.pause(False)

    # What the tasks do.

    @property
    def readable(self) -> bool:
        """Whether `take` has an answer."""
        return bool(self._waiting) or self.ended or self._closing

    @property
    def writable(self) -> bool:
        """Whether `put` takes something, or says why not."""
        return not self._protocol_paused or self._conn_lost > 0 or self._closing

    def take(self, most: int, peek: bool = False) -> bytes:
        """What has come, at most so many bytes. b"": the end. Raises OSError, of a lost connection once."""
        if self._closing:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        if not self._waiting:
            self._raise_error()
            return b""
        if len(self._pieces) > 1 and len(self._pieces[0]) - self._taken < most:
            self._pieces = deque([b"".join(self._pieces)])
        first, start = self._pieces[0], self._taken
        piece = first[start : start + most]
        if peek:
            return piece
        self._waiting -= len(piece)
        self._taken += len(piece)
        if self._taken == len(first):
            self._pieces.popleft()
            self._taken = 0
        if self._paused and self._waiting <= READ_MOST // 2:
            self._hold(False)
        return piece

    def put(self, data: Any) -> int:
        """Send some of it; how many bytes. Raises OSError, of a lost connection once, then EPIPE."""
        if self._closing:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._raise_error()
        if self._eof or self._conn_lost:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        if type(data) is not bytes or len(data) > PIECE:
            with memoryview(data) as view, view.cast("B") as octets:
                data = bytes(octets[:PIECE])
        self.write(data)
        return len(data)

    def end_writing(self) -> None:
        """A FIN follows what was sent."""
        if not self._eof:
            self._eof = True
            self.sock.shut_writing()
            self._tell_writer()

    def end_reading(self) -> None:
        """What waits, and what comes, is for nobody."""
        self._pieces.clear()
        self._taken = self._waiting = 0
        self.ended = True
        self.reading.wake()

    def close(self) -> None:
        """What was sent goes on, unless something was not received: then the peer is told by a reset, as RFC 1122,
        4.2.2.13, asks for. Tasks that wait get trio.ClosedResourceError. May be called twice."""
        if self._closing:
            return
        self._closing = True
        self.sock.close_connection(self._waiting > 0)
        for waiter in (self.reading, self.writing):
            waiter.wake(trio.ClosedResourceError("another task closed this socket"))
        self._end()
        self._protocol = None
        self._pieces.clear()

    def _raise_error(self) -> None:
        error, self._error = self._error, 0
        if error:
            raise OSError(error, os.strerror(error))

    def _hold(self, on: bool) -> None:
        self._paused = on
        self.sock.pause(on)

    def _tell_writer(self) -> None:
        self._protocol_paused = False
        self.writing.wake()

    # What C tells: of a protocol.

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self.ended:
            return
        self._pieces.append(data)
        self._waiting += len(data)
        if self._waiting >= READ_MOST and not self._paused:
            self._hold(True)
        self.reading.wake()

    def eof_received(self) -> bool:
        """Nothing more comes. True: sending goes on."""
        self.ended = True
        self.reading.wake()
        return True

    # ... and of a transport.

    def _connection_over(self, error: int) -> None:
        self._error = error
        self._conn_lost += 1
        self.ended = True
        self.reading.wake()
        self._tell_writer()

    def _maybe_pause_protocol(self) -> None:
        self._protocol_paused = True

    def _maybe_resume_protocol(self) -> None:
        self._tell_writer()

    def _all_sent(self) -> None:
        """Nobody waits for that."""

    def _write_after_end(self) -> None:
        """It has ended in the middle of `put`; the next call says so."""

    def _fatal_error(self, exc: BaseException, _message: str = "") -> None:
        raise exc
