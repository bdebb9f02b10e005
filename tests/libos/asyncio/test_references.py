"""References that the extension takes, it gives back: rounds of what a program does leave nothing behind.

Counted are the interpreter's blocks of memory, and the references of objects that all rounds share.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import itertools
import os
import socket
import sys
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from corelane.libos import asyncio as libos_asyncio
from corelane.libos.asyncio.sockets import TcpSocket
from corelane.libos.asyncio.transport import TcpTransport

HOST = "127.0.0.1"
ROUNDS, FEW = 50, 15  # few: of what is answered by resets, of which so many a second are sent
Round = Callable[["Place"], Awaitable[object]]


class Echo(asyncio.Protocol):
    """Answers, and knows when it is over."""

    transport: Any
    open = 0  # of all

    def __init__(self) -> None:
        self.over = asyncio.get_running_loop().create_future()
        self.got = bytearray()
        self.more = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        Echo.open += 1

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)

    def connection_lost(self, exc: BaseException | None) -> None:
        Echo.open -= 1
        self.over.set_result(None)


class Client(Echo):
    """Takes what comes."""

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.more.set()

    async def read(self, n: int) -> bytes:
        while len(self.got) < n:
            self.more.clear()
            await self.more.wait()
        return bytes(self.got)


class Buffered(asyncio.BufferedProtocol, Client):
    """The same with a buffer of its own."""

    def get_buffer(self, sizehint: int) -> bytearray:
        self.buffer = bytearray(100)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        Client.data_received(self, bytes(self.buffer[:nbytes]))


class Fails(Client):
    """Each of its calls raises."""

    def data_received(self, data: bytes) -> None:
        raise ZeroDivisionError

    def eof_received(self) -> bool:
        raise ZeroDivisionError


class FailsToBuffer(Buffered):
    """This one, too."""

    def get_buffer(self, sizehint: int) -> bytearray:
        raise ZeroDivisionError


class FailsAtTheEnd(Client):
    """And this one when it is over."""

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        raise ZeroDivisionError


class EmptyBuffer(Buffered):
    """And this one in another way."""

    def get_buffer(self, sizehint: int) -> bytearray:
        return bytearray()


class Place:
    """A loop with a server that answers."""

    def __init__(self, loop: Any, server: asyncio.Server) -> None:
        self.loop = loop
        self.where = server.sockets[0].getsockname()

    async def connect(self, make: Callable[[], Client] = Client) -> Client:
        return (await self.loop.create_connection(make, *self.where))[1]


async def ends(protocol: Client) -> None:
    await asyncio.wait_for(protocol.over, 60)


async def a_connection(place: Place) -> None:
    client = await place.connect()
    client.transport.write(b"one")
    client.transport.writelines([b"two", memoryview(b"three")])
    assert await client.read(11) == b"onetwothree"
    client.transport.close()
    await ends(client)


async def a_buffered_one(place: Place) -> None:
    client = await place.connect(Buffered)
    client.transport.write(bytes(1000))
    assert len(await client.read(1000)) == 1000
    client.transport.set_protocol(client)
    client.transport.close()
    await ends(client)


async def protocols_that_raise(place: Place) -> None:
    for make in (Fails, FailsToBuffer, EmptyBuffer):
        client = await place.connect(make)
        client.transport.write(b"one")
        await ends(client)


async def one_that_raises_at_the_end(place: Place) -> None:
    client = await place.connect(FailsAtTheEnd)
    client.transport.write(bytes(2_000_000))
    client.transport.close()
    await ends(client)


async def an_aborted_one(place: Place) -> None:
    client = await place.connect()
    client.transport.pause_reading()
    client.transport.write(bytes(300_000))
    client.transport.resume_reading()
    client.transport.abort()
    client.transport.write(b"after the end")
    await ends(client)


async def a_refused_one(place: Place) -> None:
    with pytest.raises(ConnectionRefusedError):
        await place.loop.create_connection(Client, place.loop.runtime.address, 1)


async def a_cancelled_one(place: Place) -> None:
    opening = asyncio.ensure_future(place.connect())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])


async def streams(place: Place) -> None:
    reader, writer = await asyncio.open_connection(*place.where)
    for data in (b"one", bytes(100_000)):
        writer.write(data)
        await writer.drain()
        assert await reader.readexactly(len(data)) == data
    waiting = asyncio.ensure_future(reader.read(10))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    writer.write_eof()
    writer.close()
    await writer.wait_closed()


async def calls_of_sockets(place: Place) -> None:
    loop = place.loop
    with socket.socket() as sock:
        sock.setblocking(False)
        await loop.sock_connect(sock, place.where)
        await loop.sock_sendall(sock, b"one")
        assert await loop.sock_recv(sock, 3) == b"one"
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        with pytest.raises(OSError):
            sock.getsockopt(socket.SOL_SOCKET, 9999)
        transport, client = await loop.create_connection(Client, sock=sock)
        transport.write(b"two")
        assert await client.read(3) == b"two"
        transport.close()
        await ends(client)


async def accepting(place: Place) -> None:
    with socket.socket() as listener, socket.socket() as sock:
        for each in (listener, sock):
            each.setblocking(False)
        listener.bind((HOST, 0))
        listener.listen()
        waiting = asyncio.ensure_future(place.loop.sock_accept(listener))
        await asyncio.sleep(0)
        await place.loop.sock_connect(sock, listener.getsockname())
        accepted, _ = await waiting
        with accepted:
            await place.loop.sock_sendall(accepted, b"one")
            assert await place.loop.sock_recv(sock, 3) == b"one"


class Datagrams(asyncio.DatagramProtocol):
    """Keeps what comes first."""

    def __init__(self) -> None:
        self.got = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.set_result((data, addr))


async def datagrams(place: Place) -> None:
    one, first = await place.loop.create_datagram_endpoint(Datagrams, local_addr=(HOST, 0))
    two, second = await place.loop.create_datagram_endpoint(Datagrams, remote_addr=one.get_extra_info("sockname"))
    two.sendto(b"question")
    data, who = await first.got
    one.sendto(data, who)
    assert (await second.got)[0] == b"question"
    one.close()
    two.close()
    await asyncio.sleep(0)


async def listeners(place: Place) -> None:
    server = await place.loop.create_server(Echo, HOST, 0)
    with contextlib.suppress(OSError):
        await place.loop.create_server(Echo, *server.sockets[0].getsockname())
    server.close()


async def handles(place: Place) -> None:
    loop = place.loop
    called: list[int] = []
    for n in range(5):
        loop.call_soon(lambda *given: called.append(len(given)), *range(n))
    loop.call_soon(lambda: 1 / 0)
    loop.call_soon(called.append, 9).cancel()
    loop.call_later(0.0001, called.append, 5)
    loop.call_later(100, called.append, 9).cancel()
    loop.call_at(loop.time(), called.append, 6)
    with pytest.raises(TypeError):
        loop.call_soon()
    while len(called) < 7:
        await asyncio.sleep(0)
    assert sorted(called) == [0, 1, 2, 3, 4, 5, 6]


ALL: tuple[Round, ...] = (
    *(a_connection, a_buffered_one, protocols_that_raise, one_that_raises_at_the_end, an_aborted_one, a_refused_one),
    *(a_cancelled_one, streams, calls_of_sockets, accepting, datagrams, listeners, handles),
)


def shared(place: Place) -> list[object]:
    """Objects of which each round takes references."""
    return [None, True, False, b"", (), place.loop, place.loop._poller, place.where, Client, TcpSocket, TcpTransport]


def counts(place: Place) -> list[int]:
    for _ in range(3):
        gc.collect()
    return [sys.getallocatedblocks(), *map(sys.getrefcount, shared(place))]


@pytest.mark.parametrize("round_of", ALL, ids=lambda fn: fn.__name__)
def test_rounds_leave_nothing_behind(round_of: Round) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        Echo.open = 0
        server = await loop.create_server(Echo, HOST, 0)
        place = Place(loop, server)

        async def rounds(n: int) -> list[int]:
            for _ in range(n):
                await round_of(place)
            for _ in range(5):
                await asyncio.sleep(0)  # what is called soon is over
            while Echo.open:  # the other ends hear of it when their turns come
                await asyncio.sleep(0.001)
            return counts(place)

        n = FEW if round_of in (a_refused_one, one_that_raises_at_the_end) else ROUNDS
        # What leaks grows each time; tables and caches do until they are large enough. The counts take blocks, too.
        counted = [await rounds(n) for _ in range(5)]
        grown = [[b - a for a, b in zip(before, after, strict=True)] for before, after in itertools.pairwise(counted)]
        for what, counts_of in zip(("blocks of memory", *shared(place)), zip(*grown, strict=True), strict=True):
            assert min(counts_of) < n, f"{what}: {counts_of} more after {n} rounds"
        server.close()

    libos_asyncio.run(main())


class Allocated(ctypes.Structure):
    """What malloc says (mallinfo2(3)); number7: bytes that are in use."""

    _fields_ = [(f"number{i}", ctypes.c_size_t) for i in range(10)]


def allocated_bytes() -> int:
    """Of memory that is not Python's."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Allocated
    return int(ask().number7)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs mallinfo2: glibc 2.33 or newer")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="needs glibc's own malloc")
