"""sock_recv and its like, on asyncio's own loop and on ours, with sockets that the test makes and closes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cltest.certificates import make_certificate

from corelane.libos import asyncio as libos_asyncio

HOST, OWN = "127.0.0.1", "10.255.255.1"
LARGE = os.urandom(2_000_000)


def made(kind: int = socket.SOCK_STREAM) -> socket.socket:
    sock = socket.socket(socket.AF_INET, kind)
    sock.setblocking(False)
    return sock


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[socket.socket, Any]]:
    """A socket that listens, and a task that accepts the next connection."""
    with made() as sock:
        sock.bind((HOST, 0))
        sock.listen(5)
        task = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(sock))
        await asyncio.sleep(0)  # from then on the loop knows that it listens
        yield sock, task


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[Any, Any]]:
    """(who has connected, who was connected to)"""
    loop = asyncio.get_running_loop()
    async with listening() as (listener, accepting):
        with made() as one:
            await loop.sock_connect(one, listener.getsockname())
            two, peer = await accepting
            with two:
                assert peer[0] == HOST
                yield one, two


async def receive(sock: Any, n: int) -> bytes:
    loop, data = asyncio.get_running_loop(), b""
    while len(data) < n:
        piece = await loop.sock_recv(sock, n - len(data))
        assert piece
        data += piece
    return data


def test_both_ways(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            await loop.sock_sendall(one, b"question")
            assert await receive(two, 8) == b"question"
            sending = asyncio.ensure_future(loop.sock_sendall(two, LARGE))
            buffer, got = bytearray(50_000), b""
            while len(got) < len(LARGE):
                n = await loop.sock_recv_into(one, buffer)
                got += buffer[:n]
            await sending
            assert got == LARGE
            await loop.sock_sendall(one, memoryview(b"last"))
            one.close()
            assert await receive(two, 4) == b"last"
            assert await loop.sock_recv(two, 1) == b""

    run(main)


def test_a_port_that_was_bound_is_kept(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with listening() as (listener, accepting):
            for host in (HOST, "0.0.0.0"):
                with made() as one:
                    one.bind((host, 0))
                    port = one.getsockname()[1]
                    await loop.sock_connect(one, listener.getsockname())
                    assert one.getsockname() == (HOST, port)
                    two, peer = await accepting
                    assert peer == (HOST, port)
                    two.close()
                accepting = asyncio.ensure_future(loop.sock_accept(listener))
            accepting.cancel()
            await asyncio.wait([accepting])

    run(main)


def test_who_is_not_read_is_held_back(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            sending = asyncio.ensure_future(loop.sock_sendall(one, LARGE * 10))
            done, _ = await asyncio.wait([sending], timeout=0.05)
            assert not done
            assert await receive(two, len(LARGE) * 10) == LARGE * 10
            await sending

    run(main)


def test_a_call_that_is_cancelled_takes_nothing(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(loop.sock_recv(two, 9), 0.01)
            await loop.sock_sendall(one, b"whole")
            assert await receive(two, 5) == b"whole"

    run(main)


def test_accepting_that_is_cancelled_loses_nobody(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with listening() as (listener, accepting):
            accepting.cancel()
            await asyncio.wait([accepting])
            with made() as one:
                await loop.sock_connect(one, listener.getsockname())
                two, _ = await loop.sock_accept(listener)
                with two:
                    await loop.sock_sendall(two, b"here")
                    assert await receive(one, 4) == b"here"

    run(main)


def test_a_reset(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            await loop.sock_sendall(one, b"never read")
            await asyncio.sleep(0.01)
            two.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            two.close()
            with pytest.raises(ConnectionResetError):
                await loop.sock_recv(one, 9)
            with pytest.raises(BrokenPipeError):
                await loop.sock_sendall(one, b"more")

    run(main)


def test_files(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(LARGE)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            with path.open("rb") as file:
                sending = asyncio.ensure_future(loop.sock_sendfile(one, file, 1000))
                assert await receive(two, len(LARGE) - 1000) == LARGE[1000:]
                assert await sending == len(LARGE) - 1000
                sending = asyncio.ensure_future(loop.sock_sendfile(one, file, 0, 10))  # not from where it is
                assert await receive(two, 10) == LARGE[:10]
                assert await sending == 10

    run(main)


class Keeps(asyncio.Protocol):
    """What has come, and the end."""

    def __init__(self) -> None:
        self.data = b""
        self.made = False
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.made = True

    def data_received(self, data: bytes) -> None:
        assert self.made
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(exc)


@pytest.mark.parametrize("begun", [False, True])
def test_a_transport_takes_a_connection_over(run: Any, begun: bool) -> None:
    """As proxies' clients do it, which speak a while before the transport begins."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            if begun:
                await loop.sock_sendall(two, b"hello, and more")
                assert await receive(one, 5) == b"hello"
                await loop.sock_sendall(one, b"hi")
                assert await receive(two, 2) == b"hi"
            transport, protocol = await loop.create_connection(Keeps, sock=one)
            other, theirs = await loop.connect_accepted_socket(Keeps, two)
            other.write(b" still")
            other.close()
            await protocol.ended
            assert protocol.data == (b", and more still" if begun else b" still")
            await theirs.ended
            assert transport.is_closing()

    run(main)


