"""What a client may not do to the control thread: end it, block it, keep it for itself, or have all of its descriptors.
No test measures time: what would block does so for longer than a client's socket waits."""

from __future__ import annotations

import array
import ctypes
import math
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import die_with_parent, wait_until
from cltest.control import STATS, answer, connect, hello, kind_of, refusal, stats, stats_of

from corelane.iokernel import Access, Iokernel, UserConfig
from corelane.iokernel._native import lib
from corelane.iokernel.control import descriptors, server
from corelane.iokernel.control.descriptors import Strangers
from corelane.iokernel.control.kthreads import _caught
from corelane.iokernel.control.lingering import let_end
from corelane.iokernel.control.server import ControlServer, Grant
from corelane.iokernel.main import _wait_for_signal
from corelane.runtime.errors import CorelaneError
from corelane.runtime.peers import Peer, peer_of

LINGER_S = 30  # longer than any socket of a test waits
NOBODY = 65534
MOST = UserConfig().connections
MIB = 1 << 20

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user: run as root")


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
        with connect(io.socket_path) as sock:
            sock.sendall(hello(b"still"))
            assert kind_of(answer(sock)) == lib.CL_CONTROL_ACCEPT
    told = io.stats()["control"]
    assert told["failed"] >= 3
    assert "ZeroDivisionError" in told["last_error"]
    assert io.failure == ""


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

    def receives_late(self: Strangers, sock: socket.socket, n_bytes: int) -> tuple[bytes, bool]:
        """After we have closed ours: who closes last is who blocks."""
        assert closed.wait(10)
        return receive(self, sock, n_bytes)

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
    with connect(io.socket_path) as other:
        other.sendall(hello(b"honest"))
        assert kind_of(answer(other)) == lib.CL_CONTROL_ACCEPT
    if not sent:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()


HOARD = """
import os, socket, sys
path, n = sys.argv[1], int(sys.argv[2])
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
held = []
for _ in range(n):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    held.append(sock)
held[-1].settimeout(10)
print(held[-1].recv(4096)[24:].split(b"\\0")[0].decode() if sys.argv[3:] else "held", flush=True)
sys.stdin.read()
"""


