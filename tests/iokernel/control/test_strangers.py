"""What a client may not do to the control thread: end it, block it, or have it keep memory for the client.
No test measures time: what would block does so for longer than a client's socket waits."""

from __future__ import annotations

import array
import ctypes
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import wait_until
from cltest.control import STATS, area, attached, connect, hello, kind_of, moves, refusal, stats
from cltest.registry import FakeRegistry, serving

from corelane.iokernel import Iokernel
from corelane.iokernel._native import lib
from corelane.iokernel.control import descriptors, listener, requests
from corelane.iokernel.control.descriptors import Strangers
from corelane.iokernel.control.kthreads import _caught
from corelane.iokernel.control.lingering import let_end
from corelane.iokernel.control.server import ControlServer
from corelane.iokernel.main import _wait_for_signal
from corelane.runtime.errors import CorelaneError
from corelane.runtime.peers import Peer, peer_of

LINGER_S = 30  # longer than any socket of a test waits
MIB = 1 << 20


@pytest.mark.parametrize("name", [b"\xff\xfe", "fünfzehnbytesä".encode()[:15], b"a) b\n(c"])
def test_a_process_may_have_any_bytes_for_a_name(name: bytes) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    held = Path("/proc/self/comm").read_bytes().rstrip(b"\n")
    try:
        ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME, of this thread: the process's if it is the first
        assert threading.current_thread() is threading.main_thread()
        assert let_end(os.getpid()) == 0
        assert _caught(os.getpid()) >> (signal.SIGUSR1 - 1) & 1
    finally:
        signal.signal(signal.SIGUSR1, before)
        ctypes.CDLL(None).prctl(15, held, 0, 0, 0)


def test_a_step_that_fails_is_counted_and_survived(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    io = start()
    monkeypatch.setattr(io, "sweep", lambda: 1 // 0)
    for _ in range(3):
        attached(io.socket_path, b"still").close()
    told = io.stats()["control"]
    assert told["failed"] >= 3
    assert "ZeroDivisionError" in told["last_error"]
    assert io.failure == ""


def test_a_connection_that_cannot_even_be_ended_ends_nothing_else(
    socket_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither while others are served, nor when the iokernel stops."""
    io = Iokernel(socket_path)
    io.start()

    def fails(*_: object) -> None:
        raise RuntimeError("a planted fault")

    kept = attached(io.socket_path, b"kept")
    assert io._server is not None
    with monkeypatch.context() as planted:
        planted.setattr(io._server._registrations, "end", fails)
        planted.setattr(io._server._requests, "take", fails)
        kept.sendall(STATS)
        assert kept.recv(1) == b""
        wait_until(lambda: io.stats()["control"]["failed"] == 2)
    other = attached(io.socket_path, b"other")
    monkeypatch.setattr(io._server._registrations, "end", fails)
    io.stop()
    assert other.recv(1) == b""
    assert io.failure == ""
    assert not os.path.exists(io.socket_path)
    kept.close()
    other.close()


def test_a_control_thread_that_ended_is_an_error_of_who_runs_it(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_server: ControlServer) -> float:
        raise RuntimeError("a planted fault")

    io = start()
    monkeypatch.setattr(ControlServer, "_timeout", fails)
    with connect(io.socket_path):
        wait_until(lambda: io.failure)
    with pytest.raises(CorelaneError, match=r"its thread ended \(RuntimeError: a planted fault\)"):
        _wait_for_signal(io, {}, lambda *_: None)


@pytest.fixture
def lingering() -> Iterator[Callable[[], socket.socket]]:
    """`sock = lingering()`: a TCP connection whose last close blocks for LINGER_S."""
    peers: list[socket.socket] = []

    def make() -> socket.socket:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(1)
            ours = socket.socket()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_S))
            ours.connect(listener.getsockname())
            peers.append(listener.accept()[0])
        ours.setblocking(False)
        try:
            while True:
                ours.send(bytes(65536))
        except BlockingIOError:
            return ours

    yield make
    for peer in peers:  # a reset: nobody lingers any longer
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()


def test_descriptors_are_refused_before_anybody_can_connect(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection is what its listener was when it was made."""
    listening: list[int] = []

    def note(sock: socket.socket) -> bool:
        listening.append(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        return True

    monkeypatch.setattr(descriptors, "_refuse", note)
    ControlServer(socket_path, FakeRegistry()).close()
    assert listening == [0]


def test_on_an_older_kernel_the_queue_of_the_listener_is_not_closed_on_the_control_thread(
    socket_path: str, lingering: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "_refuse", lambda _listener: False)
    control = ControlServer(socket_path, FakeRegistry())
    theirs = lingering()
    with connect(socket_path) as sock:  # nobody takes it
        sock.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))])
        os.close(theirs.detach())  # the last one is in the queue now
        closing = threading.Thread(target=control.close)
        closing.start()
        closing.join(LINGER_S / 3)
        assert not closing.is_alive()


