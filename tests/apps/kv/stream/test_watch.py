"""`watch`: lines of events as memcached 1.6 words them, to whoever asked, and none that hold anybody up."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from kvoracle import Oracle
from kvserver import KvClient, KvServer, kv_server

from corelane.bench.baseline.memcached import Memcached

pytestmark = pytest.mark.root
COMMANDS = b"".join(
    [
        b"get none\r\nset a 0 0 2\r\nhi\r\n",
        b"add a 0 100 1\r\nx\r\nset k%\xff\x01 1 0 1\r\na\r\n",
        b"append a 0 0 1\r\nx\r\ncas a 0 0 1 1\r\nz\r\nreplace none 0 0 1\r\nx\r\n",
        b"mg a v\r\nget a none\r\n",
    ]
)


@pytest.fixture(scope="module")
def server() -> Iterator[KvServer]:
    with kv_server() as made:
        yield made


def watching(server: KvServer, *kinds: bytes) -> KvClient:
    client = server.client()
    assert client.ask(b" ".join([b"watch", *kinds]) + b"\r\n") == b"OK\r\n"
    return client


def until(watcher: KvClient, what: bytes) -> bytes:
    """Whole lines, up to one that says that."""
    text = watcher.until(b"\n")
    while what not in text:
        text += watcher.until(b"\n")
    return text


LINE = re.compile(rb"ts=\d+\.\d{1,6} gid=(\d+) (type=\S+ .*)\n")


def shown(text: bytes) -> list[bytes]:
    """What lines say, without their times, numbers and connections."""
    assert LINE.sub(b"", text) == b""
    numbers = [int(number) for number, _ in LINE.findall(text)]
    assert numbers == sorted(set(numbers))
    return [re.sub(rb" cfd=\d+", b"", line) for _, line in LINE.findall(text)]


def test_fetches_and_writes_are_told_as_memcached_tells_them(server: KvServer, oracle: Memcached) -> None:
    """memcached tells, too, of what a write looks up; those of its lines are left out."""
    with watching(server, b"fetchers", b"mutations") as watcher, server.client() as client:
        client.ask(b"flush_all\r\n")
        answer = client.ask(COMMANDS + b"get last\r\n", b"END\r\n")
        ours = shown(until(watcher, b"key=last"))
    link, watch = (Oracle(oracle, [b"a", b"none", b"k%\xff\x01"]) for _ in range(2))
    link.reset()
    watch.send(b"watch fetchers mutations\r\n")
    assert watch.read(b"\r\n") == b"OK\r\n"
    link.send(COMMANDS + b"get last\r\n")
    assert link.read(answer[-40:]).count(b"\r\n") == answer.count(b"\r\n")
    text = b""
    while b"key=last" not in text:
        text += watch.read(b"\n")
    theirs = shown(text)
    assert [line for line in ours if b"item_store" in line] == [line for line in theirs if b"item_store" in line]
    left = iter(theirs)
    assert all(line in left for line in ours), (ours, theirs)
    link.close()
    watch.close()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"watch x", b"ERROR\r\n"),
        (b"watch fetchers x", b"ERROR\r\n"),
        (b"watch", b"OK\r\n"),
        (b"watch rawcmds", b"OK\r\n"),
    ],
)
def test_watch_is_answered_alike(server: KvServer, oracle: Memcached, line: bytes, answer: bytes) -> None:
    link = Oracle(oracle, [])
    link.send(line + b"\r\n")
    with server.client() as client:
        assert client.ask(line + b"\r\n") == link.read(b"\r\n") == answer
    link.close()


def test_connections_and_evictions(server: KvServer) -> None:
    with kv_server(memory_bytes=2 << 20) as small, watching(small, b"connevents", b"evictions") as watcher:
        with small.client() as client:
            address = b"rip=%b rport=%d" % (client.link.getsockname()[0].encode(), client.link.getsockname()[1])
            assert shown(watcher.until(b"\n")) == [b"type=conn_new %b transport=tcp" % address]
            fill = b"".join(b"set n%d 0 0 1000 noreply\r\n%b\r\n" % (i, bytes(1000)) for i in range(3000))
            client.ask(fill + b"mn\r\n")
            evicted = shown(watcher.until(b"\n"))
            assert re.fullmatch(rb"type=eviction key=n\d+ fetch=no ttl=-1 la=0 clsid=1 size=\d+", evicted[0])
        assert watcher.until(b"cfd=4\n").endswith(b"type=conn_close %b transport=tcp reason=normal cfd=4\n" % address)


def test_who_watches_is_not_listened_to_and_others_do_not_wait_for_him(server: KvServer) -> None:
    with watching(server, b"mutations") as watcher, server.client() as client:
        watcher.send(b"set ignored 0 0 1\r\nx\r\n")
        for _ in range(3):  # more than fits into the ring and the sockets between, while he does not read
            fill = b"".join(b"set n%d 0 0 1 noreply\r\nx\r\n" % i for i in range(20_000))
            client.ask(fill + b"mn\r\n")
        assert client.ask(b"get ignored\r\n") == b"END\r\n"
        client.ask(b"set last 0 0 1\r\nx\r\n")
        text = until(watcher, b"key=last")
        skipped = sum(map(int, re.findall(rb"^skipped=(\d+)$", text, re.MULTILINE)))
        assert skipped > 0
        assert skipped + len(LINE.findall(text)) == 60_001
        stats = client.ask(b"stats\r\n", b"END\r\n")
        assert b"STAT log_watchers 1\r\n" in stats
        assert b"STAT log_watcher_skipped %d\r\n" % skipped in stats
    server.wait_for("conn_connections", 0)
    with server.client() as client:
        assert b"STAT log_watchers 0\r\n" in client.ask(b"stats\r\n", b"END\r\n")
