"""UDP endpoints, on asyncio's own loop and on ours."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from corelane.drivers.nic.tap.tap import Tap
from corelane.libos import asyncio as libos_asyncio

HOST, OWN = "127.0.0.1", "10.255.255.1"


class Recorder(asyncio.DatagramProtocol):
    """Keeps what it is told."""

    transport: Any

    def __init__(self) -> None:
        self.got: asyncio.Queue[Any] = asyncio.Queue()
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        assert type(data) is bytes
        self.got.put_nowait((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.got.put_nowait(exc)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result(exc)


class Echo(Recorder):
    """Answers in capitals."""

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data.upper(), addr)


async def endpoint(make: Callable[[], Recorder], **options: Any) -> Any:
    _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(make, **options)
    return protocol


async def close(*protocols: Any) -> None:
    for protocol in protocols:
        protocol.transport.close()
        assert protocol.transport.is_closing()
    for protocol in protocols:
        assert await protocol.ended is None


def name(protocol: Recorder) -> Any:
    return protocol.transport.get_extra_info("sockname")


def test_one_asks_and_one_answers(run: Any) -> None:
    async def main() -> None:
        server = await endpoint(Echo, local_addr=(HOST, 0))
        for connected in (True, False):
            host, port = name(server)
            options = {"remote_addr": (host, str(port))} if connected else {"local_addr": (HOST, "0")}
            client = await endpoint(Recorder, **options)
            to = () if connected else (name(server),)
            for word in (b"a", b"b" * 1400, bytearray(b"c"), memoryview(b"d")):
                client.transport.sendto(word, *to)
                assert await client.got.get() == (bytes(word).upper(), name(server))
            assert name(client)[0] == HOST
            assert client.transport.get_extra_info("peername") == (name(server) if connected else None)
            await close(client)
        await close(server)

    run(main)


def test_a_burst_comes_whole_and_in_order(run: Any) -> None:
    async def main() -> None:
        server, client = await endpoint(Recorder, local_addr=(HOST, 0)), await endpoint(Recorder, local_addr=(HOST, 0))
        for _ in range(3):
            for n in range(100):
                client.transport.sendto(b"%d" % n, name(server))
            assert [(await server.got.get())[0] for _ in range(100)] == [b"%d" % n for n in range(100)]
        await close(server, client)

    run(main)


def test_many_endpoints(run: Any) -> None:
    async def main() -> None:
        server = await endpoint(Echo, local_addr=(HOST, 0))
        clients = [await endpoint(Recorder, remote_addr=name(server)) for _ in range(50)]
        for n, client in enumerate(clients):
            client.transport.sendto(b"from %d" % n)
        for n, client in enumerate(clients):
            assert await client.got.get() == (b"FROM %d" % n, name(server))
        await close(server, *clients)

    run(main)


def test_a_connected_one_hears_of_its_peer_alone(run: Any) -> None:
    async def main() -> None:
        peer = await endpoint(Recorder, local_addr=(HOST, 0))
        client = await endpoint(Recorder, remote_addr=name(peer))
        stranger = await endpoint(Recorder, local_addr=(HOST, 0))
        stranger.transport.sendto(b"stranger", name(client))
        peer.transport.sendto(b"peer", name(client))
        assert await client.got.get() == (b"peer", name(peer))
        with pytest.raises(ValueError, match="Invalid address"):
            client.transport.sendto(b"elsewhere", name(stranger))
        await close(peer, client, stranger)

    run(main)


def test_what_cannot_be_sent_is_told_of(run: Any) -> None:
    async def main() -> None:
        gone = await endpoint(Recorder, local_addr=(HOST, 0))
        client = await endpoint(Recorder, remote_addr=name(gone))
        await close(gone)
        client.transport.sendto(b"to nobody")
        assert isinstance(await client.got.get(), ConnectionRefusedError)
        client.transport.sendto(bytes(70_000))
        error = await client.got.get()
        assert isinstance(error, OSError)
        assert error.errno == errno.EMSGSIZE
        with pytest.raises(TypeError):
            client.transport.sendto("text")
        await close(client)
        client = await endpoint(Recorder, local_addr=(HOST, 0))
        client.transport.sendto(b"to no port", (HOST, 0))
        assert (await client.got.get()).errno == errno.EINVAL
        await close(client)

    run(main)


def test_a_protocol_that_raises_goes_on(run: Any) -> None:
    class Raises(Recorder):
        def datagram_received(self, data: bytes, addr: Any) -> None:
            super().datagram_received(data, addr)
            raise ValueError(data)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reported: list[Any] = []
        loop.set_exception_handler(lambda _, context: reported.append(str(context["exception"])))
        server, client = await endpoint(Raises, local_addr=(HOST, 0)), await endpoint(Recorder, local_addr=(HOST, 0))
        for word in (b"one", b"two"):
            client.transport.sendto(word, name(server))
            assert (await server.got.get())[0] == word
        await close(server, client)
        assert reported == ["b'one'", "b'two'"]

    run(main)


def test_a_socket_that_is_passed_in(run: Any) -> None:
    async def main() -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind((HOST, 0))
        server = await endpoint(Echo, sock=sock)
        client = await endpoint(Recorder, remote_addr=sock.getsockname())
        client.transport.sendto(b"passed in")
        assert (await client.got.get())[0] == b"PASSED IN"
        await close(server, client)
        assert sock.fileno() == -1

    run(main)


def test_a_socket_that_linux_has_connected_is_linux() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
            peer.bind((HOST, 0))
            peer.settimeout(60)
            sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            sock.connect(peer.getsockname())
            client = await endpoint(Recorder, sock=sock)
            client.transport.sendto(b"question")
            assert peer.recvfrom(99) == (b"question", name(client))
            peer.sendto(b"answer", name(client))
            assert await client.got.get() == (b"answer", peer.getsockname())
            assert loop.endpoints() == libos_asyncio.Endpoints(linux=1)
            await close(client)

    libos_asyncio.run(main())


def test_several_of_one_port(run: Any) -> None:
    """One flow goes to one of them."""

    async def main() -> None:
        first = await endpoint(Recorder, local_addr=(HOST, 0), reuse_port=True)
        both = (first, await endpoint(Recorder, local_addr=name(first), reuse_port=True))
        clients = [await endpoint(Recorder, remote_addr=name(first)) for _ in range(64)]
        for _ in range(2):
            for n, client in enumerate(clients):
                client.transport.sendto(b"%d" % n)
        got: list[set[Any]] = [set(), set()]
        count = 0
        while count < 128:
            for n, protocol in enumerate(both):
                while not protocol.got.empty():
                    got[n].add(protocol.got.get_nowait()[1])
                    count += 1
            await asyncio.sleep(0)
        assert got[0]
        assert got[1]
        assert not got[0] & got[1]
        await close(*both, *clients)

    run(main)


def test_a_port_that_is_taken(run: Any) -> None:
    async def main() -> None:
        server = await endpoint(Recorder, local_addr=(HOST, 0))
        with pytest.raises(OSError, match="in use"):
            await endpoint(Recorder, local_addr=name(server))
        await close(server)

    run(main)


def test_aborting(run: Any) -> None:
    async def main() -> None:
        server = await endpoint(Recorder, local_addr=(HOST, 0))
        server.transport.abort()
        assert await server.ended is None

    run(main)


def test_one_at_any_address_is_on_both_worlds() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await endpoint(Echo, local_addr=("0.0.0.0", 0))
        assert loop.endpoints() == libos_asyncio.Endpoints(ours=1, linux=1)
        port = name(server)[1]
        ours, theirs = [await endpoint(Recorder, remote_addr=(host, port)) for host in (OWN, HOST)]
        for _ in range(3):
            for client in (ours, theirs):
                client.transport.sendto(b"both")
            assert await ours.got.get() == (b"BOTH", (OWN, port))
            assert await theirs.got.get() == (b"BOTH", (HOST, port))
        assert loop.endpoints() == libos_asyncio.Endpoints(ours=2, linux=2)
        await close(server, ours, theirs)

    libos_asyncio.run(main(), loopback=False)


def test_one_at_an_own_address_is_ours_alone() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await endpoint(Echo, local_addr=(OWN, 7000))
        client = await endpoint(Recorder, remote_addr=(OWN, 7000), local_addr=(OWN, 0))
        client.transport.sendto(b"ours")
        assert await client.got.get() == (b"OURS", (OWN, 7000))
        assert loop.endpoints() == libos_asyncio.Endpoints(ours=2)
        await close(server, client)

    libos_asyncio.run(main())


def test_an_idle_loop_sleeps_beside_them_and_is_woken() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server, client = await endpoint(Echo, local_addr=(HOST, 0)), await endpoint(Recorder, local_addr=(HOST, 0))
        before = -100
        while loop._selector.poller.counts()[0] - before > 10:  # until it sleeps
            before = loop._selector.poller.counts()[0]
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        assert loop._selector.poller.counts()[0] - before < 20
        client.transport.sendto(b"awake", name(server))
        assert (await client.got.get())[0] == b"AWAKE"
        await close(server, client)

    libos_asyncio.run(main(), poll="block")


def test_a_runtime_that_is_stopped_under_them() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        server = await endpoint(Recorder, local_addr=(OWN, 7000))
        await asyncio.to_thread(loop.runtime.stop)
        server.transport.sendto(b"too late", (OWN, 9))
        error = await server.got.get()
        assert isinstance(error, OSError)
        assert error.errno == errno.ESHUTDOWN
        await close(server)

    libos_asyncio.run(main())


def test_a_loop_that_is_closed_closes_them() -> None:
    async def main() -> None:
        await endpoint(Recorder, local_addr=(OWN, 7000))

    def run_it() -> None:
        with asyncio.Runner(loop_factory=libos_asyncio.loop_factory()) as runner:
            runner.run(main())
        gc.collect()

    with pytest.warns(ResourceWarning) as warned:  # by the transport, and by the socket of Linux'
        run_it()
    assert any("unclosed transport" in str(w.message) for w in warned)


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
            assert theirs.recvfrom(2000) == (sent.upper(), ("10.99.0.2", 7000))

    def answer() -> None:
        for _ in range(20):
            data, peer = theirs.recvfrom(2000)
            theirs.sendto(data[::-1], peer)

    async def main() -> None:
        server = await endpoint(Echo, local_addr=("10.99.0.2", 7000))
        await asyncio.to_thread(ask)
        thread = threading.Thread(target=answer)
        thread.start()
        client = await endpoint(Recorder, remote_addr=theirs.getsockname())
        for n in range(20):
            client.transport.sendto(b"<%d" % n)
            assert (await client.got.get())[0] == (b"<%d" % n)[::-1]
        await asyncio.to_thread(thread.join)
        await close(server, client)

    with nic, theirs:
        libos_asyncio.run(main(), nic=nic)
