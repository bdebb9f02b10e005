"""The reference server: it keeps requests as long as they say, says how long it really did, and bears garbage."""

from __future__ import annotations

import socket
import struct
import time

import pytest
from cltest import wait_until

from corelane.bench.load.reference.reference import Reference
from corelane.runtime.clock import default_clock, tsc
from corelane.runtime.errors import CorelaneError

HEAD = struct.Struct("<QIIQQQ")


def request(number: int, total: int = 48, reply: int = 50, hold_ns: int = 0, due: int = 0) -> bytes:
    return HEAD.pack(number, total, reply, hold_ns, 7, due).ljust(total, b"e")


def test_tcp_answers_have_the_length_and_the_head_that_were_asked_for():
    with Reference(udp=False) as server, socket.create_connection(("127.0.0.1", server.port)) as peer:
        peer.settimeout(60)
        peer.sendall(request(1) + request(2)[:11])
        assert peer.recv(50, socket.MSG_WAITALL) == request(1).ljust(50, b"e")
        peer.sendall(request(2)[11:])
        assert peer.recv(50, socket.MSG_WAITALL) == request(2).ljust(50, b"e")
        wait_until(lambda: server.counts()["answers"] == 2, what="the server to count the last answer")
        assert server.counts() | {"late": 0} == {
            "requests": 2,
            "answers": 2,
            "refused": 0,
            "late": 0,
            "connections": 1,
        }


def test_the_earliest_is_answered_first():
    with Reference(udp=True) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(60)
        peer.connect(("127.0.0.1", server.port))
        order = (60, 20, 80, 40)
        begun = time.monotonic()
        for ms in order:
            peer.send(request(ms, hold_ns=ms * 1_000_000))
        sent_s = time.monotonic() - begun
        got = [HEAD.unpack_from(peer.recv(2048))[0] for _ in order]
        assert sorted(got) == sorted(order)
        if sent_s < 0.015:  # else one left so late that it is not the earliest any more
            assert got == sorted(order)
        wait_until(lambda: server.kept.count == 4, what="the server to note the last one")
        assert server.kept.min >= 20_000_000
        server.clear()
        assert server.kept.count == 0
        assert server.counts()["requests"] == 0


def test_the_time_since_a_request_was_due_is_filed_beside_what_was_injected():
    ms = default_clock().hz // 1000
    with Reference(udp=True) as server, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(60)
        peer.connect(("127.0.0.1", server.port))
        for due in (tsc() - 1000 * ms, tsc() + 1000_000 * ms, 0):  # late; in the future, and not known: in no histogram
            peer.send(request(1, hold_ns=2_000_000, due=due))
            peer.recv(2048)
        wait_until(lambda: server.kept.count == 3, what="the server to note the last one")
        assert server.since_due.count == 1
        assert server.since_due.min >= 999_000_000 + server.kept.min // 2
        server.clear()
        assert server.since_due.count == 0


def test_garbage_ends_a_connection_and_nobody_else_notices():
    with Reference(udp=False) as server, socket.create_connection(("127.0.0.1", server.port)) as good:
        good.settimeout(60)
        for bad in (b"x" * 48, request(1, reply=1 << 30), request(1)[:8] + b"\xff" * 32):
            with socket.create_connection(("127.0.0.1", server.port)) as peer:
                peer.settimeout(60)
                peer.sendall(bad)
                assert peer.recv(100) == b""
        good.sendall(request(3))
        assert good.recv(50, socket.MSG_WAITALL)[:8] == request(3)[:8]
        assert server.counts()["refused"] == 3


def test_a_taken_port_is_said():
    with Reference(udp=False) as server, pytest.raises(CorelaneError, match="cannot listen on port"):
        Reference(udp=False, port=server.port)
