"""Peers that mean no good to the ports of a replicated store, memcached's protocol and Redis': little is kept of them,
and another client is served all the time, through the group's log. Who does not read: test_stream.py."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import hostilepeers as hp
import kvserver
import pytest
import raftresp
from cltest import soak, wait_until
from raftserver import raft_server

from corelane.apps.raft.service.settings import RespSettings
from corelane.apps.resp.engine import encode
from corelane.drivers.linux import netns
from corelane.libos import Runtime

pytestmark = pytest.mark.root

MEMCACHED = [b"get ", b"set a 0 0 ", b"mg ", b"ms ", b"\r\n", b"\x80", b" ", b"-1", b"9" * 20, b"noreply", b"\0"]
REDIS = [b"*3", b"$3", b"\r\n", b"*", b"$", b"-1", b"9" * 20, b"GET", b"SET a ", b"\0", b"'", b'"', b":1"]
BACKLOG = 64


@dataclass(frozen=True)
class Node:
    """A node of one, and the other client, which writes. clients: how many are connected. backlog: of
    connections that are being opened. words: of its protocol.
    beginnings: of requests that are not whole."""

    space: netns.Namespace
    runtime: Runtime
    at: tuple[str, int]
    backlog: int
    connect: Callable[[], socket.socket]
    clients: Callable[[], int]
    other: hp.Other
    words: list[bytes]
    beginnings: list[bytes]


@contextmanager
def of_memcached() -> Iterator[Node]:
    with raft_server(backlog=BACKLOG) as node, node.client() as client:
        other = hp.Other(client.link, b"set mine 0 0 4\r\nkept\r\n", b"STORED\r\n")
        yield Node(
            node.space,
            node.runtime,
            (kvserver.OURS, kvserver.PORT),
            BACKLOG,
            lambda: node.client().link,
            lambda: node.stat("conn_connections"),
            other,
            MEMCACHED,
            [b"", b"mn\r\n", b"set v 0 0 5000\r\n" + bytes(1000), b"set a 0 0 9000000\r\n", b"\x80"],
        )
        wait_until(lambda: node.stat("conn_held_bytes") == 0, 60, "nothing to be held")


@contextmanager
def of_redis() -> Iterator[Node]:
    with raftresp.resp_node() as node, node.client() as client:
        other = hp.Other(client.link, encode("SET", "mine", "kept"), b"+OK\r\n")
        yield Node(
            node.space,
            node.runtime,
            (raftresp.OURS, raftresp.PORT),
            RespSettings().backlog,
            lambda: node.client().link,
            lambda: node.stat("resp_accepted") - node.stat("resp_closed"),
            other,
            REDIS,
            [b"", b"PING\r\n", b"*2\r\n$3\r\nGET\r\n$5000\r\n" + bytes(1000), b"*1000\r\n", b"MULTI\r\n"],
        )


@pytest.fixture(params=[of_memcached, of_redis])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """Afterwards those who were hostile are gone, and the other client is served."""
    with request.param() as node:
        node.other()
        yield node
        wait_until(lambda: node.clients() == 1, 60, "the others to be gone")
        node.other()
        print(node.other.shown())


@pytest.mark.soak(short=True, takes_s=5)
def test_garbage(node: Node, seed: int) -> None:
    hp.garbage(node.connect, node.words, soak.examples(40, 5000), node.other, seed)


@pytest.mark.soak(short=True, takes_s=5)
def test_connections_that_come_and_go(node: Node, seed: int) -> None:
    hp.come_and_go(node.connect, node.beginnings, soak.examples(100, 10_000), node.other, seed)


@pytest.mark.soak(short=True, takes_s=5)
def test_syn_flood(node: Node, seed: int) -> None:
    """No more than the backlog is kept of it, and who means to connect does."""
    hp.syn_flood(node.space, node.at, soak.examples(1000, 500_000), node.other, seed)
    counts = hp.tcp_counts(node.runtime)
    assert counts["begun"] - counts["over"] <= node.backlog + 1
    assert counts["cookies_sent"] > 0
    node.connect().close()
