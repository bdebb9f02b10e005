"""sockload's requests and what it takes answers for: every protocol, byte by byte, without a server."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corelane.bench.load.sockload.sockload import Asked, SockLoad
from corelane.runtime.errors import CorelaneError

HIT, MISS, STORED, ERROR, WRONG = range(5)
LAST = 16


def engine(protocol: str, **options: object) -> SockLoad:
    """An engine that is never connected."""
    return SockLoad(Asked(protocol=protocol, address="127.0.0.1", port=9, **{"keys": 1000} | options))


def taken_only_whole(load: SockLoad, answer: bytes, op: str, key: int = 0, count: int = 1) -> int:
    """What a whole answer is worth. All that it begins with asks for more, and what follows is not taken."""
    for cut in range(len(answer)):
        assert load.judge(answer[:cut], op, key, count)[0] == 0, answer[:cut]
    n, worth = load.judge(answer + b"more", op, key, count)
    assert n == len(answer)
    return worth


def test_keys_differ_and_have_their_lengths():
    with engine("memcached", keys=5000, key_bytes=(1, 4, 17, 40)) as load:
        names = [load.key(k) for k in range(5000)]
    assert len(set(names)) == 5000
    assert {len(name) for name in names} >= {4, 17, 40}
    assert all(name.startswith(b"k") and b" " not in name for name in names)


def test_values_follow_from_their_keys():
    with engine("memcached", value_bytes=(1, 7, 64, 1000)) as load:
        values = [load.value(k) for k in range(64)]
        assert values == [load.value(k) for k in range(64)]
    assert {len(value) for value in values} == {1, 7, 64, 1000}
    assert len({value[:8] for value in values if len(value) > 8}) > 20


def test_memcached_requests():
    with engine("memcached") as load:
        key, value = load.key(5), load.value(5)
        assert load.request("get", 5) == b"get %s\r\n" % key
        assert load.request("set", 5) == b"set %s 0 0 64\r\n%s\r\n" % (key, value)
        assert load.request("insert", 5) == load.request("set", 5)
        assert load.request("delete", 5) == b"delete %s\r\n" % key
        assert load.request("scan", 5, 2) == b"get %s %s\r\n" % (key, load.key(6))


def test_memcached_answers():
    with engine("memcached") as load:
        value = b"VALUE %s 0 64\r\n%s\r\n" % (load.key(5), load.value(5))
        third = b"VALUE %s 0 64\r\n%s\r\n" % (load.key(7), load.value(7))
        assert taken_only_whole(load, value + b"END\r\n", "get", 5) == HIT
        assert taken_only_whole(load, b"END\r\n", "get", 5) == MISS
        assert taken_only_whole(load, value + third + b"END\r\n", "scan", 5, 3) == HIT
        assert taken_only_whole(load, b"STORED\r\n", "set", 5) == STORED
        assert taken_only_whole(load, b"DELETED\r\n", "delete", 5) == STORED
        assert taken_only_whole(load, b"NOT_FOUND\r\n", "delete", 5) == MISS
        assert taken_only_whole(load, b"SERVER_ERROR out of memory\r\n", "set", 5) == ERROR
        assert taken_only_whole(load, b"ERROR\r\n", "get", 5) == ERROR


@pytest.mark.parametrize(
    "answer",
    [
        b"STORED\r\n",
        b"VALUE other 0 64\r\n",
        b"VALUE {key} 0 63\r\n",
        b"VALUE {key} 0 99999999999999999999\r\n",
        b"VALUE {key} 0 -1\r\n",
        b"VALUE {key} 0\r\n",
        b"VALUE {key} 0 64\n",
        b"VALUE {key} 0 64\r\n{wrong}\r\n",
        b"VALUE {key} 0 64\r\n{value}xx",
        b"VALUE {key} 0 64\r\n{value}\r\nVALUE {key} 0 64\r\n{value}\r\nEND\r\n",
        b"\0" * 600,
        b"x" * 600,
    ],
)
def test_what_memcached_does_not_answer(answer: bytes):
    with engine("memcached") as load:
        for name, text in ((b"{key}", load.key(5)), (b"{value}", load.value(5)), (b"{wrong}", load.value(6))):
            answer = answer.replace(name, text)
        assert load.judge(answer, "get", 5)[0] < 0


def test_resp_requests():
    with engine("redis") as load:
        key, value = load.key(5), load.value(5)
        assert load.request("get", 5) == b"*2\r\n$3\r\nGET\r\n$17\r\n%s\r\n" % key
        assert load.request("set", 5) == b"*3\r\n$3\r\nSET\r\n$17\r\n%s\r\n$64\r\n%s\r\n" % (key, value)
        assert load.request("delete", 5) == b"*2\r\n$3\r\nDEL\r\n$17\r\n%s\r\n" % key
        assert load.request("scan", 5, 2).startswith(b"*3\r\n$4\r\nMGET\r\n")


def test_resp_answers():
    with engine("redis") as load:
        five, seven = (b"$64\r\n%s\r\n" % load.value(k) for k in (5, 7))
        assert taken_only_whole(load, five, "get", 5) == HIT
        assert taken_only_whole(load, b"$-1\r\n", "get", 5) == MISS
        assert taken_only_whole(load, b"_\r\n", "get", 5) == MISS
        assert taken_only_whole(load, b"+OK\r\n", "set", 5) == STORED
        assert taken_only_whole(load, b":1\r\n", "delete", 5) == STORED
        assert taken_only_whole(load, b":0\r\n", "delete", 5) == MISS
        assert taken_only_whole(load, b"*3\r\n%s$-1\r\n%s" % (five, seven), "scan", 5, 3) == HIT
        assert taken_only_whole(load, b"-OOM command not allowed\r\n", "set", 5) == ERROR


@pytest.mark.parametrize("answer", [b"+OK\r\n", b"$63\r\n", b"$-2\r\n", b"*1\r\n", b":1\r\n", b"$\r\n", b"x" * 2000])
def test_what_redis_does_not_answer(answer: bytes):
    with engine("redis") as load:
        assert load.judge(answer, "get", 5)[0] < 0
        assert load.judge(b"$64\r\n" + load.value(6) + b"\r\n", "get", 5)[0] < 0
        assert load.judge(b"*2\r\n", "scan", 5, 3)[0] < 0


def test_http_requests():
    with engine("http", host="a.example:8080", path="/x/{key}?y", headers="Accept: */*\r\n") as load:
        text = load.request("get", 5).decode()
        head, empty = text.split("\r\n", 1)[0], text[-4:]
        assert head == f"GET /x/{load.key(5).decode()}?y HTTP/1.1"
        assert empty == "\r\n\r\n"
        assert "\r\nHost: a.example:8080\r\n" in text
        assert "\r\nAccept: */*\r\n" in text


def test_http_answers():
    with engine("http") as load:
        assert taken_only_whole(load, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "get") == HIT
        assert taken_only_whole(load, b"HTTP/1.1 200 OK\r\ncontent-length:0 \t\r\n\r\n", "get") == HIT
        chunked = (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n"
        )
        assert taken_only_whole(load, chunked, "get") == HIT
        assert taken_only_whole(load, chunked[:-2] + b"Trailer: x\r\n\r\n", "get") == HIT
        interim = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
        assert taken_only_whole(load, interim, "get") == HIT
        assert taken_only_whole(load, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", "get") == MISS
        assert taken_only_whole(load, b"HTTP/1.1 301 Moved\r\nContent-Length: 1\r\n\r\nx", "get") == MISS
        assert taken_only_whole(load, b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", "get") == ERROR
        # Without a length the body ends with the connection.
        assert load.judge(b"HTTP/1.0 200 OK\r\n\r\nhello", "get")[0] == 0


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-x",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello!0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70000,
    ],
)
def test_what_is_no_http(answer: bytes):
    with engine("http") as load:
        assert load.judge(answer, "get")[0] < 0


@pytest.mark.parametrize(
    ("head", "worth"),
    [
        (b"HTTP/1.1 200 OK\r\n", HIT),
        (b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\n", HIT),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n", HIT | LAST),
        (b"HTTP/1.1 200 OK\r\nconnection: Upgrade, Close\r\n", HIT | LAST),
        (b"HTTP/1.1 404 Not Found\r\nConnection: close\r\n", ERROR | LAST),
        (b"HTTP/1.0 200 OK\r\n", HIT | LAST),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n", HIT),
    ],
)
def test_http_says_which_answer_is_the_last(head: bytes, worth: int):
    with engine("http") as load:
        assert taken_only_whole(load, head + b"Content-Length: 1\r\n\r\nx", "get") == worth


def test_echo_answers_are_the_requests():
    with engine("echo", request_bytes=100) as load:
        text = load.request("get", 5)
        assert len(text) == 100
        assert taken_only_whole(load, text, "get", 5) == HIT
        assert load.judge(text, "get", 6)[0] < 0
        assert load.judge(text[:-1] + b"x", "get", 5) == (100, WRONG)


@pytest.mark.soak(takes_s=30)
def test_any_bytes_may_come_as_an_answer(c_fuzzer: Callable[..., Callable[..., str]]):
    c_fuzzer("tests/bench/load/sockload/c/fuzz_answers.c")(
        "-runs=2000000", "-seed=1", "-max_len=200", "-max_total_time=40"
    )


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"threads": 65}, "at most 64 threads"),
        ({"connections": 1 << 21}, "at most 1048576 connections"),
        ({"udp": True}, "asked over TCP"),
        ({"zipf": -1.0}, "Zipf"),
        ({"port": 0}, "a port is"),
        ({"port": 70000}, "a port is"),
        ({"address": "nowhere"}, "no IPv4 or IPv6 address"),
        ({"value_bytes": (1, 2, 3)}, "power of two"),
        ({"protocol": "echo", "request_bytes": 39}, "40 bytes or more"),
        ({"protocol": "custom"}, "two functions"),
        ({"depth": 1 << 33}, "limits"),
    ],
)
def test_what_cannot_be_asked_for(options: dict[str, object], why: str):
    asked = {"protocol": "memcached", "address": "127.0.0.1", "port": 11211} | options
    with pytest.raises(CorelaneError, match=why):
        SockLoad(Asked(**asked))
