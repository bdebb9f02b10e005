"""Stand-ins use what they are told to, in as many pieces, and ask each other as often."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from cltest import open_descriptors

from corelane.bench.hostile import busy


class Clock:
    """A CPU that this thread has all of while it does not sleep. Each look at it takes 10 us."""

    def __init__(self) -> None:
        self.now = self.slept = 0.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def monotonic(self) -> float:
        self.now += 1e-5
        return self.now

    def thread_time(self) -> float:
        return self.monotonic() - self.slept


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(busy, "time", made)
    return made


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with pair[0], pair[1]:
        for end in pair:
            end.setblocking(False)
        yield pair


def asked(end: socket.socket) -> int:
    n = 0
    with contextlib.suppress(BlockingIOError):
        while end.recv(9) == b"q":
            n += 1
    return n


def test_one_that_sleeps_uses_its_share(clock: Clock, ends: tuple[socket.socket, socket.socket]) -> None:
    steps = busy.asker(0.25, 1000, 0, ends[0], sleeps=True)
    for _ in range(101):
        next(steps)
    assert clock.now == pytest.approx(0.1, abs=0.003)
    assert clock.slept == pytest.approx(0.075, abs=0.005)


def test_one_that_computes_never_sleeps_and_asks_as_often(
    clock: Clock, ends: tuple[socket.socket, socket.socket]
) -> None:
    steps = busy.asker(0.5, 20, 100, ends[0], sleeps=False)
    next(steps)
    n = 0
    while clock.now < 1:
        next(steps)
        n += asked(ends[1])
    assert clock.slept == 0
    assert n == pytest.approx(100, abs=1)


def test_one_that_sleeps_waits_for_an_answer_each_time(
    clock: Clock, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(busy.select, "select", lambda *what: waited.append(what[3]) or ([], [], []))
    steps = busy.asker(0.1, 100, 300, ends[0], sleeps=True)
    next(steps)
    n = 0
    for _ in range(10):
        next(steps)
        n += asked(ends[1])
    assert (len(waited), n) == (10, 30)


def test_who_answers_uses_a_piece_of_its_share_for_each(
    clock: Clock, ends: tuple[socket.socket, socket.socket]
) -> None:
    steps = busy.answerer(0.1, 100, ends[0])
    next(steps)
    ends[1].send(b"q")
    next(steps)
    assert clock.now == pytest.approx(0.001, abs=5e-5)
    assert ends[1].recv(9) == b"a"
    next(steps)  # nobody has asked
    assert clock.now == pytest.approx(0.001, abs=5e-5)


def test_who_touches_memory_does_so_as_often(
    clock: Clock, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[float] = []
    monkeypatch.setattr(busy, "touch", lambda: touched.append(clock.now))
    steps = busy.asker(0.25, 100, 0, ends[0], sleeps=True, touches=30)
    for _ in range(101):
        next(steps)
    assert len(touched) == pytest.approx(30, abs=1)


def test_what_is_touched_is_given_back() -> None:
    busy.touch()
    before = open_descriptors()
    busy.touch()
    assert open_descriptors() == before


def test_who_answers_changes_files_as_often(
    clock: Clock, ends: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    steps = busy.answerer(0.1, 100, ends[0], changes=50, folder=str(tmp_path))
    next(steps)
    seen = []
    for _ in range(8):
        ends[1].send(b"q")
        next(steps)
        seen.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    made = 1 << 16
    assert seen == [0, made, made, 0, 0, made, made, 0]
    steps.close()
    assert not list(tmp_path.iterdir())