def test_a_connection_that_was_busy_keeps_nothing_of_it() -> None:
    """What waited of it, in many small pieces, has gone."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Echo, HOST, 0)
        place = Place(loop, server)
        clients = [await place.connect() for _ in range(50)]

        async def ask(pieces: int) -> int:
            for client in clients:
                client.transport.writelines([b"x"] * pieces)
                assert await client.read(pieces) == b"x" * pieces
                client.got = bytearray()
            gc.collect()
            return allocated_bytes()

        before = await ask(1)
        for _ in range(2):
            grown = (await ask(2000) - before) / len(clients)
            assert grown < 1024, f"{grown} bytes of each connection, of which 16,000 were needed meanwhile"
        for client in clients:
            client.transport.close()
            await ends(client)
        server.close()

    libos_asyncio.run(asyncio.wait_for(main(), 60))


def test_what_is_over_goes_without_the_collector() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        made: list[Any] = []

        def make() -> Echo:
            protocol = Echo()
            made.append(weakref.ref(protocol))
            return protocol

        server = await loop.create_server(make, HOST, 0)
        place = Place(loop, server)
        client = await place.connect()
        client.transport.write(b"one")
        await client.read(3)
        sock = client.transport.get_extra_info("socket")
        made += [weakref.ref(client), weakref.ref(client.transport)]
        client.transport.close()
        await ends(client)
        del client
        while any(made_one() is not None for made_one in made):  # the other end hears of it a turn later
            await asyncio.sleep(0.001)
        assert len(made) == 3
        assert sys.getrefcount(sock) == 2
        server.close()

    gc.disable()
    try:
        libos_asyncio.run(asyncio.wait_for(main(), 60))
    finally:
        gc.enable()
