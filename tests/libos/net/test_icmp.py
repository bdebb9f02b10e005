"""ICMP errors about datagrams of connected sockets: what each says, and which of them are believed."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from cltest.packets import Host, ethernet, icmp, ipv4, udp

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.drivers.nic.nic import Nic
from corelane.runtime.errors import CorelaneError

US, PEER = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
ROUTER = Host("02:00:00:00:00:03", "10.0.0.3")
UNREACHABLE, EXCEEDED, PARAMETER = 3, 11, 12
PORT_CODE = 3

# As Linux has them (net/ipv4/icmp.c, icmp_err_convert), by type and code.
ERRORS = {
    (UNREACHABLE, 0): errno.ENETUNREACH,
    (UNREACHABLE, 1): errno.EHOSTUNREACH,
    (UNREACHABLE, 2): errno.ENOPROTOOPT,
    (UNREACHABLE, PORT_CODE): errno.ECONNREFUSED,
    (UNREACHABLE, 4): errno.EMSGSIZE,
    (UNREACHABLE, 5): errno.EOPNOTSUPP,
    (UNREACHABLE, 6): errno.ENETUNREACH,
    (UNREACHABLE, 7): errno.EHOSTDOWN,
    (UNREACHABLE, 8): errno.ENONET,
    (UNREACHABLE, 9): errno.ENETUNREACH,
    (UNREACHABLE, 10): errno.EHOSTUNREACH,
    (UNREACHABLE, 11): errno.ENETUNREACH,
    (UNREACHABLE, 13): errno.EHOSTUNREACH,
    (UNREACHABLE, 15): errno.EHOSTUNREACH,
    (UNREACHABLE, 200): errno.EHOSTUNREACH,
    (EXCEEDED, 0): errno.EHOSTUNREACH,
    (PARAMETER, 0): errno.EPROTO,
}


@pytest.fixture
def wire() -> Iterator[tuple[libos.Runtime, Nic]]:
    nic, end = memory_link(ipv4=(US.ip, PEER.ip), ipv4_prefix=24, mac=(US.mac, PEER.mac))
    with nic, end, libos.Runtime(nic=nic) as runtime:
        runtime.add_neighbour(PEER.ip, PEER.mac)
        yield runtime.start(), end


def error(sport: int, dport: int, to: str = PEER.ip, kind: int = UNREACHABLE, code: int = PORT_CODE) -> bytes:
    """A router says so about a datagram of ours."""
    sent = ipv4(udp(b"lost", US.ip, to, sport, dport), US.ip, to)
    return ethernet(ipv4(icmp(kind, code, bytes(4) + sent[:28]), ROUTER.ip, US.ip, 1), ROUTER.mac, US.mac)


def told(socket: libos.UdpSocket, timeout_s: float = 10) -> int:
    """The error that a reader finds."""
    with pytest.raises(CorelaneError) as caught:
        socket.receive(timeout_s)
    return int(caught.value.errno or 0)


def test_each_kind_of_error_has_its_number(wire: tuple[libos.Runtime, Nic]) -> None:
    runtime, end = wire
    with runtime.open_udp() as socket:
        socket.connect((PEER.ip, 7))
        socket.send(b"lost")
        found = {}
        for kind, code in ERRORS:
            assert end.send(error(socket.port, 7, kind=kind, code=code)) == 1
            found[kind, code] = told(socket)
    assert found == ERRORS


def test_only_errors_about_what_a_socket_has_sent_are_believed(wire: tuple[libos.Runtime, Nic]) -> None:
    runtime, end = wire
    refused = 0

    def is_refused(frame: bytes) -> None:
        nonlocal refused
        refused += 1
        assert end.send(frame) == 1
        stats = runtime.wait_until(lambda s: s.dropped["icmp_error"] + s.net["icmp_errors"] >= refused, 10)
        assert stats.dropped["icmp_error"] == refused, stats

    with runtime.open_udp() as socket, runtime.open_udp() as other, runtime.open_udp() as unconnected:
        other.connect((PEER.ip, 8))
        other.send(b"lost")
        unconnected.send(b"lost", (PEER.ip, 7))
        socket.connect((PEER.ip, 7))
        is_refused(error(socket.port, 7))  # it has sent nothing yet
        socket.send(b"lost")
        is_refused(error(socket.port, 8))
        is_refused(error(socket.port, 7, to=ROUTER.ip))
        is_refused(error(other.port, 7))
        is_refused(error(unconnected.port, 7))
        is_refused(error(1, 7))  # nobody's port
        socket.connect((PEER.ip, 9))
        is_refused(error(socket.port, 7))  # its peer before
        is_refused(error(socket.port, 9))  # to whom it has sent nothing
        socket.send(b"lost")
        for one in (socket, other, unconnected):
            with pytest.raises(TimeoutError):
                one.receive(0)
        assert end.send(error(socket.port, 9)) == 1
        assert told(socket) == errno.ECONNREFUSED


def test_of_those_that_share_a_port_it_reaches_the_one_that_it_is_about(wire: tuple[libos.Runtime, Nic]) -> None:
    runtime, end = wire
    sockets = [runtime.open_udp(6000, shared=True) for _ in range(3)]
    for number, socket in enumerate(sockets[:2]):
        socket.connect((PEER.ip, 7 + number))
        socket.send(b"lost")
    assert end.send(error(6000, 8)) == 1
    assert told(sockets[1]) == errno.ECONNREFUSED
    assert end.send(error(6000, 9)) == 1  # of the rest, nobody's
    runtime.wait_until(lambda s: s.dropped["icmp_error"] == 1, 10)
    for socket in sockets:
        with pytest.raises(TimeoutError):
            socket.receive(0)