@pytest.mark.parametrize("kernel", ["as it is", "older"])
@pytest.mark.parametrize("whole", [True, False])
def test_a_descriptor_whose_close_blocks_holds_nobody_up(
    start: Callable[..., Iokernel],
    lingering: Callable[[], socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    kernel: str,
    whole: bool,
) -> None:
    """whole: it comes with something to read; else it waits unread in a connection that is closed."""
    if kernel == "older":
        monkeypatch.setattr(descriptors, "_refuse", lambda _listener: False)
    closed, receive = threading.Event(), Strangers.receive

    def receives_late(self: Strangers, sock: socket.socket, account: int, n_bytes: int) -> tuple[bytes, bool]:
        """After we have closed ours: who closes last is who blocks."""
        assert closed.wait(60)
        return receive(self, sock, account, n_bytes)

    monkeypatch.setattr(Strangers, "receive", receives_late)
    io = start()
    theirs = lingering()
    sock = connect(io.socket_path)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
    sent = True
    try:
        if not whole:
            sock.sendall(b"garbage that is refused ")
        sock.sendmsg([b"x"], rights)
    except PermissionError:
        sent = False  # refused by the kernel: nothing to close
    assert sent or kernel == "as it is"
    if sent:
        os.close(theirs.detach())  # the last one is the iokernel's now
    closed.set()
    sock.close()
    for _ in range(5):
        assert stats(io.socket_path)["control"]["last_error"] == ""
    attached(io.socket_path, b"honest").close()
    if not sent:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()


def test_a_close_that_blocks_is_its_users_matter(
    lingering: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an older kernel: what is his is closed late, and counts until then; what is others' is closed."""
    monkeypatch.setattr(descriptors, "_refuse", lambda _listener: False)
    with socket.socket(socket.AF_UNIX) as listening:
        strangers = Strangers(listening)
    strangers.close(lingering(), 12001)
    ours, theirs = socket.socketpair()
    strangers.close(ours, 12001)
    other, others = socket.socketpair()
    strangers.close(other, 12002)
    with theirs, others:
        others.settimeout(LINGER_S / 3)
        assert others.recv(1) == b""
        wait_until(lambda: strangers.waiting(12002) == 0)
        assert strangers.waiting(12001) == 2
    strangers.end()


def test_who_may_not_attach_is_not_read_and_what_he_sent_along_is_closed_elsewhere(
    socket_path: str, lingering: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an older kernel: it waits in his connection, and goes with that."""
    monkeypatch.setattr(descriptors, "_refuse", lambda _listener: False)
    peers, receive = [Peer(1, 12001, 12001, frozenset())], Strangers.receive
    read: list[socket.socket] = []

    def note(self: Strangers, sock: socket.socket, account: int, n_bytes: int) -> tuple[bytes, bool]:
        read.append(sock)
        return receive(self, sock, account, n_bytes)

    monkeypatch.setattr(listener, "peer_of", lambda sock: peers.pop() if peers else peer_of(sock))
    monkeypatch.setattr(Strangers, "receive", note)
    control = ControlServer(socket_path, FakeRegistry(), patience_s=0.05)
    theirs = lingering()
    with serving(control), connect(socket_path) as sock:
        sock.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))])
        os.close(theirs.detach())
        assert "user 12001 may not attach" in refusal(sock)
        wait_until(lambda: not control._listener._turned_away)  # the last one is closed with his connection
        assert not read
        with connect(socket_path) as honest:
            honest.sendall(hello(b"honest"))
            assert "this is a test" in refusal(honest)


def arena_of(sock: socket.socket) -> int:
    """Bytes of memory that the arena of the ACCEPT on its way takes now."""
    message, rights, _, _ = sock.recvmsg(4096, socket.CMSG_SPACE(12))
    assert kind_of(message) == lib.CL_CONTROL_ACCEPT, message
    fds = array.array("i", rights[0][2][:12])
    used = os.fstat(fds[0]).st_blocks * 512
    for fd in fds:
        os.close(fd)
    return used


def private_bytes() -> int:
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize(
    ("wishes", "most"),
    [
        ({}, MIB),
        ({"n_kthreads": 30, "rx_slots": 1 << 20, "tx_slots": 1 << 20, "n_rx": 16, "n_tx": 16}, 4 * MIB),
        ({"n_rx": 3_300_000, "n_tx": 16, "rx_slots": 16, "tx_slots": 16, "buffer_bytes": 256}, MIB),
        ({"n_kthreads": 64, "n_rx": 20_000, "buffer_bytes": 16384}, 8 * MIB),
    ],
)
def test_one_hello_has_no_memory_touched_that_is_not_used(
    start: Callable[..., Iokernel], wishes: dict[str, int], most: int
) -> None:
    io = start()
    before = private_bytes()
    with connect(io.socket_path) as sock:
        sock.sendall(hello(b"greedy", **wishes))
        assert arena_of(sock) <= most
        assert private_bytes() - before < 8 * MIB, "nor in the iokernel's own lists"
        assert io.stats()["apps"][0]["buffers_free"] == io.stats()["apps"][0]["arena"]["n_rx"]


def test_what_an_application_has_used_is_not_freed_on_the_control_thread(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last descriptor of an arena is closed elsewhere: freeing a gigabyte takes a while."""
    io = start()
    closed: list[tuple[str, str]] = []
    close = os.close

    def note(fd: int) -> None:
        closed.append((threading.current_thread().name, os.readlink(f"/proc/self/fd/{fd}")))
        close(fd)

    sock = attached(io.socket_path, b"large")
    monkeypatch.setattr(os, "close", note)
    sock.close()
    wait_until(lambda: any("corelane-arena" in what for _, what in closed))
    assert {who for who, what in closed if "corelane-arena" in what} == {"corelane-closer"}


@pytest.mark.parametrize("question", [STATS, moves(0), area(lib.CL_CONTROL_AREA_LIST)], ids=["stats", "moves", "areas"])
def test_answers_that_a_user_does_not_read_are_bounded(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch, question: bytes
) -> None:
    monkeypatch.setattr(requests, "_MAX_UNREAD", 100_000)
    io = start()
    monkeypatch.setattr(io, "stats_json", lambda: bytes(400_000))
    with connect(io.socket_path) as lazy, connect(io.socket_path) as other:
        lazy.sendall(STATS)
        wait_until(lambda: io.stats()["control"].get("stats", 0) == 1)
        other.sendall(question)
        assert "answers that nobody has read" in refusal(other)
