"""Commands about the server: answered as stock memcached answers, or as docs/kv.md says; statistics have its names."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import kvbinary as kb
import pytest
from cltest import wait_until

from corelane.apps._native import ffi, lib
from corelane.apps.kv import Session, Store
from corelane.bench.baseline.memcached import Memcached

# Answered alike by a memcached of 64 MiB and by a store of as much.
ALIKE = [
    b"lru_crawler",
    b"lru_crawler x",
    b"lru_crawler x y",
    b"lru_crawler crawl",
    b"lru_crawler crawl all",
    b"lru_crawler crawl 1,2",
    b"lru_crawler crawl 99",
    b"lru_crawler crawl x",
    b"lru_crawler crawl hash",
    b"lru_crawler crawl 0",
    b"lru_crawler tocrawl 5",
    b"lru_crawler tocrawl x",
    b"lru_crawler sleep 5",
    b"lru_crawler sleep x",
    b"lru_crawler sleep 5000000",
    b"lru_crawler enable",
    b"lru_crawler metadump",
    b"lru_crawler metadump 99",
    b"lru_crawler mgdump all",
    b"cache_memlimit",
    b"cache_memlimit x",
    b"cache_memlimit 4",
    b"cache_memlimit 64",
    b"cache_memlimit 50",
    b"cache_memlimit 64 noreply\r\nmn",
    b"cache_memlimit 64 a b",
    b"cache_memlimit 2000000000",
    b"verbosity",
    b"verbosity 0",
    b"verbosity 0 2",
    b"verbosity 0 2 3",
    b"verbosity x",
    b"verbosity 0 noreply\r\nmn",
    b"slabs",
    b"slabs automove 7",
    b"lru",
    b"lru x",
    b"extstore",
    b"extstore a b",
    b"shutdown",
    b"shutdown x",
    b"refresh_certs",
    b"stats nothing",
    b"stats reset",
    b"stats reset x",
    b"stats sizes",
    b"stats cachedump",
    b"stats cachedump 1",
    b"stats cachedump 1 x",
    b"stats cachedump 64 1",
    b"stats cachedump 1 5",
    b"stats cachedump 9 5",
    b"stats extstore",
    b"stats detail",
    b"stats detail x",
    b"stats detail off",
    b"flush_all noreply\r\nmn",
    b"flush_all 0 noreply\r\nmn",
    b"ma made N0 J10 q\r\nma made N0 q\r\nmn",
]


FENCED = b"EN k:fence:\r\n"
BUSY = b"BUSY currently processing crawler request\r\n"


class Link:
    """A connection to memcached."""

    def __init__(self, server: Memcached) -> None:
        self._link = socket.create_connection((server.address, server.tcp_port), timeout=60)

    def ask(self, line: bytes) -> bytes:
        """The answer to a command, told from the next one's by a fence."""
        return self._until_idle(line + b"\r\nmg :fence: k\r\n", FENCED)[: -len(FENCED)]

    def dump(self) -> bytes:
        """The answer to metadump, before and after which memcached lets nothing be pipelined."""
        return self._until_idle(b"lru_crawler metadump all\r\n", b"END\r\n")

    def _until_idle(self, data: bytes, end: bytes) -> bytes:
        """The answer to data, once memcached's crawler is not busy with something before it."""
        while True:
            self._link.sendall(data)
            answer = b""
            while not answer.endswith(end) and not (answer.startswith(BUSY) and end == b"END\r\n"):
                part = self._link.recv(1 << 16)
                assert part, answer
                answer += part
            if not answer.startswith(BUSY):
                return answer

    def close(self) -> None:
        self._link.close()


@pytest.fixture
def link(oracle: Memcached) -> Iterator[Link]:
    made = Link(oracle)
    made.ask(b"flush_all")
    yield made
    made.ask(b"stats detail off")
    made.close()


@pytest.mark.parametrize("line", ALIKE)
def test_answered_alike(link: Link, line: bytes) -> None:
    with Store(64 << 20, seed=1, huge_pages=0) as store:
        assert Session(store).execute(line + b"\r\n") == link.ask(line)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"cache_memlimit 30", b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"),
        (b"cache_memlimit 65", b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"),
        (b"watch fetchers", b"CLIENT_ERROR watch commands not allowed\r\n"),
        (b"slabs reassign 1 2", b"CLIENT_ERROR slab reassignment disabled\r\n"),
        (b"slabs automove 1", b"ERROR\r\n"),
        (b"lru mode flat", b"ERROR\r\n"),
        (b"stats conns", b"END\r\n"),
        (b"stats sizes_enable", b"ERROR\r\n"),
        (b"lru_crawler metadump 2", b"END\r\n"),
    ],
)
def test_answered_as_a_server_that_has_none_of_it(line: bytes, answer: bytes) -> None:
    with Store(64 << 20, seed=1, huge_pages=0) as store:
        assert Session(store).execute(line + b"\r\n") == answer


