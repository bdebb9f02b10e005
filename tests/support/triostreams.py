"""Streams of trio's over TCP, of either side, for the tests of libos/trio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from corelane.libos.trio.loop import CURRENT

HOST = "127.0.0.1"


@asynccontextmanager
async def opened(listener: trio.SocketListener) -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """A connection to a listener: (who has connected, who was connected to)."""
    host, port = listener.socket.getsockname()
    async with await trio.open_tcp_stream(host, port) as ours, await listener.accept() as theirs:
        yield ours, theirs


@asynccontextmanager
async def pair(host: str = HOST) -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Two ends of a connection."""
    [listener] = await trio.open_tcp_listeners(0, host=host)
    async with listener, opened(listener) as both:
        yield both


async def receive_exactly(stream: trio.abc.ReceiveStream, n: int) -> bytes:
    """So many bytes."""
    data = b""
    while len(data) < n:
        piece = await stream.receive_some(n - len(data))
        assert piece, f"the end after {len(data)} of {n} bytes"
        data += piece
    return data


async def echo(stream: trio.abc.HalfCloseableStream) -> None:
    """Serve a connection until the peer has ended it."""
    async with stream:
        async for data in stream:
            await stream.send_all(data)


def turns() -> int:
    """How many the kthread of this run has had."""
    ours = CURRENT.get()
    assert ours is not None
    return ours.poller.counts()[0]


async def settled() -> int:
    """Wait until it sleeps; `turns` then."""
    before = -100
    while turns() - before > 10:  # each sleep ends with one or two
        before = turns()
        await trio.sleep(0.02)
    return turns()
