"""UDP endpoints: asyncio's own transports, on sockets of the runtime's that look like Linux' which do not block.

Each has a socket of Linux'. It keeps the port's number, and its descriptor is the name by which the loop knows who
reads. One at any address, or at 127.0.0.1 where that is the runtime's inside of this process, is served on both sides:
what is sent goes to the side on which the other end is.
"""

from __future__ import annotations

import errno
import os
import socket
from asyncio import selector_events
from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol, Self

from .._asyncio import Datagrams, Poller
from .servers import FREEBIND
from .sockets import Address
from .world import World

_BURST = 32  # datagrams of one endpoint that one round of the loop takes
_NOWHERE = (0, 0)  # to whom it is connected


class Reader(Protocol):
    """Who is to know that something has come: asyncio.Handle is such."""

    def _run(self) -> object: ...


class UdpSocket(Datagrams):
    """A UDP socket of the runtime's, and of Linux' if it is on both sides. Public attributes: both, peer, reader."""

    __slots__ = ("_endpoints", "_host", "_keeper", "_linux_first", "_to", "both", "peer", "reader")
    family = socket.AF_INET
    type = socket.SOCK_DGRAM
    proto = socket.IPPROTO_UDP
    both: bool
    peer: Address | None
    reader: Reader | None
    _endpoints: DatagramEndpoints
    _keeper: socket.socket
    _host: str
    _linux_first: bool
    _to: tuple[Address | None, int]

    def begin(self, endpoints: DatagramEndpoints, keeper: socket.socket, host: str, both: bool) -> Self:
        """host: its own address, as it is told."""
        self._endpoints, self._keeper, self._host, self.both = endpoints, keeper, host, both
        self.peer = self.reader = None
        self._linux_first = False
        self._to = (None, 0)
        return self

    def __repr__(self) -> str:
        return f"<corelane UdpSocket {'open' if self.open else 'closed'} {self.getsockname()}>"

    def is_for(self, sock: socket.socket) -> bool:
        """Whether this is the socket of Linux' that it has."""
        return self._keeper is sock

    def fileno(self) -> int:
        """The descriptor of the socket of Linux'."""
        return self._keeper.fileno()

    def getsockname(self) -> Address:
        """Its own end."""
        return self._host, self.port

    def getpeername(self) -> Address:
        """To whom it is connected. Raises OSError: to nobody."""
        if self.peer is None:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        return self.peer

    def setblocking(self, flag: bool) -> None:
        """Nothing: no call of it blocks."""

    def gettimeout(self) -> float:
        """0.0, as of a socket that does not block."""
        return 0.0

    def getsockopt(self, *args: Any) -> int | bytes:
        """Of the socket of Linux'."""
        return self._keeper.getsockopt(*args)

    def setsockopt(self, *args: Any) -> None:
        """The same."""
        self._keeper.setsockopt(*args)

    def connect(self, peer: Address) -> None:
        """Send to there, and hear from there alone. Raises OSError."""
        self.connect_to(_number_of(peer[0]), peer[1])
        self.peer = peer

    def send(self, data: Any) -> int:
        """Send a datagram to whom it is connected. Raises OSError, also one that came by ICMP."""
        return self.send_to(bytes(data), *_NOWHERE)

    def sendto(self, data: Any, address: Address) -> int:
        """Send a datagram. Raises OSError; TypeError, OverflowError: that is no address."""
        if not isinstance(address, tuple) or len(address) != 2:
            raise TypeError(f"sendto(): an address is a pair (host, port), not {address!r}")
        if self.both and not self._endpoints.is_ours(address):
            return self._keeper.sendto(data, address)
        known, number = self._to
        if address != known:
            if not 0 <= address[1] <= 65535:
                raise OverflowError("sendto(): port must be 0-65535.")
            if address[1] == 0:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            number = _number_of(address[0])
            self._to = address, number
        return self.send_to(bytes(data), number, address[1])

    def recvfrom(self, bufsize: int) -> tuple[bytes, Address]:
        """The next datagram, cut at bufsize, and who sent it. Raises OSError; BlockingIOError: there is none."""
        if not self.both:
            return self._recvfrom(bufsize)
        self._linux_first = not self._linux_first  # neither side starves the other
        first: Callable[[int], tuple[bytes, Any]] = self._recvfrom
        second: Callable[[int], tuple[bytes, Any]] = self._keeper.recvfrom
        if self._linux_first:
            first, second = second, first
        try:
            return first(bufsize)
        except BlockingIOError:
            return second(bufsize)

    def recvfrom_into(self, buffer: Any, nbytes: int) -> tuple[int, Address]:
        """The same into a buffer; how many bytes."""
        data, sender = self.recvfrom(nbytes)
        with memoryview(buffer) as view, view.cast("B") as octets:
            octets[: len(data)] = data
        return len(data), sender

    def _recvfrom(self, bufsize: int) -> tuple[bytes, Address]:
        data, (address, port) = self.receive()
        return data[:bufsize], (socket.inet_ntoa(address.to_bytes(4, "big")), port)

    def told(self) -> None:
        """Something has come on the runtime's side: what `Poller.deliver` calls."""
        reader = self.reader
        if reader is not None:
            reader._run()
            if self.reader is not None:
                self.look()

    def close(self) -> None:
        """Both. May be called twice."""
        self._endpoints.let_go(self)
        self._keeper.close()


