"""asyncio's servers as members of a group: one takes another's place, and no request is lost (docs/groups.md)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from cltest import wait_until

from corelane import libos
from corelane.iokernel import AppConfig, Iokernel
from corelane.libos import asyncio as libos_asyncio
from corelane.runtime.errors import CorelaneError

PORT = 9000
AT_ONCE = 8  # requests of the client
BYE = b"bye "  # before an answer behind which the connection ends

Main = Callable[[], Coroutine[Any, Any, Any]]


@pytest.fixture
def io(socket_path: str) -> Iterator[Iokernel]:
    with Iokernel(socket_path, apps={"kv": AppConfig(members=3)}) as iokernel:
        yield iokernel


@pytest.fixture
def client(io: Iokernel, socket_path: str) -> Iterator[libos.Runtime]:
    with libos.Runtime(socket_path, name="client", poll="block") as runtime:
        yield runtime.start()


class Member(threading.Thread):
    """A process of a group, as far as these tests go: a thread with a loop. others: that it has replaced."""

    def __init__(self, socket_path: str, main: Main) -> None:
        super().__init__(name="member", daemon=True)
        self._path, self._main = socket_path, main
        self._ready = threading.Event()
        self.address, self.others = "", -1
        self.start()
        wait_until(lambda: self._ready.is_set() or not self.is_alive(), 60, "a member to be ready")
        assert self._ready.is_set()

    def run(self) -> None:
        libos_asyncio.run(self._begin(), socket=self._path, name="kv", poll="block")

    async def _begin(self) -> None:
        loop: Any = asyncio.get_running_loop()
        self.address = loop.runtime.address
        loop.on_ready = self._note
        await self._main()

    def _note(self, others: int) -> None:
        self.others = others
        self._ready.set()

    def ends(self) -> None:
        self.join(60)
        assert not self.is_alive()


class Asking(threading.Thread):
    """Has requests answered, one round after the other, until `over` is set. What a round raises is told by `go_on`."""

    def __init__(self, round_of: Callable[[], int]) -> None:
        super().__init__(name="client", daemon=True)
        self._round = round_of
        self.over = threading.Event()
        self.answered = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self.answered += self._round()
        except BaseException as error:
            self.failed = error

    def go_on(self, more: int = 100) -> None:
        """Until so many more are answered."""
        wanted = self.answered + more
        wait_until(lambda: self.answered >= wanted or self.failed, 60, "answers")
        assert self.failed is None, self.failed

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        self.start()
        try:
            yield
        finally:
            self.over.set()
            self.join()
        assert self.failed is None, self.failed


def replaced_again_and_again(asking: Asking, first: Member, main: Main, socket_path: str) -> None:
    """Each new one takes over while the client asks, and the old one ends by itself."""
    old = first
    with asking.asking():
        for _ in range(4):
            asking.go_on()
            new = Member(socket_path, main)
            assert new.others == 1
            asking.go_on()
            old.ends()
            old = new
    end(old, main, socket_path)


def end(member: Member, main: Main, socket_path: str) -> None:
    """Have it replaced by one that ends at once."""

    async def short() -> None:
        loop: Any = asyncio.get_running_loop()
        await loop.ready(replace=True)

    Member(socket_path, short).ends()
    member.ends()


class Upper(asyncio.DatagramProtocol):
    """Answers in capitals."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data.upper(), addr)


def test_no_datagram_is_lost(io: Iokernel, client: libos.Runtime, socket_path: str) -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(Upper, local_addr=(loop.runtime.address, PORT))
        await loop.serve(replace=True)
        transport.close()

    first = Member(socket_path, main)
    sockets = [client.open_udp() for _ in range(AT_ONCE)]  # a flow each

    def ask() -> int:
        for number, sock in enumerate(sockets):
            sock.send(b"question %d" % number, (first.address, PORT))
        for number, sock in enumerate(sockets):
            assert sock.receive(timeout_s=30)[0] == b"QUESTION %d" % number
        return len(sockets)

    replaced_again_and_again(Asking(ask), first, main, socket_path)
    assert io.stats()["departed"]["buffers_lost"] == 0


async def upper(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data.upper())
            await writer.drain()
    finally:
        writer.close()


def serving(handler: Callable[..., Any], close_s: float = 10) -> Main:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await asyncio.start_server(handler, loop.runtime.address, PORT)
        await loop.serve(server, replace=True, close_s=close_s)

    return main


def test_connections_that_the_client_ends_lose_nothing(io: Iokernel, client: libos.Runtime, socket_path: str) -> None:
    """New ones go to the new server; each goes on where it is until it ends."""
    main = serving(upper)
    first = Member(socket_path, main)

    def ask() -> int:
        with contextlib.ExitStack() as stack:
            connect = [client.connect_tcp((first.address, PORT), timeout_s=30) for _ in range(AT_ONCE)]
            streams = [stack.enter_context(stream) for stream in connect]
            for _ in range(3):
                for stream in streams:
                    stream.write(b"question", timeout_s=30)
                for stream in streams:
                    assert stream.read(timeout_s=30) == b"QUESTION"
        return 3 * len(streams)

    replaced_again_and_again(Asking(ask), first, main, socket_path)


