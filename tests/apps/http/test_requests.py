"""Bytes of requests -> statuses and headers, whole and cut at every byte."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from httphost import TEXT, Server, read_answers

OPEN, SHUT, CLOSED = 0, 1, 2
H = b"Host: here\r\n"
GET = b"GET /text.txt HTTP/1.1\r\n" + H
CHUNKED = GET + b"Transfer-Encoding: chunked\r\n\r\n"


def big(name: bytes, n: int) -> bytes:
    return GET + name + b": " + b"x" * n + b"\r\n\r\n"


# What comes, the statuses of the answers, and whether the connection stays open.
TABLE: dict[str, tuple[bytes, list[int], int]] = {
    "a file": (GET + b"\r\n", [200], OPEN),
    "the index": (b"GET / HTTP/1.1\r\n" + H + b"\r\n", [200], OPEN),
    "empty lines before it": (b"\r\n\r\n" + GET + b"\r\n", [200], OPEN),
    "absolute form": (b"GET http://here/text.txt?q HTTP/1.1\r\n" + H + b"\r\n", [200], OPEN),
    "asks to close": (GET + b"Connection: close\r\n\r\n", [200], SHUT),
    "HTTP/1.0": (b"GET /text.txt HTTP/1.0\r\n\r\n", [200], SHUT),
    "HTTP/1.0 that stays": (b"GET /text.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", [200], OPEN),
    "a later HTTP/1": (b"GET /text.txt HTTP/1.9\r\n" + H + b"\r\n", [200], OPEN),
    "HTTP/1.0 that stays and closes": (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", [200], SHUT),
    "an address and a port": (b"GET /text.txt HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", [200], OPEN),
    "nothing is expected": (GET + b"Expect: ,\r\nContent-Length: 1\r\n\r\n1", [200], OPEN),
    "pipelined": (GET + b"\r\n" + b"GET /no HTTP/1.1\r\n" + H + b"\r\n" + GET + b"\r\n", [200, 404, 200], OPEN),
    "nothing behind a close": (GET + b"Connection: close\r\n\r\n" + GET + b"\r\n", [200], SHUT),
    "a body is read": (GET + b"Content-Length: 5\r\n\r\nhello" + GET + b"\r\n", [200, 200], OPEN),
    "a chunked body is read": (
        GET + b"Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nTrailer: 1\r\n\r\n" + GET + b"\r\n",
        [200, 200],
        OPEN,
    ),
    "an upgrade is not done": (GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n" + GET + b"\r\n", [200, 200], OPEN),
    "no file": (b"GET /none HTTP/1.1\r\n" + H + b"\r\n", [404], OPEN),
    "a folder": (b"GET /sub HTTP/1.1\r\n" + H + b"\r\n", [301], OPEN),
    "OPTIONS": (b"OPTIONS * HTTP/1.1\r\n" + H + b"\r\n", [204], OPEN),
    "DELETE": (b"DELETE /text.txt HTTP/1.1\r\n" + H + b"\r\n", [405], OPEN),
    "POST": (b"POST /text.txt HTTP/1.1\r\nContent-Length: 3\r\n" + H + b"\r\nabc", [405], OPEN),
    # Refused: what comes next is not known, so the connection ends.
    "no host": (b"GET / HTTP/1.1\r\n\r\n", [400], SHUT),
    "two hosts": (GET + b"Host: there\r\n\r\n", [400], SHUT),
    "an address without brackets": (b"GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", [400], SHUT),
    "half a bracket": (b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", [400], SHUT),
    "a port that is no number": (b"GET / HTTP/1.1\r\nHost: here:x\r\n\r\n", [400], SHUT),
    "a user in the target": (b"GET http://you@here/text.txt HTTP/1.1\r\n" + H + b"\r\n", [400], SHUT),
    "no host in the target": (b"GET http:///text.txt HTTP/1.1\r\n" + H + b"\r\n", [400], SHUT),
    "both lengths": (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400], SHUT),
    "both lengths the other way": (
        GET + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        [400],
        SHUT,
    ),
    "two lengths": (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", [400], SHUT),
    "the same length twice": (GET + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", [400], SHUT),
    "a list of lengths": (GET + b"Content-Length: 5, 5\r\n\r\nhello", [400], SHUT),
    "a length with a sign": (GET + b"Content-Length: +5\r\n\r\nhello", [400], SHUT),
    "a negative length": (GET + b"Content-Length: -5\r\n\r\nhello", [400], SHUT),
    "a length that is too large": (GET + b"Content-Length: 99999999999999999999999\r\n\r\n", [400], SHUT),
    "a hexadecimal length": (GET + b"Content-Length: 0x5\r\n\r\nhello", [400], SHUT),
    "an empty length": (GET + b"Content-Length:\r\n\r\n", [400], SHUT),
    "chunked in HTTP/1.0": (b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400], SHUT),
    "chunked is not last": (GET + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", [400], SHUT),
    "a long line of a chunk": (GET + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", [400], SHUT),
    "a chunk that ends wrong": (GET + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", [400], SHUT),
    "a chunk with a huge size": (GET + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", [400], SHUT),
    "a chunk's line ends with LF": (GET + b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n", [400], SHUT),
    "LF in an extension": (CHUNKED + b"5;a\nb\r\nhello\r\n0\r\n\r\n", [400], SHUT),
    "CR in an extension": (CHUNKED + b"5;a\rb\r\nhello\r\n0\r\n\r\n", [400], SHUT),
    "LF ends an extension": (CHUNKED + b"5;a\nhello\r\n0\r\n\r\n", [400], SHUT),
    "LF ends a chunk": (CHUNKED + b"5\r\nhello\n0\r\n\r\n", [400], SHUT),
    "LF ends the last chunk": (CHUNKED + b"0\n\r\n", [400], SHUT),
    "LF ends a trailer": (CHUNKED + b"0\r\nX: y\n\r\n", [400], SHUT),
    "LF ends the trailers": (CHUNKED + b"0\r\nX: y\r\n\n", [400], SHUT),
    "CR in a trailer": (CHUNKED + b"0\r\nX: y\rZ: u\r\n\r\n", [400], SHUT),
    "a coding in a trailer": (CHUNKED + b"0\r\nTransfer-Encoding: chunked\r\n\r\n", [400], SHUT),
    "a chunk's size and a space": (CHUNKED + b"5 \r\nhello\r\n0\r\n\r\n", [400], SHUT),
    "a space and a chunk's size": (CHUNKED + b" 5\r\nhello\r\n0\r\n\r\n", [400], SHUT),
    "a chunk's size with a sign": (CHUNKED + b"+5\r\nhello\r\n0\r\n\r\n", [400], SHUT),
    "a chunk's size with 0x": (CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n", [400], SHUT),
    "a chunk's size that wraps": (CHUNKED + b"10000000000000005\r\nhello\r\n0\r\n\r\n", [400], SHUT),
    "chunked behind a vertical tab": (GET + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", [400], SHUT),
    "nearly chunked": (GET + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", [501], SHUT),
    "no coding, and a length": (GET + b"Transfer-Encoding:\r\nContent-Length: 3\r\n\r\nabc", [400], SHUT),
    "another coding": (GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", [501], SHUT),
    "chunked twice": (GET + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", [400], SHUT),
    "a line goes on": (GET + b"X: a\r\n b\r\n\r\n", [400], SHUT),
    "a space before the colon": (GET + b"Content-Length : 5\r\n\r\nhello", [400], SHUT),
    "a space in a name": (GET + b"X Y: 5\r\n\r\n", [400], SHUT),
    "no colon": (GET + b"XY\r\n\r\n", [400], SHUT),
    "a line begins with a space": (b"GET / HTTP/1.1\r\n X: y\r\n" + H + b"\r\n", [400], SHUT),
    "LF ends a line": (b"GET / HTTP/1.1\nHost: here\n\n", [400], SHUT),
    "LF ends a header": (GET + b"X: y\n\r\n", [400], SHUT),
    "LF ends the head": (GET + b"X: y\r\n\n", [400], SHUT),
    "CR in a value": (GET + b"X: a\rContent-Length: 5\r\n\r\n", [400], SHUT),
    "a zero in a value": (GET + b"X: a\0b\r\n\r\n", [400], SHUT),
    "a zero in the target": (b"GET /\0 HTTP/1.1\r\n" + H + b"\r\n", [400], SHUT),
    "a space in the target": (b"GET /a b HTTP/1.1\r\n" + H + b"\r\n", [400], SHUT),
    "two spaces behind the target": (b"GET /text.txt  HTTP/1.1\r\n" + H + b"\r\n", [400], SHUT),
    "a fragment in the target": (b"GET /text.txt#a HTTP/1.1\r\n" + H + b"\r\n", [400], SHUT),
    "another protocol": (b"GET /text.txt RTSP/1.0\r\n" + H + b"\r\n", [400], SHUT),
    "the protocol in lower case": (b"GET /text.txt http/1.1\r\n" + H + b"\r\n", [400], SHUT),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [505], SHUT),
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", [400], SHUT),
    "a version that is none": (b"GET / HTTP/1.10\r\n" + H + b"\r\n", [400], SHUT),
    "a later version": (b"GET / HTTP/2.0\r\n" + H + b"\r\n", [505], SHUT),
    "no version": (b"GET /\r\n" + H + b"\r\n", [505], SHUT),
    "another method": (b"BREW / HTTP/1.1\r\n" + H + b"\r\n", [501], SHUT),
    "a method that is not ours": (b"LOCK / HTTP/1.1\r\n" + H + b"\r\n", [501], SHUT),
    "CONNECT": (b"CONNECT here:80 HTTP/1.1\r\n" + H + b"\r\n", [501], SHUT),
    "another expectation": (GET + b"Expect: more\r\nContent-Length: 1\r\n\r\n1", [417], SHUT),
    "a second expectation": (GET + b"Expect: 100-continue\r\nExpect: more\r\n\r\n", [417], SHUT),
    "a refused method that would wait": (
        b"POST /text.txt HTTP/1.1\r\n" + H + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        [405],
        SHUT,
    ),
    "a long chunk, before it comes": (CHUNKED + b"200000\r\n", [413], SHUT),
    "a long body": (GET + b"Content-Length: 2000000\r\n\r\n", [413], SHUT),
    "a long target": (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n" + H + b"\r\n", [414], SHUT),
    "a long header": (big(b"X", 17000), [431], SHUT),
    "many headers": (GET + b"X: y\r\n" * 200 + b"\r\n", [431], SHUT),
}
LONG = 1500  # of longer ones only some places are cut


def answers(server: Server, *pieces: bytes) -> tuple[bytes, int]:
    """The answers, but for the boundary of parts, which is never the same."""
    raw, state = server.raw(*pieces)
    return re.sub(rb"part-[0-9a-f]{16}", b"part", raw), state


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    return serve()


@pytest.mark.parametrize("name", TABLE)
def test_requests(server: Server, name: str) -> None:
    request, statuses, state = TABLE[name]
    raw, stands = answers(server, request)
    assert ([a.status for a in read_answers(raw)], stands) == (statuses, state)
    if stands == SHUT:
        assert read_answers(raw)[-1].headers["connection"] == "close"
    for cut in range(1, len(request), 1 if len(request) < LONG else 97):
        assert answers(server, request[:cut], request[cut:]) == (raw, stands), f"cut at {cut}: {request[:cut]!r}"
    assert answers(server, *(request[i : i + 1] for i in range(len(request)))) == (raw, stands)


def test_no_request_ends_a_connection_without_a_word(server: Server) -> None:
    """Each of the table's requests, cut off in the middle by the peer: no answer but to what is whole."""
    for request, statuses, _ in TABLE.values():
        for cut in (1, len(request) // 2, len(request) - 1):
            assert server.open()
            server.send(request[:cut])
            server.end()
            got = [a.status for a in read_answers(server.read())]
            assert got == statuses[: len(got)]
            assert server.state in (SHUT, CLOSED)


def test_what_waits_is_told_to_go_on(server: Server) -> None:
    head = GET + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    assert server.open()
    assert server.send(head) == len(head)
    assert server.read() == b"HTTP/1.1 100 Continue\r\n\r\n"
    server.send(b"hello")
    assert read_answers(server.read())[0].body == TEXT
    server.send(GET.replace(b"1.1", b"1.0") + b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n")
    assert server.read() == b"", "HTTP/1.0 knows no 100"
    server.send(b"1")
    assert read_answers(server.read())[0].status == 200


@pytest.mark.parametrize("files", [True, False], ids=["files", "no files"])
@pytest.mark.parametrize("body", [b"", b"he", b"hello"], ids=["no body", "a part of it", "all of it"])
def test_who_is_refused_is_not_told_to_go_on(serve: Callable[..., Server], files: bool, body: bytes) -> None:
    server = serve() if files else serve(None)
    head = b"POST /text.txt HTTP/1.1\r\n" + H + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    raw, state = server.raw(head + body)
    assert raw.startswith(b"HTTP/1.1 405 Method" if files else b"HTTP/1.1 404 Not")
    assert len(read_answers(raw)) == 1
    assert state == SHUT, "whether the body comes is not known"


def test_what_is_too_long_is_refused_before_it_comes(server: Server) -> None:
    head = GET + b"Expect: 100-continue\r\nContent-Length: 5000000\r\n\r\n"
    assert [a.status for a in read_answers(server.raw(head)[0])] == [413]


def test_a_chunked_body_is_bounded(serve: Callable[..., Server]) -> None:
    server = serve(body_most=1000)
    head = GET + b"Transfer-Encoding: chunked\r\n\r\n"
    assert [a.status for a in read_answers(server.raw(head + b"3e9\r\n" + b"x" * 1001)[0])] == [413]
    frames = b"1;" + b"e" * 2000 + b"\r\nx\r\n"
    for pieces in ([frames] * 100, [b"1;", *[b"e" * 2000] * 100], [b"0\r\n", *[b"X: y\r\n" * 300] * 100]):
        raw, state = server.raw(head, *pieces)  # and those that bring no byte of the body, and never end
        assert ([a.status for a in read_answers(raw)], state) == ([413], SHUT)


def test_after_an_error_the_rest_is_dropped_for_a_while(serve: Callable[..., Server]) -> None:
    server = serve(tick_ms=100, linger_ms=500)
    raw, state = server.raw(b"GET / HTTP/9.9\r\n\r\n")
    assert ([a.status for a in read_answers(raw)], state) == ([505], SHUT)
    assert server.send(b"x" * 1000) == 1000
    assert (server.read(), server.state) == (b"", SHUT)
    server.pass_ticks(6)
    assert server.state == CLOSED


def test_answers_say_what_they_are(server: Server) -> None:
    found = server.get("/text.txt")
    assert found.headers == {
        "server": "corelane",
        "date": "Sun, 06 Nov 1994 08:49:37 GMT",
        "last-modified": "Sun, 06 Nov 1994 08:49:37 GMT",
        "etag": found.headers["etag"],
        "accept-ranges": "bytes",
        "content-type": "text/plain; charset=utf-8",
        "content-length": str(len(TEXT)),
    }
    head = server.get("/text.txt", method="HEAD")
    assert (head.headers, head.body) == (found.headers, b"")
    assert server.get("/none", method="HEAD").body == b""


@pytest.mark.parametrize("line", [b"Host: there", b"Expect: x", b"X : y", b"Content-Length: -1"])
def test_a_head_that_is_refused_has_no_body(server: Server, line: bytes) -> None:
    raw, state = server.raw(b"HEAD / HTTP/1.1\r\n" + H + line + b"\r\n\r\n")
    assert raw.startswith(b"HTTP/1.1 4")
    assert raw.find(b"\r\n\r\n") == len(raw) - 4
    assert state in (SHUT, CLOSED)


def test_counts(server: Server) -> None:
    server.raw(TABLE["pipelined"][0])
    server.raw(TABLE["a long body"][0])
    n: Any = server.counts()
    assert (n.opened, n.requests, n.pipelined, n.ok, n.client_errors) == (2, 4, 2, 2, 2)
