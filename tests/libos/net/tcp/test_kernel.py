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
        self.library.peers_echo.restype = ctypes.c_void_p
        self.library.peers_fetched.restype = self.library.peers_echo_errors.restype = ctypes.c_uint64

    def listen(self) -> None:
        events = ffi.cast("struct cl_tcp_events *", self.library.peers_echo())
        assert lib.cl_runtime_listen_tcp(self.runtime.ptr, PORT, 128, events, ffi.NULL) == 0

    def fetch(self, port: int, connections: int, size: int) -> None:
        rt = ctypes.c_void_p(int(ffi.cast("uintptr_t", self.runtime.ptr)))
        rc = self.library.peers_fetch(rt, ipv4_to_int(LINUX), port, connections, ctypes.c_uint64(size))
        assert rc == 0

    def results(self, connections: int) -> list[int]:
        wait_until(lambda: self.library.peers_fetched() == connections, 60.0, "all connections to be over")
        return [self.library.peers_result(i) for i in range(connections)]

    def socket(self) -> socket.socket:
        with self.space.entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(30.0)
        return s

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
        runtime = libos.Runtime(nic=nic)
        runtime.start()
        made = Peers(space, runtime, library)
        yield made
        assert library.peers_echo_errors() == 0
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
            accepted.settimeout(30.0)
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
