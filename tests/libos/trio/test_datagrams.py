"""UDP sockets, on trio's own and on ours."""

from __future__ import annotations

import errno
import os
import socket
import threading
from typing import Any

import pytest
import trio
import trio.testing
from triostreams import HOST, settled, turns

from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import trio as libos_trio

OWN = "10.255.255.1"


def made() -> trio.socket.SocketType:
    return trio.socket.socket(type=socket.SOCK_DGRAM)


async def bound(host: str = HOST) -> trio.socket.SocketType:
    sock = made()
    await sock.bind((host, 0))
    return sock


def test_one_asks_and_one_answers(run: Any) -> None:
    async def main() -> None:
        with await bound() as server, made() as client:
            for word in (b"a", b"b" * 700, b""):
                assert await client.sendto(word, server.getsockname()) == len(word)
                data, peer = await server.recvfrom(2000)
                assert (data, peer) == (word, (HOST, client.getsockname()[1]))
                await server.sendto(data * 2, peer)
                assert await client.recvfrom(5) == ((word * 2)[:5], server.getsockname())

    run(main)


def test_a_connected_one(run: Any) -> None:
    async def main() -> None:
        with await bound() as server, made() as client, await bound() as stranger:
            await client.connect(server.getsockname())
            assert client.getpeername() == server.getsockname()
            await stranger.sendto(b"stranger", client.getsockname())
            assert await client.send(b"question") == 8
            buffer = bytearray(20)
            n, peer = await server.recvfrom_into(buffer)
            assert (buffer[:n], peer) == (b"question", client.getsockname())
            assert await server.sendmsg([b"an", b"swer"], [], 0, peer) == 6
            assert await client.recv(100) == b"answer"
            server.close()
            await client.send(b"to nobody")
            with pytest.raises(ConnectionRefusedError):
                await client.recv(100)

    run(main)


def test_waiting(run: Any) -> None:
    """It is cancelled, is one task's, is ended by closing; and nothing is lost."""

    async def main() -> None:
        with await bound() as server, await bound() as client:
            with trio.move_on_after(0.01) as scope:
                await server.recv(9)
            assert scope.cancelled_caught
            async with trio.open_nursery() as nursery:

                async def closed() -> None:
                    assert await server.recv(9) == b"first"
                    with pytest.raises(trio.ClosedResourceError):
                        await server.recv(9)

                nursery.start_soon(closed)
                await trio.testing.wait_all_tasks_blocked()
                with pytest.raises(trio.BusyResourceError):
                    await server.recv(9)
                await client.sendto(b"first", server.getsockname())
                await trio.testing.wait_all_tasks_blocked(0.01)
                server.close()
            with pytest.raises(OSError, match="descriptor") as caught:
                await server.recv(9)
            assert caught.value.errno == errno.EBADF

    run(main)


def test_many_datagrams(run: Any) -> None:
    async def main() -> None:
        with await bound() as server, await bound() as client, trio.fail_after(60):
            for _ in range(5):
                for n in range(100):
                    await client.sendto(b"%d" % n, server.getsockname())
                assert [await server.recv(9) for n in range(100)] == [b"%d" % n for n in range(100)]

    run(main)


def test_what_nobody_receives_keeps_nobody_awake() -> None:
    async def main() -> int:
        with await bound(OWN) as server, await bound(OWN) as client:
            await client.sendto(b"unread", server.getsockname())
            before = await settled()
            await trio.sleep(0.1)
            count = turns() - before
            assert await server.recv(9) == b"unread"
            return count

    assert libos_trio.run(main, poll="block") < 20


def test_one_at_any_address_is_on_both_worlds() -> None:
    async def main() -> None:
        with await bound("0.0.0.0") as server:
            port = server.getsockname()[1]
            for host in (OWN, HOST) * 2:
                with made() as client:
                    await client.connect((host, port))
                    await client.send(host.encode())
                    data, peer = await server.recvfrom(99)
                    assert data == host.encode()
                    await server.sendto(b"back", peer)
                    assert await client.recv(9) == b"back"
            assert libos_trio.endpoints().ours == 3

    libos_trio.run(main, loopback=False)


def test_one_at_an_own_address_is_ours_alone() -> None:
    async def main() -> None:
        with await bound(OWN) as server, await bound(OWN) as client:
            await client.sendto(b"ours", server.getsockname())
            assert await server.recvfrom(9) == (b"ours", client.getsockname())
            assert libos_trio.endpoints() == libos_trio.Endpoints(ours=2)

    libos_trio.run(main)


def test_a_socket_that_is_passed_in() -> None:
    async def main() -> None:
        raw = socket.socket(type=socket.SOCK_DGRAM)
        raw.bind((HOST, 0))
        with libos_trio.from_stdlib_socket(raw) as server, made() as client:
            await client.sendto(b"in", server.getsockname())
            assert await server.recv(9) == b"in"
            assert libos_trio.endpoints().ours == 2

    libos_trio.run(main)


@pytest.mark.root
def test_linux_at_the_other_end(netns: Any) -> None:
    """Both roles over a tap."""
    space = netns.add()
    with space.entered():
        nic = Tap(address="10.99.0.1/24", ipv4="10.99.0.2/24")
        theirs = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        theirs.bind(("10.99.0.1", 0))
        theirs.settimeout(60)

    def ask() -> None:
        for _ in range(20):
            sent = os.urandom(1000)
            theirs.sendto(sent, ("10.99.0.2", 7000))
            assert theirs.recvfrom(2000) == (sent[::-1], ("10.99.0.2", 7000))

    def answer() -> None:
        for _ in range(20):
            data, peer = theirs.recvfrom(2000)
            theirs.sendto(data[::-1], peer)

    async def main() -> None:
        with made() as server:
            await server.bind(("10.99.0.2", 7000))
            thread = threading.Thread(target=ask)
            thread.start()
            for _ in range(20):
                data, peer = await server.recvfrom(2000)
                await server.sendto(data[::-1], peer)
            await trio.to_thread.run_sync(thread.join)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, answer)
            with made() as client:
                await client.connect(theirs.getsockname())
                for n in range(20):
                    await client.send(b"<%d" % n)
                    assert await client.recv(9) == (b"<%d" % n)[::-1]

    with nic, theirs:
        libos_trio.run(main, nic=nic)
