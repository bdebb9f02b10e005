"""Without uniques (memcached -C): all that tells one tells 0, and no cas of an item that is there goes through."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import kvbinary as kb
import pytest
from kvbinary import request
from kvoracle import FENCE, Oracle

from corelane.apps.kv import Session, Store
from corelane.bench.baseline import memcached

COMMANDS = [
    b"gets a b",
    b"gats 0 a b",
    b"cas a 0 0 1 0\r\nx",
    b"cas a 0 0 1 5\r\nx",
    b"cas missing 0 0 1 0\r\nx",
    b"mg a c v",
    b"mg a c s t O1",
    b"mg made N0 c v",
    b"mg made N0 c v",
    b"ms a 1 c\r\nx",
    b"ms a 1 c C0\r\nx",
    b"ms a 1 c C5\r\nx",
    b"ms a 1 c C5 I\r\nx",
    b"ms new 1 c C0\r\nx",
    b"ms a 1 MA c C5\r\nx",
    b"ms a 1 MA c C0\r\nx",
    b"ma n c C5",
    b"ma n c C0",
    b"ma n c",
    b"ma fresh N0 c v J7",
    b"md b C5",
    b"md b I C5",
    b"md b I",
    b"mg b c v",
    b"md b C0",
    b"incr n 1",
    b"gets n",
]


@pytest.fixture(scope="module")
def server() -> Iterator[memcached.Memcached]:
    if why := memcached.missing():
        pytest.skip(why)
    with memcached.Memcached(extra=["-C"]) as made:
        yield made


@pytest.fixture
def store() -> Iterator[Store]:
    with Store(4 << 20, seed=1, huge_pages=0, no_cas=True) as made:
        yield made
        made.check()


BEFORE = b"set a 0 0 1\r\n1\r\nset b 3 0 2\r\n22\r\nset n 0 0 1\r\n7\r\n"


@pytest.mark.parametrize("command", [*COMMANDS, b"\r\n".join(COMMANDS)], ids=lambda c: c[:20].decode().strip())
def test_text_and_meta(server: memcached.Memcached, store: Store, command: bytes) -> None:
    gone = b"".join(b"delete %b\r\n" % key for key in (b"a", b"b", b"n", b"made", b"new", b"fresh"))
    with contextlib.closing(Oracle(server, [])) as link:
        link.execute(gone + FENCE)  # flush_all of memcached without uniques hides what is stored in the same second
        data = BEFORE + command + b"\r\n" + FENCE
        assert Session(store).execute(data) == link.execute(data)


def test_binary(server: memcached.Memcached, store: Store) -> None:
    end = request(kb.NOOP, opaque=b"fenc")
    script = [
        request(kb.SET, b"a", b"1", extras=bytes(8)),
        request(kb.GET, b"a"),
        request(kb.SET, b"a", b"2", extras=bytes(8), unique=5),
        request(kb.ADD, b"missing", b"2", extras=bytes(8), unique=5),
        request(kb.APPEND, b"a", b"3", unique=9),
        request(kb.APPEND, b"a", b"3"),
        request(kb.INCR, b"a", extras=bytes(7) + b"\1" + bytes(12)),
        request(kb.INCR, b"a", extras=bytes(7) + b"\1" + bytes(12), unique=4),
        request(kb.DELETE, b"a", unique=7),
        request(kb.DELETE, b"a"),
    ]
    with socket.create_connection((server.address, server.tcp_port), timeout=60) as link:
        link.sendall(request(kb.DELETE, b"a") + b"".join(script) + end)
        theirs = b""
        while b"fenc" not in theirs:
            theirs += link.recv(1 << 16)
    ours = Session(store).execute(request(kb.DELETE, b"a") + b"".join(script) + end)
    assert kb.answers(ours)[1:] == kb.answers(theirs)[1:], "the first one deletes what others left"


def test_what_it_says_of_itself(store: Store) -> None:
    session = Session(store)
    assert b"STAT cas_enabled no\r\n" in session.execute(b"stats settings\r\n")
    session.execute(b"set a 0 0 1\r\n1\r\n")
    assert b" cas=0 " in session.execute(b"lru_crawler metadump all\r\n")
    assert b" cas=0 " in session.execute(b"me a\r\n")
    assert session.execute(b"flush_all\r\nget a\r\n") == b"OK\r\nEND\r\n", "flushes go by uniques that are not told"
