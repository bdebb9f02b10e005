"""Streams: what trio says of them, on its own sockets and on ours."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from cltest.certificates import make_certificate
from triostreams import HOST, echo, opened, pair, receive_exactly

from corelane.libos import trio as libos_trio

LARGE = os.urandom(3_000_000)


async def make_streams() -> tuple[trio.SocketStream, trio.SocketStream]:
    [listener] = await trio.open_tcp_listeners(0, host=HOST)
    async with listener:
        ours = await trio.open_tcp_stream(*listener.socket.getsockname())
        return ours, await listener.accept()


async def clog(stream: trio.SocketStream) -> int:
    """Send until nothing goes any more; how many bytes went."""
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            sent += await stream.socket.send(bytes(65536))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        before = -1
        while before != sent:
            before = sent
            await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    return sent


async def make_clogged_streams() -> tuple[trio.SocketStream, trio.SocketStream]:
    ours, theirs = await make_streams()
    await clog(ours)
    await clog(theirs)
    return ours, theirs


def test_they_are_what_trio_calls_half_closeable(run: Any) -> None:
    async def main() -> None:
        await trio.testing.check_half_closeable_stream(make_streams, None)

    run(main)


def test_they_are_so_when_nothing_goes_any_more() -> None:
    """Ours alone: Linux' TCP makes room by itself some time later."""
    libos_trio.run(trio.testing.check_half_closeable_stream, make_streams, make_clogged_streams)


def test_tls_over_them_is_what_trio_calls_a_stream(run: Any, tmp_path: Path) -> None:
    server, client = tls(tmp_path)

    async def make() -> tuple[Any, Any]:
        ours, theirs = await make_streams()
        return (
            trio.SSLStream(ours, client, server_hostname="corelane.test"),
            trio.SSLStream(theirs, server, server_side=True),
        )

    async def main() -> None:
        await trio.testing.check_two_way_stream(make, None)

    run(main)


