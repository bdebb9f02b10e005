"""Peers that mean no good: each costs a bounded amount of memory and time, and ends with the protocol's own error."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from httphost import Server, read_answers

from corelane.apps.http.handlers import Request, route

SHUT, CLOSED, ABORTED = 1, 2, 3
ASK = b"GET /text.txt HTTP/1.1\r\nHost: here\r\n\r\n"
Serve = Callable[..., Server]


def statuses(raw: bytes) -> list[int]:
    return [a.status for a in read_answers(raw)]


def test_a_head_that_comes_slowly(serve: Serve) -> None:
    """Slowloris: a byte a tick is no progress. The time counts from the first byte to the end of the head."""
    server = serve(tick_ms=1000, head_ms=10_000)
    assert server.open()
    for i in range(9):
        server.send(ASK[i : i + 1])
        server.pass_ticks()
        assert server.read() == b""
    server.pass_ticks()
    assert (statuses(server.read()), server.state, server.counts().late_heads) == ([408], SHUT, 1)


def test_a_connection_without_a_request(serve: Serve) -> None:
    server = serve(tick_ms=1000, keep_alive_ms=5000)
    assert server.open()
    server.pass_ticks(4)
    server.send(ASK)
    assert statuses(server.read()) == [200]
    server.pass_ticks(4)
    assert server.state == 0, "a request begins it anew"
    server.pass_ticks()
    assert (server.read(), server.state, server.counts().idle) == (b"", CLOSED, 1)


def test_a_body_that_comes_slowly(serve: Serve) -> None:
    server = serve(tick_ms=1000, window_ms=5000, window_bytes=1000)
    assert server.open()
    server.send(ASK[:-2] + b"Content-Length: 100000\r\n\r\n")
    for _ in range(3):  # fast enough
        server.send(b"x" * 1000)
        server.pass_ticks(5)
    assert server.state == 0
    for _ in range(5):
        server.send(b"x" * 100)
        server.pass_ticks()
    assert (statuses(server.read()), server.state, server.counts().slow_bodies) == ([408], SHUT, 1)


def test_who_does_not_read(serve: Serve) -> None:
    server = serve(tick_ms=1000, window_ms=5000, window_bytes=10_000, room=65536)
    assert server.open()
    server.send(ASK.replace(b"text.txt", b"large.bin"))
    server.pass_ticks(5)
    assert server.state == 0, "what fitted at once was progress"
    for _ in range(5):
        server.read(1000)
        server.pass_ticks()
    assert (server.state, server.counts().slow_readers) == (ABORTED, 1)


def test_who_asks_and_does_not_read(serve: Serve) -> None:
    """A pipeline of a million requests: no more is taken than is answered, and one answer is held at a time."""
    server = serve(room=100_000)
    assert server.open()
    block = ASK * 1000
    sent = 0
    for _ in range(1000):
        n = server.send(block)
        sent += n
        if n < len(block):
            break
    assert sent < 400 * len(ASK)
    assert server.send(ASK) == 0
    assert 0 < server.counts().requests < 200
    got = b""
    while part := server.read():
        got += part
    assert set(statuses(got)) == {200}
    assert len(statuses(got)) == sent // len(ASK) or sent % len(ASK)


def test_no_more_connections_than_may_be(serve: Serve) -> None:
    first, server = serve(connections=1), serve(connections=1)
    assert first.open()
    assert server.open()
    assert server.open(), "the one before has ended"
    assert server.counts().refused_connections == 0
    assert not serve(connections=1, memory_bytes=1).raw(ASK)[0], "without memory for a request"


def test_garbage(serve: Serve, seed: int) -> None:
    import random

    draw = random.Random(seed)
    server = serve()
    for _ in range(300):
        data = bytearray(ASK * 3)
        for _ in range(draw.randrange(1, 6)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        raw, state = server.raw(bytes(data[: draw.randrange(1, len(data))]))
        assert all(200 <= s < 600 for s in statuses(raw))
        assert state in (0, SHUT, CLOSED)


def test_endless_empty_lines(serve: Serve) -> None:
    server = serve()
    raw, state = server.raw(*[b"\r\n" * 1000] * 20)
    assert (statuses(raw), state) == ([400], SHUT)


def test_one_that_never_stops_after_an_error(serve: Serve) -> None:
    server = serve()
    server.raw(b"GET / HTTP/9.9\r\n\r\n")
    for _ in range(100):
        server.send(b"x" * 65536)
    assert server.state == ABORTED


def test_a_stop_in_the_middle_of_everything(serve: Serve) -> None:
    """Each state in which a connection can be, and its end there: all memory comes back (the fixture looks)."""

    @route("/pieces", compiled=False)
    def pieces(request: Request) -> Iterator[bytes]:
        return iter([b"x" * 100_000] * 10)

    @route("/body", methods=("POST",), compiled=False)
    def body(request: Request) -> bytes:
        return request.body

    server = serve(room=65536)
    for made in (pieces, body):
        made.add_to(server.service)
    for data in (
        b"",
        ASK[:10],
        ASK[:-2] + b"Content-Length: 10\r\n\r\n12",
        b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n" + b"x" * 50_000,
        b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nab",
        ASK.replace(b"text.txt", b"large.bin"),
        ASK.replace(b"text.txt", b"pieces"),
        ASK[:-2] + b"Range: bytes=0-1,3-\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ):
        assert server.open()
        server.send(data)


@pytest.mark.parametrize("drained", [True, False])
def test_a_drain(serve: Serve, drained: bool) -> None:
    from corelane.apps._native import lib

    server = serve(tick_ms=100)
    assert server.open()
    server.send(ASK[:10])
    if drained:
        lib.cl_http_drain(server.service)
    server.send(ASK[10:])
    answer = read_answers(server.read())[0]
    assert (answer.status, answer.headers.get("connection")) == (200, "close" if drained else None)
    assert server.state == (SHUT if drained else 0)
    server.pass_ticks(25)
    assert server.state == (CLOSED if drained else 0)
    assert server.open() is not drained
