"""The same scripts to stock memcached and to our TCP port, cut into segments anywhere, must be answered alike."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Iterator

import kvbinary as kb
import pytest
from cltest import soak
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kvoracle import FENCE, FENCED, Oracle
from kvscripts import STORED, Refused, scripts, sent, shift
from kvserver import KvServer, kv_server

from corelane.apps.kv import Session, Store
from corelane.bench.baseline.memcached import Memcached

pytestmark = pytest.mark.root

# Statistics of memcached alone, of what is not here (docs/kv.md, "Differences"), by command.
ITS_OWN = {
    b"": rb"libevent|response_obj_\w+|read_buf_\w+|log_worker_\w+|malloc_fails|reserved_fds|time_in_listen_disabled_us"
    rb"|unexpected_napi_ids|round_robin_fallback|hash_power_level|slab\w+|lru\w+|moves_\w+|direct_reclaims|crawler_\w+"
    rb"|\w+_unfetched|evicted_active",
    b" settings": rb"num_(threads_per_udp|napi_ids)|hash(power_init|_algorithm)|growth_factor|chunk_size"
    rb"|slab_(automove_\w+|chunk_max)|tail_repair_time|(hot|warm)_\w+|temp\w+|worker_logbuf_size|ext_\w+|ssl_(?!enabled)\w+|memory_file",
    b" items": rb"items:N:(number_(hot|warm|cold)|age\w*|evicted_(nonzero|time|active)|tailrepairs|\w+_unfetched"
    rb"|crawler_\w+|lrutail_reflocked|moves_\w+|direct_reclaims|hits_to_\w+)",
    b" slabs": rb"N:free_chunks_end",
    b" sizes": rb"",
}


@pytest.fixture(scope="module")
def server() -> Iterator[KvServer]:
    with kv_server() as made:
        yield made


@pytest.fixture(scope="module")
def theirs(oracle: Memcached) -> Iterator[Oracle]:
    made = Oracle(oracle, STORED)
    yield made
    made.close()


@pytest.fixture(scope="module")
def ours(server: KvServer) -> Iterator[Oracle]:
    made = Oracle(server.connect, STORED)
    yield made
    made.close()


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    """The data, cut at those places."""
    at = 0
    for cut in [*sorted({c for c in cuts if 0 < c < len(data)}), len(data)]:
        yield data[at:cut]
        at = cut


@pytest.mark.soak(short=True, takes_s=8)
@given(script=scripts, cuts=st.lists(st.integers(1, 2000), max_size=4))
@settings(
    max_examples=soak.examples(60, 1000),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_commands(theirs: Oracle, ours: Oracle, script: list[bytes], cuts: list[int]) -> None:
    # memcached closes on more than 2048 bytes without an end of line, if they do not begin with "get".
    assume(not any(c.startswith(b"gat") and len(c) > 1000 for c in (sent(command, 0) for command in script)))
    answers = []
    for link in (theirs, ours):
        link.reset()
        lowest = link.cas()
        if link is theirs:
            answers.append(shift(link.execute(b"".join(sent(c, lowest) for c in script) + FENCE), lowest))
            continue
        # Ours skips the value of a refused store: all of it is sent.
        data = b"".join(c if isinstance(c, Refused) else sent(c, lowest) for c in script) + FENCE
        for piece in pieces(data, cuts):
            link.send(piece)
        answers.append(shift(link.read(FENCED), lowest))
    assert answers[1] == answers[0]


SCRIPT = b"".join(
    [
        b"set a 7 0 10\r\nab\r\n\0\xffcd\r\r\n",
        b"get a b a\r\n",
        b"gets none\r\n",
        b"append a 0 0 1 noreply\r\nz\r\nmg a s v f t\r\n",
        b"ms m 4 T0 F5\r\nmeta\r\nmg m v f k Oq\r\nmn\r\n",
        b"set n 0 0 2\r\n10\r\nincr n 5\r\ndecr n 20\r\nincr a 1\r\n",
        b"set big 0 0 40000000\r\n" + bytes(200),
    ]
)
BINARY = b"".join(
    [
        kb.store(kb.SETQ, b"a", b"quiet"),
        kb.store(kb.SET, b"b\r\n", b"value\r\n" * 3, 9),
        kb.request(kb.GETKQ, b"a") + kb.request(kb.GETQ, b"none") + kb.request(kb.GETK, b"b\r\n"),
        kb.request(kb.INCR, b"n", extras=bytes(7) + b"\5" + bytes(8) + bytes(4)),
        kb.request(kb.STAT, b"nothing") + kb.request(0x30, b"key", b"value"),
        kb.request(kb.DELETEQ, b"a") + kb.request(kb.NOOP),
        kb.request(kb.SET, b"big", extras=bytes(8), body=30000000) + bytes(100),
    ]
)


def comparable(answer: bytes) -> object:
    """Without the uniques of the binary protocol, which count on."""
    return [a._replace(unique=0) for a in kb.answers(answer)] if answer[0] == 0x81 else answer


@pytest.mark.parametrize("script", [SCRIPT, BINARY], ids=["text", "binary"])
def test_cut_at_every_byte(server: KvServer, script: bytes) -> None:
    """A client that stops anywhere for a moment is answered as one that does not; so is one that sends single bytes."""
    with Store(32 << 20, seed=1, huge_pages=0) as store:
        whole = Session(store).execute(script)
    with server.client() as other:
        for cut in range(1, len(script)):
            other.ask(b"flush_all\r\n")
            with server.client() as client:
                client.send(script[:cut])
                if cut % 3 == 0:  # what was sent has come: a client behind it is answered
                    other.ask(b"mn\r\n")
                client.send(script[cut:])
                assert comparable(client.take(len(whole))) == comparable(whole), cut
    with server.client() as client:
        client.ask(b"flush_all\r\n")
    with server.client() as client:
        for i in range(len(script)):
            client.send(script[i : i + 1])
        assert comparable(client.take(len(whole))) == comparable(whole)


@pytest.mark.parametrize("size", [0, 1, 1400, 1460, 2033, 65536, 300_000, (1 << 20) - 200])
def test_values_of_all_sizes(server: KvServer, oracle: Memcached, size: int) -> None:
    value = random.Random(size).randbytes(size)
    data = b"set v 3 0 %d\r\n%b\r\nget v v\r\nmg v s v\r\nmn\r\n" % (size, value)
    with server.client() as client:
        ours = client.ask(data, b"MN\r\n")
    link = Oracle(oracle, [b"v"])
    link.send(data)
    assert ours == link.read(b"MN\r\n")
    link.close()


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"set a 0 0 -1\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"set a 0 0 2147483647\r\n", b"CLIENT_ERROR bad command line format\r\n"),
        (b"set a 0 0 1\r\nquit\r\n", b"CLIENT_ERROR bad data chunk\r\n"),
        (b"quit\r\nmn\r\n", b""),
        (b"mn\r\nquit\r\n", b"MN\r\n"),
        (b"x" * 2049, b""),
        (b"   set " + b"x" * 2049, b""),
        (kb.request(kb.QUIT), bytes((0x81, kb.QUIT)) + bytes(22)),
        (b"\x80" + b"\xff" * 23, None),
    ],
)
def test_what_ends_a_connection(server: KvServer, oracle: Memcached, data: bytes, answer: bytes | None) -> None:
    """The answer comes whole, whatever is sent behind it."""
    with server.client() as client:
        client.send(data)
        got = client.ended()
    if answer is not None:
        assert got == answer
    else:
        assert [a.status for a in kb.answers(got)] == [kb.INVALID]


def test_a_line_for_many_keys_may_be_long(server: KvServer, oracle: Memcached) -> None:
    line = b"get " + b" ".join(b"key-%d" % i for i in range(20_000)) + b"\r\n"
    with server.client() as client:
        client.ask(b"set key-19999 0 0 1\r\nx\r\n")
        assert client.ask(line, b"END\r\n") == b"VALUE key-19999 0 1\r\nx\r\nEND\r\n"
        assert server.stat("conn_held_bytes") == 0


def test_a_value_that_is_too_large_is_refused_at_once_and_swallowed(server: KvServer, oracle: Memcached) -> None:
    """memcached says the same when it has swallowed the value."""
    head, body = b"set a 0 0 3\r\nold\r\nset a 0 0 3000000\r\n", bytes(3_000_000) + b"\r\nget a\r\n"
    with server.client() as client:
        refused = client.ask(head, b"cache\r\n")
        assert refused == b"STORED\r\nSERVER_ERROR object too large for cache\r\n"
        assert server.stat("conn_held_bytes") == 0
        rest = client.ask(body, b"END\r\n")
        assert rest == b"END\r\n", "the old value is out of date"
    link = Oracle(oracle, [b"a"])
    link.send(head + body)
    assert link.read(b"END\r\n") == refused + rest
    link.close()


def test_time_passes_as_the_test_says(server: KvServer) -> None:
    with server.client() as client:
        client.ask(b"set soon 0 10 1\r\nx\r\n")
        server.store.time_s += 9
        assert client.ask(b"mg soon t v\r\n", b"x\r\n") == b"VA 1 t1\r\nx\r\n"
        server.store.time_s += 1
        assert client.ask(b"get soon\r\n") == b"END\r\n"


@pytest.mark.parametrize("what", ITS_OWN)
def test_statistics_are_memcached_s_but_for_those_of_what_is_not_here(
    theirs: Oracle, ours: Oracle, what: bytes
) -> None:
    def names(link: Oracle) -> set[bytes]:
        link.reset()
        link.execute(b"set key-1 0 0 1\r\nx\r\n" + FENCE)
        found = re.findall(rb"STAT (\S+)", link.execute(b"stats" + what + b"\r\n" + FENCE))
        return {re.sub(rb"\d+:", b"N:", name) for name in found}  # N: of a slab class; we have one

    had, have = names(theirs), names(ours)
    left_out = sorted(name for name in had - have if not re.fullmatch(ITS_OWN[what], name))
    assert left_out == []
    assert [name for name in have if re.fullmatch(ITS_OWN[what], name)] == []
    assert len(have) >= 1


@pytest.mark.parametrize("line", [b"GET / HTTP/1.0", b"DELETE HTTP/1.1", b"PUT /a b c d e f HTTP/1.1"])
def test_a_browser_is_not_answered(server: KvServer, oracle: Memcached, line: bytes) -> None:
    for link in (server.connect(), socket.create_connection((oracle.address, oracle.tcp_port), timeout=60)):
        with link:
            link.sendall(line + b"\r\n")
            assert link.recv(100) == b""
