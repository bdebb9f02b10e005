"""raft-kv over TCP answers like kv over TCP, to the byte, and holds no more than it may (root)."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator

import hostilepeers as hp
import kvbinary as kb
import pytest
from cltest import wait_until
from kvserver import KvServer, kv_server
from raftserver import RaftServer, raft_server

pytestmark = pytest.mark.root
ITEM_MOST = 8192  # kv_machine.c


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[KvServer, RaftServer]]:
    with kv_server(item_max_bytes=ITEM_MOST, memory_bytes=4 << 20) as kv, raft_server() as raft:
        yield kv, raft


Both = tuple[KvServer, RaftServer]


def told(server: KvServer | RaftServer, pieces: list[bytes]) -> bytes:
    """All that one connection is answered."""
    with server.client() as client:
        sender = threading.Thread(target=lambda: [client.send(p) for p in pieces] and client.link.shutdown(1))
        sender.start()
        answer = client.ended()
        sender.join()
        return answer


def cut(draw: random.Random, text: bytes) -> list[bytes]:
    """Pieces of it."""
    ends = sorted(draw.randrange(len(text) + 1) for _ in range(draw.choice([0, 0, 1, 5])))
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True) if a < b]


def compare(both: Both, *pieces: bytes) -> bytes:
    ours, theirs = (told(server, list(pieces)) for server in both)
    if ours != theirs:  # megabytes: byte by byte only to say where
        pairs = enumerate(zip(ours, theirs, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        around = slice(max(0, at - 100), at + 100)
        pytest.fail(f"they differ at {at}: {ours[around]!r} and {theirs[around]!r}")
    return ours


def text_command(draw: random.Random) -> bytes:
    key = b"k%d" % draw.randrange(6)
    value = draw.randbytes(draw.choice([0, 1, 9, 300, 8000, 8200, 70_000]))
    store = draw.choice([b"set", b"add", b"replace", b"append", b"prepend"])
    quiet = draw.choice([b"", b"", b" noreply"])
    return draw.choice(
        [
            b"%b %b %d 0 %d%b\r\n%b\r\n" % (store, key, draw.randrange(9), len(value), quiet, value),
            b"ms %b %d T0 c k\r\n%b\r\n" % (key, len(value), value),
            b"get %b\r\n" % key * draw.randrange(1, 12),
            b"gets k0 k1 none k2 k3\r\n",
            b"mg %b v s f k O1\r\nmn\r\n" % key,
            b"set n 0 0 1\r\n5\r\nincr n 3\r\nget n\r\n",
            b"delete %b%b\r\n" % (key, quiet),
            b"gat 0 %b none\r\n" % key,
            b"incr %b 3\r\n" % key,
            b"version\r\nverbosity 1\r\ntouch none 1\r\n",
        ]
    )


def binary_command(draw: random.Random) -> bytes:
    key = b"k%d" % draw.randrange(6)
    value = draw.randbytes(draw.choice([0, 1, 9, 300, 8000, 8200, 70_000]))
    return draw.choice(
        [
            kb.store(kb.SET, key, value, 1),
            kb.request(kb.GETK, key, opaque=b"\0\1\2\3"),
            kb.request(kb.GETKQ, b"k0") + kb.request(kb.GETKQ, b"none") + kb.request(kb.NOOP),
            kb.request(kb.DELETE, key),
        ]
    )


def test_random_scripts_in_pieces(both: Both, seed: int) -> None:
    draw = random.Random(seed)
    for i in range(24):
        make = binary_command if i % 4 == 0 else text_command
        compare(both, *cut(draw, b"".join(make(draw) for _ in range(draw.randrange(1, 25)))))


def test_scripts_that_end_in_nonsense(both: Both, seed: int) -> None:
    """What was done before is answered; then the stream ends alike."""
    draw = random.Random(seed)
    for end in (
        b"set a 0 0 1\r\ntoo long\r\nget a\r\n",
        b"set a 0 0 -1\r\nget a\r\n",
        b"set a x 0 3\r\nabc\r\nget a\r\n",
        b"sett a 0 0 3\r\nabc\r\n",
        b"nonsense\r\nget a\r\n",
        b"get " + b"k" * 251 + b"\r\nmn\r\n",
        b"set big 0 0 9000\r\n" + b"x" * 9000 + b"xxget a\r\n",
        b"quit\r\nget a\r\n",
        b"get a",
        kb.request(kb.SET, b"a", extras=b"123"),
        b"\0" * 30 + b"\r\n",
    ):
        compare(both, *cut(draw, text_command(draw) + b"set a 0 0 1\r\n1\r\nget a\r\n" + end))


def test_answers_of_any_length(both: Both) -> None:
    """Of one line, too: more than a datagram, a query or an answer of the group may have."""
    stores = b"".join(b"set long%d 7 0 8000\r\n%b\r\n" % (i, bytes([97 + i]) * 8000) for i in range(9))
    for verb, count in ((b"get ", 1000), (b"gets ", 1000), (b"gat 0 ", 280), (b"gats  0  ", 280)):
        line = verb + b" ".join(b"long%d" % (i % 10) for i in range(count)) + b"\r\n"
        answer = compare(both, stores + line + b"get long1\r\n" + line + b"mn\r\n")
        assert len(answer) > 14_000 * count
    many = b"get " + b" ".join(b"key-%d-%s" % (i, b"x" * 200) for i in range(1000)) + b" long3\r\n"
    assert compare(both, many) == b"VALUE long3 7 8000\r\n" + b"d" * 8000 + b"\r\nEND\r\n"
    compare(both, b"get " + b"  ".join([b"long1"] * 30) + b"  \r\nget " + b"k" * 250 + b" long2" * 20 + b"\n")


def test_a_pipeline_is_done_in_order(both: Both) -> None:
    script = b"".join(b"set n 0 0 %d\r\n%d\r\nget n\r\nincr n 1\r\nget n\r\n" % (len(str(i)), i) for i in range(500))
    answer = compare(both, script)
    assert answer.count(b"STORED\r\n") == 500
    raft = both[1]
    assert raft.stat("port_tcp_turns") < raft.stat("conn_opened") + 3000, "commands that have come go together"


def test_what_is_about_one_server_is_answered_or_refused_here(both: Both) -> None:
    with both[1].client() as client:
        lines = client.ask(b"stats\r\n", b"END\r\n").decode().splitlines()
        assert lines[:2] == ["STAT raft_id 1", "STAT raft_role leader"]
        assert "STAT curr_connections 1" in lines
        assert b":state" in client.ask(b"stats conns\r\n", b"END\r\n")
        about = b"SERVER_ERROR this command is about one server, and is not replicated\r\n"
        assert client.ask(b"lru_crawler metadump all\r\n") == about
        assert client.ask(b"watch\r\n") == about
        assert client.ask(b"mn\r\n") == b"MN\r\n"


def test_who_does_not_read_is_not_read_from() -> None:
    """Another client is served all the while, and its waits are shown."""
    with raft_server() as server, server.client() as client, server.client() as other:
        client.ask(b"set a 0 0 8000\r\n%b\r\n" % bytes(8000))
        answer = b"VALUE a 0 8000\r\n%b\r\nEND\r\n" % bytes(8000)
        count = 2000
        asks = hp.Other(other.link, b"get none\r\n", b"END\r\n")
        sender = threading.Thread(target=client.send, args=(b"get a\r\n" * count,))
        sender.start()
        wait_until(lambda: server.stat("conn_held_bytes") > 0, 60.0, "an answer to be held")
        for i in range(count):
            if i % 100 == 0:
                asks()
            assert server.stat("conn_held_bytes") < 200_000
            assert client.take(len(answer)) == answer
        sender.join()
        print(asks.shown())


def test_connections_and_their_memory_are_bounded() -> None:
    with raft_server(connections=2, held_bytes=20_000) as server, server.client() as a, server.client() as b:
        assert a.ask(b"mn\r\n") == b.ask(b"mn\r\n") == b"MN\r\n"
        with server.client() as third:
            assert third.ended() == b"ERROR Too many open connections\r\n"
        a.send(b"get " + b"k " * 5000)
        wait_until(lambda: server.stat("conn_held_bytes") > 10_000, 60.0, "the line to be held")
        b.send(b"get " + b"k " * 5000)
        assert b.ended() == b"SERVER_ERROR out of memory reading request\r\n"
        a.link.shutdown(socket.SHUT_WR)
        assert a.ended() == b""


def test_without_a_leader_a_client_is_told_so_and_the_stream_ends() -> None:
    absent = {2: ("10.98.0.3", 7400), 3: ("10.98.0.4", 7400)}
    with raft_server(peers=absent) as server, server.client() as reads, server.client() as writes:
        assert reads.ask(b"mn\r\n") == b"MN\r\n"
        reads.send(b"get a\r\nget b\r\n")
        assert reads.ended() == b"SERVER_ERROR no leader, or it changed: ask again\r\n"
        writes.send(b"set a 0 0 1\r\n1\r\n")
        told = b"SERVER_ERROR no leader, or it changed: it may have been done or not\r\n"
        assert writes.ended() == told


def test_clients_that_leave_while_their_turn_is_under_way() -> None:
    with raft_server() as server:
        for _ in range(50):
            with server.client() as client:
                client.send(b"incr none 1\r\n" * 100)
                client.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        server.wait_for("conn_connections", 0)
        with server.client() as client:
            assert client.ask(b"get none\r\n") == b"END\r\n"