class DatagramTransport(selector_events._SelectorDatagramTransport):  # type: ignore[name-defined,misc]
    """asyncio's own, which takes what has come in bursts."""

    def _read_ready(self) -> None:
        for _ in range(_BURST):
            super()._read_ready()
            if self._conn_lost or not self._sock.readable:
                return


class DatagramEndpoints:
    """The UDP sockets of a loop that are the runtime's. Public attributes: poller, by_fd."""

    def __init__(self, world: World, poller: Poller) -> None:
        self.poller = poller
        self.by_fd: dict[int, UdpSocket] = {}
        self._world = world
        self._ports: Counter[int] = Counter()

    def let_go(self, sock: UdpSocket) -> None:
        """Close it, but for the socket of Linux'. May be called twice."""
        self._drop(sock.fileno())

    def _drop(self, fd: int) -> None:
        sock = self.by_fd.pop(fd, None)
        if sock is not None:
            self._ports[sock.port] -= 1
            if not self._ports[sock.port]:
                del self._ports[sock.port]
            sock.end()

    def ports(self) -> list[int]:
        """Of those that are connected to nobody."""
        return sorted({sock.port for sock in self.by_fd.values() if sock.peer is None})

    def is_ours(self, address: Address) -> bool:
        """Whether the way to there is the runtime's."""
        host, port = address
        return self._world.reaches(host) or (self._ports[port] > 0 and self._world.is_loopback(host))

    def open(self, local: Any, remote: Any, reuse_port: bool, broadcast: bool) -> UdpSocket | None:
        """For an endpoint that is the runtime's alone: at its address, or connected to where the way is its. None: it
        is not. Raises OSError."""
        host, port = local or ("0.0.0.0", 0)
        own = self._world.is_own(host)
        if remote is not None and not (isinstance(remote[0], str) and self.is_ours(remote)):
            return None
        if not own and (remote is None or host not in ("0.0.0.0", remote[0])):
            return None
        keeper = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            keeper.setblocking(False)
            keeper.setsockopt(socket.IPPROTO_IP, FREEBIND, 1)
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, int(broadcast))
            if reuse_port or (own and self._world.shares_ports):
                keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            keeper.bind((host, port or 0))
            if remote is not None and not own:
                made = self.claim(keeper, remote)
            else:
                made = self._make(keeper, host, False, reuse_port)
            if remote is not None:
                made.connect(remote)
        except BaseException:
            keeper.close()
            raise
        return made

    def claim(self, sock: socket.socket, remote: Address) -> UdpSocket:
        """One of the runtime's alone, of one of Linux' that is to be connected to where the way is the runtime's.
        Raises OSError."""
        if not sock.getsockname()[1]:
            sock.bind(("0.0.0.0", 0))
        host = remote[0] if self._world.is_loopback(remote[0]) else str(self._world.address)
        return self._make(sock, host, False, bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT)))

    def of(self, sock: Any) -> Any:
        """One of the runtime's, of one of Linux' that is bound where the runtime is; else itself. Raises OSError."""
        if isinstance(sock, UdpSocket) or sock.family != socket.AF_INET or sock.type != socket.SOCK_DGRAM:
            return sock
        if is_connected(sock):
            return sock
        known = self.by_fd.get(sock.fileno())
        if known is not None and known.is_for(sock):
            return known
        if known is not None:  # it is closed, and its number another one's
            self._drop(sock.fileno())
        host, port = sock.getsockname()
        both = host == "0.0.0.0" or self._world.is_loopback(host)
        if not both and not self._world.is_own(host):
            return sock
        if not port:
            sock.bind((host, 0))
        shared = bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))
        return self._make(sock, host, both, shared)

    def _make(self, keeper: socket.socket, host: str, both: bool, shared: bool) -> UdpSocket:
        made = UdpSocket(self.poller, keeper.getsockname()[1], shared).begin(self, keeper, host, both)
        self.by_fd[made.fileno()] = made
        self._ports[made.port] += 1
        return made


def with_number(address: Any) -> Address | None:
    """An address whose port is a number, perhaps as text. None: it is none, or none of IPv4's."""
    if not (isinstance(address, tuple) and len(address) == 2 and isinstance(address[0], str)):
        return None
    host, port = address
    if isinstance(port, str) and not port.isdecimal():
        return None
    return host, int(port or 0)


def is_connected(sock: socket.socket) -> bool:
    """Whether Linux knows a peer of it."""
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _number_of(host: str) -> int:
    return int.from_bytes(socket.inet_aton(host), "big")
