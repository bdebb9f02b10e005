"""The binary protocol: the same requests to stock memcached and to our command layer must be answered alike.

Differences that docs/kv.md lists are kept out: the version, statistics, size limits, unknown opcodes with a body.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import kvbinary as kb
import pytest
from cltest import soak
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kvbinary import Answer, answers, request
from kvclient import HEADER, UdpClient
from kvoracle import Oracle

from corelane.apps.kv import Session, Store
from corelane.bench.baseline.memcached import Memcached
from corelane.bench.baseline.sockets import LinuxUdp

KEYS = [b"a", b"bin\0\r\n", b"k" * 250]
FENCE = request(kb.NOOP, opaque=b"fenc")


@dataclass(frozen=True)
class Request:
    """A request; its unique counts from the first store of the script, 0 is none."""

    data: bytes
    unique: int = 0

    def bytes(self, lowest: int) -> bytes:
        unique = self.unique + lowest if self.unique else 0
        return self.data[:16] + struct.pack(">Q", unique) + self.data[24:]


@pytest.fixture(scope="module")
def link(oracle: Memcached) -> Iterator[Oracle]:
    made = Oracle(oracle, [b"a", b"k" * 250])
    yield made
    made.close()


def ask(server: Memcached, data: bytes) -> tuple[bytes, bool]:
    """(what memcached answers, whether it closed the connection). `data` ends with FENCE."""
    fence = bytearray(kb.HEADER.pack(0x81, kb.NOOP, 0, 0, 0, 0, 0, b"fenc", 0))
    answer = b""
    with socket.create_connection((server.address, server.tcp_port), timeout=60) as link:
        link.sendall(data)
        while not answer.endswith(fence):
            try:
                part = link.recv(1 << 16)
            except ConnectionResetError:  # it closed before it had read all
                part = b""
            if not part:
                return answer, True
            answer += part
    return answer, False


def told(data: bytes, lowest: int) -> list[Answer]:
    """Answers with their uniques counted from `lowest`, and without the version's text."""
    out = []
    for a in answers(data):
        value = b"" if a.opcode == kb.VERSION and a.status == kb.OK else a.value
        out.append(a._replace(unique=a.unique - lowest if a.unique else 0, value=value))
    return out


def same(server: Memcached, link: Oracle, script: list[Request], cut: int = 0) -> tuple[list[Answer], bool]:
    """What both answer to the same script on emptied stores, and whether they close."""
    link.reset()
    ask(server, b"".join(request(kb.DELETE, key) for key in KEYS) + FENCE)  # a flush to come brings back what one hides
    lowest = link.cas()
    theirs, their_end = ask(server, b"".join(r.bytes(lowest) for r in script) + FENCE)
    data = b"".join(r.bytes(0) for r in script) + FENCE
    with Store(4 << 20, seed=1, huge_pages=0, manual_clock=True) as mine:
        session = Session(mine)
        ours = session.execute(data[:cut])
        ours += b"" if session.closed else session.execute(data[cut:])
        mine.check()
    assert told(ours, 0) == told(theirs, lowest)
    assert session.closed == their_end
    return told(ours, 0), session.closed


VALUES = st.sampled_from([b"", b"0", b"10", b"99", b"18446744073709551615", b"x", b"value", b"12 ", b"v" * 1000])
TIMES = st.sampled_from([0, 1000, 2592000, 2592001, 4102444800, 0xFFFFFFFF])
STORES = [kb.SET, kb.ADD, kb.REPLACE, kb.SETQ, kb.ADDQ, kb.REPLACEQ]
JOINS = [kb.APPEND, kb.PREPEND, kb.APPENDQ, kb.PREPENDQ]
READS = [kb.GET, kb.GETQ, kb.GETK, kb.GETKQ]
TOUCHES = [kb.TOUCH, kb.GAT, kb.GATQ, kb.GATK, kb.GATKQ]
DELTAS = [kb.INCR, kb.DECR, kb.INCRQ, kb.DECRQ]
NUMBERS = st.sampled_from([0, 1, 5, 99, 2**64 - 1])
KINDS = st.sampled_from([STORES, STORES, JOINS, READS, READS, TOUCHES, DELTAS, [kb.DELETE, kb.DELETEQ], [-1]])


