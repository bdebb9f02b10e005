"""Connections from which is read: what comes waits until somebody takes it. For sock_* calls, and for libos/trio.

The transport in C is its own protocol here. Who waits, and how, is a subclass' matter.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Any

from .._asyncio import Transport
from .sockets import TcpSocket

READ_MOST = 65536  # bytes that wait to be received, beyond which the peer is held back
WRITE_MOST = 65536  # bytes that are kept beyond TCP's own buffer, beyond which senders wait
PIECE = 131072  # bytes that one send takes, at most


class Pulled(Transport):
    """A connection. Public attributes: sock, ended (nothing more comes), error (that nobody was told of, or 0)."""

    def __init__(self, sock: TcpSocket, call: Callable[..., Any]) -> None:
        # Not asyncio's own beginning, which takes a loop of asyncio's.
        self.sock = sock
        self.ended = False
        self.error = 0
        self._pieces: deque[bytes] = deque()
        self._taken = 0  # of the first piece
        self._waiting = 0  # bytes that have come
        self._high_water, self._low_water = WRITE_MOST, WRITE_MOST // 4
        self._begin(sock, call)
        self._use(self, False)
        self._made()
        sock.pause(False)

    # What a subclass does.

    def may_read(self, error: Exception | None = None) -> None:
        """`take` has an answer: let those who wait for that go on. error: raise it in them, for they are to give up."""
        raise NotImplementedError

    def may_write(self, error: Exception | None = None) -> None:
        """The same for `put`."""
        raise NotImplementedError

    # What its user does.

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
        self.may_read()

    def give_up(self, error: Exception) -> None:
        """What was sent goes on, unless something was not received: then the peer is told by a reset, as RFC 1122,
        4.2.2.13, asks for. error: for those who wait. May be called twice."""
        if self._closing:
            return
        self._closing = True
        self.sock.close_connection(self._waiting > 0)
        self.may_read(error)
        self.may_write(error)
        self._let_go()

    def leave(self) -> bytes:
        """Another transport is to have the connection: what has come and was not taken."""
        rest = b"".join(self._pieces)[self._taken :]
        self._closing = True
        self._let_go()
        return rest

    def _let_go(self) -> None:
        self._end()
        self._protocol = None
        self._pieces.clear()
        self._taken = self._waiting = 0

    def _raise_error(self) -> None:
        error, self.error = self.error, 0
        if error:
            raise OSError(error, os.strerror(error))

    def _hold(self, on: bool) -> None:
        self._paused = on
        self.sock.pause(on)

    def _tell_writer(self) -> None:
        self._protocol_paused = False
        self.may_write()

    # What C tells: of a protocol.

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self.ended:
            return
        self._pieces.append(data)
        self._waiting += len(data)
        if self._waiting >= READ_MOST and not self._paused:
            self._hold(True)
        self.may_read()

    def eof_received(self) -> bool:
        """Nothing more comes. True: sending goes on."""
        self.ended = True
        self.may_read()
        return True

    # ... and of a transport.

    def _connection_over(self, error: int) -> None:
        self.error = error
        self._conn_lost += 1
        self.ended = True
        self.may_read()
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
