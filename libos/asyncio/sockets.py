"""A connection as an object that looks like a socket: what a transport's get_extra_info("socket") gives.

It has no descriptor of Linux, and is neither read from nor written to.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from asyncio import Future
from typing import Any

from .._asyncio import Endpoint
from .._native import lib

Address = tuple[str, int]

_OPTIONS = {
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE): lib.CL_STREAM_KEEP_ALIVE,
    (socket.SOL_SOCKET, socket.SO_SNDBUF): lib.CL_STREAM_SEND_BUFFER,
    (socket.SOL_SOCKET, socket.SO_RCVBUF): lib.CL_STREAM_RECEIVE_BUFFER,
    (socket.IPPROTO_TCP, socket.TCP_NODELAY): lib.CL_STREAM_NO_DELAY,
    (socket.IPPROTO_TCP, socket.TCP_CORK): lib.CL_STREAM_CORK,
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): lib.CL_STREAM_KEEP_IDLE_S,
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): lib.CL_STREAM_KEEP_INTERVAL_S,
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): lib.CL_STREAM_KEEP_PROBES,
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): lib.CL_STREAM_USER_TIMEOUT_MS,
}
_SIZES = (lib.CL_STREAM_SEND_BUFFER, lib.CL_STREAM_RECEIVE_BUFFER)
_FLAGS = (lib.CL_STREAM_KEEP_ALIVE, lib.CL_STREAM_NO_DELAY, lib.CL_STREAM_CORK)
_CONSTANT = {
    (socket.SOL_SOCKET, socket.SO_TYPE): int(socket.SOCK_STREAM),
    (socket.SOL_SOCKET, socket.SO_ERROR): 0,
    (socket.SOL_SOCKET, socket.SO_REUSEADDR): 1,
}
_TAKEN = ((socket.SOL_SOCKET, socket.SO_REUSEADDR), (socket.SOL_SOCKET, socket.SO_REUSEPORT))


def number_of(host: str) -> int:
    """An IPv4 address as a number."""
    return int(ipaddress.IPv4Address(host))


def _named(end: tuple[int, int]) -> Address:
    return socket.inet_ntoa(end[0].to_bytes(4, "big")), end[1]


class TcpSocket(Endpoint):
    """A connection of the runtime's. Made by the loop."""

    __slots__ = ()
    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __repr__(self) -> str:
        own, peer = self.ends()
        return f"<corelane TcpSocket {'open' if self.open else 'closed'} {_named(own)} - {_named(peer)}>"

    def getsockname(self) -> Address:
        """Its own end."""
        return _named(self.ends()[0])

    def getpeername(self) -> Address:
        """The other end."""
        return _named(self.ends()[1])

    def fileno(self) -> int:
        """-1: Linux knows nothing of it."""
        return -1

    def setblocking(self, flag: bool) -> None:
        """Nothing: no call of it blocks."""

    def settimeout(self, value: float | None) -> None:
        """The same."""

    def gettimeout(self) -> float:
        """0.0, as of a socket that does not block."""
        return 0.0

    def getsockopt(self, level: int, option: int, buflen: int = 0) -> int | bytes:
        """An option, by Linux' numbers. Raises OSError: there is no such option here, or the connection is over."""
        if (level, option) in _CONSTANT:
            value = _CONSTANT[level, option]
        elif (level, option) in _OPTIONS:
            value = self.option(_OPTIONS[level, option])
        else:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        return struct.pack("i", value)[:buflen] if buflen else value

    def setsockopt(self, level: int, option: int, value: Any, optlen: int | None = None) -> None:
        """Set an option, by Linux' numbers; of a connection that is over nothing, as there. Raises OSError: there is no
        such option here, or it cannot have the value."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            on, seconds = struct.unpack("ii", value)
            self.reset_at_close(bool(on) and seconds == 0)
            return
        if (level, option) in _TAKEN:
            return
        number = _OPTIONS.get((level, option))
        if number is None:
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        wanted = struct.unpack("i", bytes(value)[:4])[0] if not isinstance(value, int) else value
        if number in _SIZES:  # Linux takes any size for the nearest that it has
            wanted = min(max(wanted, lib.CL_STREAM_BUFFER_LEAST), lib.CL_STREAM_BUFFER_MOST)
        elif number in _FLAGS:
            wanted = int(bool(wanted))
        try:
            self.option(number, wanted)
        except OSError as error:
            if error.errno not in (errno.ENOTCONN, errno.ESHUTDOWN):
                raise

    def shutdown(self, how: int) -> None:
        """SHUT_WR, SHUT_RDWR: a FIN follows what was written."""
        if how != socket.SHUT_RD:
            self.shut_writing()

    def close(self) -> None:
        """Close it, if no transport has it."""
        if not self.owned:
            self.close_connection()

    def _connected(self, future: Future[None]) -> None:
        if not future.done():
            future.set_result(None)

    def _refused(self, future: Future[None], error: int) -> None:
        if not future.done():
            future.set_exception(OSError(error, f"Connect call failed {self.getpeername()}"))