@st.composite
def requests(draw: st.DrawFn) -> Request:
    kind = draw(KINDS)
    opcode = draw(st.sampled_from(kind))
    key, unique = draw(st.sampled_from(KEYS)), draw(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]))
    opaque = draw(st.binary(min_size=4, max_size=4))
    if kind is STORES:
        flags = draw(st.sampled_from([0, 7, 0xFFFFFFFF]))
        return Request(kb.store(opcode, key, draw(VALUES), flags, draw(TIMES), unique), unique)
    if kind is JOINS:
        return Request(request(opcode, key, draw(VALUES), opaque=opaque), unique)
    if kind is TOUCHES:
        return Request(request(opcode, key, extras=struct.pack(">I", draw(TIMES)), opaque=opaque))
    if kind is DELTAS:
        extras = struct.pack(">QQI", draw(NUMBERS), draw(NUMBERS), draw(TIMES))
        return Request(request(opcode, key, extras=extras, opaque=opaque), unique)
    if opcode == -1:
        return Request(draw(PLAIN))
    return Request(request(opcode, key, opaque=opaque), unique)


PLAIN = st.sampled_from(
    [
        request(kb.NOOP, opaque=b"abcd"),
        request(kb.VERSION),
        request(kb.FLUSH),
        request(kb.FLUSHQ),
        request(kb.FLUSH, extras=b"\0\0\0\0"),
        request(kb.FLUSHQ, extras=struct.pack(">I", 1000)),
        request(kb.SASL_LIST),
        request(kb.SASL_AUTH, b"PLAIN", b"\0user\0word"),
        request(kb.SASL_STEP, b"PLAIN", b"more"),
        request(0x1B),
        request(0x1F),
        request(0x25),
        request(0xFF),
    ]
)
# What ends a session.
LAST = [
    request(kb.QUIT),
    request(kb.QUITQ),
    request(kb.GET),
    request(kb.GET, b"k" * 251),
    request(kb.SET, b"k" * 251, b"v", b"\0" * 8),
    request(kb.GET, b"a", b"value"),
    request(kb.GETQ, b"a", extras=b"\0\0\0\0"),
    request(kb.SET, b"a", b"v"),
    request(kb.SET, b"a", b"v", b"\0" * 4),
    request(kb.SET, b"", b"v", b"\0" * 8),
    request(kb.SET, b"a", b"v", b"\0" * 8, body=3),
    request(kb.APPEND, b"a", b"v", b"\0" * 8),
    request(kb.INCR, b"a"),
    request(kb.INCR, b"a", b"v", b"\0" * 20),
    request(kb.INCR, b"", b"", b"\0" * 20),
    request(kb.TOUCH, b"a"),
    request(kb.GAT, b"", b"", b"\0" * 4),
    request(kb.DELETE),
    request(kb.DELETE, b"a", b"v"),
    request(kb.NOOP, b"a"),
    request(kb.VERSION, b"", b"v"),
    request(kb.QUIT, b"a"),
    request(kb.FLUSH, b"a"),
    request(kb.FLUSH, extras=b"\0"),
    request(kb.FLUSH, value=b"1234"),
    request(kb.STAT, extras=b"\0"),
    request(kb.SASL_LIST, b"a"),
    request(kb.SASL_AUTH),
    request(0x1B, b"a", body=0),
]


