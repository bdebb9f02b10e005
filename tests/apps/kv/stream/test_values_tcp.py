"""A value is never executed as a command over TCP either, however the segments of it come (../test_values.py)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from kvserver import KvServer, kv_server

pytestmark = pytest.mark.root
KEPT = b"VALUE kept 0 4\r\nkept\r\nEND\r\n"
BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n"
LONG = b"k" * 251


@pytest.fixture(scope="module")
def server() -> Iterator[KvServer]:
    with kv_server() as made:
        yield made


def kept(server: KvServer) -> bytes:
    with server.client() as client:
        return client.ask(b"get kept\r\n", b"END\r\n")


def exchange(server: KvServer, line: bytes, rest: bytes) -> bytes:
    """All that is answered to a line and what comes in segments behind it, after the client has ended its side."""
    with server.client() as client:
        client.ask(b"set kept 0 0 4\r\nkept\r\n")
        client.send(line + b"\r\n")
        with contextlib.suppress(ConnectionError):  # the server may have ended it after the line
            for at in range(0, len(rest), 5):
                client.send(rest[at : at + 5])
            client.link.shutdown(socket.SHUT_WR)
        return client.ended()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"set a x 0 9", BAD_FORMAT),
        (b"set " + LONG + b" 0 0 9", BAD_FORMAT),
        (b"set a x 0 9 noreply", b""),
        (b"cas a 0 0 9 x", BAD_FORMAT),
        (b"ms a 9 MZ", b"CLIENT_ERROR invalid mode for ms M token\r\n"),
    ],
    ids=lambda p: p[:20].decode(),
)
def test_the_block_of_a_refused_store_is_skipped(server: KvServer, line: bytes, answer: bytes) -> None:
    for value in (b"flush_all", b"\r\nget a\r\n"):
        assert exchange(server, line, value + b"\r\nget kept\r\n") == answer + KEPT
    assert kept(server) == KEPT


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"set a 0 0 -1", BAD_FORMAT),
        (b"set a 0 0 -1 noreply", b""),
        (b"set a 0 0 x", BAD_FORMAT),
        (b"set a b 0 0 9", BAD_FORMAT),
        (b"set a 0 0 99999999999999999999", BAD_FORMAT),
        (b"set a", b"ERROR\r\n"),
        (b"sett a 0 0 9", b"ERROR\r\n"),
        (b"sET a 0 0 9", b"ERROR\r\n"),
        (b"ms a b 9", BAD_FORMAT),
    ],
    ids=lambda p: p[:20].decode(),
)
def test_what_may_be_a_value_is_not_executed(server: KvServer, line: bytes, answer: bytes) -> None:
    for value in (b"flush_all", b"\r\nflush_all", b"xxxflush_all"):
        assert exchange(server, line, value + b"\r\nflush_all\r\nget kept\r\n") == answer
        assert kept(server) == KEPT