def test_tls_on_a_connection_that_was_made_so(run: Any, tmp_path: Path) -> None:
    files = make_certificate(tmp_path, "DNS:corelane.test")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*files)
    client = ssl.create_default_context(cafile=files[0])

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            (ours, protocol), (theirs, _) = await asyncio.gather(
                loop.create_connection(Keeps, sock=one, ssl=client, server_hostname="corelane.test"),
                loop.connect_accepted_socket(Keeps, two, ssl=server),
            )
            theirs.write(LARGE[:100_000])
            while len(protocol.data) < 100_000:
                await asyncio.sleep(0.001)
            assert protocol.data == LARGE[:100_000]
            ours.close()
            await protocol.ended

    run(main)


def test_datagrams(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with made(socket.SOCK_DGRAM) as one, made(socket.SOCK_DGRAM) as two:
            one.bind((HOST, 0))
            receiving = asyncio.ensure_future(loop.sock_recvfrom(one, 100))
            await asyncio.sleep(0)
            assert await loop.sock_sendto(two, b"datagram", one.getsockname()) == 8
            data, peer = await receiving
            assert (data, peer) == (b"datagram", (HOST, two.getsockname()[1]))
            assert await loop.sock_sendto(one, b"answer", peer) == 6
            buffer = bytearray(4)
            assert await loop.sock_recvfrom_into(two, buffer) == (4, one.getsockname())
            assert buffer == b"answ"

    run(main)


def test_sockets_still_answer_themselves(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with pair() as (one, two):
            assert isinstance(one, socket.socket)
            assert one.getpeername() == two.getsockname()
            assert two.getpeername() == one.getsockname()
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            for sock in (one, two):
                with pytest.raises(BlockingIOError):
                    sock.recv(1)
            assert one.send(b"directly") == 8
            seen = b""
            while len(seen) < 6:
                await asyncio.sleep(0.001)
                with contextlib.suppress(BlockingIOError):
                    seen = two.recv(6, socket.MSG_PEEK)
            assert seen == b"direct"
            assert await receive(two, 8) == b"directly"
            one.shutdown(socket.SHUT_WR)
            assert await loop.sock_recv(two, 1) == b""
            await loop.sock_sendall(two, b"still")
            assert await receive(one, 5) == b"still"
            with pytest.raises(BrokenPipeError):
                await loop.sock_sendall(one, b"no more")
            with pytest.raises(OSError, match="connected"):
                await loop.sock_connect(one, (HOST, 9))

    run(main)


def test_what_cannot_be(run: Any) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with made() as sock:
            sock.bind((HOST, 0))
            with pytest.raises(OSError, match="nvalid") as caught:
                await loop.sock_accept(sock)
            assert caught.value.errno == errno.EINVAL
            with pytest.raises(OSError, match="connected"):
                await loop.sock_recv(sock, 1)

    run(main)


def test_a_socket_that_is_closed_or_forgotten_ends_its_connection() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        for forgotten in (False, True):
            async with listening() as (listener, accepting):
                one = made()
                await loop.sock_connect(one, listener.getsockname())
                two, _ = await accepting
                await loop.sock_sendall(one, b"end")
                if forgotten:
                    with pytest.warns(ResourceWarning):
                        del one
                else:
                    one.close()
                assert await receive(two, 3) == b"end"
                assert await loop.sock_recv(two, 1) == b""
                two.close()
        assert loop.endpoints().ours == 6

    libos_asyncio.run(main(), poll="block")


def test_an_accepted_connection_that_is_forgotten_is_told_of_and_ended() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with listening() as (listener, accepting):
            with made() as first, made() as one:
                await loop.sock_connect(first, listener.getsockname())
                (await accepting)[0].close()
                await loop.sock_connect(one, listener.getsockname())
                two, _ = await loop.sock_accept(listener)
                with pytest.warns(ResourceWarning, match="unclosed <corelane"):
                    del two
                assert await loop.sock_recv(one, 1) == b""

    libos_asyncio.run(main())


def test_sockets_outlive_the_loop() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        sockets[0].bind((HOST, 0))
        sockets[0].listen()
        accepting = asyncio.ensure_future(loop.sock_accept(sockets[0]))
        await asyncio.sleep(0)
        await loop.sock_connect(sockets[1], sockets[0].getsockname())
        sockets.append((await accepting)[0])
        sockets[2].bind((HOST, 0))
        await loop.sock_sendto(sockets[2], b"", (HOST, 9))
        receiving = asyncio.ensure_future(loop.sock_recv(sockets[1], 1))
        await asyncio.sleep(0)
        receiving.cancel()

    sockets: list[Any] = [made(), made(), made(socket.SOCK_DGRAM)]
    libos_asyncio.run(main())
    for sock in sockets:
        sock.close()
        sock.close()
    assert sockets[1].fileno() == -1


def test_a_listener_on_both_worlds() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        with made() as listener:
            listener.bind(("0.0.0.0", 0))
            listener.listen()
            for host in (HOST, OWN) * 3:
                accepting = asyncio.ensure_future(loop.sock_accept(listener))
                await asyncio.sleep(0)
                with made() as one:
                    await loop.sock_connect(one, (host, listener.getsockname()[1]))
                    two, peer = await accepting
                    with two:
                        assert peer[0] == host
                        await loop.sock_sendall(two, host.encode())
                        assert await receive(one, len(host)) == host.encode()
        assert loop.endpoints().ours == 7

    libos_asyncio.run(main(), loopback=False)
