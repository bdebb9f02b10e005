"""What the socket factory makes.

Which side a socket is of is known when it is bound or connected: by its address, as for libos/asyncio. Until then, and
for all that is neither TCP nor UDP over IPv4, it is one of Linux'. A listener of the runtime's keeps that, for the
port's number.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Any

import trio
from trio.socket import SocketType, from_stdlib_socket

from ..asyncio.datagrams import is_connected
from ..asyncio.servers import FREEBIND
from ..asyncio.sockets import TcpSocket, number_of
from .connection import Waiter
from .datagrams import DatagramSocket
from .listening import Listening
from .ours import Ours
from .passing import Passing, pass_on
from .stream import StreamSocket, refuse


class Factory(trio.abc.SocketFactory):
    """Makes the sockets of a run."""

    def __init__(self, ours: Ours) -> None:
        self._ours = ours

    def socket(self, family: Any = socket.AF_INET, type: Any = socket.SOCK_STREAM, proto: int = 0) -> SocketType:
        """As trio.socket.socket. Raises OSError."""
        return Socket.of(self._ours, socket.socket(family, type, proto))


class Opening(Waiter):
    """What a connection that is being opened tells. The calls are those of a future, which sockets have for asyncio."""

    __slots__ = ("_error", "_over")

    def __init__(self) -> None:
        super().__init__()
        self._over = False
        self._error: Exception | None = None

    def done(self) -> bool:
        """Whether it is open, or will not be."""
        return self._over

    def set_result(self, _: None) -> None:
        """It is open."""
        self._over = True
        self.wake()

    def set_exception(self, error: Exception) -> None:
        """It could not be opened."""
        self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """It does not matter any more."""
        self._over, self._error = True, error
        self.wake()

    async def result(self) -> None:
        """Wait for either. Raises OSError."""
        while not self._over:
            await self.wait()
        if self._error is not None:
            raise self._error


class Socket(Passing):
    """A TCP socket over IPv4, of either side. Made by `of`."""

    def __init__(self, ours: Ours, sock: socket.socket) -> None:
        super().__init__()
        self._ours = ours
        self._linux = sock
        self._is = from_stdlib_socket(sock)  # of the side that it is of
        self._listening: Listening | None = None
        self._opening: Opening | None = None
        self._options: dict[tuple[int, int], Any] = {}  # that a connection of the runtime's is to have, too
        self._bound: tuple[str, int] | None = None  # at an address that is, or may be, the runtime's
        self._own = False  # and that is its alone
        if sock.getsockname()[1]:
            self._look_where()
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                self._listen(socket.SOMAXCONN)

    @classmethod
    def of(cls, ours: Ours, sock: socket.socket) -> SocketType:
        """Such a socket, or one of UDP; or trio's own, if it cannot be the runtime's or is connected on Linux."""
        if sock.family == socket.AF_INET and not is_connected(sock):
            if sock.type == socket.SOCK_STREAM and sock.proto in (0, socket.IPPROTO_TCP):
                return cls(ours, sock)
            if sock.type == socket.SOCK_DGRAM and sock.proto in (0, socket.IPPROTO_UDP):
                return DatagramSocket(ours, sock)
        return from_stdlib_socket(sock)

    def __repr__(self) -> str:
        return repr(self._is)

    @property
    def _sock(self) -> socket.socket | TcpSocket:
        """As trio's own sockets have it."""
        return self._is._sock if isinstance(self._is, StreamSocket) else self._linux

    def setsockopt(self, level: int, optname: int, value: Any, optlen: int | None = None) -> None:
        """Set an option. Raises OSError."""
        words = (value,) if optlen is None else (value, optlen)
        self._is.setsockopt(level, optname, *words)
        if not isinstance(self._is, StreamSocket) and value is not None:
            self._options[level, optname] = value

    def getsockopt(self, level: int, optname: int, buflen: int | None = None) -> Any:
        """An option. Raises OSError."""
        if self._listening is not None and (level, optname) == (socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return 1
        words = (level, optname) if buflen is None else (level, optname, buflen)
        try:
            return self._is.getsockopt(*words)
        except OSError as error:  # one that Linux has: it does nothing here
            if error.errno != errno.ENOPROTOOPT or buflen or (level, optname) not in self._options:
                raise
            return self._options[level, optname]

    # Binding, listening.

    async def bind(self, address: Any) -> None:
        """As of any socket. Raises OSError."""
        host = address[0] if isinstance(address, tuple) and address else None
        if isinstance(host, str) and self._ours.world.is_own(host):
            self._linux.setsockopt(socket.IPPROTO_IP, FREEBIND, 1)
        await self._is.bind(address)
        self._look_where()

    def _look_where(self) -> None:
        host, port = self._linux.getsockname()
        self._own = self._ours.world.is_own(host)
        if self._own or host == "0.0.0.0" or self._ours.world.is_loopback(host):
            self._bound = (host, port)

    def listen(self, backlog: int = min(socket.SOMAXCONN, 128)) -> None:
        """Take connections from where its address is: from the runtime, from Linux, from both. Raises OSError."""
        place = self._ours.places.place_of(self._linux)
        if place is None or place.on_linux:
            self._is.listen(backlog)
        self._listen(backlog)

    def _listen(self, backlog: int) -> None:
        place = self._ours.places.place_of(self._linux)
        if place is None:
            self._ours.endpoints.linux += 1
        elif self._listening is None:
            self._listening = Listening(self._ours, place, self._linux, max(1, backlog))

    async def accept(self) -> tuple[SocketType, Any]:
        """The next connection, and who it is. Raises OSError."""
        if self._listening is not None:
            return await self._listening.accept()
        accepted = await self._is.accept()
        self._ours.endpoints.linux += 1
        return accepted

    # Connecting.

    async def connect(self, address: Any) -> None:
        """As of any socket. Raises OSError. If it is cancelled, the socket is closed."""
        if self._listening is not None or isinstance(self._is, StreamSocket):
            raise refuse(errno.EISCONN)
        if self._opening is not None:
            raise refuse(errno.EALREADY)
        try:
            target = await self._target(address)
            if target is not None:
                await self._connect(target)
                return
        except trio.Cancelled:
            self.close()
            raise
        await self._is.connect(address)
        self._ours.endpoints.linux += 1

    async def _target(self, address: Any) -> tuple[str, int] | None:
        """The address as numbers, if a connection to there is the runtime's."""
        if not (isinstance(address, tuple) and len(address) == 2) or self._linux.fileno() < 0:
            return None  # Linux' says what is wrong
        host, port = address
        found = await trio.socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
        numbers: Any = found[0][4]
        return numbers if self._own or self._ours.places.is_ours(numbers) else None

    async def _connect(self, address: tuple[str, int]) -> None:
        own, own_port = self._bound or ("0.0.0.0", 0)
        host, port = address
        opening = self._opening = Opening()
        poller: Any = self._ours.poller  # whose futures are asyncio's, else
        try:
            sock = poller.connect(number_of(own), own_port, number_of(host), port, opening)
            try:
                await opening.result()
            except BaseException:
                sock.close_connection(True)
                raise
        finally:
            self._opening = None
        self._ours.endpoints.ours += 1
        self._is = StreamSocket(sock, self._ours.call)
        for (level, optname), value in self._options.items():
            with contextlib.suppress(OSError):  # that Linux has, and the runtime has not
                self._is.setsockopt(level, optname, value)
        if self._bound is None:
            self._linux.close()

    # The end.

    def close(self) -> None:
        """As of any socket. Tasks that wait get trio.ClosedResourceError. May be called twice."""
        if self._listening is not None:
            self._listening.close()
        if self._opening is not None:
            self._opening.give_up(trio.ClosedResourceError("another task closed this socket"))
        self._is.close()
        if isinstance(self._is, StreamSocket):
            self._linux.close()

    def is_readable(self) -> bool:
        """Whether receiving, or accepting, would return at once."""
        return (self._listening is not None and self._listening.is_readable()) or self._is.is_readable()


pass_on(
    Socket,
    *("fileno", "detach", "dup", "get_inheritable", "set_inheritable", "getsockname", "getpeername", "shutdown"),
    *("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into"),
    *("wait_writable", "send", "sendto", "sendmsg"),
)
