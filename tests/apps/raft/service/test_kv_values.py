"""raft-kv never executes a value as a command: what tests/apps/kv/test_values.py says of kv, through the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cltest import wait_until
from kvclient import HEADER
from raftlink import KV_PORT, LinkClient, await_lead, served

KEPT = b"VALUE kept 0 4\r\nkept\r\nEND\r\n"
BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n"


class Asker:
    """Has numbers for its requests."""

    def __init__(self, client: LinkClient) -> None:
        self.client, self.number = client, 0

    def ask(self, text: bytes) -> bytes:
        self.number += 1
        datagram, got = HEADER.pack(self.number, 0, 1, 0) + text, []
        self.client.send(datagram)

        def answered() -> bool:
            got.extend(p[8:] for p in self.client.payloads() if p[:2] == datagram[:2])
            return bool(got)

        wait_until(answered, 60, f"the answer to {text!r}")
        return got[0]


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    with served(kv_port=KV_PORT) as (node, client):
        await_lead(node)
        yield Asker(client)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"set a x 0 9", BAD_FORMAT + KEPT),
        (b"set " + b"k" * 251 + b" 0 0 9", BAD_FORMAT + KEPT),
        (b"set a 0 0 -1", BAD_FORMAT),
        (b"set a b 0 0 9", BAD_FORMAT),
        (b"set a 0 0 1", b"CLIENT_ERROR bad data chunk\r\n"),
        (b"sET a 0 0 9", b"ERROR\r\n"),
    ],
    ids=lambda p: p[:20].decode(),
)
def test_a_value_is_never_a_command(asker: Asker, line: bytes, answer: bytes) -> None:
    assert asker.ask(b"set kept 0 0 4\r\nkept\r\n") == b"STORED\r\n"
    assert asker.ask(line + b"\r\nflush_all\r\nget kept\r\n") == answer
    assert asker.ask(b"get kept\r\n") == KEPT


def test_flush_all_at_a_day_that_is_past_flushes_nothing(asker: Asker) -> None:
    assert asker.ask(b"set kept 0 0 4\r\nkept\r\n") == b"STORED\r\n"
    assert asker.ask(b"flush_all 1000000000\r\nget kept\r\n") == b"OK\r\n" + KEPT
