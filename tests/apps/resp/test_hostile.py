"""Peers that mean no good to resp's port: memory is bounded, each is told what Redis says, and another client is served
all the time."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hostilepeers as hp
import pytest
from cltest import soak, wait_until
from respserver import OURS, PORT, Served, serving

from corelane.apps.resp.engine import encode

pytestmark = pytest.mark.root

WRONG = b"-ERR Protocol error: "
MOST = 16 << 20  # bytes of the engine
HALF = b"*3\r\n$3\r\nSET\r\n$1\r\nv\r\n$1000000\r\n" + bytes(400_000)


@contextmanager
def beside(**options: Any) -> Iterator[tuple[Served, hp.Other]]:
    """A server, and the other client, whose value is there all the time. Afterwards what was taken is given back."""
    with serving(**{"memory_bytes": MOST, **options}) as served, served.connect() as link:
        link.sendall(encode("SET", "mine", "kept"))
        assert link.recv(100) == b"+OK\r\n"
        other = hp.Other(link, encode("GET", "mine"), b"$4\r\nkept\r\n")
        other()
        before = served.stat("memory_used")
        yield served, other
        wait_until(lambda: served.clients() == 1, 60, "the others to be gone")
        other()
        assert served.stat("memory_used") <= before + 65536, "what they held is free again"
        print(other.shown())


@pytest.mark.soak(short=True, takes_s=15)
def test_syn_flood(seed: int) -> None:
    """No more than the backlog is kept of it, and who means to connect does."""
    count = soak.examples(2000, 500_000)
    with beside(backlog=64) as (served, other):
        hp.syn_flood(served.space, (OURS, PORT), count, other, seed)
        counts = hp.tcp_counts(served.runtime)
        assert counts["begun"] - counts["over"] <= 64 + 1
        assert counts["cookies_sent"] > 0
        with served.connect() as late:
            late.sendall(encode("PING"))
            assert late.recv(100) == b"+PONG\r\n"
        assert served.stat("accepted") == 2, "what is half open is no client"


def test_slow_writers() -> None:
    requests = [encode("SET", f"k{i}", f"{i:02}" * 30) for i in range(30)] + [b"PING\r\n" for _ in range(10)]
    with beside() as (served, other):
        links = hp.slow_writers(served.connect, requests, other)
        for link, answer in zip(links, [b"+OK\r\n"] * 30 + [b"+PONG\r\n"] * 10, strict=True):
            assert hp.until(link, b"\r\n") == answer
        assert served.stat("memory_used") < MOST
        for link in links:
            link.close()


def test_clients_that_stop_in_the_middle_of_a_value() -> None:
    """What comes of them counts as memory, within the bound; who has no place is cut off, and others are served."""
    with beside() as (served, other):
        links = []
        for _ in range(60):
            links += hp.stopped(served.connect, HALF, 1, other)
            assert served.stat("memory_used") <= MOST
        assert 0 < served.stat("closed") < 60
        for link in links:
            link.close()


def test_many_slow_readers() -> None:
    """Their replies count as memory. At twice the bound whoever adds to it is cut off; writes are refused before."""
    with beside() as (served, other):
        with served.connect() as client:
            client.sendall(encode("SET", "big", "x" * 100_000))
            assert client.recv(100) == b"+OK\r\n"
        links = []
        for _ in range(40):
            links += hp.stopped(served.connect, encode("GET", "big") * 200, 1, other)
            assert served.stat("memory_used") <= 2 * MOST + (1 << 20)
        assert served.stat("held_back") > 0
        for link in links:
            link.close()
        with served.connect() as client:
            client.sendall(encode("DEL", "big"))
            assert client.recv(100) == b":1\r\n"


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"*1\r\n$-1\r\n", WRONG + b"invalid bulk length\r\n"),
        (b"*1\r\n$600000000\r\n", WRONG + b"invalid bulk length\r\n"),
        (b"*1\r\n$5x\r\n", WRONG + b"invalid bulk length\r\n"),
        (b"*2147483648\r\n", WRONG + b"invalid multibulk length\r\n"),
        (b"*1x\r\n", WRONG + b"invalid multibulk length\r\n"),
        (b"*1\r\nxGET\r\n", WRONG + b"expected '$', got 'x'\r\n"),
        (b"x" * 70_000, WRONG + b"too big inline request\r\n"),
        (b"*" + b"1" * 70_000, WRONG + b"too big mbulk count string\r\n"),
        (b"*1\r\n$" + b"1" * 70_000, WRONG + b"too big bulk count string\r\n"),
        (b'"abc\r\n', WRONG + b"unbalanced quotes in request\r\n"),
    ],
    ids=lambda words: repr(words[:16]),
)
def test_lengths_that_cannot_be(request_: bytes, answer: bytes) -> None:
    """Redis' own error, and the end."""
    with beside() as (served, other), served.connect() as link:
        with contextlib.suppress(ConnectionError):
            link.sendall(request_)
        assert hp.ended(link) == answer
        other()


