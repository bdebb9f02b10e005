"""Stream sockets against Linux: the kernel's sockets talk to them over a tap, in both roles, many, to all ends."""

from __future__ import annotations

import errno
import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from corelane import libos
from corelane.drivers.nic.tap.tap import Tap
from corelane.runtime.errors import CorelaneError

pytestmark = pytest.mark.root

LINUX, OURS, PORT = "10.99.0.1", "10.99.0.2", 7000
WAIT_S = 30.0


class Peers:
    """A runtime in a namespace with Linux on the other end of a tap."""

    def __init__(self, space: Any, runtime: libos.Runtime) -> None:
        self.space, self.runtime = space, runtime

    def socket(self) -> socket.socket:
        with self.space.entered():
            s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(WAIT_S)
        return s

    def connected(self) -> tuple[socket.socket, libos.TcpStream]:
        """Linux connects."""
        with self.runtime.listen_tcp(PORT) as listener:
            linux = self.socket()
            linux.connect((OURS, PORT))
            return linux, listener.accept(WAIT_S)

    def connecting(self) -> tuple[socket.socket, libos.TcpStream]:
        """Linux listens."""
        with self.socket() as listener:
            listener.bind((LINUX, 0))
            listener.listen(1)
            ours = self.runtime.connect_tcp(listener.getsockname(), timeout_s=WAIT_S)
            linux, _ = listener.accept()
        linux.settimeout(WAIT_S)
        return linux, ours

    def both_roles(self) -> Iterator[tuple[socket.socket, libos.TcpStream]]:
        for make in (self.connected, self.connecting):
            linux, ours = make()
            with linux, ours:
                yield linux, ours


@pytest.fixture(params=[1, 2], ids=["one kthread", "two kthreads"])
def peers(request: pytest.FixtureRequest, netns: Any) -> Iterator[Peers]:
    space = netns.add()
    with space.entered():
        nic = Tap(address=f"{LINUX}/24", ipv4=OURS, queues=request.param)
    with nic:
        full = nic.buffers_free
        runtime = libos.Runtime(nic=nic)
        runtime.start()
        yield Peers(space, runtime)
        assert runtime.stop() == 0
        assert runtime.stats().balanced
        runtime.close()
        assert nic.buffers_free == full


def read_all(stream: libos.TcpStream) -> bytes:
    parts = []
    while part := stream.read(timeout_s=WAIT_S):
        parts.append(part)
    return b"".join(parts)


def test_bytes_and_half_close(peers: Peers, seed: int) -> None:
    data = random.Random(seed).randbytes(700_000)
    for linux, ours in peers.both_roles():
        assert ours.peer == linux.getsockname()
        assert ours.own == linux.getpeername()
        sender = threading.Thread(target=lambda s=linux: (s.sendall(data), s.shutdown(socket.SHUT_WR)))
        sender.start()
        assert read_all(ours) == data
        sender.join()
        answers: list[bytes] = []  # to one that has shut its side

        def receive(s: socket.socket = linux, into: list[bytes] = answers) -> None:
            while part := s.recv(65536):
                into.append(part)

        receiver = threading.Thread(target=receive)
        receiver.start()
        ours.write(data, timeout_s=WAIT_S)
        info = ours.info
        assert info.state == 7  # CLOSE_WAIT
        assert 0 < info.rtt_us < 10_000_000
        ours.shutdown()
        receiver.join()
        assert b"".join(answers) == data


def test_resets(peers: Peers) -> None:
    for linux, ours in peers.both_roles():
        linux.sendall(b"before")
        assert ours.peek(6, timeout_s=WAIT_S)[:1] == b"b"
        linux.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        linux.close()
        with pytest.raises(CorelaneError) as reset:  # what was not read is flushed (RFC 9293, section 3.10.7.4)
            read_all(ours)
        assert reset.value.errno == errno.ECONNRESET
    for linux, ours in peers.both_roles():
        ours.abort()
        with pytest.raises(ConnectionResetError):
            linux.recv(1)


def test_close_with_unread_data_resets_and_without_does_not(peers: Peers) -> None:
    for linux, ours in peers.both_roles():
        linux.sendall(b"unread")
        assert ours.peek(timeout_s=WAIT_S)
        ours.close()
        with pytest.raises(ConnectionResetError):
            linux.recv(1)
    for linux, ours in peers.both_roles():
        linux.sendall(b"read")
        assert ours.read(4, timeout_s=WAIT_S) == b"read"
        ours.write(b"answer")
        ours.close()
        assert linux.recv(100) == b"answer"
        assert linux.recv(100) == b""


def test_lingering_waits_for_the_last_acknowledgement(peers: Peers) -> None:
    for linux, ours in peers.both_roles():
        ours.write(b"x" * 50_000)
        assert ours.linger(WAIT_S)  # Linux has it in its buffer
        assert sum(len(part) for part in iter(lambda s=linux: s.recv(65536), b"")) == 50_000


N = 200


def test_200_connections_at_once_from_linux(peers: Peers) -> None:
    listeners = [peers.runtime.listen_tcp(PORT, backlog=N) for _ in range(2)]
    clients = [peers.socket() for _ in range(N)]
    for client in clients:
        client.connect((OURS, PORT))
    ours = []
    with peers.runtime.open_poll() as poll:
        for listener in listeners:
            poll.add(listener)
        while len(ours) < N:
            ours += [listener.accept(0) for listener in poll.wait(WAIT_S)]
    for i, client in enumerate(clients):
        client.sendall(b"%04d" % i)
    by_peer = {stream.peer: stream for stream in ours}
    for client in clients:
        stream = by_peer[client.getsockname()]
        stream.write(stream.read(timeout_s=WAIT_S) * 2)
    for i, client in enumerate(clients):
        assert client.recv(8, socket.MSG_WAITALL) == b"%04d%04d" % (i, i)
        client.close()
    assert {stream.read(timeout_s=WAIT_S) for stream in ours} == {b""}
    for stream in ours:
        stream.close()


def test_200_connections_at_once_to_linux(peers: Peers) -> None:
    with peers.socket() as listener:
        listener.bind((LINUX, 0))
        listener.listen(N)
        ours = [peers.runtime.connect_tcp(listener.getsockname(), timeout_s=WAIT_S) for _ in range(N)]
        accepted = [listener.accept()[0] for _ in range(N)]
    for i, stream in enumerate(ours):
        stream.write(b"%04d" % i)
    by_peer = {s.getpeername(): s for s in accepted}
    for i, stream in enumerate(ours):
        linux = by_peer[stream.own]
        linux.settimeout(WAIT_S)
        assert linux.recv(4, socket.MSG_WAITALL) == b"%04d" % i
        linux.close()
        assert stream.read(timeout_s=WAIT_S) == b""
        stream.close()
