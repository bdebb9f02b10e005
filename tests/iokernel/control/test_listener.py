"""Connections and descriptors: nobody has those of others, and where there are none left somebody makes room."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from cltest import die_with_parent, wait_until
from cltest.control import answer, attached, connect, hello, kind_of, kthreads, refusal, stats_of
from cltest.registry import FakeRegistry, serving

from corelane.iokernel import Access, Iokernel, UserConfig
from corelane.iokernel._native import lib
from corelane.iokernel.control import listener
from corelane.iokernel.control.callers import Came
from corelane.iokernel.control.server import ControlServer
from corelane.runtime.peers import Peer

NOBODY = 65534
MOST = UserConfig().connections

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user: run as root")


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
held[-1].settimeout(60)
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
        attached(socket_path, b"honest").close()
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
        attached(socket_path, b"honest").close()
        assert io.stats()["control"]["not_allowed"] == 900
        stranger.communicate()


def test_connections_that_have_gone_are_passed_over(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not admitted first: who came behind them waits meanwhile."""
    admitted = []
    admit = listener.Listener._admit

    def note(taker: listener.Listener, sock: socket.socket, peer: Peer) -> None:
        admitted.append(sock)
        admit(taker, sock, peer)

    monkeypatch.setattr(listener.Listener, "_admit", note)
    control = ControlServer(socket_path, FakeRegistry(), patience_s=30)
    for _ in range(100):
        connect(socket_path).close()
    with connect(socket_path) as honest:
        honest.sendall(hello(b"honest"))
        with serving(control):
            assert "this is a test" in refusal(honest)
            assert len(admitted) == 1
            assert control.counts["connections"] == 101


def test_few_may_wait_to_be_taken(socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of them waits for all before it."""
    monkeypatch.setattr(listener, "_BACKLOG", 16)
    control = ControlServer(socket_path, FakeRegistry())
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(listener._BACKLOG + 2)]
    taken = []
    for sock in waiting:
        sock.setblocking(False)
        taken.append(sock.connect_ex(socket_path) == 0)
    assert taken == [True] * (listener._BACKLOG + 1) + [False]  # Linux lets one more in
    control.close()
    for sock in waiting:
        sock.close()


@contextlib.contextmanager
def threads(n: int) -> Iterator[list[int]]:
    """The ids of so many threads of this process."""
    over, tids = threading.Event(), queue.SimpleQueue[int]()

    def sleep() -> None:
        tids.put(threading.get_native_id())
        over.wait()

    made = [threading.Thread(target=sleep) for _ in range(n)]
    for thread in made:
        thread.start()
    yield [tids.get() for _ in range(n)]
    over.set()
    for thread in made:
        thread.join()


def leave_descriptors(process: subprocess.Popen[str], n: int) -> None:
    """The process may open so many more."""
    used = len(os.listdir(f"/proc/{process.pid}/fd"))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + n, used + n))


def test_an_iokernel_may_open_as_many_descriptors_as_the_system_lets_it(socket_path: str) -> None:
    """Wherever it runs: the soft limit of most systems is 1024."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        ControlServer(socket_path, FakeRegistry()).close()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


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
    attached(socket_path, b"late").close()  # now that there are descriptors again
    held[0].close()


def test_a_pause_is_said_once_until_a_connection_is_taken_again(
    socket_path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    control = ControlServer(socket_path, FakeRegistry())

    def pause() -> None:
        with monkeypatch.context() as full:
            full.setattr(control._listener._callers, "take", lambda _most: Came(error=errno.EMFILE))
            control._listener.accept()
        control._listener._again = 0.0
        control._listener.expire()

    for said in (1, 1, 2):
        if said == 2:
            connect(socket_path).close()
            control._listener.accept()
        pause()
        assert [record.message for record in caplog.records] == [
            "no connection can be taken: Too many open files (raise the limit of open files, ulimit -n)"
        ] * said
    control.close()


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


@pytest.mark.parametrize("idle", [4, 0])
def test_kthreads_that_nothing_is_left_for_are_not_managed_in_silence(
    child: Callable[..., subprocess.Popen[str]], socket_path: str, idle: int
) -> None:
    """Each takes three descriptors: idle connections make room, and without any the application is told."""
    process = child("iokernel.py", socket_path, "adaptive", str(max(os.sched_getaffinity(0))))
    lazy = [connect(socket_path) for _ in range(idle)]
    for sock in lazy:
        stats_of(sock)  # it was taken
    leave_descriptors(process, 5 + 4)  # a connection with an application takes five
    with threads(2) as tids, attached(socket_path, b"honest", n_kthreads=2) as sock:
        sock.sendall(kthreads(tids, 0))
        if idle:
            assert kind_of(answer(sock)) == lib.CL_CONTROL_KTHREADS_OK
        else:
            assert "no descriptors for its 2 kthreads, which take three each" in refusal(sock)
    for sock in lazy:
        sock.close()


def test_where_all_connections_are_taken_the_idlest_makes_room(
    start: Callable[..., Iokernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_MAX_CONNECTIONS", 4)
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
    monkeypatch.setattr(listener, "_MAX_CONNECTIONS", 2)
    io = start()
    with attached(io.socket_path, b"a"), attached(io.socket_path, b"b"), connect(io.socket_path) as more:
        assert "2 connections are open already" in refusal(more)


def test_the_limit_of_descriptors_leaves_some_for_applications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (256, 256))
    assert listener.most_connections() == 128
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1 << 20, 1 << 20))
    assert listener.most_connections() == listener._MAX_CONNECTIONS
