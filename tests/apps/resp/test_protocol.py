"""Framing: requests in pieces of any size, inline commands, limits and their words, what ends a connection."""

from __future__ import annotations

import random

import pytest
from resporacle import Oracle
from respwire import replies

from corelane.apps.resp import Engine
from corelane.apps.resp.engine import encode

REQUESTS = [
    b"PING\r\n",
    b"PING\n",
    b"\r\n",
    b"   \r\n",
    b'SET "a key" "with \\"quotes\\" \\x41\\n"\r\n',
    b"GET 'a key'\r\n",
    b"echo 'it\\'s'\r\n",
    b'ECHO "unfinished\r\n',
    b"ECHO 'a'b\r\n",
    b"SET inline value EX 100\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n",
    b"*2\r\n$4\r\nECHO\r\n$3\r\n\x00\r\n\r\n",
    b"*2\r\n$4\r\nECHO\r\n:3\r\n",
    b"*2\r\n$4\r\nECHO\r\n$-1\r\n",
    b"*2\r\n$4\r\nECHO\r\n$x\r\n",
    b"*x\r\n",
    b"*1000000000000\r\n",
    b"*2\r\n$4\r\nECHO\r\n$1000000000000\r\n",
    b"*2\r\n\r\n",
    b"*" + b"1" * 70_000,
    b"*1\r\n$" + b"1" * 70_000,
    b"x" * 70_000,
    b"*1\r\n$4\r\nQUIT\r\nPING\r\n",
    b"*1\r\n$0\r\n\r\n",
    b"*1\r\n$7\r\nno\r\nway\r\n",
    b"nope " + b"argument " * 30 + b"\r\n",
]


@pytest.mark.parametrize("request_", REQUESTS, ids=range(len(REQUESTS)))
def test_requests_are_answered_as_redis_does(oracle: Oracle, engine: Engine, request_: bytes) -> None:
    """Also how the connection goes on: whether PING behind it is answered, or it has ended."""
    client, link = engine.client(), oracle.link()
    ours = client.exchange(request_ + encode("PING", "behind"))
    link.send(request_ + encode("PING", "behind"))
    assert link.take(len(ours)) == ours
    if client.ends:
        assert link.rest() == b""
    link.close()


def pieces(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.sample(range(1, len(data)), rng.randint(1, 20)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def test_a_request_may_be_cut_at_any_byte(engine: Engine) -> None:
    data = b"".join(
        [
            encode("SET", "key", b"value\r\n\x00"),
            b"GET key\r\n",
            encode("ECHO", ""),
            b"*0\r\n",
            encode("APPEND", "key", "x" * 300),
        ]
    )
    whole = engine.client().exchange(data)
    for cut in range(1, len(data)):
        client = engine.client()
        client.call("DEL", "key")
        assert client.exchange(data[:cut]) + client.exchange(data[cut:]) == whole, cut
        client.close()
    client = engine.client()
    client.call("DEL", "key")
    assert b"".join(client.exchange(data[i : i + 1]) for i in range(len(data))) == whole


def test_a_pipeline_in_random_pieces(engine: Engine) -> None:
    rng = random.Random(5)
    commands = [encode("SET", f"k{i}", "v" * rng.randint(0, 5000)) + encode("GET", f"k{i}") for i in range(200)]
    data = b"".join(commands)
    whole = engine.client().exchange(data)
    for _ in range(20):
        client = engine.client()
        assert b"".join(client.exchange(part) for part in pieces(data, rng)) == whole


def test_a_client_that_does_not_read_is_held_back(engine: Engine) -> None:
    """Its commands wait when an eighth of memory holds replies, and go on when they are taken; nothing is lost."""
    client = engine.client()
    client.call("SET", "big", "x" * 100_000)
    data = encode("GET", "big") * 100
    took = client.feed(data)
    assert took < len(data)
    held = client.feed(data[took:])
    assert held == 0
    used, limit = engine.used()
    assert used < limit // 8 + (1 << 20)
    got = [client.take()]
    while took < len(data):
        took += client.feed(data[took:])
        got.append(client.take())
    assert len(replies(b"".join(got))) == 100


def test_strangers_may_send_little(engine: Engine) -> None:
    with Engine(8 << 20, password="secret") as guarded:
        assert guarded.client().exchange(b"*11\r\n") == b"-ERR Protocol error: unauthenticated multibulk length\r\n"
        big = b"*2\r\n$4\r\nAUTH\r\n$16385\r\n"
        assert guarded.client().exchange(big) == b"-ERR Protocol error: unauthenticated bulk length\r\n"
        client = guarded.client()
        assert client.call("GET", "a") == b"-NOAUTH Authentication required.\r\n"
        assert client.call("AUTH", "wrong").startswith(b"-WRONGPASS")
        assert client.call("AUTH", "default", "secret") == b"+OK\r\n"
        assert client.call("GET", "a") == b"$-1\r\n"
        assert guarded.client().call("HELLO", 3, "AUTH", "default", "secret", "SETNAME", "me").startswith(b"%7\r\n")
        assert guarded.client().call("HELLO", 3).startswith(b"-NOAUTH HELLO must be called")


def test_what_is_incomplete_takes_no_more_than_there_is() -> None:
    """A bulk that cannot fit is refused before it is kept."""
    with Engine(2 << 20) as small:
        client = small.client()
        out = client.exchange(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$100000000\r\n" + b"x" * 4_000_000)
        assert out.startswith(b"-OOM")
        assert client.ends
        used, limit = small.used()
        assert used < limit


def test_connections_are_limited(engine: Engine) -> None:
    from corelane.runtime.errors import CorelaneError

    engine.client().call("CONFIG", "SET", "maxclients", 2)
    kept = engine.client()
    with pytest.raises(CorelaneError, match="max number of clients"):
        engine.client()
    kept.close()
    engine.client()


@pytest.mark.parametrize("head", [b"POST / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: here\r\n", b"host: here\r\n"])
@pytest.mark.parametrize("step", [1, 1000])
def test_the_body_of_a_request_of_http_is_no_command(engine: Engine, head: bytes, step: int) -> None:
    """A page could have a browser send one to any address that its user reaches."""
    assert engine.client().call("SET", "kept", "x") == b"+OK\r\n"
    browser, sent = engine.client(), head + b"\r\nFLUSHALL\r\n"
    for at in range(0, len(sent), step):
        assert b"+OK" not in browser.exchange(sent[at : at + step])
    assert browser.ends == 2
    assert engine.client().call("GET", "kept") == b"$1\r\nx\r\n"
