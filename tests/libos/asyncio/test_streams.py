"""Streams, whose hot calls are C on our transports: as on asyncio's own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from corelane.libos import asyncio as libos_asyncio
from corelane.libos.asyncio import streams

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def linked(**options: Any) -> AsyncIterator[tuple[Pair, Pair]]:
    """Both ends of a connection: the client's, the server's."""
    accepted: asyncio.Future[Pair] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def serve(*pair: Any) -> None:
        accepted.set_result(pair)
        await over.wait()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, **options) as server:
        ours = await asyncio.open_connection(*server.sockets[0].getsockname())
        theirs = await accepted
        try:
            yield ours, theirs
        finally:
            over.set()
            for _, writer in (ours, theirs):
                writer.close()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            await asyncio.sleep(0)


def test_pieces_of_what_has_come(run: Any) -> None:
    async def main() -> None:
        async with linked() as ((_, writer), (reader, _)):
            writer.write(b"hello world\n")
            await writer.drain()
            assert await reader.read(5) == b"hello"
            assert await reader.read(n=1) == b" "
            assert await reader.read(0) == b""
            assert await reader.readline() == b"world\n"
            writer.writelines([b"a" * 1000, b"b" * 1000])
            assert await reader.readexactly(1500) == b"a" * 1000 + b"b" * 500
            writer.write(b"the end")
            writer.write_eof()
            assert await reader.read() == b"b" * 500 + b"the end"
            assert await reader.read(10) == b""
            assert reader.at_eof()

    run(main)


def test_who_waits_is_woken(run: Any) -> None:
    async def main() -> None:
        async with linked() as ((_, writer), (reader, _)):
            for n in range(50):
                waiting = asyncio.create_task(reader.read(100))
                await asyncio.sleep(0)
                writer.write(b"%d" % n)
                assert await waiting == b"%d" % n
            writer.write(b"one")
            assert await asyncio.gather(reader.read(3), writer.drain()) == [b"one", None]

    run(main)


def test_what_came_for_one_who_was_cancelled_is_the_nexts(run: Any) -> None:
    async def main() -> None:
        async with linked() as ((_, writer), (reader, _)):
            waiting = asyncio.create_task(reader.read(100))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            writer.write(b"for the next")
            assert await reader.read(100) == b"for the next"
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(reader.read(100), 0.001)
            writer.write(b"after a time-out")
            assert await asyncio.wait_for(reader.read(100), 60) == b"after a time-out"

    run(main)


def test_only_one_waits(run: Any) -> None:
    async def main() -> None:
        async with linked() as ((_, writer), (reader, _)):
            first = asyncio.create_task(reader.read(100))
            await asyncio.sleep(0)
            for second in (reader.read(100), reader.readline()):
                with pytest.raises(RuntimeError, match="already waiting"):
                    await second
            writer.write(b"first")
            assert await first == b"first"

    run(main)


def test_a_reading_is_a_coroutine(run: Any) -> None:
    async def main() -> None:
        async with linked() as ((_, writer), (reader, _)):
            reading = reader.read(100)
            assert asyncio.iscoroutine(reading)
            draining = writer.drain()
            assert asyncio.iscoroutine(draining)
            await draining
            writer.write(b"data")
            assert await reading == b"data"
            with pytest.raises(RuntimeError, match="already awaited"):
                await reading
            reader.read(100).close()  # which nobody awaits
            begun: Any = reader.read(100)
            future = begun.send(None)
            assert asyncio.isfuture(future)
            begun.close()
            writer.write(b"more")
            assert await reader.read(100) == b"more"
            thrown: Any = reader.read(100)
            with pytest.raises(ZeroDivisionError):
                thrown.throw(ZeroDivisionError())

    run(main)


def test_a_fast_writer_waits_for_a_slow_reader(run: Any) -> None:
    async def main() -> None:
        async with linked(limit=1000) as ((_, writer), (reader, _)):
            total = 3_000_000
            got = 0

            async def write() -> None:
                for _ in range(total // 10_000):
                    writer.write(b"x" * 10_000)
                    await writer.drain()
                writer.write_eof()

            writing = asyncio.create_task(write())
            while data := await reader.read(5000):
                got += len(data)
                assert len(reader._buffer) <= 2 * 1000 + 2**18  # type: ignore[attr-defined]
            await writing
            assert got == total

    run(main)


def test_who_waits_hears_of_a_reset(run: Any) -> None:
    async def main() -> None:
        async with linked() as ((_, writer), (reader, answering)):
            waiting = asyncio.create_task(reader.read(100))
            await asyncio.sleep(0)
            sock = writer.get_extra_info("socket")
            sock.setsockopt(1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00")  # SOL_SOCKET, SO_LINGER: on, 0 s
            writer.transport.abort()
            with pytest.raises(ConnectionResetError):
                await waiting
            with pytest.raises(ConnectionResetError):
                await reader.read(100)
            with pytest.raises(ConnectionResetError):
                await answering.drain()

    run(main)


def test_a_write_after_the_end_of_the_other_side_is_told_by_drain(run: Any) -> None:
    async def main() -> None:
        async with linked() as ((_, writer), (reader, answering)):
            writer.close()
            await writer.wait_closed()
            assert await reader.read(100) == b""

            async def write_on() -> None:
                while True:
                    answering.write(b"to nobody")
                    await answering.drain()
                    await asyncio.sleep(0.0005)

            with pytest.raises(ConnectionError):
                await write_on()

    run(main)


def test_streams_of_a_servers_connection_have_the_fast_calls() -> None:
    async def main() -> None:
        async with linked() as ((client, _), (reader, writer)):
            await asyncio.sleep(0)
            assert type(reader) is streams.StreamReader
            assert type(writer) is streams.StreamWriter
            assert type(client) is streams.StreamReader
            assert isinstance(reader, asyncio.StreamReader)
            assert isinstance(writer, asyncio.StreamWriter)

    libos_asyncio.run(main())


def test_subclasses_of_streams_keep_their_methods(run: Any) -> None:
    class Reader(asyncio.StreamReader):
        def feed_data(self, data: bytes) -> None:
            super().feed_data(data.upper())

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reader = Reader(loop=loop)
        theirs: list[asyncio.StreamWriter] = []

        def make() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(reader, lambda _, writer: theirs.append(writer), loop=loop)

        server = await loop.create_server(make, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"small")
        assert await reader.read(100) == b"SMALL"
        writer.close()
        await writer.wait_closed()
        server.close()
        assert await reader.read(100) == b""
        theirs[0].close()
        await theirs[0].wait_closed()

    run(main)


def test_methods_that_a_program_has_put_into_asyncios_streams_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    read = asyncio.StreamReader.read

    async def counted(self: asyncio.StreamReader, n: int = -1) -> bytes:
        sizes.append(n)
        return await read(self, n)

    async def main() -> None:
        async with linked() as ((_, writer), (reader, _)):
            writer.write(b"data")
            assert await reader.read(100) == b"data"
            assert sizes == [100]

    sizes: list[int] = []
    monkeypatch.setattr(asyncio.StreamReader, "read", counted)
    libos_asyncio.run(main())
