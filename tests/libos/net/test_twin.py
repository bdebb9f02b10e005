"""Against Linux: the kernel's own ping, ARP and UDP sockets talk to libos over a tap.

The same behaviour tests run on a kernel UDP server and on ours, so that the kernel is the oracle. Needs root and
network namespaces.
"""

from __future__ import annotations

import errno
import random
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers.nic.tap.tap import Tap
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root

LINUX, OURS, CLOSED = "10.99.0.1", "10.99.0.2", 9
Place = tuple[Any, str]


@pytest.fixture
def tap(netns: Any) -> Iterator[tuple[Any, libos.Runtime]]:
    """A namespace with Linux at 10.99.0.1 on a tap, and a runtime at 10.99.0.2 behind it."""
    space = netns.add()
    with ExitStack() as stack:
        with space.entered():
            nic = stack.enter_context(Tap(address=f"{LINUX}/24", ipv4=OURS))
        full = nic.buffers_free
        runtime = libos.Runtime(nic=nic)
        runtime.bind(echo_handler("c"))
        runtime.start()
        yield space, runtime
        assert runtime.stop() == 0
        assert runtime.stats().balanced
        runtime.close()
        assert nic.buffers_free == full


@pytest.fixture(params=["linux", "libos"])
def echo_server(request: pytest.FixtureRequest, netns: Any) -> Iterator[Place]:
    """(namespace, address) of an echo server on port 9000: the kernel's, then ours."""
    if request.param == "libos":
        space, _ = request.getfixturevalue("tap")
        yield space, OURS
        return
    space = netns.add()
    with space.entered():
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind(("127.0.0.1", 9000))
    server.settimeout(0.05)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                data, peer = server.recvfrom(65536)
            except TimeoutError:
                continue
            server.sendto(data, peer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield space, "127.0.0.1"
    over.set()
    thread.join()
    server.close()


@pytest.fixture
def client(echo_server: Place) -> Iterator[Callable[..., socket.socket]]:
    """`client(port)`: a connected kernel UDP socket to the echo server's address."""
    space, address = echo_server
    opened: list[socket.socket] = []

    def connect(port: int = 9000) -> socket.socket:
        with space.entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(60)
        s.connect((address, port))
        opened.append(s)
        return s

    yield connect
    for s in opened:
        s.close()


@pytest.mark.parametrize("size", [1, 2, 3, 17, 22, 23, 511, 1471, 1472])
def test_datagrams_of_every_size_come_back(client: Callable[..., socket.socket], size: int) -> None:
    payload = random.Random(size).randbytes(size)
    s = client()
    s.send(payload)
    assert s.recv(2000) == payload


def test_many_sockets_keep_their_replies_apart(client: Callable[..., socket.socket], seed: int) -> None:
    rng = random.Random(seed)
    sockets = [client() for _ in range(20)]
    for _ in range(10):
        sent = [rng.randbytes(rng.randrange(1, 200)) for _ in sockets]
        for s, payload in zip(sockets, sent, strict=True):
            s.send(payload)
        assert [s.recv(2000) for s in sockets] == sent


def test_a_closed_port_is_refused(client: Callable[..., socket.socket]) -> None:
    """Port unreachable reaches the kernel's socket as ECONNREFUSED, whoever sent it."""
    s = client(CLOSED)
    s.send(b"anybody?")
    with pytest.raises(ConnectionRefusedError):
        s.recv(100)


def test_linux_refuses_and_our_connected_socket_is_told(tap: tuple[Any, libos.Runtime]) -> None:
    space, runtime = tap
    ours = runtime.open_udp()
    ours.connect((LINUX, CLOSED))
    ours.send(b"anybody?")
    with pytest.raises(CorelaneError) as refused:
        ours.receive(10)
    assert refused.value.errno == errno.ECONNREFUSED
    with space.entered():
        peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with peer:
        peer.bind((LINUX, CLOSED))
        peer.settimeout(60)
        ours.send(b"now there is")
        data, came_from = peer.recvfrom(100)
        assert (data, came_from) == (b"now there is", (OURS, ours.port))
        with space.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"not from the peer", came_from)
        peer.sendto(b"yes", came_from)
        assert ours.receive(10) == (b"yes", (LINUX, CLOSED))
    runtime.wait_until(lambda s: s.net["icmp_errors"] == 1)


def test_datagrams_without_checksum(client: Callable[..., socket.socket]) -> None:
    s = client()
    s.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
    s.send(b"unchecked")
    assert s.recv(100) == b"unchecked"


def test_ping_from_linux(tap: tuple[Any, libos.Runtime]) -> None:
    space, runtime = tap
    if not shutil.which("ping"):
        pytest.skip("needs ping: apt-get install iputils-ping")
    for size in ("0", "56", "1472"):
        out = space.run(["ping", "-n", "-c", "3", "-i", "0.01", "-w", "30", "-s", size, OURS]).stdout
        assert " 3 received" in out, out
    runtime.wait_until(lambda s: s.net["answered"] >= 9)


def test_fragments_are_refused_and_counted(tap: tuple[Any, libos.Runtime]) -> None:
    space, runtime = tap
    with space.entered():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with s:
        s.sendto(bytes(3000), (OURS, 9000))
        stats = runtime.wait_until(lambda s: s.dropped["ip_reassembly"] == 1 and s.dropped["ip_fragment"] == 2, 60)
        assert stats.net["handled"] == 0


def test_linux_learns_our_address(tap: tuple[Any, libos.Runtime]) -> None:
    space, runtime = tap
    with space.entered():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with s:
        s.settimeout(60)
        s.sendto(b"x", (OURS, 9000))
        assert s.recv(10) == b"x"
    neighbours = subprocess.run(space.command(["ip", "neigh"]), capture_output=True, text=True, check=True).stdout
    assert runtime.mac in neighbours
