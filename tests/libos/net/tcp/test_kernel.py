"""TCP against Linux: the kernel's sockets talk to connections of a runtime over a tap, both ways, both roles."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import random
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.cbuild import ROOT
from cltest.packets import ipv4, tcp

from corelane import libos
from corelane.drivers.nic.nic import ipv4_to_int
from corelane.drivers.nic.tap.tap import Tap
from corelane.libos._native import ffi, lib

pytestmark = pytest.mark.root

LINUX, OURS, PORT = "10.99.0.1", "10.99.0.2", 7000
MIB = 1 << 20


class Peers:
    """The users of tests/libos/net/tcp/c/peers.c on a runtime, in a namespace with Linux on the other end of a tap."""

    def __init__(self, space: Any, runtime: libos.Runtime, library: ctypes.CDLL) -> None:
        self.space, self.runtime, self.library = space, runtime, library
        self.errors = 0  # with which echoes are to end
        self.library.peers_echo.restype = ctypes.c_void_p
        self.library.peers_fetched.restype = self.library.peers_echo_errors.restype = ctypes.c_uint64

    def listen(self, backlog: int = 128) -> None:
        events = ffi.cast("struct cl_tcp_events *", self.library.peers_echo())
        assert lib.cl_runtime_listen_tcp(self.runtime.ptr, PORT, backlog, events, ffi.NULL) == 0

    def fetch(self, port: int, connections: int, size: int) -> None:
        rt = ctypes.c_void_p(int(ffi.cast("uintptr_t", self.runtime.ptr)))
        rc = self.library.peers_fetch(rt, ipv4_to_int(LINUX), port, connections, ctypes.c_uint64(size))
        assert rc == 0

    def results(self, connections: int) -> list[int]:
        wait_until(lambda: self.library.peers_fetched() == connections, 60.0, "all connections to be over")
        return [self.library.peers_result(i) for i in range(connections)]

    def socket(self, space: Any = None) -> socket.socket:
        with (space or self.space).entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(60.0)
        return s

    def forged(self, source: str, segment: bytes) -> None:
        """A segment comes to the runtime from an address that nobody has."""
        with self.space.entered(), socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
            raw.sendto(ipv4(segment, source, OURS, 6), (OURS, 0))

    def counts(self) -> Any:
        out = ffi.new("struct cl_tcp_counts *")
        lib.cl_runtime_tcp_counts(self.runtime.ptr, out)
        return out


@pytest.fixture(scope="module")
def library(c_library: Callable[..., Path]) -> ctypes.CDLL:
    ctypes.CDLL(str(ROOT / "runtime/_lib/libcorelane.so"), ctypes.RTLD_GLOBAL)  # whose calls the next one makes
    return ctypes.CDLL(str(c_library("tests/libos/net/tcp/c/peers.c")))


@pytest.fixture(params=[1, 2], ids=["one kthread", "two kthreads"])
def peers(request: pytest.FixtureRequest, netns: Any, library: ctypes.CDLL) -> Iterator[Peers]:
    space = netns.add()
    with space.entered():
        nic = Tap(address=f"{LINUX}/24", ipv4=OURS, queues=request.param)
    with nic:
        full = nic.buffers_free
        runtime = libos.Runtime(nic=nic, network=libos.Network(gateway=LINUX))
        runtime.start()
        made = Peers(space, runtime, library)
        errors_before = library.peers_echo_errors()
        yield made
        assert library.peers_echo_errors() - errors_before == made.errors
        assert runtime.stop() == 0
        assert runtime.stats().balanced
        runtime.close()
        assert nic.buffers_free == full


def exchange(sock: socket.socket, data: bytes) -> bytes:
    """Send all, shut down, and return all that comes back."""

    def send() -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    sender.join()
    return b"".join(parts)


def test_linux_connects(peers: Peers, seed: int) -> None:
    peers.listen()
    data = random.Random(seed).randbytes(MIB)
    for size in (0, 1, 5000, MIB):
        with peers.socket() as s:
            s.connect((OURS, PORT))
            back = exchange(s, data[:size])
        assert hashlib.sha256(back).digest() == hashlib.sha256(data[:size]).digest()
    assert peers.counts().accepted == 4


def test_linux_listens(peers: Peers) -> None:
    with peers.socket() as listener:
        listener.bind((LINUX, 0))
        listener.listen(16)
        peers.fetch(listener.getsockname()[1], 8, MIB // 4)
        threads = []

        def echo(s: socket.socket) -> None:
            with s:
                while part := s.recv(65536):
                    s.sendall(part)

        for _ in range(8):
            accepted, _ = listener.accept()
            accepted.settimeout(60.0)
            threads.append(threading.Thread(target=echo, args=(accepted,)))
            threads[-1].start()
        assert peers.results(8) == [0] * 8
        for thread in threads:
            thread.join()
    assert peers.counts().opened == 8


def test_linux_refuses_and_resets(peers: Peers) -> None:
    with peers.socket() as closed:
        closed.bind((LINUX, 0))  # and does not listen
        peers.fetch(closed.getsockname()[1], 1, 10)
        assert peers.results(1) == [errno.ECONNREFUSED]
    with peers.socket() as listener:
        listener.bind((LINUX, 0))
        listener.listen(1)
        peers.fetch(listener.getsockname()[1], 1, 50_000)
        accepted, _ = listener.accept()
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        accepted.close()
        assert peers.results(1) == [errno.ECONNRESET]


def test_nobody_listens(peers: Peers) -> None:
    peers.listen()
    with peers.socket() as s, pytest.raises(ConnectionRefusedError):
        s.connect((OURS, PORT + 1))


def test_options_are_agreed_with_linux(peers: Peers) -> None:
    peers.listen()
    with peers.socket() as s:
        s.connect((OURS, PORT))
        info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        options = info[5]  # tcpi_options: timestamps 1, SACK 2, window scale 4 (linux/tcp.h)
        assert options & 7 == 7
        assert exchange(s, b"x") == b"x"


def test_linux_gets_in_by_a_cookie(peers: Peers, seed: int) -> None:
    peers.listen(backlog=1)
    peers.forged("10.99.0.77", tcp(b"", "10.99.0.77", OURS, 1, PORT, lib.CL_TCPF_SYN))
    data = random.Random(seed).randbytes(MIB // 4)
    with peers.socket() as s:
        wait_until(lambda: peers.counts().begun == 1, 60.0, "the backlog to be full")
        s.connect((OURS, PORT))
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & 7 == 7  # all options, as without a cookie
        assert exchange(s, data) == data
    counts = peers.counts()
    assert (counts.cookies_sent, counts.cookies_right, counts.accepted) == (1, 1, 1)


ECN_SEEN = 8  # tcpi_options (linux/tcp.h): ECN was agreed


def test_ecn_is_agreed_with_linux(peers: Peers) -> None:
    with peers.space.entered():
        Path("/proc/sys/net/ipv4/tcp_ecn").write_text("1")
    peers.listen()
    with peers.socket() as s:
        s.connect((OURS, PORT))
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & ECN_SEEN
        assert exchange(s, bytes(100_000)) == bytes(100_000)
    assert lib.cl_runtime_tcp_congestion(peers.runtime.ptr, b"dctcp", 1) == 0
    with peers.socket() as listener:
        listener.bind((LINUX, 0))
        listener.listen(1)
        peers.fetch(listener.getsockname()[1], 1, 100_000)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[5] & ECN_SEEN
            while part := accepted.recv(65536):
                accepted.sendall(part)
        assert peers.results(1) == [0]


@pytest.mark.parametrize(
    ("idle_ms", "interval_ms", "probes", "rc"),
    [(0, 0, 0, 0), (1, 1, 1, 0), (1, 0, 1, -errno.EINVAL), (1, 1, 0, -errno.EINVAL)],
)
def test_keep_alive_takes(peers: Peers, idle_ms: int, interval_ms: int, probes: int, rc: int) -> None:
    assert lib.cl_runtime_tcp_keep_alive(peers.runtime.ptr, idle_ms, interval_ms, probes) == rc


TCP_REPAIR = 19  # socket option (linux/tcp.h): while it is on, close says nothing to the peer


@pytest.mark.parametrize("silent", [True, False])
def test_keep_alive_ends_what_the_peer_has_forgotten(peers: Peers, silent: bool) -> None:
    assert lib.cl_runtime_tcp_keep_alive(peers.runtime.ptr, 300, 100, 3) == 0
    peers.listen()
    with peers.socket() as s:
        s.connect((OURS, PORT))
        wait_until(lambda: peers.counts().probes >= 3, what="three probes")  # which Linux answers
        s.sendall(b"hello")
        assert s.recv(10) == b"hello"
        s.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    if silent:
        peers.space.ip("address", "flush", "scope", "global")
    wait_until(lambda: peers.counts().over == 1, what="the connection to be over")
    assert peers.counts().resets_in == (not silent)
    peers.errors = 1


def test_a_router_of_linux_has_a_smaller_mtu(peers: Peers, netns: Any, seed: int) -> None:
    """runtime - Linux (1500) - router (1000) - Linux (1500): neither end knows of the middle."""
    near, far = peers.space, netns.add("far")
    middle = netns.add("middle")
    netns.veth(near, middle, addresses=("10.98.0.1", "10.98.0.2"), mtu=1000)
    netns.veth(middle, far, addresses=("10.97.0.1", "10.97.0.2"))
    for space in (near, middle):
        with space.entered():
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    near.ip("route", "add", "10.97.0.0/24", "via", "10.98.0.2")
    middle.ip("route", "add", "10.99.0.0/24", "via", "10.98.0.1")
    far.ip("route", "add", "default", "via", "10.97.0.1")
    peers.listen()
    data = random.Random(seed).randbytes(MIB // 4)
    with peers.socket(far) as s:
        s.connect((OURS, PORT))
        assert exchange(s, data) == data
    assert peers.counts().mtu_shrunk == 1
    assert peers.counts().icmp_errors >= 1
