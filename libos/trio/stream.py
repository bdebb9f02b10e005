"""A connection of the runtime's as one of trio's sockets. Each call is a checkpoint where one of trio's own is."""

from __future__ import annotations

import errno
import operator
import os
import socket
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import trio
from trio.lowlevel import cancel_shielded_checkpoint, checkpoint_if_cancelled
from trio.socket import SocketType

from ..asyncio.sockets import Address, TcpSocket
from .connection import Connection

_NO_DESCRIPTOR = (
    2**31 - 1
)  # trio takes -1 for a socket that is closed; the kernel refuses this one as any that is not open
_T = TypeVar("_T")


def refuse(error: int) -> OSError:
    """As the kernel says it."""
    return OSError(error, os.strerror(error))


class StreamSocket(SocketType):
    """A connection. Made by accept, and by connect (sockets.py)."""

    def __init__(self, sock: TcpSocket, call: Callable[..., Any]) -> None:
        super().__init__()
        self._sock = sock  # as trio's own sockets have a field of this name, which anyio asks for addresses
        self._connection = Connection(sock, call)
        self._open = True
        self._shut = False

    def __del__(self, warn: Any = warnings.warn) -> None:
        if getattr(self, "_open", False):
            what = f"unclosed {self!r}"
            self.close()  # first: a warning may be an exception
            warn(what, ResourceWarning, source=self)

    def __repr__(self) -> str:
        return f"<corelane trio socket {self._sock!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # What it is.

    @property
    def family(self) -> socket.AddressFamily:
        """AF_INET."""
        return socket.AF_INET

    @property
    def type(self) -> socket.SocketKind:
        """SOCK_STREAM."""
        return socket.SOCK_STREAM

    @property
    def proto(self) -> int:
        """IPPROTO_TCP."""
        return socket.IPPROTO_TCP

    @property
    def did_shutdown_SHUT_WR(self) -> bool:
        """Whether a FIN follows what was sent."""
        return self._shut

    def fileno(self) -> int:
        """-1 once closed; before, a number that is no descriptor: Linux knows nothing of it."""
        return _NO_DESCRIPTOR if self._open else -1

    def getsockname(self) -> Address:
        """Its own end."""
        return self._known().getsockname()

    def getpeername(self) -> Address:
        """The other end."""
        return self._known().getpeername()

    def getsockopt(self, level: int, optname: int, buflen: int | None = None) -> Any:
        """An option, by Linux' numbers. Raises OSError."""
        if (level, optname) == (socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return 0
        return self._known().getsockopt(level, optname, buflen or 0)

    def setsockopt(self, level: int, optname: int, value: Any, optlen: int | None = None) -> None:
        """Set one. Raises OSError."""
        self._known().setsockopt(level, optname, value, optlen)

    def get_inheritable(self) -> bool:
        """False."""
        return False

    def set_inheritable(self, inheritable: bool) -> None:
        """Raises OSError for True: there is no descriptor to be inherited."""
        if inheritable:
            raise refuse(errno.EOPNOTSUPP)

    def detach(self) -> int:
        """Raises OSError: there is no descriptor."""
        raise refuse(errno.EOPNOTSUPP)

    def dup(self) -> SocketType:
        """The same."""
        raise refuse(errno.EOPNOTSUPP)

    def listen(self, backlog: int = 0) -> None:
        """Raises OSError: it is connected."""
        raise refuse(errno.EINVAL)

    async def bind(self, address: Any) -> None:
        """The same."""
        raise refuse(errno.EINVAL)

    async def accept(self) -> tuple[SocketType, Any]:
        """The same."""
        raise refuse(errno.EINVAL)

    async def connect(self, address: Any) -> None:
        """The same."""
        raise refuse(errno.EISCONN)

    def _known(self) -> TcpSocket:
        if not self._open:
            raise refuse(errno.EBADF)
        return self._sock

    # The end.

    def shutdown(self, flag: int) -> None:
        """SHUT_WR, SHUT_RD, SHUT_RDWR. Raises OSError."""
        self._known()
        if flag not in (socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR):
            raise refuse(errno.EINVAL)
        if not self._sock.open:
            raise refuse(errno.ENOTCONN)
        if flag != socket.SHUT_RD:
            self._connection.end_writing()
            self._shut = True
        if flag != socket.SHUT_WR:
            self._connection.end_reading()

    def close(self) -> None:
        """What was sent goes on, unless something was not received: then the peer reads a reset. Tasks that wait get
        trio.ClosedResourceError. May be called twice."""
        self._open = False
        self._connection.give_up(trio.ClosedResourceError("another task closed this socket"))

    # Receiving.

    def is_readable(self) -> bool:
        """Whether a receiving call would return at once."""
        return self._connection.readable

    async def _receive(self, take: Callable[[], _T]) -> _T:
        await checkpoint_if_cancelled()
        connection = self._connection
        if connection.readable:
            try:
                return take()
            finally:
                await cancel_shielded_checkpoint()
        while not connection.readable:
            await connection.reading.wait()
        return take()

    async def recv(self, buflen: int, flags: int = 0, /) -> bytes:
        """At least one byte and at most so many; b"" is the end. flags: MSG_PEEK. Raises OSError."""
        peek, buflen = self._peeks(flags), operator.index(buflen)
        if buflen < 0:
            raise ValueError("negative buffersize in recv")
        return await self._receive(lambda: self._connection.take(buflen, peek))

    async def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """The same into a buffer, all of it if nbytes is 0; how many bytes."""
        peek = self._peeks(flags)
        with memoryview(buffer) as view, view.cast("B") as octets:
            if not 0 <= nbytes <= len(octets):
                raise ValueError("nbytes is negative, or more than the buffer has")

            def take() -> int:
                piece = self._connection.take(nbytes or len(octets), peek)
                octets[: len(piece)] = piece
                return len(piece)

            return await self._receive(take)

    async def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """As `recv`, and None for the sender, who is known."""
        return await self.recv(bufsize, flags), None

    async def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        """As `recv_into`, and None."""
        return await self.recv_into(buffer, nbytes, flags), None

    async def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        """As `recv`: TCP has nothing besides."""
        return await self.recv(bufsize, flags), [], 0, None

    async def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[tuple[int, int, bytes]], int, object]:
        """The same into buffers, one after the other."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        piece = await self.recv(sum(len(view) for view in views), flags)
        done = 0
        for view in views:
            part = piece[done : done + len(view)]
            view[: len(part)] = part
            done += len(part)
        return len(piece), [], 0, None

    @staticmethod
    def _peeks(flags: int) -> bool:
        if flags & ~socket.MSG_PEEK:
            raise refuse(errno.EOPNOTSUPP)
        return bool(flags)

    # Sending.

    async def wait_writable(self) -> None:
        """Until a sending call would take something."""
        await trio.lowlevel.checkpoint()
        self._known()
        while not self._connection.writable:
            await self._connection.writing.wait()

    async def send(self, data: Any, flags: int = 0, /) -> int:
        """Send some of it; how many bytes. flags: MSG_NOSIGNAL. Raises OSError."""
        if flags & ~socket.MSG_NOSIGNAL:
            raise refuse(errno.EOPNOTSUPP)
        await checkpoint_if_cancelled()
        connection = self._connection
        if connection.writable:
            try:
                return connection.put(data)
            finally:
                await cancel_shielded_checkpoint()
        while not connection.writable:
            await connection.writing.wait()
        return connection.put(data)

    async def sendto(self, *args: Any) -> int:
        """As `send`; the address must be None: it is connected. Raises OSError."""
        data, *flags, address = args
        if address is not None:
            raise refuse(errno.EISCONN)
        return await self.send(data, *flags)

    async def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """As `send`, of buffers one after the other. Raises OSError, also if there is anything besides."""
        if address is not None:
            raise refuse(errno.EISCONN)
        if list(ancdata):
            raise refuse(errno.EOPNOTSUPP)
        return await self.send(b"".join(buffers), flags)
