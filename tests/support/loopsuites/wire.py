"""The loop on a tap: endpoints of the loop under test are the runtime's, their peers blocking sockets of Linux'.

Tests know one host, 127.0.0.1, for the loop's sockets and for those that they use themselves, in threads or between two
runs of the loop. Here these are two hosts at both ends of a wire, under that one name. What a test gives as 127.0.0.1
is the end at which somebody has the port: where the loop under test has it, that is the runtime. And what a test is
told of either end is 127.0.0.1.

Linux' own sockets are translated in `socket.socket`, the loop's where it asks which way an address goes. Two sockets of
Linux' still meet on Linux, and so does what a test connects there before the loop sees it.

A socket that blocks the loop's own thread keeps the runtime from answering it. Linux' stack does not need that thread.
So the calls of tests that do so turn the loop's kthread while they wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
import weakref
from asyncio import base_events
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from corelane.drivers.linux import netns
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import asyncio as libos_asyncio
from corelane.libos.asyncio import sockets as tcp_sockets
from corelane.libos.asyncio.datagrams import DatagramEndpoints, UdpSocket
from corelane.libos.asyncio.loop import Loop
from corelane.libos.asyncio.servers import Place, Servers
from corelane.libos.asyncio.sockets import TcpSocket
from corelane.libos.asyncio.world import World

FACTORY = "loopsuites.wire:new_event_loop"
HOME = "127.0.0.1"
LINUX, OURS = "10.99.8.1", "10.99.8.2"
MTU = 9000  # tests send datagrams of 4096 bytes
PATIENCE_S = 10.0  # with what blocks the loop's thread

Address = Any  # (host, port) of IPv4; other families have others, which pass


def home(address: Address) -> Address:
    """As tests are told of it."""
    if isinstance(address, tuple) and len(address) == 2 and address[0] in (LINUX, OURS):
        return HOME, address[1]
    return address


def _is_home(address: Address) -> bool:
    return isinstance(address, tuple) and len(address) == 2 and address[0] in (HOME, "localhost")


def _is_ours(address: Address) -> bool:
    """Whether the loop is to ask for it at the other end, if it is not inside. While a test has an imitation of sockets
    in the place of Linux', that is to be asked."""
    return bool(address[0] == HOME) and getattr(base_events, "socket", None) is socket


class _Servers(Servers):
    def place_of(self, sock: socket.socket) -> Place | None:
        """At any address: who asks 127.0.0.1 comes by the wire, too."""
        place = super().place_of(sock)
        return None if place is None else replace(place, address=0)

    def is_ours(self, address: Address) -> bool:
        """What is not inside is at the other end of the wire."""
        return super().is_ours(address) or _is_ours(address)


class _Datagrams(DatagramEndpoints):
    def is_ours(self, address: Address) -> bool:
        """The same."""
        return super().is_ours(address) or _is_ours(address)

    def has(self, port: int) -> bool:
        """Whether it is one of the loop's."""
        return self._ports[port] > 0

    def on_wire(self, address: Address) -> Address:
        """Where it is to be sent."""
        return (LINUX, address[1]) if address[0] == HOME and not self.has(address[1]) else address


class WireLoop(Loop):
    """A loop at the runtime's end."""

    _datagrams: _Datagrams

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._servers = _Servers(self, world, self._poller)
        self._datagrams = _Datagrams(world, self._poller)

    def has(self, kind: int, port: int) -> bool:
        """Whether one of its servers or datagram endpoints has this port. Any thread."""
        if kind == socket.SOCK_DGRAM:
            return self._datagrams.has(port)
        return any(place.port == port for place in tuple(self._servers._places.values()))

    def is_of(self, thread: threading.Thread) -> bool:
        """Whether it runs on this thread, or is about to."""
        running: int | None = getattr(self, "_thread_id", None)
        return running == thread.ident if running else thread is threading.main_thread()

    def turn(self) -> None:
        """Let the runtime do what is due, and protocols hear of it."""
        self._poller.spin(1, False)

    async def _connect(self, address: tuple[str, int], local_infos: Any) -> TcpSocket:
        if address[0] == HOME and not self._servers.listens(*address):
            address = LINUX, address[1]
        if local_infos is not None:
            local_infos = [(*i[:4], ("0.0.0.0", i[4][1])) for i in local_infos if i[0] == socket.AF_INET]
        return await super()._connect(address, local_infos)

    def _start_serving(self, protocol_factory: Any, sock: Any, *args: Any, **kwargs: Any) -> None:
        before = self._endpoints.linux
        super()._start_serving(protocol_factory, sock, *args, **kwargs)
        if self._servers.place_of(sock) is not None:
            self._endpoints.linux = before  # it is on both worlds, and nobody comes by Linux

    def _count_linux(self, sock: Any) -> None:
        if issubclass(type(sock), socket.socket):  # and no imitation
            super()._count_linux(sock)


_taps: list[Tap] = []  # one, once there was a loop
_loops: weakref.WeakSet[WireLoop] = weakref.WeakSet()


def _now() -> WireLoop | None:
    """The loop that has the tap."""
    return next((loop for loop in tuple(_loops) if not loop.is_closed()), None)


