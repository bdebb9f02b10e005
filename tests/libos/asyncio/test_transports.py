"""Transports: what protocols see, on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import gc
import socket
import struct
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from corelane.libos import asyncio as libos_asyncio

HOST = "127.0.0.1"


class Recorder(asyncio.Protocol):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.data = bytearray()
        self.transport: Any = None
        self.loop = asyncio.get_running_loop()
        self.made = self.loop.create_future()
        self.ended = self.loop.create_future()
        self.keep_open = False
        self.got: list[tuple[int, asyncio.Future[None]]] = []

    def connection_made(self, transport: Any) -> None:
        self.calls.append("made")
        self.transport = transport
        self.made.set_result(None)

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        assert data
        if self.calls[-1] != "data":
            self.calls.append("data")
        self.data += data
        self.look()

    def look(self) -> None:
        for n, future in self.got:
            if len(self.data) >= n and not future.done():
                future.set_result(None)

    async def has(self, n: int) -> bytes:
        """Wait until n bytes have come."""
        future = self.loop.create_future()
        self.got.append((n, future))
        self.look()
        await future
        return bytes(self.data)

    def eof_received(self) -> bool:
        self.calls.append("eof")
        return self.keep_open

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")

    def connection_lost(self, exc: BaseException | None) -> None:
        self.calls.append(("lost", type(exc).__name__ if exc else None))
        self.ended.set_result(exc)


class Buffered(Recorder, asyncio.BufferedProtocol):
    """The same by buffers of its own."""

    def __init__(self, size: int = 4096) -> None:
        super().__init__()
        self.buffer = bytearray(size)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self.buffer[:nbytes]))


class Pair:
    """A server and connections to it."""

    def __init__(self, make: Callable[[], Any] = Recorder) -> None:
        self.make = make
        self.accepted: asyncio.Queue[Any] = asyncio.Queue()

    async def __aenter__(self) -> Pair:
        def factory() -> Any:
            protocol = self.make()
            self.accepted.put_nowait(protocol)
            return protocol

        self.server = await asyncio.get_running_loop().create_server(factory, HOST, 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.server.close()
        await self.server.wait_closed()

    async def connect(self, make: Callable[[], Any] | None = None) -> tuple[Any, Any]:
        """(ours, the server's), both made."""
        loop = asyncio.get_running_loop()
        _, ours = await loop.create_connection(make or self.make, HOST, self.port)
        theirs = await self.accepted.get()
        await theirs.made
        return ours, theirs


async def close(*protocols: Any) -> None:
    for protocol in protocols:
        if not protocol.transport.is_closing():
            protocol.transport.close()
    for protocol in protocols:
        await protocol.ended


def test_bytes_go_both_ways_and_both_sides_hear_of_the_end(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            ours.transport.write(b"ping")
            assert await theirs.has(4) == b"ping"
            theirs.transport.write(b"pong")
            assert await ours.has(4) == b"pong"
            ours.transport.close()
            assert ours.transport.is_closing()
            assert await ours.ended is None
            assert await theirs.ended is None
            assert ours.calls == ["made", "data", ("lost", None)]
            assert theirs.calls == ["made", "data", "eof", ("lost", None)]

    run(main)


@pytest.mark.parametrize("make", [Recorder, Buffered])
@pytest.mark.parametrize("size", [1, 1000, 70_000, 3_000_000])
def test_what_is_written_arrives_whatever_its_size(run: Any, make: Any, size: int) -> None:
    wanted = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async def main() -> None:
        async with Pair(make) as pair:
            ours, theirs = await pair.connect()
            ours.transport.write(wanted)
            theirs.transport.write(wanted[::-1])
            assert await theirs.has(size) == wanted
            assert await ours.has(size) == wanted[::-1]
            await close(ours, theirs)

    run(main)


def test_pieces_of_all_kinds_arrive_in_order(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            piece = bytearray(b"bcd")
            ours.transport.write(b"a")
            ours.transport.write(piece)
            piece[:] = b"xxx"
            ours.transport.write(memoryview(b"-ef-")[1:3])
            ours.transport.write(b"")
            ours.transport.writelines([b"g", bytearray(b"h"), memoryview(b"i")])
            assert await theirs.has(9) == b"abcdefghi"
            with pytest.raises(TypeError, match="bytes-like"):
                ours.transport.write("text")
            await close(ours, theirs)

    run(main)


def test_writers_are_paused_and_resumed_and_readers_hold_the_peer_back(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            theirs.transport.pause_reading()
            assert not theirs.transport.is_reading()
            n = 0
            while "pause" not in ours.calls:
                ours.transport.write(bytes(50_000))
                n += 50_000
                await asyncio.sleep(0)
            assert ours.transport.get_write_buffer_size() > ours.transport.get_write_buffer_limits()[1]
            assert not theirs.data
            theirs.transport.resume_reading()
            await theirs.has(n)
            assert ours.calls[-1] == "resume"
            assert ours.transport.get_write_buffer_size() == 0
            await close(ours, theirs)

    run(main)


def test_limits_of_the_write_buffer(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            assert ours.transport.get_write_buffer_limits() == (16384, 65536)
            ours.transport.set_write_buffer_limits(high=0)
            assert ours.transport.get_write_buffer_limits() == (0, 0)
            ours.transport.write(b"x" * 1000)  # there is room in the send buffer
            assert "pause" not in ours.calls
            with pytest.raises(ValueError):
                ours.transport.set_write_buffer_limits(high=1, low=2)
            await theirs.has(1000)
            await close(ours, theirs)

    run(main)


def test_half_closed_connections_go_on(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            theirs.keep_open = True
            assert ours.transport.can_write_eof()
            ours.transport.write(b"last")
            ours.transport.write_eof()
            with pytest.raises(RuntimeError, match="write_eof"):
                ours.transport.write(b"more")
            await theirs.has(4)
            while "eof" not in theirs.calls:
                await asyncio.sleep(0)
            theirs.transport.write(b"answer")
            assert await ours.has(6) == b"answer"
            await close(theirs)
            assert await ours.ended is None
            assert ours.calls == ["made", "data", "eof", ("lost", None)]

    run(main)


def test_eof_is_told_when_reading_is_resumed(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            theirs.transport.pause_reading()
            ours.transport.write(b"and the end")
            ours.transport.close()
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert theirs.calls == ["made"]
            theirs.transport.resume_reading()
            assert await theirs.ended is None
            assert theirs.calls == ["made", "data", "eof", ("lost", None)]
            assert theirs.data == b"and the end"

    run(main)


def test_what_was_written_before_close_and_abort_arrives(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            for end in ("close", "abort"):
                ours, theirs = await pair.connect()
                ours.transport.write(b"the rest")
                getattr(ours.transport, end)()
                assert await ours.ended is None
                assert await theirs.ended is None
                assert theirs.data == b"the rest"
                ours.transport.write(b"unheard")
                getattr(ours.transport, end)()
                assert ours.calls == ["made", ("lost", None)]

    run(main)


def test_close_sends_what_is_kept_first(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            theirs.transport.pause_reading()
            ours.transport.write(bytes(8_000_000))
            ours.transport.close()
            await asyncio.sleep(0.01)
            assert not ours.ended.done()
            theirs.transport.resume_reading()
            assert await theirs.ended is None
            assert len(theirs.data) == 8_000_000
            assert await ours.ended is None

    run(main)


def test_who_hears_of_room_while_it_closes_may_write_more(run: Any) -> None:
    """As TLS does, whose end is such."""

    class Last(Recorder):
        def resume_writing(self) -> None:
            super().resume_writing()
            self.transport.write(b"last")

    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect(Last)
            theirs.transport.pause_reading()
            ours.transport.set_write_buffer_limits(high=10_000, low=1)
            ours.transport.write(bytes(8_000_000))
            ours.transport.close()
            theirs.transport.resume_reading()
            assert await theirs.ended is None
            assert len(theirs.data) == 8_000_004
            assert theirs.data.endswith(b"last")
            assert await ours.ended is None
            assert ours.calls == ["made", "pause", "resume", ("lost", None)]

    run(main)


def test_a_reset_is_an_error_of_the_other_side(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            sock = ours.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            ours.transport.abort()
            assert await ours.ended is None
            error = await theirs.ended
            assert isinstance(error, ConnectionResetError)
            assert error.errno == errno.ECONNRESET
            assert theirs.calls[-1] == ("lost", "ConnectionResetError")

    run(main)


@pytest.mark.parametrize("method", ["data_received", "eof_received", "get_buffer", "buffer_updated"])
def test_exceptions_of_protocols_are_reported_and_end_the_connection(run: Any, method: str) -> None:
    async def main() -> None:
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))

        def raises(*_: Any) -> Any:
            raise ZeroDivisionError(method)

        base: Any = Recorder if method in ("data_received", "eof_received") else Buffered
        bad = type("Bad", (base,), {method: raises})
        async with Pair() as pair:
            pair.make = bad
            ours, theirs = await pair.connect(Recorder)
            ours.transport.write(b"x")
            if method == "eof_received":
                await theirs.has(1)
                ours.transport.write_eof()
            error = await theirs.ended
            assert isinstance(error, ZeroDivisionError)
            assert [context["exception"] for context in contexts] == [error]
            assert contexts[0]["message"] == f"Fatal error: protocol.{method}() call failed."
            assert contexts[0]["transport"] is theirs.transport
            await close(ours)

    run(main)


@pytest.mark.parametrize("how", ["kept", "nothing", "reset"])
def test_an_exception_of_connection_lost_is_reported_and_the_loop_goes_on(run: Any, how: str) -> None:
    """Whatever it comes from: what was kept when it was closed has gone, or nothing was; or the peer has reset it."""

    class Bad(Recorder):
        def connection_lost(self, exc: BaseException | None) -> None:
            super().connection_lost(exc)
            raise ZeroDivisionError("lost")

    async def main() -> None:
        contexts: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
        async with Pair() as pair:
            pair.make = Bad
            ours, theirs = await pair.connect(Recorder)
            if how == "kept":
                ours.transport.pause_reading()
                theirs.transport.write(b"x" * 8_000_000)
                theirs.transport.close()
                assert theirs.transport.get_write_buffer_size() > 0
                await asyncio.sleep(0)
                ours.transport.resume_reading()
                assert len(await ours.has(8_000_000)) == 8_000_000
            elif how == "nothing":
                theirs.transport.close()
            else:
                sock = ours.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                ours.transport.abort()
            error = await theirs.ended
            assert isinstance(error, ConnectionResetError) == (how == "reset")
            await ours.ended
            pair.make = Recorder
            await close(*await pair.connect())
        assert [repr(context["exception"]) for context in contexts] == ["ZeroDivisionError('lost')"]

    run(main)


def test_a_keyboard_interrupt_in_a_protocol_ends_the_run(run: Any) -> None:
    class Interrupted(Recorder):
        def data_received(self, data: bytes) -> None:
            raise KeyboardInterrupt

    async def main() -> None:
        async with Pair() as pair:
            pair.make = Interrupted
            ours, _theirs = await pair.connect(Recorder)
            ours.transport.write(b"x")
            await ours.ended

    def run_and_collect() -> None:
        with pytest.raises(KeyboardInterrupt):
            run(main)
        gc.collect()

    with pytest.warns(ResourceWarning, match="unclosed"):
        run_and_collect()


def test_what_comes_with_an_interrupt_is_told_when_the_loop_runs_again() -> None:
    class Interrupted(Recorder):
        def data_received(self, data: bytes) -> None:
            raise KeyboardInterrupt

    protocols: list[Any] = []

    async def connect() -> None:
        async with Pair() as pair:
            pair.make = Interrupted
            protocols.extend(await pair.connect(Recorder))

    async def send() -> None:
        protocols[0].transport.write(b"x")
        protocols[0].transport.close()  # both come at once
        await protocols[1].ended

    with contextlib.closing(libos_asyncio.new_event_loop()) as loop:
        loop.run_until_complete(connect())
        sending = loop.create_task(send())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(sending)
        loop.run_until_complete(asyncio.wait_for(sending, 60))
        assert protocols[1].calls == ["made", "eof", ("lost", None)]


def test_context_of_who_made_them(run: Any) -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="none")
    seen: list[str] = []

    class Looks(Recorder):
        def data_received(self, data: bytes) -> None:
            seen.append(var.get())
            var.set("changed")
            super().data_received(data)

    async def main() -> None:
        var.set("server")
        async with Pair(Looks) as pair:
            var.set("client")
            ours, theirs = await pair.connect()
            other, others = await pair.connect()
            for mine, its in ((ours, theirs), (other, others)):
                mine.transport.write(b"1")
                await its.has(1)
                its.transport.write(b"2")
                await mine.has(1)
            assert seen == ["server", "client", "server", "client"]
            await close(ours, other, theirs, others)

    run(main)


def test_addresses_and_options(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            info = ours.transport.get_extra_info
            assert info("peername") == (HOST, pair.port) == theirs.transport.get_extra_info("sockname")
            assert info("sockname") == theirs.transport.get_extra_info("peername")
            assert info("nothing", 5) == 5
            sock = info("socket")
            assert sock.getpeername() == (HOST, pair.port)
            assert (sock.family, sock.type) == (socket.AF_INET, socket.SOCK_STREAM)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            assert not sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            with pytest.raises(OSError):
                sock.getsockopt(socket.IPPROTO_TCP, 9999)
            assert ours.transport.get_protocol() is ours
            await close(ours, theirs)
            assert info("peername") == (HOST, pair.port)

    run(main)


def test_nobody_listens(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Pair() as pair:
            await close(*await pair.connect())
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Recorder, HOST, pair.port)

    run(main)


def test_a_protocol_is_replaced_in_the_middle(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            ours.transport.write(b"first")
            await theirs.has(5)
            for make in (Buffered, Recorder, Buffered):
                fresh = make(3) if make is Buffered else make()
                fresh.transport, fresh.calls = theirs.transport, ["made"]
                ours.transport.write(b"0123456789")
                theirs.transport.set_protocol(fresh)
                assert await fresh.has(10) == b"0123456789"
            theirs.transport.close()
            await fresh.ended
            await ours.ended

    run(main)


def test_servers_end_with_their_connections(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            ours, theirs = await pair.connect()
            assert pair.server.is_serving()
            pair.server.close()
            assert not pair.server.is_serving()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.get_running_loop().create_connection(Recorder, HOST, pair.port)
            ours.transport.write(b"still")
            await theirs.has(5)
            await close(ours, theirs)

    run(main)


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_factory_that_raises_closes_the_connection(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            pair.make = lambda: 1 / 0
            loop = asyncio.get_running_loop()
            _, ours = await loop.create_connection(Recorder, HOST, pair.port)
            gc.collect()  # asyncio's own closes it so
            assert await ours.ended is None or isinstance(ours.ended.result(), ConnectionResetError)

    run(main)


def test_nothing_is_left_of_what_has_ended(run: Any) -> None:
    async def main() -> None:
        async with Pair() as pair:
            dead: list[Any] = []
            for n in range(30):
                ours, theirs = await pair.connect(Buffered if n % 2 else Recorder)
                ours.transport.write(bytes(10_000))
                await theirs.has(10_000)
                dead += [weakref.ref(x) for p in (ours, theirs) for x in (p, p.transport)]
                ours.cycle, ours.transport.mine = ours.transport, ours
                if n % 3:
                    await close(ours, theirs)
                else:
                    ours.transport.abort()
                    await ours.ended
                    await theirs.ended
                del ours, theirs
            await asyncio.sleep(0)
            gc.collect()
            assert [ref for ref in dead if ref()] == []

    run(main)
