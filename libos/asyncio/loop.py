"""The event loop: asyncio's selector loop, whose endpoints of TCP and UDP are a runtime's where their addresses are."""

from __future__ import annotations

import asyncio
import contextvars
import os
import socket as sockets
import sys
from asyncio import base_events, format_helpers, sslproto
from traceback import StackSummary
from typing import Any

from ...drivers.nic.nic import Nic
from .. import _asyncio
from ..handlers.interrupts import pending
from ..runtime import Runtime
from .datagrams import DatagramEndpoints, DatagramTransport, UdpSocket, with_number
from .members import Members
from .selector import Selector
from .servers import Servers, bind
from .sock_calls import SockCalls, start_at
from .sockets import TcpSocket, number_of
from .transport import TcpTransport
from .world import Endpoints, World

SENDFILE_BYTES = 1 << 18  # at a time: each costs a turn of the executor


class Loop(_asyncio.Loop, SockCalls, Members):
    """Made by `new_event_loop`. Public attributes: world, and those of Members."""

    _selector: Selector

    def __init__(self, world: World) -> None:
        self.world = world
        self._endpoints = Endpoints()
        selector = Selector(world)
        self._poller = selector.poller
        self._datagrams = DatagramEndpoints(world, self._poller)
        self._servers = Servers(self, world, self._poller)
        self._call = contextvars.Context().run
        super().__init__(selector)
        self._begin(self._poller, self._selector.fileno(), pending)

    @property
    def runtime(self) -> Runtime:
        """The runtime whose kthread this loop's thread is."""
        return self.world.runtime

    def endpoints(self) -> Endpoints:
        """How many TCP endpoints were the runtime's, and how many Linux'."""
        return self._endpoints

    def ports(self) -> tuple[list[int], list[int]]:
        """Ports on which it answers on the runtime: (UDP, TCP)."""
        return self._datagrams.ports(), self._servers.ports()

    def close(self) -> None:
        """As of any loop. Connections that are open are closed, and the runtime if the loop has made it."""
        if not self.is_closed():
            super().close()
            self._servers.closed()
            self._drop_timers()
            self.world.close()

    # What C calls, seldom (native/loop.c, handles.c).

    def _tell_descriptors(self, events: list[tuple[int, int]]) -> None:
        self._process_events(self._selector.keys_of(events))  # type: ignore[attr-defined]

    def _interrupt(self) -> None:
        if pending:
            raise pending.pop()

    def _callback_failed(self, handle: asyncio.Handle, error: BaseException) -> None:
        called: Any = handle
        source = format_helpers._format_callback_source(called._callback, called._args)
        self.call_exception_handler(
            {"message": f"Exception in callback {source}", "exception": error, "handle": handle}
        )

    def _transport_failed(self, transport: TcpTransport, error: BaseException) -> None:
        self.call_exception_handler(
            {"message": "Exception in a callback of a transport", "exception": error, "transport": transport}
        )

    # In debug mode, as asyncio has it.

    def _look_closely(self, callback: Any, method: str) -> StackSummary:
        self._check_thread()  # type: ignore[attr-defined]
        self._check_callback(callback, method)  # type: ignore[attr-defined]
        return format_helpers.extract_stack(sys._getframe(1))

    def _trace(self) -> StackSummary:
        return format_helpers.extract_stack(sys._getframe(1))

    def _run_handle(self, handle: Any) -> None:
        if handle.cancelled():
            return
        if not self.get_debug():
            handle._run()
            return
        self._current_handle = handle
        try:
            begin = self.time()
            handle._run()
            took = self.time() - begin
        finally:
            self._current_handle = None
        if took >= self.slow_callback_duration:
            what = base_events._format_handle(handle)  # type: ignore[attr-defined]
            base_events.logger.warning("Executing %s took %.3f seconds", what, took)  # type: ignore[attr-defined]

    # Transports.

    def _make_socket_transport(self, sock: Any, protocol: Any, waiter: Any = None, **options: Any) -> Any:
        tcp, catch_up = self._handed_over(sock)
        if tcp is not None:
            self._endpoints.ours += 1
            transport = TcpTransport(self, tcp, protocol, waiter, **options)
            if catch_up is not None:
                self.call_soon(catch_up, transport, protocol)
            return transport
        self._count_linux(sock)
        return super()._make_socket_transport(sock, protocol, waiter, **options)  # type: ignore[misc]

    def _make_ssl_transport(
        self,
        rawsock: Any,
        protocol: Any,
        sslcontext: Any,
        waiter: Any = None,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        extra: Any = None,
        server: Any = None,
        **timeouts: Any,
    ) -> Any:
        tcp, catch_up = self._handed_over(rawsock)
        if tcp is None:
            self._count_linux(rawsock)
            return super()._make_ssl_transport(  # type: ignore[misc]
                rawsock,
                protocol,
                sslcontext,
                waiter,
                server_side=server_side,
                server_hostname=server_hostname,
                extra=extra,
                server=server,
                **timeouts,
            )
        tls = sslproto.SSLProtocol(self, protocol, sslcontext, waiter, server_side, server_hostname, **timeouts)
        self._endpoints.ours += 1
        transport = TcpTransport(self, tcp, tls, extra=extra, server=server)
        if catch_up is not None:
            self.call_soon(catch_up, transport, tls)
        return tls._app_transport

    async def _sendfile_fallback(self, transp: Any, file: Any, offset: int, count: int | None) -> int:
        if isinstance(transp, TcpTransport):  # of which Linux' stack would send it
            self._check_sendfile_params(transp._sock, file, offset, count)  # type: ignore[attr-defined]
            start_at(file, offset)
        elif offset:
            file.seek(offset)
        sent = 0
        protocol = base_events._SendfileFallbackProtocol(transp)  # type: ignore[attr-defined]
        buffer = memoryview(bytearray(min(count or SENDFILE_BYTES, SENDFILE_BYTES)))
        try:
            while room := buffer[: count - sent if count else None]:
                if not (got := await self.run_in_executor(None, file.readinto, room)):
                    break
                await protocol.drain()
                transp.write(room[:got])
                sent += got
        finally:
            if sent and hasattr(file, "seek"):
                file.seek(offset + sent)
            await protocol.restore()
        return sent

    def _count_linux(self, sock: Any) -> None:
        if sock.family in (sockets.AF_INET, sockets.AF_INET6):
            self._endpoints.linux += 1

    # UDP.

    async def create_datagram_endpoint(
        self, protocol_factory: Any, local_addr: Any = None, remote_addr: Any = None, **options: Any
    ) -> Any:
        """As of any loop. docs/asyncio.md says which endpoints are the runtime's."""
        flags = {key: options.get(key) for key in ("reuse_port", "allow_broadcast")}
        plain = all(value is None or key in flags for key, value in options.items() if value)
        local, remote = with_number(local_addr), with_number(remote_addr)
        if plain and (local or remote) and bool(local) == bool(local_addr) and bool(remote) == bool(remote_addr):
            sock = self._datagrams.open(local, remote, bool(flags["reuse_port"]), bool(flags["allow_broadcast"]))
            if sock is not None:
                return await super().create_datagram_endpoint(protocol_factory, sock=sock)  # type: ignore[arg-type]
        return await super().create_datagram_endpoint(protocol_factory, local_addr, remote_addr, **options)

    def _make_datagram_transport(
        self, sock: Any, protocol: Any, address: Any = None, waiter: Any = None, extra: Any = None
    ) -> Any:
        if address is None:  # else it is connected, to where the way is Linux'
            sock = self._datagrams.of(sock)
        if isinstance(sock, UdpSocket):
            self._endpoints.ours += 1
            self._endpoints.linux += int(sock.both)
            return DatagramTransport(self, sock, protocol, sock.peer, waiter, extra)
        self._count_linux(sock)
        return super()._make_datagram_transport(sock, protocol, address, waiter, extra)  # type: ignore[misc]

    def _add_reader(self, fd: Any, callback: Any, *args: Any) -> Any:
        sock = self._datagrams.by_fd.get(fd)
        if sock is None:
            return super()._add_reader(fd, callback, *args)  # type: ignore[misc]
        if sock.both:
            super()._add_reader(fd, callback, *args)  # type: ignore[misc]
        sock.reader = asyncio.Handle(callback, args, self, None)
        sock.look()
        return sock.reader

    def _remove_reader(self, fd: Any) -> Any:
        sock = self._datagrams.by_fd.get(fd)
        if sock is None:
            return super()._remove_reader(fd)  # type: ignore[misc]
        if sock.both:
            super()._remove_reader(fd)  # type: ignore[misc]
        had, sock.reader = sock.reader is not None, None
        return had

    # Connecting.

    async def _connect_sock(self, exceptions: Any, addr_info: Any, local_addr_infos: Any = None) -> Any:
        family, _kind, _proto, _name, address = addr_info
        own = any(info[0] == sockets.AF_INET and self.world.is_own(info[4][0]) for info in local_addr_infos or ())
        if family != sockets.AF_INET or not (own or self._servers.is_ours(address)):
            return await super()._connect_sock(exceptions, addr_info, local_addr_infos)  # type: ignore[misc]
        try:
            return await self._connect(address, local_addr_infos)
        except OSError as error:
            exceptions.append([error])
            raise

    async def _connect(self, address: tuple[str, int], local_infos: Any) -> TcpSocket:
        own, own_port = ("0.0.0.0", 0)
        if local_infos is not None:
            own, own_port = next((info[4] for info in local_infos if info[0] == sockets.AF_INET), (own, own_port))
        opened = self.create_future()
        host, port = address
        sock: TcpSocket = self._poller.connect(number_of(own), own_port, number_of(host), port, opened)
        try:
            await opened
        except BaseException:
            sock.close_connection(True)
            raise
        return sock

    # Serving.

    async def create_server(
        self,
        protocol_factory: Any,
        host: Any = None,
        port: Any = None,
        *,
        sock: Any = None,
        start_serving: bool = True,
        **options: Any,
    ) -> Any:
        """As of any loop. Listeners at an address of the runtime are its; docs/asyncio.md says which are besides."""
        hosts = [host] if isinstance(host, str) or host is None else list(host)
        own = [name for name in hosts if isinstance(name, str) and self.world.is_own(name)]
        if sock is not None or not own:
            return await super().create_server(
                protocol_factory, host, port, sock=sock, start_serving=start_serving, **options
            )
        reuse_port = bool(options.get("reuse_port")) or self.world.shares_ports
        first, *more = [bind(name, port, reuse_port) for name in own]
        others: Any = [name for name in hosts if name not in own]
        unbound = {key: value for key, value in options.items() if key.startswith(("backlog", "ssl"))}
        if others:
            server = await super().create_server(protocol_factory, others, port, start_serving=False, **options)
            more.append(first)
        else:
            server = await super().create_server(protocol_factory, sock=first, start_serving=False, **unbound)
        server._sockets.extend(more)  # type: ignore[attr-defined]
        if start_serving:
            await server.start_serving()
        return server

    def _start_serving(self, protocol_factory: Any, sock: Any, *args: Any, **kwargs: Any) -> None:
        where = self._servers.place_of(sock)
        if where is None or where.on_linux:
            self._count_linux(sock)
            super()._start_serving(protocol_factory, sock, *args, **kwargs)  # type: ignore[misc]
        if where is not None:
            self._endpoints.ours += 1
            self._servers.start(where, sock, protocol_factory, *args, **kwargs)

    def _stop_serving(self, sock: Any) -> None:
        self._servers.stop(sock.fileno())
        super()._stop_serving(sock)  # type: ignore[misc]


def new_event_loop(
    runtime: Runtime | None = None,
    *,
    socket: str | os.PathLike[str] | None = None,
    nic: Nic | None = None,
    loopback: bool | None = None,
    **options: Any,
) -> Loop:
    """An event loop on a runtime, whose one kthread the thread that runs it becomes.

    runtime: one with kthreads=1 and adopted=1, which stays the caller's. Or one is made, and closed with the loop: with
    socket an application of an iokernel, with nic on that NIC, with neither on a wire to nobody, which serves this
    process alone. options: more for it, as name, address, poll (Runtime). loopback: 127.0.0.0/8 inside this process is
    the runtime's; None: if it serves this process alone. docs/asyncio.md says which endpoints are whose.

    Raises CorelaneError.
    """
    world = World(runtime, socket=socket, nic=nic, loopback=loopback, **options)
    try:
        return Loop(world)
    except BaseException:
        world.close()
        raise