@pytest.mark.soak(short=True, takes_s=5)
@given(script=st.lists(requests(), min_size=1, max_size=25), cut=st.integers(0, 300))
@settings(
    max_examples=soak.examples(100, 1000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_requests(oracle: Memcached, link: Oracle, script: list[Request], cut: int) -> None:
    assert not same(oracle, link, script, cut)[1]


@pytest.mark.parametrize("last", LAST, ids=range(len(LAST)))
def test_what_ends_a_session(oracle: Memcached, link: Oracle, last: bytes) -> None:
    script = [Request(kb.store(kb.SET, b"a", b"1")), Request(last), Request(request(kb.GET, b"a"))]
    got, closed = same(oracle, link, script)
    assert closed
    assert len(got) <= 2


@pytest.mark.parametrize(
    "no_request", [b"get a\r\n" + b" " * 24, b"\x81" + request(kb.NOOP)[1:]], ids=["text", "answer"]
)
def test_what_is_no_request_ends_a_session_without_an_answer(
    oracle: Memcached, store: Store, no_request: bytes
) -> None:
    data = request(kb.NOOP) + no_request + FENCE
    assert ask(oracle, data)[1]
    session = Session(store)
    assert [a.opcode for a in answers(session.execute(data))] == [kb.NOOP]
    assert session.closed


def test_statistics_end_with_an_empty_one(store: Store) -> None:
    got = answers(Session(store).execute(request(kb.STAT, opaque=b"stat") + FENCE))
    assert [a.opcode for a in got] == [kb.STAT] * (len(got) - 1) + [kb.NOOP]
    assert (got[-2].key, got[-2].value) == (b"", b"")
    named = {a.key: a.value for a in got[:-2]}
    assert named[b"curr_items"] == b"0"
    assert b"" not in named
    (unknown,) = answers(Session(store).execute(request(kb.STAT, b"nothing")))
    assert (unknown.status, unknown.value) == (kb.NOT_FOUND, b"Not found")


@pytest.mark.parametrize("told", [1 << 20, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_value_that_is_too_large_is_refused_and_never_kept(store: Store, told: int) -> None:
    session = Session(store)
    session.execute(kb.store(kb.SET, b"a", b"old"))
    (refused,) = answers(session.execute(request(kb.SET, b"a", extras=b"\0" * 8, body=told)))
    assert (refused.status, refused.value) == (kb.TOO_LARGE, b"Too large.")
    assert session.execute(b"\0" * ((1 << 20) - 9)) == b""
    assert session.wants == 0
    assert Session(store).execute(b"get a\r\n") == b"END\r\n"
    if told == 1 << 20:  # nine bytes of it are key and extras, the rest has come
        assert [a.opcode for a in answers(session.execute(FENCE))] == [kb.NOOP]


def test_an_unknown_opcode_is_passed_over_whole(store: Store) -> None:
    data = request(0x30, b"key", b"value", b"extras") + request(kb.SET, b"a", b"v", b"\0" * 8) + FENCE
    assert [(a.opcode, a.status) for a in answers(Session(store).execute(data))] == [
        (0x30, kb.UNKNOWN),
        (kb.SET, kb.OK),
        (kb.NOOP, kb.OK),
    ]


def test_a_long_value_comes_in_pieces_and_goes_out_in_little_room(store: Store) -> None:
    value = bytes(range(256)) * 1000
    data = kb.store(kb.SET, b"a", value, 5) + request(kb.GETK, b"a") * 5 + FENCE
    session = Session(store, room=len(value) + 1000)
    answer = b"".join(session.execute(data[i : i + 9999]) for i in range(0, len(data), 9999))
    got = answers(answer)
    assert [a.status for a in got] == [0] * 7
    assert all((a.extras, a.key, a.value) == (b"\0\0\0\5", b"a", value) for a in got[1:6])


def test_a_datagram_holds_requests_that_are_all_there(store: Store) -> None:
    requests = kb.store(kb.SETQ, b"a", b"value") + request(kb.GETK, b"a") + request(kb.GETQ, b"none")
    cut = [
        request(kb.SET, b"a", extras=b"\0" * 8, body=100, opaque=b"cut!"),
        request(kb.GET, b"a", opaque=b"cut!")[:24],
    ]
    with LinuxUdp(store=store) as server, UdpClient(server.port) as client:
        client.send(HEADER.pack(1, 0, 1, 0) + requests)
        (got,) = answers(client.receive()[HEADER.size :])
        assert (got.opcode, got.key, got.value) == (kb.GETK, b"a", b"value")
        for data in cut:
            client.send(HEADER.pack(2, 0, 1, 0) + FENCE + data)
            fence, refused = answers(client.receive()[HEADER.size :])
            assert (fence.status, refused.status, refused.opaque) == (kb.OK, kb.INVALID, b"cut!")