@pytest.mark.parametrize(
    "line",
    [
        b"stats",
        b"stats detail on",
        b"lru_crawler metadump all",
        b"cache_memlimit 8",
        b"slabs",
        b"watch fetchers",
        b"mg a h",
        b"me a",
    ],
)
def test_a_replicated_store_refuses_what_is_about_one_server(store: Store, line: bytes) -> None:
    session = ffi.new("struct cl_kv_session *", {"thread": store.thread(), "replicated": 1})
    buffer = ffi.new("uint8_t[]", 1 << 16)
    out = ffi.new("struct cl_kv_out *", {"data": buffer, "room": 1 << 16})
    data = line + b"\r\nget a\r\n"
    lib.cl_kv_process_whole(session, data, len(data), out)
    refusal, rest = bytes(ffi.buffer(out.data, out.len)).split(b"\r\n", 1)
    assert refusal.startswith(b"SERVER_ERROR ")
    assert rest == b"END\r\n"


def test_the_crawler_is_switched_as_in_memcached(link: Link) -> None:
    lines = [b"disable", b"disable", b"crawl all", b"metadump all", b"enable", b"enable", b"crawl all"]
    with Store(64 << 20, seed=1, huge_pages=0) as store:
        for line in lines:
            ours = Session(store).execute(b"lru_crawler " + line + b"\r\n")
            if line.endswith(b"all"):  # its crawler is a thread, which begins and ends when it gets to it
                wait_until(lambda line=line, ours=ours: link.ask(b"lru_crawler " + line) == ours, what=str(line))
            else:
                assert ours == link.ask(b"lru_crawler " + line), line


def names(answer: bytes) -> list[bytes]:
    return re.findall(rb"^STAT (\S+) ", answer, re.MULTILINE)


OWN = rb"read_retries|bad_commands|item_size_max|log_\w+|index_\w+|partitions|huge_pages"


@pytest.mark.parametrize("what", [b"", b" settings", b" items", b" slabs"])
def test_statistics_have_memcached_s_names(link: Link, what: bytes) -> None:
    link.ask(b"set a 0 0 1\r\nx")
    with Store(64 << 20, seed=1, huge_pages=0) as store:
        session = Session(store)
        session.execute(b"set a 0 0 1\r\nx\r\n")
        ours = [n for n in names(session.execute(b"stats" + what + b"\r\n")) if what or not re.fullmatch(OWN, n)]
    theirs = names(link.ask(b"stats" + what))
    assert len(ours) > 4
    assert set(ours) - set(theirs) == set()
    assert len(set(ours)) == len(ours)


def test_binary_statistics_are_those_of_the_text(store: Store) -> None:
    text = Session(store).execute(b"stats settings\r\n")
    got = kb.answers(Session(store).execute(kb.request(kb.STAT, b"settings")))
    assert b"".join(b"STAT %b %b\r\n" % (a.key, a.value) for a in got[:-1]) + b"END\r\n" == text


def test_detail_counts_by_prefixes_as_memcached_does(link: Link) -> None:
    lines = [
        b"get early:x",
        b"stats detail on",
        b"set a:1 0 0 1\r\nx",
        b"set a:2 0 0 1\r\nx",
        b"set b:1:2 0 0 1 noreply\r\nx",
        b"set none 0 0 1\r\nx",
        b"set :empty 0 0 1\r\nx",
        b"get a:1 a:2 a:3 b:1 none c:1",
        b"gat 0 a:1",
        b"delete a:1",
        b"delete d:1",
        b"incr a:2 1",
        b"stats detail off",
        b"get a:1",
    ]
    with Store(4 << 20, seed=1, huge_pages=0) as store:
        for line in lines:
            assert Session(store).execute(line + b"\r\n") == link.ask(line), line
        ours, theirs = Session(store).execute(b"stats detail dump\r\n"), link.ask(b"stats detail dump")
        assert sorted(ours.split(b"\r\n")) == sorted(theirs.split(b"\r\n"))
        assert b"PREFIX a get 4 hit 3 set 2 del 1" in ours
        assert Session(store).execute(b"stats reset\r\nstats detail dump\r\n") == b"RESET\r\nEND\r\n"


def test_detail_keeps_a_bounded_number_of_prefixes(store: Store) -> None:
    session = Session(store)
    session.execute(b"stats detail on\r\n" + b"".join(b"get p%d:x\r\n" % i for i in range(2000)))
    small = Session(store, room=1000)
    lines = small.execute(b"stats detail dump\r\n").split(b"\r\n")
    assert 300 < len(lines) < 500
    assert len(set(lines)) == len(lines)


def test_metadump_has_a_line_for_each_item(link: Link) -> None:
    stores = [b"set plain 5 0 2\r\nhi", b"set a%/\xff 0 1000 1\r\nx", b"ms aGkgdGhlcmU= 1 b\r\nx", b"get plain"]
    with Store(4 << 20, seed=1, huge_pages=0, manual_clock=True) as store:
        session = Session(store)
        for line in stores:
            assert session.execute(line + b"\r\n") == link.ask(line)
        ours, theirs = session.execute(b"lru_crawler metadump all\r\n"), link.dump()
    line = re.compile(rb"key=(\S+) exp=(-1|\d+) la=(\d+) cas=\d+ fetch=(\w+) cls=1 size=\d+\n")
    told = [{key: (exp == b"-1", fetch) for key, exp, _, fetch in line.findall(text)} for text in (ours, theirs)]
    assert told[0] == told[1]
    assert told[0][b"plain"] == (True, b"yes")
    assert len(told[0]) == 3
    assert line.sub(b"", ours) == line.sub(b"", theirs) == b"END\r\n"


