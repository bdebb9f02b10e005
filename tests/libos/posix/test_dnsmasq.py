"""Stock dnsmasq on a tap: by UDP at all addresses, where it answers from the one that was asked (IP_PKTINFO); by TCP at
one, since at all it takes only connections to addresses that Linux knows."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable

import pytest

from .conftest import SERVED, Server

pytestmark = pytest.mark.root

COMMAND = (
    *("dnsmasq", "--no-daemon", "--user=root", "--conf-file=/dev/null", "--pid-file="),
    *("--no-resolv", "--no-hosts", "--address=/test.example/192.0.2.7"),
)


def question(number: int) -> bytes:
    """For the IPv4 address of a.test.example (RFC 1035, section 4)."""
    name = b"".join(bytes([len(label)]) + label for label in (b"a", b"test", b"example")) + b"\0"
    return struct.pack("!6H", number, 0x0100, 1, 0, 0, 0) + name + struct.pack("!2H", 1, 1)


def check(answer: bytes, number: int) -> None:
    got, flags, _, answers = struct.unpack("!4H", answer[:8])
    assert (got, flags >> 15, flags & 15, answers) == (number, 1, 0, 1)
    assert answer.endswith(socket.inet_aton("192.0.2.7"))


def ask(udp: socket.socket, number: int) -> bytes:
    """The answer; one may be lost while the neighbour is not known yet, and a late one is of an earlier question."""
    for _ in range(10):
        udp.send(question(number))
        with contextlib.suppress(TimeoutError):
            while int.from_bytes((answer := udp.recv(512))[:2], "big") < number:
                pass
            return answer
    raise AssertionError(f"no answer to question {number}")


def test_names_are_answered_by_udp(serve: Callable[..., Server]) -> None:
    server = serve(*COMMAND, port=53)
    with server.space.entered():
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with udp:
        udp.settimeout(2)
        udp.connect((SERVED, 53))  # an answer from another address would not come
        for number in range(20):
            check(ask(udp, number), number)


def test_names_are_answered_by_tcp(serve: Callable[..., Server]) -> None:
    server = serve(*COMMAND, "--bind-interfaces", f"--listen-address={SERVED}", port=53)
    with contextlib.closing(server.connect()) as tcp:
        for number in range(3):
            asked = question(number)
            tcp.sendall(struct.pack("!H", len(asked)) + asked)
            (length,) = struct.unpack("!H", tcp.recv(2, socket.MSG_WAITALL))
            check(tcp.recv(length, socket.MSG_WAITALL), number)
