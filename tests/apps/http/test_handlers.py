"""Handlers in plain Python, in C, and compiled by numba: what they are asked, and what becomes of their answers."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from httphost import Server, read_answers

from corelane.apps.http.handlers import Request, Route, route
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Server]


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in (f"Content-Length: {len(body)}", *headers))
    return f"POST {path} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode() + body


def chunked(path: str, *pieces: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def with_routes(serve: Serve, *routes: Route, **options: int) -> Server:
    server = serve(**options)
    for made in routes:
        made.add_to(server.service)
    return server


@route("/echo", methods=("GET", "POST"), compiled=False)
def echo(request: Request) -> bytes:
    return request.body


@route("/say", compiled=False)
def say(request: Request) -> Any:
    return 201, {"X-Path": request.path, "X-Query": request.query, "X-Agent": request.headers["user-agent"]}, "done"


@route("/deep/*", compiled=False)
def deep(request: Request) -> str:
    return f"deep {request.path}"


@route("/deep/er", compiled=False)
def deeper(request: Request) -> str:
    return "deeper"


@route("/fail", compiled=False)
def fail(request: Request) -> str:
    raise ValueError("as asked")


def test_what_a_handler_is_asked_and_answers(serve: Serve) -> None:
    server = with_routes(serve, echo, say, deep, deeper)
    found = server.get("/say?a=b%20c", "User-Agent: one", "User-Agent:  two ")
    assert (found.status, found.body) == (201, b"done")
    assert {k: v for k, v in found.headers.items() if k[:2] == "x-"} == {
        "x-path": "/say",
        "x-query": "a=b%20c",
        "x-agent": "one, two",
    }
    assert found.headers["content-type"] == "text/plain; charset=utf-8"
    assert server.ask(post("/echo", b"\0\r\n\xff")).body == b"\0\r\n\xff"
    assert server.ask(post("/echo", b"")).body == b""
    assert server.ask(chunked("/echo", b"one ", b"two")).body == b"one two"
    assert server.get("/deep/x/y").body == b"deep /deep/x/y"
    assert server.get("/deep/er").body == b"deeper"
    assert server.get("http://here/deep/x?y").body == b"deep /deep/x", "a proxy may ask so"
    assert server.get("/deep").status == 404
    assert server.get("/text.txt").status == 200, "what no handler has is a file"
    head = server.get("/deep/er", method="HEAD")
    assert (head.status, head.headers["content-length"], head.body) == (200, "6", b"")


def test_a_body_comes_in_any_pieces(serve: Serve) -> None:
    server = with_routes(serve, echo)
    body = bytes(range(256)) * 40
    for request in (post("/echo", body), chunked("/echo", body[:100], body[100:9000], body[9000:])):
        for step in (1, 77, 5000, len(request)):
            raw, _ = server.raw(*(request[i : i + step] for i in range(0, len(request), step)))
            assert [a.body for a in read_answers(raw)] == [body]
    assert [a.body for a in read_answers(server.raw(post("/echo", b"a") + chunked("/echo", b"b") * 2)[0])] == [
        b"a",
        b"b",
        b"b",
    ]


def test_limits_of_requests(serve: Serve) -> None:
    server = with_routes(serve, echo, say, body_most=1000)
    assert server.ask(post("/echo", b"x" * 1000)).status == 200
    assert server.ask(post("/echo", b"x" * 1001)).status == 413
    assert server.ask(chunked("/echo", b"x" * 600, b"x" * 600)).status == 413
    assert server.ask(b"POST /echo HTTP/1.1\r\nHost: here\r\n\r\n").status == 411
    refused = server.ask(post("/say", b"x"))
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    assert [a.status for a in read_answers(server.raw(post("/say", b"x") + post("/echo", b"y"))[0])] == [405, 200]


def test_a_handler_that_does_not_take_it_has_nobody_go_on(serve: Serve) -> None:
    server = with_routes(serve, echo, say)
    head = post("/say", b"", "Expect: 100-continue").replace(b"Length: 0", b"Length: 5")
    raw, state = server.raw(head)
    (refused,) = read_answers(raw)
    assert (refused.status, refused.headers["allow"], state) == (405, "GET, HEAD", 1)
    assert refused.headers["connection"] == "close"
    raw, state = server.raw(b"POST /echo HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\n\r\n")
    assert ([a.status for a in read_answers(raw)], state) == ([411], 0), "it has no body to wait for"
    assert server.raw(post("/echo", b"", "Expect: more"))[0].startswith(b"HTTP/1.1 417 ")
    assert server.raw(head.replace(b"/say", b"/echo"), b"hello")[0].startswith(b"HTTP/1.1 100 ")


def ends_late(target, body, reply):  # type: ignore[no-untyped-def]  # numba types it
    return 205, len(reply)


@pytest.mark.parametrize("status", [204, 205, 304])
def test_statuses_without_a_body_have_none(serve: Serve, status: int) -> None:
    ended = []

    def pieces() -> Iterator[bytes]:
        try:
            yield b"one"
        finally:
            ended.append(True)

    def begun(request: Request) -> Any:
        made = pieces()
        next(made)
        return status, made

    whole = route("/whole", compiled=False)(lambda request: (status, "body"))
    stream = route("/stream", compiled=False)(begun)
    server = with_routes(serve, whole, stream, route("/compiled")(ends_late))
    paths = ("/whole", "/stream", *(["/compiled"] if status == 205 else []))
    for path in paths:
        raw, state = server.raw(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode() * 2)
        head, _, rest = raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert rest.startswith(b"HTTP/1.1 %d " % status), "the next answer is behind the head"
        assert raw.endswith(b"\r\n\r\n")
        assert (b"Content-Length: 0" in head) == (status == 205), "only 205 has a length (RFC 9110, 15.3.6)"
        assert b"Transfer-Encoding" not in head
        assert state == 0
    assert ended == [True, True]
    assert not stream._streams, "an iterable that nobody reads is let go"


def test_memory_of_bodies_is_bounded(serve: Serve) -> None:
    server = with_routes(serve, echo, memory_bytes=100_000)
    assert server.ask(post("/echo", b"x" * 40_000)).status == 200
    for size in (90_000, 120_000):  # the body and its copy in the answer; the body
        request = post("/echo", b"x" * size)
        raw, _ = server.raw(request[:5000], request[5000:])
        assert [a.status for a in read_answers(raw)] == [503]
    assert server.counts().no_memory == 2


def test_what_fails_is_answered(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    bad = [
        route("/status", compiled=False)(lambda request: (99, "x")),
        route("/line", compiled=False)(lambda request: (200, {"X": "a\r\nY: b"}, "x")),
        route("/length", compiled=False)(lambda request: (200, {"content-LENGTH": "0"}, "x")),
        route("/space", compiled=False)(lambda request: (200, {"Content-Length ": "0"}, "x")),
        route("/fold", compiled=False)(lambda request: (200, {"X": "y", " Z": "goes on"}, "x")),
        route("/type", compiled=False)(lambda request: 7),
        route("/long", compiled=False)(lambda request: (200, {"X": "y" * 2000}, "x")),
    ]
    server = with_routes(serve, fail, echo, *bad)
    for path in ("/fail", *(made.path for made in bad)):
        raw, state = server.raw(f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode() + post("/echo", b"on"))
        assert [(a.status, a.body) for a in read_answers(raw)] == [(500, b"500 Internal Server Error\n"), (200, b"on")]
        assert state == 0, "the connection goes on"
    assert "as asked" in caplog.text
    assert all(made.errors == 1 for made in bad)
    assert server.counts().handler_errors == 8


def test_streams(serve: Serve) -> None:
    ended = []

    @route("/count/*", compiled=False)
    def count(request: Request) -> Iterator[bytes | str]:
        try:
            for i in range(int(request.path.rpartition("/")[2])):
                yield f"{i}\n"
                yield b""
        finally:
            ended.append(request.path)

    server = with_routes(serve, count)
    found = server.get("/count/1000")
    assert found.body == b"".join(b"%d\n" % i for i in range(1000))
    assert found.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in found.headers
    assert server.get("/count/0").body == b""
    old, state = server.raw(b"GET /count/3 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (old.partition(b"\r\n\r\n")[2], state) == (b"0\n1\n2\n", 1), "its end says that it is whole"
    assert server.get("/count/5", method="HEAD").body == b""
    assert ended[:2] == ["/count/1000", "/count/0"]


def test_a_stream_waits_for_its_reader_and_is_given_up_with_it(serve: Serve) -> None:
    asked, ended = [], []

    def pieces() -> Iterator[bytes]:
        try:
            for i in range(1000):
                asked.append(i)
                yield gzip.compress(bytes([i % 256]) * 100) * 20
        finally:
            ended.append(True)

    server = with_routes(serve, route("/stream", compiled=False)(lambda request: pieces()), room=20_000)
    assert server.open()
    server.send(b"GET /stream HTTP/1.1\r\nHost: here\r\n\r\n")
    before = len(asked)
    assert 0 < before < 100
    server.read(5000)
    assert before < len(asked) < 200
    assert not ended
    assert server.open()  # in place of the one before
    assert ended == [True]


def test_a_stream_that_fails_is_cut(serve: Serve) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"one"
        raise ValueError("in the middle")

    server = with_routes(serve, route("/stream", compiled=False)(lambda request: pieces()))
    raw, state = server.raw(b"GET /stream HTTP/1.1\r\nHost: here\r\n\r\n")
    assert raw.endswith(b"3\r\none\r\n")
    assert state == 3


def lower(target, body, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    state[0] += 1
    if len(target) > 6 and target[6] == 63:  # "?": a fault, if the server looked at it
        return 200, len(reply) + 1
    for i in range(len(body)):
        reply[i] = body[i] | 32
    return 200 if len(body) else 404, len(body)


def test_compiled(serve: Serve) -> None:
    state = np.zeros(1, np.uint64)
    made = route("/lower", methods=("GET", "POST"), state=state, type="text/x-low", room=1000)(lower)
    server = with_routes(serve, made)
    found = server.ask(post("/lower", b"ABC"))
    assert (found.status, found.body, found.headers["content-type"]) == (200, b"abc", "text/x-low")
    assert server.get("/lower").status == 404
    assert server.ask(post("/lower?", b"x")).status == 500
    assert server.ask(chunked("/lower", b"AB", b"CD")).body == b"abcd"
    assert state[0] == 4
    assert server.counts().handler_errors == 1


def test_what_cannot_be_a_handler() -> None:
    with pytest.raises(CorelaneError, match="begins with a slash"):
        route("hello")
    for path, comes in (
        ("/a b", "/a%20b"),
        ("/é/*", "/%C3%A9/*"),
        ("/a?b=1", "/a"),
        ("/a#b", "/a%23b"),
        ("/\0", "/%00"),
    ):
        with pytest.raises(CorelaneError, match=rf"they come encoded \(as in @route\('{re.escape(comes)}'\)\)$"):
            route(path)
    with pytest.raises(CorelaneError, match=r"methods is 5 \(expected a list, each a text or a text\)"):
        route("/", methods=5)  # type: ignore[arg-type]
    with pytest.raises(CorelaneError, match="BREW"):
        route("/", methods=("BREW",))
    with pytest.raises(CorelaneError, match="state is for compiled"):
        route("/", compiled=False, state=np.zeros(1))
