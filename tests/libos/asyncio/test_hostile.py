"""Peers that mean no good, and tasks that are cancelled anywhere: on asyncio's own loop and on ours. What each of them
does ends its own connection; the loop reports nothing, and goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from corelane.libos import asyncio as libos_asyncio

HOST = "127.0.0.1"
PATIENCE_S = 60
HELLO = bytes.fromhex("1603010200010001fc0303")  # the beginning of a client's first message of TLS
SILENT = 400
LARGE = 4_000_000

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter


class Server:
    """Of streams. What its handlers raise is in `raised`; what the loop had to report in `reported`."""

    def __init__(self, serve: Callable[[Reader, Writer], Awaitable[object]]) -> None:
        self._serve = serve
        self.raised: list[BaseException] = []
        self.reported: list[dict[str, Any]] = []
        self.tasks: set[asyncio.Task[Any]] = set()

    async def _handle(self, reader: Reader, writer: Writer) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError) as error:
            self.raised.append(error)
        finally:
            writer.close()
            self.tasks.discard(task)

    async def quiet(self) -> None:
        """Until none of its handlers works any more."""
        while self.tasks:
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def serving(serve: Callable[[Reader, Writer], Awaitable[object]], **options: Any) -> AsyncIterator[Any]:
    """(a server, a function that connects to it)"""
    made = Server(serve)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: made.reported.append(context))
    server = await asyncio.start_server(made._handle, HOST, 0, **options)
    where = server.sockets[0].getsockname()
    try:
        yield made, lambda **more: asyncio.open_connection(*where, **more)
    finally:
        server.close()
        await made.quiet()
    assert made.reported == []


async def answer(reader: Reader, writer: Writer) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def is_answered(connect: Any, **options: Any) -> None:
    reader, writer = await connect(**options)
    writer.write(b"still there?")
    assert await reader.readexactly(12) == b"still there?"
    await end(writer)


async def end(writer: Writer) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def reset(writer: Writer) -> None:
    """Its connection ends by a reset."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def test_many_that_say_nothing(run: Any) -> None:
    async def main() -> None:
        async with serving(answer) as (server, connect):
            silent = [await connect() for _ in range(SILENT)]
            while len(server.tasks) < SILENT:
                await asyncio.sleep(0.001)
            await is_answered(connect)
            for _, writer in silent[::2]:
                await end(writer)
            for _, writer in silent[1::2]:
                reset(writer)
            await server.quiet()
            await is_answered(connect)

    run(main)


async def sends(connect: Any, data: bytes, then: str) -> None:
    """Connect, say that, and end in some way."""
    reader, writer = await connect()
    writer.write(data)
    if then == "end":
        writer.write_eof()
    elif then == "reset":
        await asyncio.sleep(0.01)
        reset(writer)
        return
    with contextlib.suppress(OSError):  # until the server has had enough
        while await reader.read(65536):
            pass
    await end(writer)


@pytest.mark.parametrize("then", ["end", "reset"])
@pytest.mark.parametrize("upgrade", [False, True])
def test_garbage_instead_of_tls(run: Any, tls: Any, upgrade: bool, then: str) -> None:
    """By a server of TLS, and by start_tls in the middle of a connection."""

    async def upgraded(reader: Reader, writer: Writer) -> None:
        await writer.start_tls(tls[0], ssl_handshake_timeout=20)
        await answer(reader, writer)

    async def main() -> None:
        options = {} if upgrade else {"ssl": tls[0], "ssl_handshake_timeout": 20}
        async with serving(upgraded if upgrade else answer, **options) as (server, connect):
            for data in (b"", b"GET / HTTP/1.1\r\n\r\n", HELLO, HELLO + os.urandom(600), os.urandom(100_000)):
                await sends(connect, data, then)
            if not upgrade:
                await is_answered(connect, ssl=tls[1], server_hostname="corelane.test")
            await server.quiet()
            assert all(isinstance(error, ssl.SSLError | OSError) for error in server.raised)

    run(main)