@pytest.mark.parametrize("request_", [b"*-5\r\n", b"*0\r\n", b"\r\n"])
def test_requests_of_nothing_are_skipped(request_: bytes) -> None:
    with beside() as (served, _), served.connect() as link:
        link.sendall(request_ * 3 + encode("PING"))
        assert link.recv(100) == b"+PONG\r\n"


def test_words_that_never_come_take_no_memory() -> None:
    """A request of a thousand million words is begun by many."""
    with beside() as (served, other):
        before = served.stat("memory_used")
        links = hp.stopped(served.connect, b"*1000000000\r\n$500000000\r\n", 30, other)
        assert served.stat("memory_used") - before < 30 * 65536
        for link in links:
            link.close()


@pytest.mark.soak(short=True, takes_s=30)
def test_garbage(seed: int) -> None:
    words = [b"*3", b"$3", b"\r\n", b"*", b"$", b"-1", b"9" * 20, b"GET", b"SET a ", b"\0", b"'", b'"', b":1"]
    with beside() as (served, other):
        hp.garbage(served.connect, words, soak.examples(100, 5000), other, seed)


@pytest.mark.soak(short=True, takes_s=10)
def test_connections_that_come_and_go(seed: int) -> None:
    beginnings = [b"", b"PING\r\n", HALF[:2000], b"*1000\r\n", b"BLPOP none 0\r\n", b"SUBSCRIBE c\r\n", b"MULTI\r\n"]
    count = soak.examples(500, 10_000)
    with beside() as (served, other):
        hp.come_and_go(served.connect, beginnings, count, other, seed)
        wait_until(lambda: served.clients() == 1, 60, "all to be gone")
        assert served.stat("accepted") + served.stat("refused") == count + 1


@pytest.mark.soak(short=True, takes_s=5)
def test_a_pipeline_of_a_million_commands_without_reading() -> None:
    """It is taken as far as there is room for replies. In the end all of them come."""
    count, value = soak.examples(200_000, 1_000_000), b"x" * 100
    with beside() as (served, other), served.connect() as slow:
        slow.sendall(encode("SET", "v", value))
        assert slow.recv(100) == b"+OK\r\n"
        reply = b"$100\r\n%b\r\n" % value
        writer = threading.Thread(target=slow.sendall, args=(encode("GET", "v") * count,))
        writer.start()
        wait_until(lambda: served.stat("held_back") > 0, 60, "the client to be held back")
        for _ in range(100):
            other()
        assert served.stat("memory_used") < MOST
        left = count * len(reply)
        while left:
            part = slow.recv(min(left, 1 << 20))
            assert part
            left -= len(part)
            other()
        writer.join()


@pytest.mark.parametrize("queues", [1, 2], ids=["one kthread", "two kthreads"])
def test_a_long_pipeline_has_turns(queues: int) -> None:
    """Others have theirs after each 16 KiB of it; all is answered in order."""
    count = 20_000
    with beside(queues=queues) as (served, other), served.connect() as greedy:
        request = b"".join(encode("INCR", "n") for _ in range(count))
        writer = threading.Thread(target=greedy.sendall, args=(request,))
        writer.start()
        got = b""
        while not got.endswith(b":%d\r\n" % count):
            got += greedy.recv(1 << 16)
            other()
        writer.join()
        assert got == b"".join(b":%d\r\n" % (i + 1) for i in range(count))
        assert len(request) // 16384 // 2 <= served.stat("yields") <= len(request) // 16384


def test_subscribers_that_do_not_read() -> None:
    """They are cut off when too much waits for them, and who publishes goes on."""
    with beside() as (served, other):
        subscribers: list[socket.socket] = []
        for _ in range(5):
            subscribers.append(served.connect())
            subscribers[-1].sendall(encode("SUBSCRIBE", "c"))
            assert hp.until(subscribers[-1], b":1\r\n")
        with served.connect() as speaker:
            speaker.sendall(encode("CONFIG", "SET", "client-output-buffer-limit", "pubsub 1mb 0 0"))
            assert hp.until(speaker, b"\r\n") == b"+OK\r\n"
            for _ in range(200):
                speaker.sendall(encode("PUBLISH", "c", "x" * 50_000))
                assert hp.until(speaker, b"\r\n")[:1] == b":"
                assert served.stat("memory_used") < MOST
                other()
        wait_until(lambda: served.clients() == 1, 60, "they to be cut off")
        for s in subscribers:
            s.close()
