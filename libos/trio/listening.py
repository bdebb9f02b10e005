"""Accepting: connections of the runtime's, and of Linux' where a listener is on both."""

from __future__ import annotations

import errno
import socket
from collections import deque
from typing import Any

import trio
from trio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled
from trio.socket import SocketType, from_stdlib_socket

from ..asyncio.servers import Place
from ..asyncio.sockets import TcpSocket
from .ours import Ours
from .stream import StreamSocket, refuse


class Listening:
    """What a socket does that listens. sock: the one of Linux' that keeps the port's number. Raises OSError."""

    def __init__(self, ours: Ours, place: Place, sock: socket.socket, backlog: int) -> None:
        self._ours = ours
        self._sock = sock
        self._backlog = backlog
        self._came: deque[TcpSocket] = deque()
        self._waiting: trio.CancelScope | None = None
        self._on_linux = place.on_linux
        self._linux_first = False
        self._closed = False
        ours.places.listen(place, sock, backlog, self._come)
        ours.endpoints.ours += 1
        if place.on_linux:
            ours.endpoints.linux += 1

    def _come(self, sock: TcpSocket) -> None:
        if len(self._came) >= self._backlog:
            self._ours.endpoints.refused += 1
            sock.close_connection(True)
            return
        self._came.append(sock)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def is_readable(self) -> bool:
        """Whether somebody of the runtime's waits."""
        return bool(self._came)

    async def accept(self) -> tuple[SocketType, Any]:
        """The next connection, and who it is. Raises OSError, trio.BusyResourceError, trio.ClosedResourceError."""
        await checkpoint_if_cancelled()
        try:
            made = self._take()
        except OSError:
            await cancel_shielded_checkpoint()
            raise
        if made is not None:
            await cancel_shielded_checkpoint()
            return made
        while True:
            await self._wait()
            if (made := self._take()) is not None:
                return made

    def _take(self) -> tuple[SocketType, Any] | None:
        if self._closed:
            raise refuse(errno.EBADF)
        self._linux_first = self._on_linux and not self._linux_first  # neither side starves the other
        first, second = (self._of_linux, self._of_ours) if self._linux_first else (self._of_ours, self._of_linux)
        return first() or second()

    def _of_ours(self) -> tuple[SocketType, Any] | None:
        if not self._came:
            return None
        sock = self._came.popleft()
        self._ours.endpoints.ours += 1
        return StreamSocket(sock, self._ours.call), sock.getpeername()

    def _of_linux(self) -> tuple[SocketType, Any] | None:
        if not self._on_linux:
            return None
        try:
            sock, address = self._sock.accept()
        except BlockingIOError:
            return None
        self._ours.endpoints.linux += 1
        return from_stdlib_socket(sock), address

    async def _wait(self) -> None:
        if self._waiting is not None:
            raise trio.BusyResourceError("another task is already accepting from this socket")
        with trio.CancelScope() as self._waiting:
            try:
                if self._on_linux:
                    await trio.lowlevel.wait_readable(self._sock)
                else:
                    await trio.sleep_forever()
            finally:
                self._waiting = None
        if self._closed:
            raise trio.ClosedResourceError("another task closed this socket")

    def close(self) -> None:
        """Connections that wait to be accepted are reset. The socket of Linux' is left to the caller."""
        if self._closed:
            return
        self._closed = True
        self._ours.places.stop(self._sock.fileno())
        for sock in self._came:
            sock.close_connection(True)
        self._came.clear()
        self._wake()
