"""The transport of a connection of the runtime's: what is not called for each piece of data. The rest is C
(native/transport.c), on the same fields.

Who may do what, and which calls follow from it, is as asyncio's own transports of sockets have it.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import sys
import warnings
from asyncio import constants, futures
from asyncio.log import logger
from typing import Any

from .._asyncio import Transport
from . import streams
from .sockets import TcpSocket


class TcpTransport(Transport):
    """A stream transport, made by the loop."""

    _start_tls_compatible = True
    _sendfile_compatible = constants._SendfileMode.FALLBACK
    _sock: TcpSocket | None = None

    def __init__(
        self,
        loop: Any,
        sock: TcpSocket,
        protocol: asyncio.BaseProtocol,
        waiter: asyncio.Future[None] | None = None,
        extra: dict[str, Any] | None = None,
        server: Any = None,
    ) -> None:
        super().__init__(extra, loop)
        self._sock = sock
        self._extra["socket"] = sock
        self._server = server
        if server is not None:
            server._attach(*self._as_servers_know_it())
        self._begin(sock, contextvars.copy_context().run)
        self.set_protocol(protocol)
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._start)  # nothing comes before connection_made has returned
        if waiter is not None:
            loop.call_soon(futures._set_result_unless_cancelled, waiter, None)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        state = "closed" if self._sock is None else "closing" if self._closing else "open"
        return f"<{type(self).__name__} {state} write_buffer={self.get_write_buffer_size()} {self._sock!r}>"

    def __del__(self, warn: Any = warnings.warn) -> None:
        if self._sock is not None:
            warn(f"unclosed transport {self!r}", ResourceWarning, source=self)

    def _start(self) -> None:
        self._made()
        if self._loop is not None and not self._loop.get_debug():
            fed = streams.adopt(self._protocol)
            if fed is not None:
                self._feed(*fed)
        if not self._paused and self._endpoint is not None:
            self._endpoint.pause(False)

    def _as_servers_know_it(self) -> tuple[TcpTransport, ...]:
        return (self,) if sys.version_info >= (3, 13) else ()

    # What protocols ask.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of any transport: socket, sockname, peername, and what was given."""
        if name not in self._extra and self._sock is not None and name in ("sockname", "peername"):
            sock = self._sock
            self._extra[name] = sock.getsockname() if name == "sockname" else sock.getpeername()
        return self._extra.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Whom it calls from now on. The protocol's methods are looked up here, once."""
        self._use(protocol, isinstance(protocol, asyncio.BufferedProtocol))
        self._protocol_connected = True

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Whom it calls."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_reading(self) -> bool:
        """Whether what comes is told of."""
        return not self._closing and not self._paused

    def pause_reading(self) -> None:
        """Tell of nothing that comes. The peer is held back once the receive buffer is full."""
        if not self.is_reading():
            return
        self._paused = True
        self._endpoint.pause(True)

    def resume_reading(self) -> None:
        """Tell again, of what waits, too."""
        if self._closing or not self._paused:
            return
        self._paused = False
        self._endpoint.pause(False)

    def can_write_eof(self) -> bool:
        """True."""
        return True

    def write_eof(self) -> None:
        """A FIN follows what was written. Reading goes on."""
        if self._closing or self._eof:
            return
        self._eof = True
        self._endpoint.shut_writing()

    def _write_after_end(self) -> None:
        if self._conn_lost >= constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES:
            logger.warning("socket.send() raised exception.")
        self._conn_lost += 1

    # The end.

    def close(self) -> None:
        """Send what was written, and close. connection_lost(None) follows."""
        if self._closing:
            return
        self._closing = True
        endpoint = self._endpoint
        if endpoint.out_bytes:
            endpoint.serve()
        endpoint.close_connection()
        if not endpoint.out_bytes:
            self._lose(None)

    def abort(self) -> None:
        """Close at once. What was written and has no place in the send buffer is lost."""
        self._force_close(None)

    def _force_close(self, exc: BaseException | None) -> None:
        if self._conn_lost:
            return
        self._closing = True
        endpoint = self._endpoint
        if endpoint.out_bytes:
            endpoint.serve()
            endpoint.drop_output()
        endpoint.close_connection()
        self._lose(exc)

    def _lose(self, exc: BaseException | None) -> None:
        self._conn_lost += 1
        assert self._loop is not None
        self._loop.call_soon(self._call_connection_lost, exc)

    def _call_connection_lost(self, exc: BaseException | None) -> None:
        try:
            if self._protocol_connected:
                self._protocol.connection_lost(exc)
        finally:
            self._end()
            self._sock = None
            self._protocol = None
            self._loop = None
            server, self._server = self._server, None
            if server is not None:
                server._detach(*self._as_servers_know_it())
            waiter = self._empty_waiter
            if waiter is not None and not waiter.done():
                waiter.set_exception(ConnectionError("Connection is closed by peer"))

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        assert self._loop is not None
        if not isinstance(exc, OSError):
            self._loop.call_exception_handler(
                {"message": message, "exception": exc, "transport": self, "protocol": self._protocol}
            )
        elif self._loop.get_debug():
            logger.debug("%r: %s", self, message, exc_info=exc)
        self._force_close(exc)

    # What C tells.

    def _connection_over(self, error: int) -> None:
        self._fatal_error(OSError(error, os.strerror(error)), "Fatal read error on socket transport")

    def _all_sent(self) -> None:
        if self._closing and not self._conn_lost:
            self._conn_lost += 1
            self._call_connection_lost(None)
        elif self._empty_waiter is not None and not self._empty_waiter.done():
            self._empty_waiter.set_result(None)

    # What asyncio's sendfile asks.

    def _make_empty_waiter(self) -> asyncio.Future[None]:
        assert self._loop is not None
        if self._empty_waiter is not None:
            raise RuntimeError("Empty waiter is already set")
        waiter = self._empty_waiter = self._loop.create_future()
        if not self.get_write_buffer_size():
            waiter.set_result(None)
        return waiter

    def _reset_empty_waiter(self) -> None:
        self._empty_waiter = None
