"""anyio over trio and over asyncio, each on its own sockets and on ours."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from cltest.certificates import make_certificate
from triostreams import HOST

from corelane.libos import asyncio as libos_asyncio
from corelane.libos import trio as libos_trio

anyio = pytest.importorskip("anyio", reason="needs anyio: make setup, or pip install anyio")

Run = Callable[[Callable[[], Awaitable[None]]], None]
LARGE = os.urandom(1_000_000)


@pytest.fixture(params=["trio", "libos-trio", "asyncio", "libos-asyncio"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs an async function by anyio; all TCP endpoints of it are on one side."""
    ours, backend = request.param.startswith("libos"), request.param.removeprefix("libos-")
    options: dict[str, Any] = {}
    if ours and backend == "trio":
        # anyio's listeners hand trio sockets of Linux' that are bound.
        monkeypatch.setattr(trio.socket, "from_stdlib_socket", libos_trio.from_stdlib_socket)
        options = libos_trio.options()
    elif ours:
        options = {"loop_factory": libos_asyncio.loop_factory()}

    def run_on(main: Callable[[], Awaitable[None]]) -> None:
        async def guarded() -> None:
            with anyio.fail_after(60):
                await main()
            if ours:
                counts = libos_trio.endpoints() if backend == "trio" else loop_of_this_run().endpoints()
                assert counts.ours >= 3
                assert counts.ours >= counts.linux, "the test was to run on libos"

        anyio.run(guarded, backend=backend, backend_options=options)

    return run_on


def loop_of_this_run() -> Any:
    return asyncio.get_running_loop()


async def echo(stream: Any) -> None:
    async with stream:
        async for data in stream:
            await stream.send(data)


async def receive_exactly(stream: Any, n: int) -> bytes:
    data = b""
    while len(data) < n:
        data += await stream.receive(n - len(data))
    return data


async def serving(then: Callable[[int], Awaitable[None]], serve: Callable[[Any], Awaitable[None]] = echo) -> None:
    async with await anyio.create_tcp_listener(local_host=HOST) as listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, serve)
        await anyio.wait_all_tasks_blocked()  # asyncio's loop knows that it listens once it is to accept
        await then(listener.extra(anyio.abc.SocketAttribute.local_port))
        group.cancel_scope.cancel()


def test_servers_and_clients(run: Run) -> None:
    async def ask(port: int, data: bytes) -> None:
        async with await anyio.connect_tcp(HOST, port) as stream, anyio.create_task_group() as group:
            assert stream.extra(anyio.abc.SocketAttribute.remote_address) == (HOST, port)
            group.start_soon(stream.send, data)
            assert await receive_exactly(stream, len(data)) == data

    async def many(port: int) -> None:
        async with anyio.create_task_group() as group:
            for n in range(30):
                group.start_soon(ask, port, b"%d" % n * 100)
        await ask(port, LARGE)

    run(lambda: serving(many))


def test_half_close_and_the_end(run: Run) -> None:
    async def answer_at_the_end(stream: Any) -> None:
        async with stream:
            data = b"".join([piece async for piece in stream])
            await stream.send(data.upper())

    async def ask(port: int) -> None:
        async with await anyio.connect_tcp(HOST, port) as stream:
            await stream.send(b"one ")
            await stream.send(b"two")
            await stream.send_eof()
            assert await receive_exactly(stream, 7) == b"ONE TWO"
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            await stream.aclose()
            with pytest.raises(anyio.ClosedResourceError):
                await stream.receive()

    run(lambda: serving(ask, answer_at_the_end))


def test_cancelling_and_busy(run: Run) -> None:
    async def ask(port: int) -> None:
        async with await anyio.connect_tcp(HOST, port) as stream:
            with anyio.move_on_after(0.01) as scope:
                await stream.receive()
            assert scope.cancelled_caught
            async with anyio.create_task_group() as group:
                group.start_soon(receive_exactly, stream, 4)
                await anyio.wait_all_tasks_blocked()
                with pytest.raises(anyio.BusyResourceError):
                    await stream.receive()
                await stream.send(b"word")

    run(lambda: serving(ask))


def test_tls(run: Run, tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "DNS:corelane.test")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files)
    client = ssl.create_default_context(cafile=files[0])

    async def echo_tls(stream: Any) -> None:
        await echo(await anyio.streams.tls.TLSStream.wrap(stream, server_side=True, ssl_context=server))

    async def ask(port: int) -> None:
        async with (
            await anyio.connect_tcp(HOST, port, tls=True, ssl_context=client, tls_hostname="corelane.test") as stream,
            anyio.create_task_group() as group,
        ):
            group.start_soon(stream.send, LARGE[:100_000])
            assert await receive_exactly(stream, 100_000) == LARGE[:100_000]

    run(lambda: serving(ask, echo_tls))
