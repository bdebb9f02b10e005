"""sock_recv, sock_sendall, sock_connect, ...: with sockets whose connection, or address, is the runtime's.

A program makes such a socket itself. What it is bound or connected to decides, as for transports, whose it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import socket
import stat
from asyncio import base_events, exceptions
from collections.abc import Callable
from typing import Any

from .datagrams import DatagramEndpoints
from .named import Accepting, CatchUp, NamedDatagrams, NamedListener, NamedSocket, OwnSocket, Stream, wait
from .servers import Servers
from .sockets import Address, TcpSocket
from .world import Endpoints, World


def start_at(file: Any, offset: int) -> None:
    """Have a regular file be read from there on, as sendfile(2) does: what asyncio reads itself, at an offset of 0, is
    from where the file is."""
    with contextlib.suppress(AttributeError, io.UnsupportedOperation):
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.seek(offset)


class SockCalls(asyncio.SelectorEventLoop):
    """These calls of a loop."""

    world: World
    _endpoints: Endpoints
    _servers: Servers
    _datagrams: DatagramEndpoints
    _call: Callable[..., Any]  # callbacks of connections

    async def _connect(self, address: Address, local_infos: Any) -> TcpSocket:
        raise NotImplementedError

    # Which socket is whose.

    def _of(self, sock: Any) -> OwnSocket | None:
        return sock if isinstance(sock, OwnSocket) else NamedSocket.own(sock)

    def _stream(self, sock: Any) -> Stream | None:
        """The runtime's connection of a socket that a call was given. Raises ValueError, TypeError."""
        base_events._check_ssl_socket(sock)  # type: ignore[attr-defined]
        if self.get_debug() and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
        own = self._of(sock)
        return None if own is None else own.pull()

    def _handed_over(self, sock: Any) -> tuple[TcpSocket | None, CatchUp | None]:
        """The runtime's connection of a socket that a transport is to have, or None: it is Linux'. And what to call, if
        anything, with that transport and its protocol, once it is made."""
        if isinstance(sock, TcpSocket):
            return sock, None
        own = self._of(sock)
        if own is None:
            return None, None
        if isinstance(sock, NamedSocket):
            sock.hand_over()
        return own.hand_over()

    # TCP.

    async def sock_recv(self, sock: Any, n: int) -> bytes:
        """As of any loop."""
        stream = self._stream(sock)
        if stream is None:
            return await super().sock_recv(sock, n)
        await stream.until_readable()
        return stream.take(n)

    async def sock_recv_into(self, sock: Any, buf: Any) -> int:
        """As of any loop."""
        stream = self._stream(sock)
        if stream is None:
            return await super().sock_recv_into(sock, buf)
        await stream.until_readable()
        with memoryview(buf) as view, view.cast("B") as octets:
            piece = stream.take(len(octets))
            octets[: len(piece)] = piece
        return len(piece)

    async def sock_sendall(self, sock: Any, data: Any) -> None:
        """As of any loop."""
        stream = self._stream(sock)
        if stream is None:
            await super().sock_sendall(sock, data)
            return
        with memoryview(data) as view, view.cast("B") as octets:
            sent = 0
            while sent < len(octets):
                await stream.until_writable()
                sent += stream.put(octets[sent:])

    async def sock_connect(self, sock: Any, address: Any) -> None:
        """As of any loop. To an address of the runtime's, or from one, it is a connection of the runtime's."""
        if isinstance(sock, NamedSocket):
            raise OSError(errno.EISCONN, os.strerror(errno.EISCONN))
        if type(sock) is socket.socket and (sock.family, sock.type) == (socket.AF_INET, socket.SOCK_STREAM):
            self._stream(sock)
            resolved: Any = await self._ensure_resolved(  # type: ignore[attr-defined]
                address, family=sock.family, type=sock.type, proto=sock.proto, loop=self
            )
            address, local = resolved[0][4], sock.getsockname()
            own = self.world.is_own(local[0])
            if own or self._servers.is_ours(address):
                here = local if own else ("0.0.0.0", local[1])
                tcp = await self._connect(address, [(socket.AF_INET, 0, 0, "", here)])
                NamedSocket.name(sock, OwnSocket(tcp, self._call))
                self._endpoints.ours += 1
                return
        await super().sock_connect(sock, address)

    async def sock_accept(self, sock: Any) -> Any:
        """As of any loop; from both sides, if the socket listens on both."""
        accepting = self._accepting(sock)
        if accepting is None:
            return await super().sock_accept(sock)
        fd = sock.fileno()
        while (accepted := accepting.take(sock)) is None:
            if accepting.on_linux and not accepting.waiting:
                self.add_reader(fd, accepting.wake)
            try:
                await wait(accepting.waiting)
            finally:
                if accepting.on_linux and not accepting.waiting:
                    self.remove_reader(fd)
        if isinstance(accepted[0], OwnSocket):
            self._endpoints.ours += 1
        return accepted

    def _accepting(self, sock: Any) -> Accepting | None:
        self._stream(sock)  # refuses what no call takes
        known = NamedListener.accepting(sock)
        if known is not None or type(sock) is not socket.socket or sock.type != socket.SOCK_STREAM:
            return known
        place = self._servers.place_of(sock)
        if place is None or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        accepting = Accepting(self._servers, place, sock, self._call, self._endpoints)
        NamedListener.name(sock, accepting)
        self._endpoints.ours += 1
        return accepting

    async def _sock_sendfile_native(self, sock: Any, file: Any, offset: int, count: int | None) -> int:
        if self._of(sock) is not None:
            start_at(file, offset)
            raise exceptions.SendfileNotAvailableError("the connection is no descriptor: its bytes are read and sent")
        sent: int = await super()._sock_sendfile_native(sock, file, offset, count)  # type: ignore[misc]
        return sent

    # UDP.

    def _datagram(self, sock: Any) -> Any:
        self._stream(sock)  # refuses what no call takes
        datagrams = self._datagrams.of(sock)
        if datagrams is not sock and type(sock) is socket.socket:
            NamedDatagrams.name(sock, self._datagrams, datagrams)
        return datagrams

    async def sock_recvfrom(self, sock: Any, bufsize: int) -> tuple[bytes, Any]:
        """As of any loop."""
        return await super().sock_recvfrom(self._datagram(sock), bufsize)

    async def sock_recvfrom_into(self, sock: Any, buf: Any, nbytes: int = 0) -> tuple[int, Any]:
        """As of any loop."""
        return await super().sock_recvfrom_into(self._datagram(sock), buf, nbytes)

    async def sock_sendto(self, sock: Any, data: Any, address: Any) -> int:
        """As of any loop."""
        return await super().sock_sendto(self._datagram(sock), data, address)
