"""Sockets that a program made, or was given, whose connection is the runtime's: what sock_calls.py works with.

A socket of Linux' that the program has made becomes one of a subclass, whose calls go to the connection: so the program
can shut, ask and close it as ever. What is accepted from the runtime's side is an OwnSocket, which looks like a socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import warnings
import weakref
from asyncio import protocols
from collections import deque
from collections.abc import Callable
from typing import Any, Self

from .datagrams import DatagramEndpoints, UdpSocket
from .pulled import Pulled
from .servers import Place, Places
from .sockets import Address, TcpSocket
from .world import Endpoints

CatchUp = Callable[[Any, Any], None]


class Stream(Pulled):
    """A connection, and the futures of who waits for it."""

    def __init__(self, sock: TcpSocket, call: Callable[..., Any]) -> None:
        self._readers: list[asyncio.Future[None]] = []
        self._writers: list[asyncio.Future[None]] = []
        super().__init__(sock, call)

    async def until_readable(self) -> None:
        """Raises OSError: it was closed meanwhile."""
        while not self.readable:
            await wait(self._readers)

    async def until_writable(self) -> None:
        """The same."""
        while not self.writable:
            await wait(self._writers)

    def may_read(self, error: Exception | None = None) -> None:
        """Wake them."""
        _wake(self._readers, error)

    def may_write(self, error: Exception | None = None) -> None:
        """The same."""
        _wake(self._writers, error)

    def hand_over(self) -> CatchUp:
        """Another transport is to have the connection. To be called with it and its protocol: what was told here."""
        ended, error = self.ended, self.error
        rest = self.leave()

        def catch_up(transport: Any, protocol: Any) -> None:
            if rest and isinstance(protocol, asyncio.BufferedProtocol):
                protocols._feed_data_to_buffered_proto(protocol, rest)  # type: ignore[attr-defined]
            elif rest:
                protocol.data_received(rest)
            if error:
                transport._connection_over(error)
            elif ended and not protocol.eof_received():
                transport.close()

        return catch_up


async def wait(waiting: list[asyncio.Future[None]]) -> None:
    """Be one of them, until they are woken. Raises what they are woken with."""
    future = asyncio.get_running_loop().create_future()
    waiting.append(future)
    try:
        await future
    finally:
        waiting.remove(future)


def _wake(waiting: list[asyncio.Future[None]], error: Exception | None = None) -> None:
    for future in waiting:
        if future.done():
            continue
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)


class OwnSocket:
    """A connection of the runtime's as what looks like a socket that does not block. Public attributes: tcp, stream,
    named."""

    __slots__ = ("__weakref__", "_call", "_done", "named", "stream", "tcp")

    def __init__(self, tcp: TcpSocket, call: Callable[..., Any]) -> None:
        self._done = False  # closed, or another's
        self.named = False  # a program's socket stands for it, and says itself that it was not closed
        self.tcp = tcp
        self.stream: Stream | None = None  # once something of it was asked for
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tcp, name)

    def __del__(self, warn: Any = warnings.warn) -> None:
        if not self._done and self.tcp.open:
            what = f"unclosed {self!r}"
            self.close()  # first: a warning may be an exception
            if not self.named:
                warn(what, ResourceWarning, source=self)

    def __repr__(self) -> str:
        return repr(self.tcp)

    def hand_over(self) -> tuple[TcpSocket, CatchUp | None]:
        """A transport is to have the connection. And what to call, if anything, with that and its protocol."""
        self._done = True
        stream, self.stream = self.stream, None
        return self.tcp, None if stream is None else stream.hand_over()

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """What has come. flags: MSG_PEEK. Raises OSError; BlockingIOError: nothing has."""
        stream = self.pull()
        if not stream.readable:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return stream.take(bufsize, bool(flags & socket.MSG_PEEK))

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of it; how many bytes. Raises OSError; BlockingIOError: nothing can be sent."""
        stream = self.pull()
        if not stream.writable:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return stream.put(data)

    def shutdown(self, how: int) -> None:
        """SHUT_WR, SHUT_RD, SHUT_RDWR. Raises OSError: it is over."""
        if not self.tcp.open:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        if how != socket.SHUT_RD:
            self.pull().end_writing()
        if how != socket.SHUT_WR:
            self.pull().end_reading()

    def pull(self) -> Stream:
        """The connection, to be read from."""
        if self.stream is None:
            self.stream = Stream(self.tcp, self._call)
        return self.stream

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it, if no transport has it. May be called twice."""
        self._done = True
        if self.stream is not None:
            self.stream.give_up(OSError(errno.EBADF, os.strerror(errno.EBADF)))
        else:
            self.tcp.close()


# The sockets of programs, and what they stand for.
_OWN: weakref.WeakKeyDictionary[socket.socket, OwnSocket] = weakref.WeakKeyDictionary()


class NamedSocket(socket.socket):
    """A program's socket, connected by the runtime. Becomes a plain one when its connection is another's."""

    __slots__ = ()

    @classmethod
    def name(cls, sock: socket.socket, own: OwnSocket) -> None:
        """The program's socket stands for a connection from now on."""
        sock.__class__ = cls
        own.named = True
        _OWN[sock] = own

    @staticmethod
    def own(sock: Any) -> OwnSocket | None:
        """What it stands for, if it does."""
        return _OWN.get(sock) if isinstance(sock, NamedSocket) else None

    def hand_over(self) -> None:
        """It stands for nothing any more."""
        del _OWN[self]
        self.__class__ = socket.socket  # type: ignore[assignment]

    def close(self) -> None:
        """Both."""
        own = _OWN.pop(self, None)
        if own is not None:
            own.close()
        super().close()

    def getsockname(self) -> Address:
        """As of an OwnSocket, as all that follow."""
        return _OWN[self].tcp.getsockname()

    def getpeername(self) -> Address:
        """The other end."""
        return _OWN[self].tcp.getpeername()

    def getsockopt(self, *args: Any) -> Any:
        """An option. Raises OSError."""
        return _OWN[self].tcp.getsockopt(*args)

    def setsockopt(self, *args: Any) -> None:
        """Set one. Raises OSError."""
        _OWN[self].tcp.setsockopt(*args)

    def shutdown(self, how: int) -> None:
        """End a side. Raises OSError."""
        _OWN[self].shutdown(how)

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        """What has come. Raises OSError."""
        return _OWN[self].recv(bufsize, flags)

    def send(self, data: Any, flags: int = 0) -> int:
        """Send some of it. Raises OSError."""
        return _OWN[self].send(data, flags)


