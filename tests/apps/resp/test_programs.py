"""The port against what people use: redis-cli, redis-benchmark and redis-py, over Linux' TCP and a tap."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from cltest import soak, wait_until
from respserver import OURS, PORT, Served, serving
from respwire import replies

from corelane.apps.resp.engine import encode

pytestmark = pytest.mark.root


@pytest.fixture(params=[1, 2], ids=["one kthread", "two kthreads"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    with serving(request.param) as made:
        yield made


def test_redis_cli(served: Served) -> None:
    assert served.run("redis-cli", "PING").strip() == "PONG"
    script = "SET a 1\nINCR a\nRPUSH l x y\nLRANGE l 0 -1\nHSET h f v\nHGETALL h\nNOPE\n"
    out = served.run("redis-cli", stdin=script).splitlines()
    assert out[:8] == ["OK", "2", "2", "x", "y", "1", "f", "v"]
    assert out[8].startswith("ERR unknown command 'NOPE'")
    assert served.run("redis-cli", "-3", "HGETALL", "h").split() == ["f", "v"]
    assert "redis_version:7.0.15" in served.run("redis-cli", "INFO")
    big = "x" * 300_000
    assert served.run("redis-cli", "-x", "SET", "big", stdin=big).strip() == "OK"
    assert served.run("redis-cli", "GET", "big").strip() == big
    assert served.run("redis-cli", "--scan", "--pattern", "b*").split() == ["big"]
    assert "Biggest string found" in served.run("redis-cli", "--bigkeys")


def test_redis_benchmark(served: Served) -> None:
    """Its default tests, with and without pipelining: every request is answered."""
    count = str(soak.examples(500, 100_000))
    for words in (("-c", "20"), ("-c", "5", "-P", "16"), ("-3", "-c", "5", "-t", "set,get")):
        out = served.run("redis-benchmark", "-q", "-n", count, *words)
        assert "Error" not in out, out
        assert out.count("requests per second") >= (2 if "-t" in words else 18), out


def reader(protocol: int) -> Any:
    """A redis-py client. Called, and used, inside of the namespace: it connects when it needs a connection."""
    redis = pytest.importorskip("redis", reason="needs redis: pip install redis")
    return redis.Redis(host=OURS, port=PORT, protocol=protocol, socket_timeout=30)


def use(r: Any) -> None:
    """What people do with it: values of all types, pipelines, transactions, scans."""
    assert r.set("a", "1", ex=1000)
    assert r.get("a") == b"1"
    assert 990 <= r.ttl("a") <= 1000
    assert r.incr("a", 5) == 6
    assert r.mget("a", "nothing") == [b"6", None]
    assert r.hset("h", mapping={"f": 1, "g": 2}) == 2
    assert r.hgetall("h") == {b"f": b"1", b"g": b"2"}
    assert r.rpush("l", *range(10)) == 10
    assert r.lrange("l", 2, 3) == [b"2", b"3"]
    assert r.sadd("s", "x", "y") == 2
    assert set(r.smembers("s")) == {b"x", b"y"}
    assert r.zadd("z", {"one": 1, "two": 2.5}) == 2
    assert [list(pair) for pair in r.zrange("z", 0, -1, withscores=True)] == [[b"one", 1.0], [b"two", 2.5]]
    assert r.zscore("z", "two") == 2.5
    entry = r.xadd("x", {"f": "v"})
    assert [e[0] for e in r.xrange("x")] == [entry]
    assert sorted(r.scan_iter("*")) == [b"a", b"h", b"l", b"s", b"x", b"z"]
    with r.pipeline(transaction=True) as p:
        assert p.set("b", 1).incr("b").get("b").execute() == [True, 2, b"2"]
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            p.set(f"key:{i}", i)
        assert p.execute() == [True] * 1000
    assert r.dbsize() == 1007
    assert r.info("server")["redis_version"] == "7.0.15"
    assert r.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    assert r.client_setname("me")


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(served: Served, protocol: int) -> None:
    with served.space.entered():
        r = reader(protocol)
        use(r)
        r.close()


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_listens(served: Served, protocol: int) -> None:
    with served.space.entered():
        r = reader(protocol)
        listener = r.pubsub()
        listener.subscribe("c")
        assert listener.get_message(timeout=30)["type"] == "subscribe"
        assert r.publish("c", "hello") == 1
        assert listener.get_message(timeout=30)["data"] == b"hello"
        listener.close()
        r.close()


def take(s: socket.socket, size: int) -> bytes:
    out = b""
    while len(out) < size and (part := s.recv(1 << 20)):
        out += part
    return out


def test_a_blocked_client_is_served_by_another(served: Served) -> None:
    with served.connect() as waiting, served.connect() as other:
        waiting.sendall(encode("BLPOP", "l", 0))
        text = b""
        while b"blocked_clients:1" not in text:
            other.sendall(encode("INFO", "clients"))
            text = other.recv(4096)
        other.sendall(encode("RPUSH", "l", "v"))
        answer = b"*2\r\n$1\r\nl\r\n$1\r\nv\r\n"
        assert take(waiting, len(answer)) == answer
        waiting.sendall(encode("BLPOP", "l", 0.05))
        assert take(waiting, 5) == b"*-1\r\n"


def test_a_client_that_goes_away_waits_no_more(served: Served) -> None:
    waiting = served.connect()
    waiting.sendall(encode("BLPOP", "l", 0))
    wait_until(lambda: served.service.stats()["accepted"] == 1, 60, "a connection")
    waiting.close()
    wait_until(lambda: served.clients() == 0, 60, "the connection to be let go of")
    with served.connect() as other:
        other.sendall(encode("RPUSH", "l", "v") + encode("LLEN", "l"))
        assert take(other, 8) == b":1\r\n:1\r\n"


@pytest.mark.parametrize(
    "served",
    [pytest.param(1, marks=pytest.mark.soak(takes_s=2)), 2],
    ids=["one kthread", "two kthreads"],
    indirect=True,
)
def test_a_peer_that_does_not_read_is_not_read_from(served: Served) -> None:
    """A long pipeline without reading: memory is bounded, others are served, and in the end every reply comes."""
    with served.connect() as slow, served.connect() as other:
        slow.sendall(encode("SET", "v", "x" * 100_000))
        assert take(slow, 5) == b"+OK\r\n"
        count, size = 2000, 100_011
        writer = threading.Thread(target=lambda: slow.sendall(encode("GET", "v") * count))
        writer.start()
        wait_until(lambda: served.service.stats()["held_back"] > 0, 60, "the client to be held back")
        other.sendall(encode("PING"))
        assert take(other, 7) == b"+PONG\r\n"
        assert served.service.stats()["memory_used"] < 16 << 20
        got = 0
        while got < count * size:
            got += len(slow.recv(1 << 20))
        writer.join()
        assert got == count * size


def test_who_sends_all_before_it_reads(served: Served) -> None:
    """As clients do with their pipelines: 100,000 commands, and then 6 MB of replies."""
    count = 100_000
    with served.connect() as s:
        s.sendall(b"SET v " + b"x" * 50 + b"\r\n" + b"GET v\r\n" * count)
        size = len(b"+OK\r\n") + count * len(b"$50\r\n\r\n" + b"x" * 50)
        assert len(take(s, size)) == size


def test_replies_are_sent_before_the_end(served: Served) -> None:
    """A client that says all it has to say, and shuts its side, gets all answers."""
    with served.connect() as s:
        s.sendall(encode("SET", "v", "x" * 500_000) + encode("GET", "v") * 8)
        s.shutdown(socket.SHUT_WR)
        data = take(s, 1 << 30)
    assert [r.kind for r, _ in replies(data)] == ["+"] + ["$"] * 8


def test_quit_and_garbage_end_the_connection(served: Served) -> None:
    for data, answer in ((b"QUIT\r\n", b"+OK\r\n"), (b"*x\r\n", b"-ERR Protocol error: invalid multibulk length\r\n")):
        with served.connect() as s:
            s.sendall(data)
            assert take(s, 1 << 20) == answer
    wait_until(lambda: served.clients() == 0, 60, "both to be closed")


def test_too_many_connections_are_told_so() -> None:
    with serving() as made, made.connect() as first:
        first.sendall(encode("CONFIG", "SET", "maxclients", 2))
        assert take(first, 5) == b"+OK\r\n"
        with made.connect() as second, made.connect() as third:
            second.sendall(encode("PING"))
            assert take(second, 7) == b"+PONG\r\n"
            assert take(third, 1000) == b"-ERR max number of clients reached\r\n"


def test_many_connections_publish_and_listen(served: Served) -> None:
    sockets = [served.connect() for _ in range(20)]
    for s in sockets:
        s.sendall(encode("SUBSCRIBE", "all"))
        take(s, len(b"*3\r\n$9\r\nsubscribe\r\n$3\r\nall\r\n:1\r\n"))
    with served.connect() as speaker:
        speaker.sendall(encode("PUBLISH", "all", "x" * 1000) * 50)
        assert take(speaker, 250) == b":20\r\n" * 50
    message = b"*3\r\n$7\r\nmessage\r\n$3\r\nall\r\n$1000\r\n" + b"x" * 1000 + b"\r\n"
    for s in sockets:
        assert take(s, 50 * len(message)) == message * 50
        s.close()
    wait_until(lambda: served.clients() == 0, 60, "all to be closed")