def hoard(path: str, n: int, *more: str) -> subprocess.Popen[str]:
    """A process of NOBODY that holds n connections; its first line says what its last one was told."""
    return subprocess.Popen(
        [sys.executable, "-c", HOARD, path, str(n), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


@needs_root
def test_a_user_has_a_share_of_the_connections(start: Callable[..., Iokernel], socket_path: str) -> None:
    os.chmod(os.path.dirname(socket_path), 0o755)
    io = start(access=Access(uids=(NOBODY,), mode=0o666))
    with hoard(socket_path, MOST + 1, "read") as greedy:
        assert greedy.stdout is not None
        said = greedy.stdout.readline()
        assert f"user {NOBODY} has {MOST} connections open already: close some, or raise users.{NOBODY}.conn" in said
        with connect(socket_path) as sock:
            sock.sendall(hello(b"honest"))
            assert kind_of(answer(sock)) == lib.CL_CONTROL_ACCEPT
        assert io.stats()["control"]["too_many"] == 1
        greedy.communicate()
    wait_until(lambda: not io.apps)


@needs_root
def test_those_who_may_not_attach_take_no_connection_from_others(
    start: Callable[..., Iokernel], socket_path: str
) -> None:
    os.chmod(os.path.dirname(socket_path), 0o755)
    io = start(access=Access(mode=0o666))
    with hoard(socket_path, 900) as stranger:
        assert stranger.stdout is not None
        assert stranger.stdout.readline() == "held\n"
        with connect(socket_path) as sock:
            sock.sendall(hello(b"honest"))
            assert kind_of(answer(sock)) == lib.CL_CONTROL_ACCEPT
        assert io.stats()["control"]["not_allowed"] == 900
        stranger.communicate()


def test_connections_that_have_gone_are_passed_over(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is looked up for them: who came behind them waits meanwhile."""
    looked_up = []

    def look(sock: socket.socket) -> Peer:
        looked_up.append(sock)
        return peer_of(sock)

    monkeypatch.setattr(server, "peer_of", look)
    control = ControlServer(socket_path, Slow(), patience_s=30)  # type: ignore[arg-type]
    for _ in range(100):
        connect(socket_path).close()
    thread = threading.Thread(target=control.serve)
    with connect(socket_path) as honest:
        honest.sendall(hello(b"honest"))
        thread.start()
        assert "this is a test" in refusal(honest)
        assert len(looked_up) == 1
        assert control.counts["connections"] == 101
        control.stop()
        thread.join()


def test_few_may_wait_to_be_taken(socket_path: str) -> None:
    """The last of them waits for all before it."""
    control = ControlServer(socket_path, Slow())  # type: ignore[arg-type]
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(server._BACKLOG + 2)]
    taken = []
    for sock in waiting:
        sock.setblocking(False)
        taken.append(sock.connect_ex(socket_path) == 0)
    assert taken == [True] * (server._BACKLOG + 1) + [False]  # Linux lets one more in
    control.close()
    for sock in waiting:
        sock.close()


def leave_descriptors(process: subprocess.Popen[str], n: int) -> None:
    """The process may open so many more."""
    used = len(os.listdir(f"/proc/{process.pid}/fd"))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + n, used + n))


def attached(path: str, name: bytes) -> socket.socket:
    sock = connect(path)
    sock.sendall(hello(name))
    assert kind_of(message := answer(sock)) == lib.CL_CONTROL_ACCEPT, message
    return sock


def test_out_of_descriptors_the_listener_pauses(child: Callable[..., subprocess.Popen[str]], socket_path: str) -> None:
    process = child("iokernel.py", socket_path)
    leave_descriptors(process, 10)
    held = [attached(socket_path, b"a%d" % i) for i in range(2)]  # each has five, and none of these can be closed
    held += [connect(socket_path) for _ in range(4)]  # they wait

    def told() -> dict[str, Any]:
        return dict(stats_of(held[0])["control"])

    wait_until(lambda: told().get("accept_failed", 0) >= 3)
    before = told()
    assert "raise the limit of open files" in before["last_error"]
    for _ in range(100):
        told()  # turns of its loop: each is one at which it could have tried again
    assert told()["accept_failed"] < before["accept_failed"] + 50
    for sock in held[1:]:
        sock.close()
    with connect(socket_path) as sock:
        sock.sendall(hello(b"late"))
        assert kind_of(answer(sock)) == lib.CL_CONTROL_ACCEPT  # now that there are descriptors again
    held[0].close()


def test_out_of_descriptors_idle_connections_make_room(
    child: Callable[..., subprocess.Popen[str]], socket_path: str
) -> None:
    """For all that an application needs, its arena and its doorbell too."""
    process = child("iokernel.py", socket_path)
    leave_descriptors(process, 6)
    idle = [connect(socket_path) for _ in range(30)]
    with attached(socket_path, b"honest") as sock:
        assert stats_of(sock)["control"]["made_room"] >= 3
    for one in idle:
        one.close()


def test_where_all_connections_are_taken_the_idlest_makes_room(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 4)
    io = start()
    app = attached(io.socket_path, b"first")  # is never closed for others
    idle = []
    for _ in range(3):
        idle.append(connect(io.socket_path))
        stats_of(idle[-1])  # it was accepted before the next one
    stats_of(idle[0])  # so that the second has been idle for longest
    with attached(io.socket_path, b"honest"):
        assert idle[1].recv(1) == b"", "it made room"
        assert stats_of(idle[0])
        assert stats_of(idle[2])
        assert io.apps == ("first", "honest")
        told = io.stats()["control"]
        assert (told["made_room"], told.get("too_many", 0)) == (1, 0)
    for sock in (app, *idle):
        sock.close()


def test_where_applications_have_all_connections_the_next_is_refused(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_CONNECTIONS", 2)
    io = start()
    with attached(io.socket_path, b"a"), attached(io.socket_path, b"b"), connect(io.socket_path) as more:
        assert "2 connections are open already" in refusal(more)


def test_the_limit_of_descriptors_leaves_some_for_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, 256))
    assert server._most_connections() == 128
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1 << 20, 1 << 20))
    assert server._most_connections() == server._MAX_CONNECTIONS


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


class Slow:
    """A registry that notes who came when. Its statistics, and its registrations of strangers, take as long as a user's
    messages may in a turn."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def stats_json(self) -> bytes:
        self.calls.append("stats")
        until = threading.Event()
        until.wait(server._TURN_S * 1.5)
        return b"{}"

    def register(self, hello: Any, peer: Peer) -> Grant:
        self.calls.append("register" if peer.trusted else f"register {peer.pid}")
        threading.Event().wait(0 if peer.trusted else server._TURN_S * 1.5)
        raise CorelaneError("register", "this is a test")

    def find(self, name: str) -> None:
        return None

    def sweep(self) -> bool:
        return False

    def end(self) -> None:
        pass


def test_registrations_come_before_queries_and_queries_do_not_fill_a_turn(socket_path: str) -> None:
    registry = Slow()
    control = ControlServer(socket_path, registry, patience_s=30)  # type: ignore[arg-type]
    thread = threading.Thread(target=control.serve)
    floods = [connect(socket_path) for _ in range(40)]
    for sock in floods:
        sock.sendall(STATS * 5)
    with connect(socket_path) as honest:
        honest.sendall(hello(b"honest"))
        thread.start()
        assert "this is a test" in refusal(honest)
        asked = registry.calls.index("register")
    control.stop()
    thread.join()
    for sock in floods:
        sock.close()
    assert asked <= 5, f"{asked} of 200 queries went before the registration"


@pytest.mark.parametrize("uid", [12001, 12002], ids=["another process", "another user"])
def test_registrations_of_one_process_do_not_fill_a_turn(
    socket_path: str, monkeypatch: pytest.MonkeyPatch, uid: int
) -> None:
    """Of 1, while 2 registers once."""
    peers = [*[Peer(1, 12001, 1, frozenset())] * 40, Peer(2, uid, 1, frozenset())]
    monkeypatch.setattr(server, "peer_of", lambda _sock: peers.pop(0))
    registry = Slow()
    access = Access(uids=(12001, 12002))
    control = ControlServer(socket_path, registry, access, patience_s=30)  # type: ignore[arg-type]
    thread = threading.Thread(target=control.serve)
    floods = [connect(socket_path) for _ in range(40)]
    for sock in floods:
        sock.sendall(hello(b"flood"))
    with connect(socket_path) as honest:
        honest.sendall(hello(b"honest"))
        thread.start()
        assert "this is a test" in refusal(honest)
        asked = registry.calls.index("register 2")
    control.stop()
    thread.join()
    for sock in floods:
        sock.close()
    assert asked <= 2, f"{asked} of 40 registrations went before this one"


@pytest.fixture
def users_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`users_of(a, b, ...)`: whose the next connections are."""

    def say(*uids: int) -> None:
        peers = [Peer(uid, uid, uid, frozenset()) for uid in uids]
        monkeypatch.setattr(server, "peer_of", lambda _sock: peers.pop(0))

    return say


def test_who_has_had_his_share_of_the_thread_waits_and_others_do_not(
    socket_path: str, users_of: Callable[..., None]
) -> None:
    users_of(12001, 12001, 12002, os.geteuid())
    registry = Slow()
    control = ControlServer(socket_path, registry, Access(uids=(12001, 12002)), patience_s=30)  # type: ignore[arg-type]
    control._paid[12001] = math.inf
    thread = threading.Thread(target=control.serve)
    floods = [connect(socket_path) for _ in range(2)]
    thread.start()
    try:
        for sock in floods:
            sock.sendall(STATS * 5)
        for _ in range(2):  # another user, and one who is trusted
            with connect(socket_path) as honest:
                honest.sendall(hello(b"honest"))
                assert "this is a test" in refusal(honest)
    finally:
        control.stop()
        thread.join()
        for sock in floods:
            sock.close()
    assert registry.calls == ["register 12002", "register"]


def test_while_somebody_must_wait_the_thread_sleeps(
    socket_path: str, monkeypatch: pytest.MonkeyPatch, users_of: Callable[..., None]
) -> None:
    """And what waits is done once it is paid for."""
    slept = threading.Event()
    monkeypatch.setattr(server, "_SHARE", 1e-9)
    monkeypatch.setattr(server, "_BURST_S", 0)
    users_of(12001)
    registry = Slow()
    control = ControlServer(socket_path, registry, Access(uids=(12001,)), patience_s=30)  # type: ignore[arg-type]
    sleep = control._rest

    def note() -> None:
        control._paid.clear()
        slept.set()
        sleep()

    monkeypatch.setattr(control, "_rest", note)
    thread = threading.Thread(target=control.serve)
    thread.start()
    with connect(socket_path) as flood:
        flood.sendall(STATS * 3)
        wait_until(lambda: registry.calls.count("stats") == 3)
    assert slept.is_set()
    control.stop()
    thread.join()


def test_answers_that_a_user_does_not_read_are_bounded(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_MAX_UNREAD", 100_000)
    io = start()
    monkeypatch.setattr(io, "stats_json", lambda: bytes(400_000))
    with connect(io.socket_path) as lazy, connect(io.socket_path) as other:
        lazy.sendall(STATS)
        wait_until(lambda: io.stats()["control"].get("stats", 0) == 1)
        other.sendall(STATS)
        assert "answers that nobody has read" in refusal(other)