def test_cachedump_lists_items_of_the_class(link: Link) -> None:
    with Store(4 << 20, seed=1, huge_pages=0, manual_clock=True) as store:
        session = Session(store)
        for line in (b"set plain 5 0 2\r\nhi", b"set other 0 0 0\r\n"):
            assert session.execute(line + b"\r\n") == link.ask(line)
        wait_until(
            lambda: link.ask(b"stats cachedump 1 0").count(b"ITEM") == 2
        )  # it lists items that its LRU calls cold
        ours, theirs = session.execute(b"stats cachedump 1 0\r\n"), link.ask(b"stats cachedump 1 0")
        assert sorted(ours.split(b"\r\n")) == sorted(theirs.split(b"\r\n"))
        assert session.execute(b"stats cachedump 1 1\r\n") == b"ITEM plain [2 b; 0 s]\r\nEND\r\n"
        session.execute(b"".join(b"set n%d 0 0 0 noreply\r\n\r\n" % i for i in range(1000)))
        small = Session(store, room=3000)
        assert small.execute(b"stats cachedump 1 500\r\n").count(b"ITEM n") == 498


def test_a_lower_limit_is_come_to_by_bounded_parts_and_raised_again() -> None:
    with Store(16 << 20, seed=1, huge_pages=0, item_max_bytes=1 << 16) as store:
        session = Session(store)

        def fill(first: int, count: int) -> int:
            for i in range(first, first + count, 100):
                session.execute(
                    b"".join(b"set n%d 0 0 500 noreply\r\n%b\r\n" % (k, b"v" * 500) for k in range(i, i + 100))
                )
            return store.usage()["live_bytes"]

        full = fill(0, 40_000)
        assert session.execute(b"cache_memlimit 10\r\n") == b"OK\r\n"
        before = store.usage()["evictions"]
        session.execute(b"set one 0 0 1\r\nx\r\n")
        assert store.usage()["evictions"] - before <= 64
        low = fill(40_000, 20_000)
        store.check()
        assert low < full - (5 << 20)
        assert b"STAT limit_maxbytes %d\r\n" % (10 << 20) in session.execute(b"stats\r\n")
        assert session.execute(b"cache_memlimit 16\r\n") == b"OK\r\n"
        assert fill(60_000, 40_000) > full - (1 << 20)
        store.check()


def test_metadump_goes_on_where_its_room_ended() -> None:
    keys = {b"key-%d" % i for i in range(3000)}
    with Store(8 << 20, seed=1, huge_pages=0, partitions=4) as store:
        session = Session(store, room=5000)
        session.execute(b"".join(b"set %b 0 0 1 noreply\r\nx\r\n" % key for key in keys))
        answer = session.execute(b"lru_crawler metadump all\r\nmn\r\n")
        assert set(re.findall(rb"^key=(\S+)", answer, re.MULTILINE)) == keys
        assert answer.count(b"key=") == len(keys)
        assert answer.endswith(b"\nEND\r\nMN\r\n")


def test_settings_show_what_was_set(store: Store) -> None:
    session = Session(store)
    session.execute(
        b"verbosity 9\r\nlru_crawler tocrawl 7\r\nlru_crawler sleep 8\r\nlru_crawler disable\r\nstats detail on\r\n"
    )
    shown = session.execute(b"stats settings\r\n")
    for line in (
        b"verbosity 2",
        b"lru_crawler_tocrawl 7",
        b"lru_crawler_sleep 8",
        b"lru_crawler no",
        b"detail_enabled yes",
    ):
        assert b"STAT " + line + b"\r\n" in shown


@pytest.mark.parametrize("item_max", [1 << 20, 5 << 20])
def test_values_up_to_the_limit_that_was_given(item_max: int) -> None:
    value = bytes(range(256)) * (item_max // 256)
    value = value[: item_max - 48 - 1]
    with Store(64 << 20, seed=1, huge_pages=0, item_max_bytes=item_max) as store:
        session = Session(store)
        assert session.execute(b"set a 0 0 %d\r\n%b\r\n" % (len(value), value)) == b"STORED\r\n"
        assert session.execute(b"mg a v\r\n") == b"VA %d\r\n%b\r\n" % (len(value), value)
        assert session.execute(b"append a 0 0 1\r\nx\r\n") == b"NOT_STORED\r\n"
        assert session.execute(b"ms a %d\r\n%b\r\n" % (item_max, value + bytes(49))).startswith(
            b"SERVER_ERROR object too"
        )
        assert session.execute(b"mg a\r\n") == b"EN\r\n"
