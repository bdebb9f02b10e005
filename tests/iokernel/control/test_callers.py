"""Who has gone before he was taken is counted and closed; who lives is handed over, in order."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from cltest import open_descriptors
from cltest.control import connect

from corelane.iokernel.control.callers import Callers, Came

ME = os.geteuid()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"\0corelane-callers-{os.getpid()}")
        sock.setblocking(False)
        sock.listen(512)
        yield sock


def come(listener: socket.socket, *, gone: int = 0, sent: bytes = b"") -> None:
    for _ in range(gone):
        with connect(listener.getsockname()) as sock:
            sock.sendall(sent)


def taken(listener: socket.socket, *, drop: bool = True, most: int = 512) -> Came:
    return Callers(listener.fileno(), drop=drop).take(most)


def test_the_living_are_handed_over_and_the_others_closed(listener: socket.socket) -> None:
    with ExitStack() as stack:
        before = open_descriptors()
        come(listener, gone=3)
        first = stack.enter_context(connect(listener.getsockname()))
        come(listener, gone=2)
        half = stack.enter_context(connect(listener.getsockname()))
        half.shutdown(socket.SHUT_WR)  # still waits for an answer
        come(listener, gone=1)
        for theirs, n in ((first, 4), (half, 3)):
            came = taken(listener)
            assert (came.users, came.error) == ({ME: n}, 0)
            assert came.sock is not None
            assert fcntl.fcntl(came.sock, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
            assert not came.sock.getblocking()
            came.sock.send(b"%d" % n)
            assert theirs.recv(9) == b"%d" % n
            came.sock.close()
        assert taken(listener) == Came(None, Counter({ME: 1}), errno.EAGAIN)
        assert open_descriptors() == before + 2


@pytest.mark.parametrize("drop", [True, False])
def test_what_has_gone_with_something_unread_may_hold_descriptors(listener: socket.socket, drop: bool) -> None:
    come(listener, gone=1, sent=b"x")
    came = taken(listener, drop=drop)
    assert came.users == {ME: 1}
    assert (came.sock is None) is drop
    if came.sock is not None:
        assert came.sock.recv(9) == b"x"
        came.sock.close()


def test_only_so_many_are_taken(listener: socket.socket) -> None:
    come(listener, gone=3)
    assert taken(listener, most=2) == Came(None, Counter({ME: 2}), 0)
    assert taken(listener, most=2) == Came(None, Counter({ME: 1}), errno.EAGAIN)


@pytest.mark.skipif(ME != 0, reason="acts as another user: run as root")
def test_each_user_is_counted(listener: socket.socket) -> None:
    come(listener, gone=2)
    if (child := os.fork()) == 0:
        try:
            os.setuid(12001)
            come(listener, gone=3)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    come(listener, gone=1)
    assert taken(listener) == Came(None, Counter({0: 3, 12001: 3}), errno.EAGAIN)
