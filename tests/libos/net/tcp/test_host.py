"""A host of the machine alone, driven by packets as bytes: what scripts of packets stand on."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from cltest.tcp_host import ACK, FIN, MS, NEVER, PEER, PEER_PORT, PORT, PSH, RST, SYN, TcpHost

from corelane.libos._native import lib


@pytest.fixture
def host() -> Iterator[TcpHost]:
    made = TcpHost()
    yield made
    made.close()


def accepted(host: TcpHost) -> tuple[int, int]:
    """A connection from the peer, whose next number is 1; and our next number."""
    listener = host.listen()
    host.say(SYN, 0)
    ((flags, seq, ack, _),) = host.hear()
    assert (flags, ack) == (SYN | ACK, 1)
    assert host.accept(listener) == (-errno.EAGAIN, 0)
    host.say(ACK, 1, seq + 1)
    s, port = host.accept(listener)
    assert port == PEER_PORT
    return s, seq + 1


def test_a_connection_from_its_syn_to_its_end(host: TcpHost) -> None:
    s, ours = accepted(host)
    assert host.read(s) == -errno.EAGAIN
    host.say(PSH | ACK, 1, ours, b"question")
    assert lib.cl_tcp_host_ready(host.ptr, s) & lib.CL_TCP_READABLE
    assert host.read(s) == b"question"
    assert host.write(s, b"answer") == 6
    assert host.hear()[-1] == (PSH | ACK, ours, 9, b"answer")
    info = host.info(s)
    assert (info.state, info.unacked, info.unacked_bytes, info.cwnd) == (4, 1, 6, 10)
    host.say(FIN | ACK, 9, ours + 6)
    assert host.read(s) == 0
    assert lib.cl_tcp_host_close(host.ptr, s, False) == 0
    assert host.hear()[-1][:3] == (FIN | ACK, ours + 6, 10)
    host.say(ACK, 10, ours + 7)
    assert lib.cl_tcp_host_due_ns(host.ptr) == NEVER
    assert host.held() == 0


def test_time_passes_as_it_is_told(host: TcpHost) -> None:
    s, ours = accepted(host)
    lib.cl_tcp_host_write(host.ptr, s, b"x", 1)
    host.hear()
    due = lib.cl_tcp_host_due_ns(host.ptr)
    lib.cl_tcp_host_run(host.ptr, due - 1)
    assert host.hear() == []
    lib.cl_tcp_host_run(host.ptr, due)
    assert host.hear() == [(PSH | ACK, ours, 1, b"x")]
    host.say(RST, 1)
    assert host.read(s) == -errno.ECONNRESET
    assert host.read(s) == 0


def test_strangers_and_what_is_spoilt(host: TcpHost) -> None:
    host.say(ACK, 5, 7)
    assert host.hear() == [(RST, 7, 0, b"")]
    host.say(SYN, 5)
    assert host.hear() == [(RST | ACK, 0, 6, b"")]
    s, ours = accepted(host)
    host.say(PSH | ACK, 1, ours, b"spoilt", spoil=1)
    assert host.read(s) == -errno.EAGAIN


def test_connect(host: TcpHost) -> None:
    s = lib.cl_tcp_host_connect(host.ptr, PORT, PEER, PEER_PORT)
    ((flags, seq, _, _),) = host.hear()
    assert flags == SYN
    assert lib.cl_tcp_host_connected(host.ptr, s) == -errno.EINPROGRESS
    host.say(SYN | ACK, 100, seq + 1)
    assert lib.cl_tcp_host_connected(host.ptr, s) == 0
    assert host.hear()[0][:3] == (ACK, seq + 1, 101)
    refused = lib.cl_tcp_host_connect(host.ptr, PORT + 1, PEER, PEER_PORT)
    lib.cl_tcp_host_run(host.ptr, 400_000 * MS)
    assert lib.cl_tcp_host_connected(host.ptr, refused) == -errno.ETIMEDOUT


def test_a_unit_of_the_window_is_never_larger_than_the_window(host: TcpHost) -> None:
    """RFC 7323, section 2.3: a limit that is no unit of the scale can still be said, as one unit."""
    unit = 1 << 14
    assert lib.cl_tcp_host_set(host.ptr, lib.CL_TCP_SET_WSCALE, 14) == 0
    assert lib.cl_tcp_host_set(host.ptr, lib.CL_TCP_SET_RECEIVE_LIMIT, 4096) == 0
    s, ours = host.opened(host.listen(), options=b"\2\4\5\xb4\1\3\3\0")
    assert host.info(s).rcv_scale == 14
    sent, read = 1, 0
    for _ in range(40):
        host.say(PSH | ACK, sent, ours, bytes(1000))
        sent += 1000
        while (data := host.read(s, 500)) != -errno.EAGAIN:
            assert isinstance(data, bytes)
            read += len(data)
        host.run(50 * MS)
        last = host.heard()[-1]
        assert last.ack == sent, "all of it is taken"
        assert last.window == 1
    assert read == 40_000
    for _ in range(40):  # nobody reads: no more is taken than a unit, and the one that rounding up promises
        host.say(PSH | ACK, sent, ours, bytes(1000))
        host.run(50 * MS)
        sent = max(sent, host.heard()[-1].ack)
    assert unit <= host.info(s).to_read <= 2 * unit
    while host.read(s) != -errno.EAGAIN:
        pass
    assert host.heard()[-1].window == 1
