"""UDP sockets: of Linux, and of the runtime where their addresses are. What they are bound or connected to decides.

One that is bound at any address, or at 127.0.0.1 where that is the runtime's inside of this process, is on both sides,
and sends each datagram to the side where its receiver is (libos/asyncio/datagrams.py).
"""

from __future__ import annotations

import errno
import operator
import socket
from collections.abc import Callable, Iterable
from typing import Any

import trio
from trio.lowlevel import cancel_shielded_checkpoint, checkpoint, checkpoint_if_cancelled
from trio.socket import from_stdlib_socket

from ..asyncio.datagrams import UdpSocket
from ..asyncio.servers import FREEBIND
from ..asyncio.sockets import Address
from .ours import Ours
from .passing import Passing, pass_on
from .stream import refuse

_CORE_S = 0.0005  # after which one that was without a core asks again


class DatagramSocket(Passing):
    """A UDP socket over IPv4. sock: one of Linux', which it keeps."""

    def __init__(self, ours: Ours, sock: socket.socket) -> None:
        super().__init__()
        self._ours = ours
        self._sock = sock
        self._is = from_stdlib_socket(sock)
        self._udp: UdpSocket | None = None
        self._waiting: trio.CancelScope | None = None
        if sock.getsockname()[1]:
            self._look_where()

    def __repr__(self) -> str:
        return repr(self._is if self._udp is None else self._udp)

    def getsockname(self) -> Any:
        """Its own end."""
        return self._is.getsockname() if self._udp is None else self._udp.getsockname()

    def getpeername(self) -> Any:
        """To whom it is connected. Raises OSError."""
        return self._is.getpeername() if self._udp is None else self._udp.getpeername()

    # Where it is.

    async def bind(self, address: Any) -> None:
        """As of any socket. Raises OSError."""
        if isinstance(address, tuple) and isinstance(address[0], str) and self._ours.world.is_own(address[0]):
            self._sock.setsockopt(socket.IPPROTO_IP, FREEBIND, 1)
        await self._is.bind(address)
        self._look_where()

    def _look_where(self) -> None:
        found = self._ours.datagrams.of(self._sock)
        if isinstance(found, UdpSocket):
            self._have(found)
        else:
            self._ours.endpoints.linux += 1

    def _have(self, udp: UdpSocket) -> None:
        self._udp = udp
        self._ours.endpoints.ours += 1
        self._ours.endpoints.linux += int(udp.both)

    async def connect(self, address: Any) -> None:
        """As of any socket: from then on it is of the side to which it is connected. Raises OSError."""
        target = await self._resolved(address)
        await checkpoint()
        if self._udp is None and self._ours.datagrams.is_ours(target):
            self._have(self._ours.datagrams.claim(self._sock, target))
        if self._udp is not None and (not self._udp.both or self._ours.datagrams.is_ours(target)):
            self._udp.connect(target)
            self._udp.both = False
            return
        if self._udp is not None:
            self._ours.datagrams.let_go(self._udp)
            self._udp = None
        await self._is.connect(target)

    async def _resolved(self, address: Any) -> Any:
        if not (isinstance(address, tuple) and len(address) == 2):
            return address  # Linux' says what is wrong
        try:
            socket.inet_pton(socket.AF_INET, address[0])
        except (OSError, TypeError):
            found = await trio.socket.getaddrinfo(*address, socket.AF_INET, socket.SOCK_DGRAM)
            return found[0][4]
        return address

    # Receiving.

    def _run(self) -> None:
        """Something has come on the runtime's side."""
        if self._waiting is not None:
            self._waiting.cancel()

    def is_readable(self) -> bool:
        """Whether a receiving call would return at once."""
        return (self._udp is not None and self._udp.readable) or self._is.is_readable()

    async def _receive(self, udp: UdpSocket, bufsize: int) -> tuple[bytes, Address]:
        await checkpoint_if_cancelled()
        try:
            received = udp.recvfrom(bufsize)
        except BlockingIOError:
            pass
        except OSError:
            await cancel_shielded_checkpoint()
            raise
        else:
            await cancel_shielded_checkpoint()
            return received
        while True:
            await self._wait(udp)
            try:
                return udp.recvfrom(bufsize)
            except BlockingIOError:
                pass

    async def _wait(self, udp: UdpSocket) -> None:
        if self._waiting is not None:
            raise trio.BusyResourceError("another task is already receiving from this socket")
        with trio.CancelScope() as self._waiting:
            udp.reader = self
            udp.look()
            try:
                if udp.both:
                    await trio.lowlevel.wait_readable(self._sock)
                else:
                    await trio.sleep_forever()
            finally:
                udp.reader = self._waiting = None
        if not udp.open:
            raise trio.ClosedResourceError("another task closed this socket")

    async def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Any]:
        """The next datagram, cut at bufsize, and who sent it. flags: of Linux' sockets alone. Raises OSError."""
        if self._udp is None or flags:
            return await self._is.recvfrom(bufsize, flags)
        return await self._receive(self._udp, operator.index(bufsize))

    async def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """The same without who sent it."""
        return (await self.recvfrom(bufsize, flags))[0]

    async def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Any]:
        """The same into a buffer, all of it if nbytes is 0; how many bytes, and who sent it."""
        with memoryview(buffer) as view, view.cast("B") as octets:
            data, sender = await self.recvfrom(nbytes or len(octets), flags)
            octets[: len(data)] = data
        return len(data), sender

    async def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """The same without who sent it."""
        return (await self.recvfrom_into(buffer, nbytes, flags))[0]

    async def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        """As `recvfrom`, with nothing besides if it is the runtime's."""
        if self._udp is None:
            return await self._is.recvmsg(bufsize, ancbufsize, flags)
        data, sender = await self.recvfrom(bufsize, flags)
        return data, [], 0, sender

    # Sending.

    async def _send(self, send: Callable[[], int], flags: int) -> int:
        if flags & ~socket.MSG_NOSIGNAL:
            raise refuse(errno.EOPNOTSUPP)
        await checkpoint_if_cancelled()
        while True:
            try:
                sent = send()
            except BlockingIOError:  # the runtime has no core at this moment
                await trio.sleep(_CORE_S)
            except OSError:
                await cancel_shielded_checkpoint()
                raise
            else:
                await cancel_shielded_checkpoint()
                return sent

    async def send(self, data: Any, flags: int = 0, /) -> int:
        """Send a datagram to whom it is connected. Raises OSError, also one that came by ICMP."""
        udp = self._udp
        if udp is None or udp.peer is None:
            return await self._is.send(data, flags)
        return await self._send(lambda: udp.send(data), flags)

    async def sendto(self, *args: Any) -> int:
        """sendto(data[, flags], address): send a datagram. Raises OSError."""
        data, *flags, address = args
        address = await self._resolved(address)
        if self._udp is None and isinstance(address, tuple) and self._ours.datagrams.is_ours(address):
            self._look_where()  # it is bound nowhere: from now on at any address
        udp = self._udp
        if udp is None or (udp.both and not self._ours.datagrams.is_ours(address)):
            sent: int = await self._is.sendto(data, *flags, address)  # type: ignore[call-overload]
            return sent
        return await self._send(lambda: udp.sendto(data, address), sum(flags))

    async def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """The same from buffers, one after the other. Raises OSError."""
        if self._udp is None and address is None:
            return await self._is.sendmsg(buffers, ancdata, flags)
        data = b"".join(buffers)
        return await (self.send(data, flags) if address is None else self.sendto(data, flags, address))

    # The end.

    def close(self) -> None:
        """As of any socket. Tasks that wait get trio.ClosedResourceError. May be called twice."""
        if self._udp is not None:
            self._ours.datagrams.let_go(self._udp)
            self._run()
        self._is.close()


pass_on(
    DatagramSocket,
    *("fileno", "detach", "dup", "get_inheritable", "set_inheritable", "getsockopt", "setsockopt", "listen"),
    *("accept", "shutdown", "wait_writable", "recvmsg_into"),
)
