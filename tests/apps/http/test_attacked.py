"""Peers that mean no good to the ports of http, from Linux over a NIC: memory is bounded, each is told what HTTP says,
and another client is served all the time. State by state, without a network: test_hostile.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import hostilepeers as hp
import pytest
from cltest import soak, wait_until
from httphost import LARGE, read_answers
from httpnet import OURS, Served, served_on

pytestmark = pytest.mark.root

ASK = b"GET /sub/ HTTP/1.1\r\nHost: here\r\n\r\n"
ASK_LARGE = ASK.replace(b"/sub/", b"/large.bin")
HALF_HEAD = b"GET /sub/ HTTP/1.1\r\nHost: here\r\nX: " + b"x" * 10_000
HALF_BODY = b"POST /sub/ HTTP/1.1\r\nHost: here\r\nContent-Length: 500000\r\n\r\n" + bytes(100_000)
TLS_PORT = 8443
BACKLOG = 4096  # apps/http/serve.c


@contextmanager
def beside(folder: Path, **options: Any) -> Iterator[tuple[Served, hp.Other]]:
    """A server, and the other client, which asks for a small file all the time."""
    with served_on("tap", root=str(folder), **options) as served, served.connect() as link:
        link.sendall(ASK)
        first = hp.until(link, b"<p>sub")
        other = hp.Other(link, ASK, first, rb"Date: [^\r]*")
        yield served, other
        other()
        print(other.shown())


def statuses(raw: bytes) -> list[int]:
    return [answer.status for answer in read_answers(raw)]


@pytest.mark.soak(short=True, takes_s=15)
def test_syn_flood(folder: Path, seed: int) -> None:
    """No more than the backlog is kept of it, no connection of the server's is, and who means to connect does."""
    count = soak.examples(2000, 500_000)
    with beside(folder) as (served, other):
        hp.syn_flood(served.space, (OURS, served.port), count, other, seed)
        counts = hp.tcp_counts(served.runtime)
        assert counts["begun"] - counts["over"] <= BACKLOG + 1
        assert (counts["cookies_sent"] > 0) == (count > BACKLOG)
        with served.connect() as late:
            late.sendall(ASK)
            assert statuses(hp.until(late, b"<p>sub")) == [200]
        assert served.stats()["opened"] == 2


def test_slow_writers(folder: Path) -> None:
    """Requests that come a byte at a time, of all connections together, are all answered."""
    with beside(folder) as (served, other):
        for link in hp.slow_writers(served.connect, [ASK] * 30, other):
            assert statuses(hp.until(link, b"<p>sub")) == [200]
            link.close()


@pytest.mark.parametrize("beginning", [HALF_HEAD, HALF_BODY], ids=["head", "body"])
def test_clients_that_stop_in_the_middle(folder: Path, beginning: bytes) -> None:
    """They hold what the budget gives, and no more."""
    most = 1 << 20
    with beside(folder, memory_bytes=most) as (served, other):
        links = hp.stopped(served.connect, beginning, 200, other)
        for _ in range(20):
            assert served.stats()["used_bytes"] <= most
            other()
        for link in links:
            link.close()
        wait_until(lambda: served.stats()["alive"] == 1, 60.0, "them to be let go of")


def test_many_slow_readers(folder: Path) -> None:
    """Who asks for much and does not read is not read from; what he asked for and was begun comes whole."""
    with beside(folder, memory_bytes=4 << 20) as (served, other):
        links = hp.stopped(served.connect, ASK_LARGE * 3, 30, other)
        for _ in range(20):
            assert served.stats()["used_bytes"] <= 4 << 20
            other()
        links[0].shutdown(socket.SHUT_WR)
        assert len(hp.ended(links[0])) > 3 * LARGE
        for link in links:
            link.close()
        other()


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"Content-Length: -1\r\n", 400),
        (b"Content-Length: 99999999999999999999\r\n", 400),
        (b"Content-Length: 5\r\nContent-Length: 6\r\n", 400),
        (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        (b"X: " + b"x" * 70_000 + b"\r\n", 431),
    ],
)
def test_lengths_that_cannot_be(folder: Path, line: bytes, status: int) -> None:
    with beside(folder) as (served, other), served.connect() as link:
        link.sendall(b"POST /sub/ HTTP/1.1\r\nHost: here\r\n" + line + b"\r\n")
        assert statuses(hp.ended(link)) == [status]
        assert served.stats()["used_bytes"] < 128 << 10, "no memory for what was announced"
        other()


@pytest.mark.soak(short=True, takes_s=30)
@pytest.mark.parametrize("port", [0, TLS_PORT], ids=["plain", "tls"])
def test_garbage(folder: Path, certificate: tuple[Path, Path], seed: int, port: int) -> None:
    """Bytes of all kinds to both ports: an answer or an end, and nothing kept."""
    names = dict(zip(("tls_cert", "tls_key"), map(str, certificate), strict=True))
    words = [
        b"GET ",
        b"/",
        b" HTTP/1.1",
        b"\r\n",
        b"Host: a",
        b"\x16\x03\x01",
        b"Content-Length: ",
        b"9" * 30,
        b"\0",
        b":",
    ]
    with beside(folder, **names) as (served, other):
        connect = partial(served.connect, port)
        hp.garbage(connect, words, soak.examples(100, 5000), other, seed, first=b"\x16\x03\x01")
        wait_until(lambda: served.stats()["alive"] == 1, 60.0, "all of them to be let go of")


@pytest.mark.soak(short=True, takes_s=10)
def test_connections_that_come_and_go(folder: Path, seed: int) -> None:
    beginnings = [b"", ASK, ASK_LARGE, HALF_HEAD, HALF_BODY[:2000], b"\r\n" * 100, b"GET / HTTP/9.9\r\n\r\n"]
    count = soak.examples(500, 10_000)
    with beside(folder, connections=100) as (served, other):
        hp.come_and_go(served.connect, beginnings, count, other, seed)
        wait_until(lambda: served.stats()["alive"] == 1, 60.0, "all of them to be let go of")
        stats = served.stats()
        assert stats["opened"] + stats["refused_connections"] == count + 1


def test_a_pipeline_of_a_million_without_reading(folder: Path) -> None:
    """No more of it is taken than what waits to be read allows, and nothing more comes in while nothing is read."""
    block, most = ASK * 1000, 1_000_000 * len(ASK)
    with beside(folder) as (served, other), served.connect() as link:
        link.setblocking(False)
        sent = stuck = 0
        while sent < most and stuck < 20:
            try:
                sent += link.send(block)
                stuck = 0
            except BlockingIOError:
                stuck += 1
                other()
        assert stuck == 20
        assert served.stats()["requests"] < 1_000_000
        assert served.stats()["used_bytes"] < 1 << 20