async def upper_and_bye(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As servers of HTTP do with Connection: close."""
    loop: Any = asyncio.get_running_loop()
    while data := await reader.read(65536):
        last = loop.draining
        writer.write((BYE if last else b"") + data.upper())
        await writer.drain()
        if last:
            break
    writer.close()


def test_connections_that_last_are_ended_with_an_answer(io: Iokernel, client: libos.Runtime, socket_path: str) -> None:
    main = serving(upper_and_bye)
    first = Member(socket_path, main)
    streams: dict[int, libos.TcpStream] = {}
    byes = 0

    def ask() -> int:
        nonlocal byes
        for number in range(AT_ONCE):
            if number not in streams:
                streams[number] = client.connect_tcp((first.address, PORT), timeout_s=30)
            streams[number].write(b"question", timeout_s=30)
        for number, stream in list(streams.items()):
            answer = stream.read(timeout_s=30)
            assert answer.removeprefix(BYE) == b"QUESTION"
            if answer.startswith(BYE):
                streams.pop(number).close()
                byes += 1
        return AT_ONCE

    asking = Asking(ask)
    try:
        old = first
        with asking.asking():
            for _ in range(3):
                asking.go_on()
                new = Member(socket_path, main)
                asking.go_on()
                old.ends()
                old = new
    finally:
        for stream in streams.values():
            stream.close()
    end(old, main, socket_path)
    assert byes == 3 * AT_ONCE


def test_what_stays_open_is_cut_off_in_time(
    io: Iokernel, client: libos.Runtime, socket_path: str, caplog: pytest.LogCaptureFixture
) -> None:
    main = serving(upper, close_s=0.05)
    first = Member(socket_path, main)
    with client.connect_tcp((first.address, PORT), timeout_s=30) as stream:
        stream.write(b"question", timeout_s=30)
        assert stream.read(timeout_s=30) == b"QUESTION"
        with caplog.at_level(logging.WARNING, "corelane.libos"):
            end(first, main, socket_path)
        assert "1 are still open" in caplog.text
        assert stream.read(timeout_s=30) == b""


def test_it_waits_for_connections_that_came_in() -> None:
    """Not for those that it has opened itself, whose other ends these are here."""

    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        gone = asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await gone.wait()
            writer.close()

        server = await asyncio.start_server(hold, "127.0.0.1", 0)
        await loop.wait_closed(0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        with pytest.raises(CorelaneError, match="1 are still open") as refused:
            await loop.wait_closed(0.01)
        assert refused.value.errno == errno.ETIMEDOUT
        gone.set()
        assert await reader.read() == b""
        writer.close()
        await loop.wait_closed(5)
        server.close()

    libos_asyncio.run(main())


def test_a_loop_of_no_group_serves_until_sigterm() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await asyncio.start_server(upper, loop.runtime.address, PORT)
        assert loop.ports() == ([], [PORT])
        assert await loop.ready(replace=True) == 0
        told: list[int] = []
        loop.on_ready = told.append
        serving = asyncio.create_task(loop.serve(server))
        while not told:
            await asyncio.sleep(0)
        os.kill(os.getpid(), signal.SIGTERM)
        await serving
        assert loop.ports() == ([], [])
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        libos_asyncio.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_who_is_cancelled_twice_closes_its_servers(io: Iokernel, client: libos.Runtime, socket_path: str) -> None:
    """As by a second Ctrl-C, from somebody who does not wait until a connection ends."""
    closed: list[bool] = []

    async def cancelled() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await asyncio.start_server(upper, loop.runtime.address, PORT)
        task = asyncio.create_task(loop.serve(server, close_s=60))
        while not loop.draining:
            await asyncio.sleep(0.001)
            if leave.is_set():
                task.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        closed.append(not server.is_serving())

    leave = threading.Event()
    leaving = Member(socket_path, cancelled)
    with client.connect_tcp((leaving.address, PORT), timeout_s=30) as stream:
        stream.write(b"question", timeout_s=30)
        assert stream.read(timeout_s=30) == b"QUESTION"
        leave.set()
        leaving.ends()
    assert closed == [True]


def test_who_is_cancelled_leaves_the_group(io: Iokernel, client: libos.Runtime, socket_path: str) -> None:
    """As by Ctrl-C: the other one gets all, and a connection that is open is waited for."""
    main = serving(upper)
    stay = Member(socket_path, main)

    async def cancelled() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await asyncio.start_server(upper, loop.runtime.address, PORT)
        task = asyncio.create_task(loop.serve(server))
        while not loop.draining:
            await asyncio.sleep(0.001)
            if leave.is_set():
                task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    leave = threading.Event()
    leaving = Member(socket_path, cancelled)
    assert leaving.others == 0
    leave.set()
    leaving.ends()
    with client.connect_tcp((stay.address, PORT), timeout_s=30) as stream:
        stream.write(b"question", timeout_s=30)
        assert stream.read(timeout_s=30) == b"QUESTION"
    end(stay, main, socket_path)
