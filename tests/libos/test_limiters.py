"""The worked examples in C, numba and asyncio are one service: the same lines get the same answers from each."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cltest import wait_until
from cltest.examples import EXAMPLES, compile_example, end_example, start_example

from corelane import libos
from corelane.runtime.errors import CorelaneError

HOUR_MS = 3_600_000
USAGE = b"error say: hit NAME, or left NAME"


class Client:
    """A connection to a limiter."""

    def __init__(self, stream: libos.TcpStream) -> None:
        self.stream = stream

    def answers(self, n: int) -> list[bytes]:
        """The next n lines."""
        got = b""
        while got.count(b"\n") < n:
            part = self.stream.read(timeout_s=20)
            assert part, got
            got += part
        return got.splitlines()

    def ask(self, *lines: bytes) -> list[bytes]:
        """The answers to lines that are sent at once."""
        self.stream.write(b"".join(line + b"\n" for line in lines))
        return self.answers(len(lines))


Start = Callable[[int, int], contextlib.AbstractContextManager[Callable[[], Client]]]


@pytest.fixture(params=["c", "numba", "asyncio"])
def limiter(request: pytest.FixtureRequest, outside: Any, tmp_path: Path) -> Start:
    """`with limiter(hits, window_ms) as connect:` runs one, which has to end well; `connect()` is a Client."""
    _wire, path, start = outside
    kind = request.param

    @contextlib.contextmanager
    def run(hits: int, window_ms: int) -> Iterator[Callable[[], Client]]:
        server = [str(compile_example("c_limiter.c", tmp_path))] if kind == "c" else [sys.executable]
        if kind != "c":
            server.append(str(EXAMPLES / f"{kind}_limiter.py"))
        kernel = start()
        child, address = start_example([*server, path, str(hits), str(window_ms)], kernel, f"{kind}-limiter")
        try:
            with libos.Runtime(path, name="asker") as asker, contextlib.ExitStack() as streams:
                asker.start()

                def connect() -> Client:
                    return Client(streams.enter_context(asker.connect_tcp((address, 7000), timeout_s=20)))

                wait_until(lambda: listens(connect), 60, "the server to listen")
                yield connect
            said = "".join(end_example(child))
            assert re.fullmatch(r".*serv(es|ing) TCP port 7000.*\n", said), said
        finally:
            child.kill()
            child.communicate()

    return run


def listens(connect: Callable[[], Client]) -> bool:
    """It is attached before it listens."""
    try:
        connect()
    except CorelaneError:
        return False
    return True


def test_names_are_counted_and_mistakes_answered(limiter: Start) -> None:
    with limiter(3, HOUR_MS) as connect:
        client, other = connect(), connect()
        lines = [b"hit a"] * 4 + [b"left a", b"left b"]
        assert client.ask(*lines) == [b"ok 2", b"ok 1", b"ok 0", b"full", b"ok 0", b"ok 3"]
        assert other.ask(b"left a", b"hit a\r", b"hit " + b"n" * 32) == [b"ok 0", b"full", b"ok 2"]
        wrong = [b"", b"\r", b"hit", b"hit ", b"left", b"left ", b"hat a", b"HIT a", b" hit a", b"hit  a", b"hit a b"]
        wrong += [b"hit a ", b"left a\tb", b"hit a\r\r", b"hit \0", b"hit " + b"n" * 33, b"left " + b"n" * 58]
        assert client.ask(*wrong) == [USAGE] * len(wrong)
        for piece in (b"le", b"ft a", b"\nleft"):
            client.stream.write(piece)
        assert client.answers(1) == [b"ok 0"]
        assert client.ask(b" c") == [b"ok 3"]


def test_a_line_that_is_too_long_ends_its_connection_alone(limiter: Start) -> None:
    with limiter(3, HOUR_MS) as connect:
        client, other = connect(), connect()
        client.stream.write(b"hit a\n" + b"n" * 64)
        assert client.answers(2) == [b"ok 2", b"error a line has 64 bytes at most"]
        assert client.stream.read(timeout_s=20) == b""
        assert other.ask(b"left a") == [b"ok 2"]


def test_the_name_that_was_asked_for_least_recently_is_forgotten(limiter: Start) -> None:
    with limiter(3, HOUR_MS) as connect:
        client = connect()
        assert client.ask(b"hit asked", b"hit old", b"hit kept", b"left asked") == [b"ok 2"] * 4
        others = [b"hit %d" % i for i in range(998)]
        assert client.ask(*others) == [b"ok 2"] * len(others)
        assert client.ask(b"left old", b"left kept", b"left asked") == [b"ok 3", b"ok 2", b"ok 2"]


def test_a_window_ends(limiter: Start) -> None:
    with limiter(1, 100) as connect:
        client = connect()
        answers: list[bytes] = []

        def begun_anew() -> bool:
            answers.extend(client.ask(b"hit a"))
            return answers[-1] == b"ok 0" and b"full" in answers

        wait_until(begun_anew, 60, lambda: f"another window: {answers[-5:]}")
