"""raft-kv never executes a value as a command: what tests/apps/kv/test_values.py says of kv, through the log."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cltest import wait_until
from cltest.packets import Host, arp, ethernet, read_datagram
from kvclient import HEADER

from corelane.apps.raft.service.service import serve
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.libos import Runtime

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.100")
KEPT = b"VALUE kept 0 4\r\nkept\r\nEND\r\n"
BAD_FORMAT = b"CLIENT_ERROR bad command line format\r\n"


class Asker:
    """A client at the other end of a node's wire."""

    def __init__(self, end: Nic) -> None:
        self.end, self.number = end, 0

    def _answers(self) -> Iterator[bytes]:
        for frame in self.end.recv():
            if frame[12:14] != b"\x08\x06":
                yield read_datagram(frame).payload
            elif frame[38:42] == bytes([10, 0, 0, 100]):
                reply = arp(2, CLIENT.mac, CLIENT.ip, SERVER.mac, SERVER.ip)
                self.end.send([ethernet(reply, CLIENT.mac, SERVER.mac, 0x0806)])

    def ask(self, text: bytes) -> bytes:
        self.number += 1
        datagram, got = HEADER.pack(self.number, 0, 1, 0) + text, []
        self.end.send([CLIENT.datagram(SERVER, datagram, 5555, 11211)])

        def answered() -> bool:
            got.extend(p[8:] for p in self._answers() if p[:2] == datagram[:2])
            return bool(got)

        wait_until(answered, 60, f"the answer to {text!r}")
        return got[0]


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    server, client = memory_link(mac=(SERVER.mac, CLIENT.mac), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24)
    with server, client, Runtime(nic=server, power="block") as runtime:
        node = serve(runtime, 1, {1: (SERVER.ip, 7400)}, kv_port=11211, memory_bytes=4 << 20, election_ms=100)
        runtime.start()
        wait_until(lambda: node.status()["role"] == "leader", 60, "it to lead")
        yield Asker(client)
        runtime.stop()
        node.close()


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
