"""Listeners: which of them are the runtime's, and who comes to them.

Each has a socket of Linux. One at the runtime's own address is bound there although Linux has no such address, and
never served by it: it keeps the port's number, and is what people see as the server's socket. One at any address, or at
127.0.0.1 where that is the runtime's inside of this process, is served on both sides.
"""

from __future__ import annotations

import contextvars
import functools
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .._asyncio import Poller
from .sockets import TcpSocket, number_of
from .world import World

FREEBIND = 15  # linux/in.h; socket has it from Python 3.14 on


@dataclass(frozen=True, slots=True)
class Place:
    """Where a listener of the runtime's listens: an address as a number, 0 for any."""

    address: int
    port: int
    on_linux: bool


def bind(host: str, port: int, reuse_port: bool) -> socket.socket:
    """A socket of Linux at an address that Linux need not have. Raises OSError."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, FREEBIND, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((host, port or 0))
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"error while attempting to bind on address {(host, port)}: {error}") from None
    return sock


class Spread:
    """Listeners at one place: each flow is one's. Public attributes: accepts (by descriptor)."""

    def __init__(self) -> None:
        self.accepts: dict[int, Callable[[TcpSocket], object]] = {}

    def __call__(self, sock: TcpSocket) -> None:
        """Somebody has connected."""
        accepts = tuple(self.accepts.values())
        accepts[hash(sock.ends()[1]) % len(accepts)](sock)


class Places:
    """The listeners of a loop, by where they listen."""

    def __init__(self, world: World, poller: Poller) -> None:
        self._world = world
        self._poller = poller
        self._places: dict[int, Place] = {}  # by descriptor
        self._spreads: dict[tuple[int, int], Spread] = {}  # by address and port

    def place_of(self, sock: socket.socket) -> Place | None:
        """Where a socket that is bound listens on the runtime; None: not there."""
        if sock.family != socket.AF_INET:
            return None
        host, port = sock.getsockname()
        if self._world.is_own(host):
            return Place(number_of(host), port, on_linux=False)
        if host == "0.0.0.0":
            return Place(0, port, on_linux=True)
        return Place(number_of(host), port, on_linux=True) if self._world.is_loopback(host) else None

    def listens(self, host: str, port: int) -> bool:
        """Whether a listener of this loop takes connections to there."""
        wanted = (number_of(host), 0)
        return any(place.port == port and place.address in wanted for place in self._places.values())

    def is_ours(self, address: tuple[str, int]) -> bool:
        """Whether a connection to there is the runtime's."""
        host, port = address
        return self._world.reaches(host) or (self._world.is_loopback(host) and self.listens(host, port))

    def listen(self, place: Place, sock: socket.socket, backlog: int, accept: Callable[[TcpSocket], object]) -> None:
        """Have `accept` called with each connection to a place; of several with SO_REUSEPORT one. Raises OSError."""
        where = place.address, place.port
        spread = None
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT):
            spread = self._spreads.get(where) or Spread()
        if spread is None or not spread.accepts:
            self._poller.listen(*where, max(1, backlog), spread or accept)
        if spread is not None:
            spread.accepts[sock.fileno()] = accept
            self._spreads[where] = spread
        self._places[sock.fileno()] = place

    def ports(self) -> list[int]:
        """On which somebody listens."""
        return sorted({place.port for place in self._places.values()})

    def closed(self) -> None:
        """The poller is closed, and nobody listens any more."""
        self._places.clear()
        self._spreads.clear()

    def stop(self, fd: int) -> None:
        """Serve no more, by the descriptor of the socket of Linux'."""
        place = self._places.pop(fd, None)
        if place is None:
            return
        where = place.address, place.port
        spread = self._spreads.get(where)
        if spread is not None:
            del spread.accepts[fd]
            if spread.accepts:
                return
            del self._spreads[where]
        self._poller.unlisten(*where)


class Servers(Places):
    """Those of an asyncio loop, with their protocols."""

    def __init__(self, loop: Any, world: World, poller: Poller) -> None:
        super().__init__(world, poller)
        self._loop = loop

    def start(
        self,
        place: Place,
        sock: socket.socket,
        protocol_factory: Any,
        sslcontext: Any = None,
        server: Any = None,
        backlog: int = 100,
        *timeouts: Any,
    ) -> None:
        """Serve connections to a place."""
        accept = functools.partial(self._accept, protocol_factory, sslcontext, server, timeouts)
        self.listen(place, sock, backlog, functools.partial(contextvars.copy_context().run, accept))

    def _accept(self, factory: Any, sslcontext: Any, server: Any, timeouts: tuple[Any, ...], sock: TcpSocket) -> None:
        self._loop.create_task(self._welcome(factory, sslcontext, server, timeouts, sock))

    async def _welcome(
        self, factory: Any, sslcontext: Any, server: Any, timeouts: tuple[Any, ...], sock: TcpSocket
    ) -> None:
        extra = {"peername": sock.getpeername()}
        try:
            await self._loop._accept_connection2(factory, sock, extra, sslcontext, server, *timeouts)
        finally:
            sock.close()
