"""Peers that mean no good to the store's TCP port: memory is bounded, each is told what the protocol says, and another
client is served all the time. Who does not read, and who comes without end: test_bounds.py."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import hostilepeers as hp
import kvbinary as kb
import pytest
from cltest import soak, wait_until
from kvserver import OURS, PORT, KvServer, kv_server

pytestmark = pytest.mark.root

FORM = b"CLIENT_ERROR bad command line format\r\n"
TOO_LARGE = b"SERVER_ERROR object too large for cache\r\n"
NO_MEMORY = b"SERVER_ERROR out of memory storing object\r\n"
HALF = b"set v 0 0 500000\r\n" + bytes(100_000)


@contextmanager
def beside(**options: Any) -> Iterator[tuple[KvServer, hp.Other]]:
    """A server, and the other client, whose value is there all the time."""
    with kv_server(**options) as server, server.client() as client:
        client.ask(b"set mine 0 0 4\r\nkept\r\n")
        other = hp.Other(client.link, b"get mine\r\n", b"VALUE mine 0 4\r\nkept\r\nEND\r\n")
        yield server, other
        other()
        print(other.shown())


@pytest.mark.soak(short=True, takes_s=15)
def test_syn_flood(seed: int) -> None:
    """No more than the backlog is kept of it, and who means to connect does."""
    count = soak.examples(2000, 500_000)
    with beside(backlog=64) as (server, other):
        hp.syn_flood(server.space, (OURS, PORT), count, other, seed)
        counts = hp.tcp_counts(server.runtime)
        assert counts["begun"] - counts["over"] <= 64 + 1
        assert counts["cookies_sent"] > 0
        with server.client() as late:
            assert late.ask(b"mn\r\n") == b"MN\r\n"
        assert server.stat("conn_opened") == 2, "what is half open is not the store's"


def test_slow_writers() -> None:
    """Values that come a byte at a time: what is kept of each is what has come, and all are stored."""
    requests = [b"set k%d 0 0 60\r\n%b\r\n" % (i, b"%02d" % i * 30) for i in range(30)]
    requests += [kb.request(kb.SET, b"b%d" % i, bytes(60), bytes(8)) for i in range(10)]
    with beside() as (server, other):
        most = 0

        def asks() -> None:
            nonlocal most
            other()
            most = max(most, server.stat("conn_held_bytes"))

        links = hp.slow_writers(server.connect, requests, asks)
        for link in links[:30]:
            assert hp.until(link, b"\r\n") == b"STORED\r\n"
        for link in links[30:]:
            assert kb.answers(link.recv(100))[0].status == kb.OK
        assert 0 < most <= 40 * 4096
        for link in links:
            link.close()


def test_clients_that_stop_in_the_middle_of_a_value() -> None:
    """They hold what the budget gives, others are refused, and small values need nothing of it."""
    with beside(held_bytes=2 << 20) as (server, other):
        links = hp.stopped(server.connect, HALF, 40, other)
        wait_until(lambda: server.stat("conn_bytes_read") >= 40 * len(HALF), 60.0, "all halves to have come")
        assert 1 << 20 < server.stat("conn_held_bytes") <= 2 << 20
        refused = 0
        for link in links:
            link.setblocking(False)
            try:
                assert link.recv(1000) == NO_MEMORY
                refused += 1
            except BlockingIOError:
                pass
        assert 0 < refused < 40
        assert server.stat("conn_commands_held") == 40 - refused
        stored = 0
        for link in links:
            link.settimeout(60)
            link.sendall(bytes(400_000) + b"\r\nmn\r\n")
            answer = hp.until(link, b"MN\r\n")
            assert answer in (b"STORED\r\nMN\r\n", NO_MEMORY + b"MN\r\n", b"MN\r\n")
            stored += answer.startswith(b"STORED")
        assert stored > 0
        assert server.stat("conn_held_bytes") == 0
        other()
        for link in links:
            link.close()


def test_many_slow_readers() -> None:
    """What waits for all of them together is within the budget; who finds no room in it is told so, and cut off."""
    count, value = 30, bytes(200_000)
    with beside(held_bytes=2 << 20) as (server, other):
        with server.client() as client:
            assert client.ask(b"set big 0 0 200000\r\n%b\r\n" % value) == b"STORED\r\n"
        links = hp.stopped(server.connect, b"get big\r\n" * 50, count, other)
        wait_until(lambda: server.stat("conn_held_back") >= 2, 60.0, "answers to find no room")
        for _ in range(20):
            assert server.stat("conn_held_bytes") <= 2 << 20
            other()
        answer = b"VALUE big 0 200000\r\n%b\r\nEND\r\n" % value
        for link in links:
            link.shutdown(socket.SHUT_WR)
            got = hp.ended(link)
            whole = got[: len(got) // len(answer) * len(answer)]
            assert whole == answer * (len(whole) // len(answer))
            link.close()
            other()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"set a 0 0 -1\r\n", FORM),
        (b"set a 0 0 -2147483648\r\n", FORM),
        (b"set a 0 0 2147483647\r\n", FORM),
        (b"set a 0 0 5x\r\n", FORM),
        (b"set a 0 0 2147483645\r\n", TOO_LARGE),
        (b"set a 0 0 9000000\r\n", TOO_LARGE),
        (b"ms a -1\r\n", FORM),
        (b"ms a 9000000\r\n", TOO_LARGE),
        (b"get " + b"k" * 251 + b"\r\n", FORM),
        (b"incr a -1\r\n", b"CLIENT_ERROR invalid numeric delta argument\r\n"),
        (b"x" * 3000, b""),
        (kb.request(kb.SET, b"a", b"", bytes(8), body=0x7FFFFFFF), b"\x81\x01"),
        (kb.request(kb.GET, b"", body=0xFFFFFFFF), b"\x81\x00"),
    ],
)
def test_lengths_that_cannot_be(line: bytes, answer: bytes) -> None:
    """The protocol's own error, at once, and no memory for what was announced."""
    with beside() as (server, other), server.client() as client:
        client.send(line)
        if answer.startswith(b"\x81"):
            head = client.take(24)
            assert head[:2] == answer
            assert kb.HEADER.unpack(head)[3 + 2] in (kb.TOO_LARGE, kb.INVALID)
        elif answer:
            assert client.until(b"\r\n") == answer
        else:
            assert client.ended() == b""
        assert server.stat("conn_held_bytes") == 0
        other()


@pytest.mark.soak(short=True, takes_s=30)
def test_garbage(seed: int) -> None:
    """Bytes of all kinds, to both protocols: an answer or an end, nothing kept, and the other's value untouched."""
    words = [b"get ", b"set a 0 0 ", b"mg ", b"ms ", b"\r\n", b"\x80", b" ", b"-1", b"9" * 20, b"noreply", b"\0"]
    with beside() as (server, other):
        hp.garbage(server.connect, words, soak.examples(100, 5000), other, seed)
        server.wait_for("conn_connections", 1)
        assert server.stat("conn_held_bytes") == 0


@pytest.mark.soak(short=True, takes_s=10)
def test_connections_that_come_and_go(seed: int) -> None:
    beginnings = [b"", b"mn\r\n", HALF[:1000], b"set a 0 0 9000000\r\n", b"\x80", b"get " + b"k" * 1000]
    count = soak.examples(500, 10_000)
    with beside(connections=100) as (server, other):
        hp.come_and_go(server.connect, beginnings, count, other, seed)
        server.wait_for("conn_connections", 1)
        assert server.stat("conn_held_bytes") == 0
        assert server.stat("conn_opened") + server.stat("conn_rejected") == count + 1