def new_event_loop() -> Loop:
    """One that has the tap, which is made in this network namespace. While another one has it: one for itself."""
    if not _taps:
        _taps.append(Tap("clsuite", address=f"{LINUX}/24", mtu=MTU))
        _translate()
    if _now() is not None:
        return libos_asyncio.new_event_loop()
    made = WireLoop(World(None, socket=None, nic=_taps[0], loopback=True, address=f"{OURS}/24"))
    _loops.add(made)
    return made


@contextlib.contextmanager
def space() -> Iterator[list[str]]:
    """A network namespace for such loops: the beginning of a command line that runs the rest there. Needs root."""
    with netns.namespace("suite") as made:
        with made.entered():
            switch = Path("/proc/sys/net/ipv6/conf/lo/disable_ipv6")
            if switch.exists():  # tests ask for ::1, too, which is Linux'
                switch.write_text("0")
        yield made.command([])


# Sockets of Linux'.


def _there(sock: socket.socket, address: Address) -> Address:
    """Where a socket of Linux' gets by what a test gives."""
    loop = _now()
    if sock.family != socket.AF_INET or not _is_home(address) or loop is None:
        return address
    return (OURS, address[1]) if loop.has(sock.type, address[1]) else address


def _turned(sock: socket.socket, address: Address = (OURS, 0)) -> WireLoop | None:
    """The loop that is to be turned while a call of this socket waits for that end; None: the call waits by itself."""
    loop = _now()
    if loop is None or not (isinstance(address, tuple) and address[0] == OURS) or sock.gettimeout() == 0:
        return None
    return loop if loop.is_of(threading.current_thread()) else None


def _turn_until(loop: WireLoop, sock: socket.socket, event: int) -> None:
    poll, deadline = select.poll(), time.monotonic() + PATIENCE_S
    poll.register(sock, event)
    while not poll.poll(0):
        if time.monotonic() > deadline:
            raise TimeoutError("timed out")
        loop.turn()


def _connect_turning(loop: WireLoop, connect: Callable[..., Any], sock: socket.socket, address: Address) -> None:
    timeout = sock.gettimeout()
    sock.setblocking(False)
    try:
        connect(sock, address)
    except BlockingIOError:
        _turn_until(loop, sock, select.POLLOUT)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error)) from None
    finally:
        sock.settimeout(timeout)


def _translate() -> None:
    """From now on, in this process."""
    _translate_linux(socket.socket)
    _translate_datagrams(UdpSocket)
    named = tcp_sockets._named
    tcp_sockets._named = lambda end: home(named(end))


def _translate_linux(cls: Any) -> None:
    bind, connect, accept, send_to, recv = cls.bind, cls.connect, cls.accept, cls.sendto, cls.recv
    receive, receive_into, own, peer = cls.recvfrom, cls.recvfrom_into, cls.getsockname, cls.getpeername
    at_home: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def bind_(self: Any, address: Address) -> None:
        if self.family != socket.AF_INET or not _is_home(address):
            bind(self, address)
            return
        bind(self, ("0.0.0.0", address[1]))  # it is found from the wire, too
        at_home.add(self)

    def own_(self: Any) -> Address:
        name = own(self)
        if self in at_home and name[0] == "0.0.0.0":
            return HOME, name[1]
        return home(name)

    def connect_(self: Any, address: Address) -> None:
        address = _there(self, address)
        loop = _turned(self, address)
        if loop is None:
            connect(self, address)
        else:
            _connect_turning(loop, connect, self, address)

    def accept_(self: Any) -> tuple[socket.socket, Address]:
        loop = _turned(self) if self.family == socket.AF_INET else None
        if loop is not None:
            _turn_until(loop, self, select.POLLIN)
        sock, address = accept(self)
        return sock, home(address)

    def recv_(self: Any, *args: Any) -> bytes:
        loop = _turned(self) if self.family == socket.AF_INET and self.type == socket.SOCK_STREAM else None
        if loop is not None:
            _turn_until(loop, self, select.POLLIN)
        data: bytes = recv(self, *args)
        return data

    def send_to_(self: Any, data: Any, *args: Any) -> int:
        *flags, address = args
        sent: int = send_to(self, data, *flags, _there(self, address))
        return sent

    def receive_(self: Any, *args: Any) -> tuple[bytes, Address]:
        data, address = receive(self, *args)
        return data, home(address)

    def receive_into_(self: Any, *args: Any) -> tuple[int, Address]:
        n, address = receive_into(self, *args)
        return n, home(address)

    cls.bind, cls.getsockname, cls.connect, cls.accept, cls.recv = bind_, own_, connect_, accept_, recv_
    cls.sendto, cls.recvfrom, cls.recvfrom_into = send_to_, receive_, receive_into_
    cls.getpeername = lambda self: home(peer(self))


def _translate_datagrams(cls: Any) -> None:
    send_to, connect, receive = cls.sendto, cls.connect, cls._recvfrom

    def there(sock: Any, address: Address) -> Address:
        endpoints = sock._endpoints
        return endpoints.on_wire(address) if isinstance(endpoints, _Datagrams) else address

    def send_to_(self: Any, data: Any, address: Address) -> int:
        sent: int = send_to(self, data, there(self, address))
        return sent

    def connect_(self: Any, peer: Address) -> None:
        connect(self, there(self, peer))
        self.peer = peer

    def receive_(self: Any, bufsize: int) -> tuple[bytes, Address]:
        data, sender = receive(self, bufsize)
        return data, home(sender)

    cls.sendto, cls.connect, cls._recvfrom = send_to_, connect_, receive_