def tls(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(the server's, the client's)"""
    files = make_certificate(folder, "DNS:corelane.test")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(files[0])
    return server, client


def test_bytes_go_both_ways_until_both_have_ended(run: Any) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            await ours.send_all(b"ping")
            assert await receive_exactly(theirs, 4) == b"ping"
            await theirs.send_all(b"pong")
            await theirs.send_eof()
            assert await receive_exactly(ours, 4) == b"pong"
            assert await ours.receive_some() == b""
            await ours.send_all(b"still")
            assert await receive_exactly(theirs, 5) == b"still"
            await ours.aclose()
            assert await theirs.receive_some() == b""

    run(main)


def test_who_is_not_read_is_held_back_and_nothing_is_lost(run: Any) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            sent = await clog(ours)
            assert sent < 40_000_000
            with trio.move_on_after(0.01) as scope:
                await ours.wait_send_all_might_not_block()
            assert scope.cancelled_caught
            assert await receive_exactly(theirs, sent) == bytes(sent)
            await ours.wait_send_all_might_not_block()
            await ours.send_all(b"on")
            assert await receive_exactly(theirs, 2) == b"on"

    run(main)


def test_much_goes_both_ways_at_once(run: Any) -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, echo, [listener])
            async with await trio.open_tcp_stream(*listener.socket.getsockname()) as stream:
                nursery.start_soon(stream.send_all, LARGE)
                assert await receive_exactly(stream, len(LARGE)) == LARGE
            nursery.cancel_scope.cancel()

    run(main)


def test_many_connections(run: Any) -> None:
    async def ask(port: int, n: int) -> None:
        async with await trio.open_tcp_stream(HOST, port) as stream:
            for i in range(5):
                word = b"%d of %d" % (i, n)
                await stream.send_all(word)
                assert await receive_exactly(stream, len(word)) == word

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            [listener] = await nursery.start(
                lambda task_status: trio.serve_tcp(echo, 0, host=HOST, task_status=task_status)
            )
            async with trio.open_nursery() as clients:
                for n in range(100):
                    clients.start_soon(ask, listener.socket.getsockname()[1], n)
            nursery.cancel_scope.cancel()

    run(main)


def test_a_call_that_is_cancelled_takes_nothing(run: Any) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            for word in (b"one", b"two"):
                with trio.move_on_after(0.01) as scope:
                    await theirs.receive_some()
                assert scope.cancelled_caught
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await ours.send_all(b"never")
                await ours.send_all(word)
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await theirs.receive_some()
                assert await receive_exactly(theirs, 3) == word

    run(main)


def test_a_reset_breaks_the_peers_stream(run: Any) -> None:
    async def main() -> None:
        for waiting in (False, True):
            async with pair() as (ours, theirs):
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                async with trio.open_nursery() as nursery:
                    if not waiting:
                        await ours.aclose()
                        await trio.sleep(0.005)
                    nursery.start_soon(broken, theirs)
                    await trio.testing.wait_all_tasks_blocked()
                    await ours.aclose()
                with pytest.raises(trio.BrokenResourceError):
                    await theirs.send_all(b"to nobody")
                theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def broken(stream: trio.SocketStream) -> None:
        with pytest.raises(trio.BrokenResourceError) as caught:
            await stream.receive_some()
        assert isinstance(caught.value.__cause__, ConnectionResetError)

    run(main)


def test_closing_wakes_who_waits(run: Any) -> None:
    async def main() -> None:
        async def closed(wait: Any, *args: Any) -> None:
            with pytest.raises(trio.ClosedResourceError):
                await wait(*args)

        async with pair() as (ours, theirs):
            await clog(ours)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(closed, ours.receive_some)
                nursery.start_soon(closed, ours.send_all, b"more")
                await trio.testing.wait_all_tasks_blocked(0.01)
                await ours.aclose()
                await ours.aclose()
            await closed(ours.receive_some)
            await closed(ours.send_all, b"more")
            assert ours.socket.fileno() == -1
            del theirs

    run(main)


def test_two_tasks_may_not_receive_at_once(run: Any) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs), trio.open_nursery() as nursery:
            nursery.start_soon(receive_exactly, theirs, 4)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(trio.BusyResourceError):
                await theirs.receive_some()
            await ours.send_all(b"word")

    run(main)


def test_the_calls_of_sockets(run: Any) -> None:
    async def main() -> None:
        async with pair() as (ours, theirs):
            one, two = ours.socket, theirs.socket
            assert one.getpeername() == two.getsockname()
            assert two.getpeername() == one.getsockname()
            assert (one.family, one.type) == (socket.AF_INET, socket.SOCK_STREAM)
            assert await one.sendmsg([b"one ", b"two ", memoryview(b"three")]) == 13
            assert await two.recv(3, socket.MSG_PEEK) == b"one"
            assert two.is_readable()
            buffer = bytearray(5)
            assert await two.recv_into(buffer, 4) == 4
            assert buffer == b"one \0"
            assert (await two.recvfrom(4))[0] == b"two "
            parts = [bytearray(2), bytearray(9)]
            assert (await two.recvmsg_into(parts))[0] == 5
            assert parts == [b"th", b"ree" + bytes(6)]
            assert not two.is_readable()
            assert await one.send(b"last", socket.MSG_NOSIGNAL) == 4
            assert await two.recvmsg(9) == (b"last", [], 0, None)
            one.shutdown(socket.SHUT_WR)
            assert one.did_shutdown_SHUT_WR
            with pytest.raises(BrokenPipeError):
                await one.send(b"more")
            assert await two.recv(1) == b""
            two.shutdown(socket.SHUT_RDWR)
            one.close()
            with pytest.raises(OSError, match="descriptor") as caught:
                await one.recv(1)
            assert caught.value.errno == errno.EBADF

    run(main)


def test_a_port_that_was_bound_is_kept(run: Any) -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        async with listener:
            for host in (HOST, "0.0.0.0"):
                with trio.socket.socket() as sock:
                    await sock.bind((host, 0))
                    port = sock.getsockname()[1]
                    await sock.connect(listener.socket.getsockname())
                    assert sock.getsockname() == (HOST, port)
                    async with await listener.accept() as stream:
                        assert stream.socket.getpeername() == (HOST, port)

    run(main)


def test_options_that_were_set_before_it_was_connected(run: Any) -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        async with listener:
            sock = trio.socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
            await sock.connect(listener.socket.getsockname())
            async with trio.SocketStream(sock) as stream:
                assert stream.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 77

    run(main)


def test_a_client_of_tls_and_a_server(run: Any, tmp_path: Path) -> None:
    server, client = tls(tmp_path)

    async def main() -> None:
        listeners = await trio.open_ssl_over_tcp_listeners(0, server, host=HOST)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, echo_tls, listeners)
            transport: Any = listeners[0].transport_listener
            raw = await trio.open_tcp_stream(*transport.socket.getsockname())
            async with trio.SSLStream(raw, client, server_hostname="corelane.test") as stream:
                for size in (1, 100_000):
                    nursery.start_soon(stream.send_all, LARGE[:size])
                    assert await receive_exactly(stream, size) == LARGE[:size]
            nursery.cancel_scope.cancel()

    async def echo_tls(stream: Any) -> None:
        async for data in stream:
            await stream.send_all(data)

    run(main)


def test_accepted_streams_of_one_listener_are_apart(run: Any) -> None:
    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host=HOST)
        async with listener, opened(listener) as (one, first), opened(listener) as (two, second):
            await one.send_all(b"1")
            await two.send_all(b"2")
            assert await receive_exactly(first, 1) + await receive_exactly(second, 1) == b"12"

    run(main)