_ACCEPTING: weakref.WeakKeyDictionary[socket.socket, Accepting] = weakref.WeakKeyDictionary()


class NamedListener(socket.socket):
    """A program's socket that listens, on the runtime's side, too."""

    __slots__ = ()

    @classmethod
    def name(cls, sock: socket.socket, accepting: Accepting) -> None:
        """The program's socket is one from now on."""
        sock.__class__ = cls
        _ACCEPTING[sock] = accepting
        weakref.finalize(sock, accepting.close).atexit = False

    @staticmethod
    def accepting(sock: Any) -> Accepting | None:
        """What it has, if it is one."""
        return _ACCEPTING.get(sock) if isinstance(sock, NamedListener) else None

    def close(self) -> None:
        """On both sides."""
        accepting = _ACCEPTING.pop(self, None)
        if accepting is not None:
            accepting.close()
        super().close()


_DATAGRAMS: weakref.WeakKeyDictionary[socket.socket, tuple[DatagramEndpoints, UdpSocket]] = weakref.WeakKeyDictionary()


class NamedDatagrams(socket.socket):
    """A program's socket of UDP, that is on the runtime's side, too."""

    __slots__ = ()

    @classmethod
    def name(cls, sock: socket.socket, endpoints: DatagramEndpoints, datagrams: UdpSocket) -> None:
        """The program's socket is one from now on."""
        sock.__class__ = cls
        _DATAGRAMS[sock] = endpoints, datagrams

    def close(self) -> None:
        """On both sides."""
        endpoints, datagrams = _DATAGRAMS.pop(self, (None, None))
        if endpoints is not None and datagrams is not None:
            endpoints.let_go(datagrams)
        super().close()


class Accepting:
    """A listening socket of Linux' that takes connections of the runtime's, too."""

    def __init__(
        self, places: Places, place: Place, sock: socket.socket, call: Callable[..., Any], endpoints: Endpoints
    ) -> None:
        """Raises OSError."""
        self._places, self._endpoints, self._fd = places, endpoints, sock.fileno()
        self.on_linux = place.on_linux
        self.waiting: list[asyncio.Future[None]] = []
        self._came: deque[TcpSocket] = deque()
        self._call = call
        places.listen(place, sock, socket.SOMAXCONN, self.come)

    def come(self, sock: TcpSocket) -> None:
        """Somebody has connected."""
        if len(self._came) >= socket.SOMAXCONN:
            self._endpoints.refused += 1
            sock.close_connection(True)
            return
        self._came.append(sock)
        self.wake()

    def wake(self) -> None:
        """Somebody has, on either side."""
        _wake(self.waiting)

    def take(self, sock: socket.socket) -> tuple[Any, Address] | None:
        """The next one, and who it is. None: there is none. Raises OSError."""
        if self._came:
            tcp = self._came.popleft()
            return OwnSocket(tcp, self._call), tcp.getpeername()
        if not self.on_linux:
            return None
        with contextlib.suppress(BlockingIOError, InterruptedError):
            accepted, address = sock.accept()
            accepted.setblocking(False)
            return accepted, address
        return None

    def close(self) -> None:
        """Nobody comes any more, and who waits to be accepted is reset. May be called twice."""
        fd, self._fd = self._fd, -1
        self._places.stop(fd)
        for sock in self._came:
            sock.close_connection(True)
        self._came.clear()