@pytest.mark.parametrize("then", ["reset", "half close", "end"])
def test_readers_that_stop_reading(run: Any, then: str) -> None:
    """The server writes more than anybody keeps, and waits; then the peer is gone, or reads on."""

    async def pours(reader: Reader, writer: Writer) -> None:
        assert await reader.readexactly(1) == b"?"
        writer.write(b"x" * LARGE)
        await writer.drain()

    async def main() -> None:
        async with serving(pours) as (server, connect):
            reader, writer = await connect()
            writer.transport.pause_reading()
            writer.write(b"?")
            while not server.tasks:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert server.tasks, "it waits"
            if then == "reset":
                reset(writer)
            elif then == "end":
                await end(writer)
            else:
                writer.write_eof()
                await asyncio.sleep(0.02)
                writer.transport.resume_reading()
                assert len(await reader.readexactly(LARGE)) == LARGE
                await end(writer)
            await server.quiet()
            assert len(server.raised) == (then != "half close")

    run(main)


def test_resets_in_the_middle_of_everything(run: Any) -> None:
    """Between any two steps of a conversation."""

    async def main() -> None:
        async with serving(answer) as (server, connect):
            for turns in range(12):
                _, writer = await connect()
                writer.write(b"x" * 100_000)
                for _ in range(turns):
                    await asyncio.sleep(0)
                reset(writer)
                writer.write(b"nobody hears it")
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            await server.quiet()
            await is_answered(connect)

    run(main)


async def cancel(coroutine: Any, turns: int) -> None:
    """Begin it, and cancel it some turns of the loop later. It may have come to its end."""
    task = asyncio.ensure_future(coroutine)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, OSError, EOFError):
        await task


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_what_is_cancelled_in_any_state(run: Any, tls: Any, turns: int) -> None:
    async def main() -> None:
        async with serving(answer) as (_, connect):
            await cancel(connect(), turns)
            reader, writer = await connect()
            await cancel(reader.read(10), turns)
            await cancel(reader.readline(), turns)
            await cancel(reader.readexactly(10), turns)
            writer.write(b"after all\n")
            assert await reader.readline() == b"after all\n", "a read that was cancelled takes nothing"
            writer.transport.set_write_buffer_limits(high=0)
            writer.write(b"y" * LARGE)
            await cancel(writer.drain(), turns)
            assert len(await reader.readexactly(LARGE)) == LARGE, "a drain that was cancelled loses nothing"
            writer.write(b"no TLS: the server sends it back")
            await cancel(writer.start_tls(tls[1], ssl_handshake_timeout=20), turns)
            await cancel(writer.wait_closed(), turns)
            writer.transport.abort()  # wait_closed is over for good once one was cancelled: asyncio shares its future
            await is_answered(connect)
        loop = asyncio.get_running_loop()
        with socket.socket() as sock:
            sock.setblocking(False)
            sock.bind((HOST, 0))
            sock.listen()
            await cancel(loop.sock_accept(sock), turns)

    run(main)


def test_a_factory_of_tasks_that_raises_costs_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """On our loop alone, which has its own way to a server."""
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    broken = False

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
        if broken and getattr(coroutine, "__name__", "") == "_welcome":
            coroutine.close()
            raise ZeroDivisionError("no task")
        return asyncio.Task(coroutine, loop=loop, **options)

    async def main() -> None:
        nonlocal broken
        asyncio.get_running_loop().set_task_factory(make)
        async with serving(answer) as (_, connect):
            broken = True
            reader, writer = await connect()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            await end(writer)
            broken = False
            await is_answered(connect)
        assert asyncio.get_running_loop().endpoints().ours >= 4  # type: ignore[attr-defined]

    libos_asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert [repr(what.exc_value) for what in ignored] == ["ZeroDivisionError('no task')"]


def test_a_server_whose_handlers_are_cancelled(run: Any) -> None:
    async def main() -> None:
        async with serving(answer) as (server, connect):
            pairs = [await connect() for _ in range(20)]
            while len(server.tasks) < len(pairs):
                await asyncio.sleep(0.001)
            for task in tuple(server.tasks):
                task.cancel()
            for reader, writer in pairs:
                assert await reader.read() == b""
                await end(writer)
            await server.quiet()
            assert [type(error) for error in server.raised] == [asyncio.CancelledError] * len(pairs)
            await is_answered(connect)

    run(main)
