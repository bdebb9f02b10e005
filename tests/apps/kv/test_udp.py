"""memcached's UDP framing, on a kernel socket: against the definition, and against stock memcached."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import kvbinary as kb
import pytest
from kvclient import HEADER, UdpClient, settled

from corelane.apps.kv import Session, Store
from corelane.bench.baseline.memcached import Memcached
from corelane.bench.baseline.sockets import LinuxUdp


@pytest.fixture(params=[1, 32], ids=["recvfrom", "recvmmsg"])
def served(request: pytest.FixtureRequest, store: Store) -> Iterator[tuple[Store, LinuxUdp, UdpClient]]:
    with (
        LinuxUdp(store=store, batch=request.param, datagram_bytes=65536) as server,
        UdpClient(server.port) as client,
    ):
        yield store, server, client


Served = tuple[Store, LinuxUdp, UdpClient]


def test_set_and_get(served: Served) -> None:
    _, server, client = served
    assert client.ask(b"set a 5 0 3\r\nabc\r\n") == [b"STORED\r\n"]
    assert client.ask(b"get a\r\n") == [b"VALUE a 5 3\r\nabc\r\nEND\r\n"]
    assert client.ask(b"gets a b a\r\n")[0].startswith(b"VALUE a 5 3 1\r\nabc\r\nVALUE a 5 3 1\r\n")
    assert client.ask(b"get b\r\n") == [b"END\r\n"]
    assert client.ask(b"incr a 1\r\n") == [b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"]
    assert client.ask(b"nonsense\r\n") == [b"ERROR\r\n"]
    assert client.ask(b"get " + b"k" * 251 + b"\r\n") == [b"CLIENT_ERROR bad command line format\r\n"]
    assert server.stats()["failed"] == 0


def test_several_commands_in_a_datagram(served: Served) -> None:
    client = served[2]
    assert client.ask(b"set a 0 0 1\r\n7\r\nincr a 3\r\nget a\r\n") == [b"STORED\r\n10\r\nVALUE a 0 2\r\n10\r\nEND\r\n"]


@pytest.mark.parametrize("size", [0, 1, 1370, 1371, 1372, 1373, 1374, 1375, 1376, 1380, 2800, 20000, 60000])
def test_long_answers_are_split(served: Served, size: int) -> None:
    client = served[2]
    value = random.Random(size).randbytes(size)
    assert client.ask(b"set key 0 0 %d\r\n%b\r\n" % (size, value)) == [b"STORED\r\n"]
    answer = client.ask(b"get key\r\n")
    assert b"".join(answer) == b"VALUE key 0 %d\r\n%b\r\nEND\r\n" % (size, value)
    assert all(len(part) == 1392 for part in answer[:-1])
    assert 0 < len(answer[-1]) <= 1392


def test_multi_datagram_requests_are_refused(served: Served) -> None:
    client = served[2]
    assert client.ask(b"get a\r\n", total=2) == [b"SERVER_ERROR multi-packet request not supported\r\n"]


# One of each that memcached has, in its ASCII and its binary protocol, and pieces of a split one.
ANSWERS = [
    *(b"ERROR", b"CLIENT_ERROR bad data chunk", b"SERVER_ERROR out of memory storing object"),
    *(
        b"STORED",
        b"NOT_STORED",
        b"EXISTS",
        b"NOT_FOUND",
        b"DELETED",
        b"TOUCHED",
        b"OK",
        b"RESET",
        b"8",
        b"7   ",
        b"END",
    ),
    *(b"VALUE a 0 1\r\n1\r\nEND", b"STAT pid 1\r\nEND", b"VERSION 1.6.18", b"HD", b"VA 1\r\n1", b"EN", b"MN"),
    b"\x81\0\0\0\0\0\0\1" + bytes(16),
]


def test_an_answer_is_not_answered_whatever_it_says(served: Served) -> None:
    """Not even by an error: two stores that were made to send each other one datagram would go on for ever."""
    _, server, client = served
    for answer in ANSWERS:
        client.send(HEADER.pack(900, 0, 1, 0) + answer + b"\r\n")
        client.send(HEADER.pack(900, 0, 2, 0) + answer + b"\r\n")
        client.send(HEADER.pack(900, 1, 2, 0) + b"get a\r\n")
    client.send(HEADER.pack(900, 0, 0, 0))  # as the eight bytes of a counter
    client.send(HEADER.pack(901, 0, 1, 0) + b"get a\r\n")
    assert client.receive() == HEADER.pack(901, 0, 1, 0) + b"END\r\n"
    stats = settled(server.stats)
    assert (stats["answered"], stats["silent"], stats["failed"]) == (1, 3 * len(ANSWERS) + 1, 0)


def test_no_answer_of_ours_is_answered(served: Served) -> None:
    """What it says to all kinds of requests, sent back to it."""
    _, server, client = served
    requests = [
        b"set a 0 0 1\r\n1\r\n",
        b"incr a 1\r\n",
        b"get a\r\n",
        b"gets a\r\n",
        b"touch a 0\r\n",
        b"cas a 0 0 1 9\r\n2\r\n",
    ]
    requests += [
        b"stats\r\n",
        b"version\r\n",
        b"nonsense\r\n",
        b"get\r\n",
        b"incr a x\r\n",
        b"delete a\r\n",
        b"delete a\r\n",
    ]
    requests += [
        b"set a x 0 1\r\n1\r\n",
        b"verbosity 1\r\n",
        b"stats reset\r\n",
        b"flush_all\r\n",
        b"set long 0 0 3000\r\n%b\r\n" % bytes(3000),
    ]
    requests += [b"get long\r\n", b"add long 0 0 1\r\n1\r\n", b"decr none 1\r\n", b"set big 0 0 9999999\r\n"]
    answers = [(i, len(parts), part) for r in requests for parts in [client.ask(r)] for i, part in enumerate(parts)]
    before = settled(server.stats)
    for sequence, total, answer in answers:
        client.send(HEADER.pack(900, sequence, total, 0) + answer)
    assert client.ask(b"get none\r\n") == [b"END\r\n"]
    after = settled(server.stats)
    assert after["answered"] - before["answered"] == 1
    assert after["silent"] - before["silent"] == len(answers)


def test_noreply_gets_no_datagram(served: Served) -> None:
    _, server, client = served
    client.send(HEADER.pack(77, 0, 1, 0) + b"set a 0 0 1 noreply\r\n1\r\n")
    assert client.ask(b"get a\r\n") == [b"VALUE a 0 1\r\n1\r\nEND\r\n"]
    assert settled(server.stats)["silent"] == 1


@pytest.mark.parametrize("text", [b"set abc 1 0 5\r\nhello\r\n", b"get abc\r\n", b"gets abc abc\r\n", b"incr n 1\r\n"])
def test_truncated_at_every_byte(served: Served, text: bytes) -> None:
    """Every datagram that ends early is answered with one error, changes nothing, and later ones are not disturbed."""
    store, server, client = served
    assert client.ask(b"set n 0 0 1\r\n0\r\n") == [b"STORED\r\n"]
    whole = HEADER.pack(999, 0, 1, 0) + text
    answers = 0
    for n in range(len(whole)):
        client.send(whole[:n])
        if n > HEADER.size:
            datagram = client.receive()
            answers += 1
            payload = datagram[HEADER.size :]
            line_is_whole = b"\n" in whole[:n]
            assert payload == (b"CLIENT_ERROR bad data chunk\r\n" if line_is_whole else b"ERROR\r\n"), (n, payload)
    assert client.ask(b"get n abc\r\n") == [b"VALUE n 0 1\r\n0\r\nEND\r\n"]
    stats = settled(server.stats)
    assert stats["answered"] == answers + 2
    assert stats["silent"] == HEADER.size + 1  # 0 to 7 bytes are no header; 8 ask nothing
    store.check()


def test_mutated_requests(served: Served, seed: int) -> None:
    """Whatever a datagram says, in either protocol, the server goes on, another client is answered all the while, the
    counts balance and the store stays consistent."""
    store, server, client = served
    draw = random.Random(seed)
    good = [b"get a\r\n", b"set a 1 0 5\r\nhello\r\n", b"gets a b c\r\n", b"cas a 0 0 1 7\r\nx\r\n", b"decr a 10\r\n"]
    good += [kb.request(kb.GET, b"a"), kb.request(kb.SET, b"a", bytes(5), bytes(8))]
    with UdpClient(server.port) as other:
        assert other.ask(b"set mine 0 0 4\r\nkept\r\n") == [b"STORED\r\n"]
        for n in range(2000):
            client.send(mutated(draw, good))
            if n % 100 == 0:
                assert other.ask(b"get mine\r\n") == [b"VALUE mine 0 4\r\nkept\r\nEND\r\n"]
    assert client.ask(b"set last 0 0 2\r\nok\r\n") == [b"STORED\r\n"]
    settled(server.stats)
    store.check()


def mutated(draw: random.Random, good: list[bytes]) -> bytes:
    """A datagram of one of the requests, or of many of it, with some bytes changed, added or left out."""
    text = bytearray(HEADER.pack(draw.randrange(65536), 0, 1, 0) + draw.choice(good) * draw.choice([1, 1, 2, 40]))
    for _ in range(draw.randrange(5)):
        at = draw.randrange(len(text))
        text[at : at + draw.randrange(3)] = draw.randbytes(draw.randrange(3))
        text = text or bytearray(b"x")
    return bytes(text)


def test_same_datagrams_as_memcached(oracle: Memcached, store: Store) -> None:
    """Split answers and errors, datagram by datagram.

    Not requests in several datagrams: memcached 1.6.18 means to refuse them, but its answer never leaves.
    """
    draw = random.Random(7)
    with (
        LinuxUdp(store=store, batch=8, datagram_bytes=65536) as server,
        UdpClient(server.port) as ours,
        UdpClient(oracle.udp_port) as theirs,
        socket.create_connection((oracle.address, oracle.tcp_port), timeout=60) as link,
    ):
        session = Session(store)
        link.sendall(b"flush_all\r\n")
        assert link.recv(100) == b"OK\r\n"
        for name, size in [(b"s", 3), (b"m", 1300), (b"l", 5000), (b"xl", 100000)]:
            command = b"set %b 0 0 %d\r\n%b\r\n" % (name, size, draw.randbytes(size))
            link.sendall(command)
            assert link.recv(100) == session.execute(command) == b"STORED\r\n"
        # Not several keys: memcached 1.6 numbers the datagrams of each key anew, against its own protocol.txt.
        for question in [b"get s", b"get m", b"get l", b"get xl", b"get nothing", b"delete s"]:
            assert ours.ask(question + b"\r\n") == theirs.ask(question + b"\r\n"), question
        for command in [b"set u 9 0 400\r\n" + b"u" * 400, b"get u", b"nonsense", b"incr u 1", b"touch u 0"]:
            assert ours.ask(command + b"\r\n") == theirs.ask(command + b"\r\n"), command
