"""A host of the machine alone, driven by packets as bytes: what scripts of packets stand on."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator

import pytest

from corelane.libos._native import ffi, lib

OURS, PEER, PORT, PEER_PORT = 0xC0A80001, 0xC0000201, 8080, 40000
SYN, ACK, PSH, FIN, RST = lib.CL_TCPF_SYN, lib.CL_TCPF_ACK, lib.CL_TCPF_PSH, lib.CL_TCPF_FIN, lib.CL_TCPF_RST
MS = 1_000_000


def csum(data: bytes) -> int:
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Host:
    """The host, and its peer's side of the wire."""

    def __init__(self) -> None:
        out = ffi.new("struct cl_tcp_host **")
        assert lib.cl_tcp_host_new(OURS, 1500, 1000 * MS, out) == 0
        self.ptr = out[0]

    def say(self, flags: int, seq: int, ack: int = 0, data: bytes = b"", window: int = 60000, spoil: int = 0) -> None:
        tcp = struct.pack(">HHIIBBHHH", PEER_PORT, PORT, seq, ack, 5 << 4, flags, window, 0, 0) + data
        pseudo = struct.pack(">IIBBH", PEER, OURS, 0, 6, len(tcp))
        tcp = tcp[:16] + struct.pack(">H", csum(pseudo + tcp) ^ spoil) + tcp[18:]
        ip = struct.pack(">BBHHHBBHII", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0, PEER, OURS)
        lib.cl_tcp_host_take(self.ptr, ip + tcp, 20 + len(tcp))

    def hear(self) -> list[tuple[int, int, int, bytes]]:
        """Flags, seq, ack and data of what it sent; checksums are right."""
        out, room, at = [], ffi.new("uint8_t[2000]"), ffi.new("uint64_t *")
        while n := lib.cl_tcp_host_next(self.ptr, room, 2000, at):
            packet = bytes(ffi.buffer(room, n))
            assert csum(packet[:20]) == 0
            pseudo = packet[12:20] + struct.pack(">BBH", 0, 6, n - 20)
            assert csum(pseudo + packet[20:]) == 0
            seq, ack, offset, flags = struct.unpack(">IIBB", packet[24:34])
            out.append((flags, seq, ack, packet[20 + 4 * (offset >> 4) :]))
        return out

    def read(self, s: int) -> bytes | int:
        room = ffi.new("uint8_t[4096]")
        n = lib.cl_tcp_host_read(self.ptr, s, room, 4096)
        return bytes(ffi.buffer(room, n)) if n > 0 else int(n)


@pytest.fixture
def host() -> Iterator[Host]:
    made = Host()
    yield made
    lib.cl_tcp_host_delete(made.ptr)


def accepted(host: Host) -> tuple[int, int]:
    """A connection from the peer, whose next number is 1; and our next number."""
    listener = lib.cl_tcp_host_listen(host.ptr, PORT, 5)
    assert listener >= 0
    host.say(SYN, 0)
    ((flags, seq, ack, _),) = host.hear()
    assert (flags, ack) == (SYN | ACK, 1)
    assert lib.cl_tcp_host_accept(host.ptr, listener, ffi.new("uint32_t *"), ffi.new("uint16_t *")) == -errno.EAGAIN
    host.say(ACK, 1, seq + 1)
    peer, port = ffi.new("uint32_t *"), ffi.new("uint16_t *")
    s = lib.cl_tcp_host_accept(host.ptr, listener, peer, port)
    assert (peer[0], port[0]) == (PEER, PEER_PORT)
    return s, seq + 1


def test_a_connection_from_its_syn_to_its_end(host: Host) -> None:
    s, ours = accepted(host)
    assert host.read(s) == -errno.EAGAIN
    host.say(PSH | ACK, 1, ours, b"question")
    assert lib.cl_tcp_host_ready(host.ptr, s) & lib.CL_TCP_READABLE
    assert host.read(s) == b"question"
    assert lib.cl_tcp_host_write(host.ptr, s, b"answer", 6) == 6
    assert host.hear()[-1] == (PSH | ACK, ours, 9, b"answer")
    info = ffi.new("struct cl_tcp_info *")
    assert lib.cl_tcp_host_info(host.ptr, s, info) == 0
    assert (info.state, info.unacked, info.unacked_bytes, info.cwnd) == (4, 1, 6, 10)
    host.say(FIN | ACK, 9, ours + 6)
    assert host.read(s) == 0
    assert lib.cl_tcp_host_close(host.ptr, s, False) == 0
    assert host.hear()[-1][:3] == (FIN | ACK, ours + 6, 10)
    host.say(ACK, 10, ours + 7)
    assert lib.cl_tcp_host_due_ns(host.ptr) == 2**64 - 1
    assert lib.cl_tcp_host_held(host.ptr) == 0


def test_time_passes_as_it_is_told(host: Host) -> None:
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


def test_strangers_and_what_is_spoilt(host: Host) -> None:
    host.say(ACK, 5, 7)
    assert host.hear() == [(RST, 7, 0, b"")]
    host.say(SYN, 5)
    assert host.hear() == [(RST | ACK, 0, 6, b"")]
    s, ours = accepted(host)
    host.say(PSH | ACK, 1, ours, b"spoilt", spoil=1)
    assert host.read(s) == -errno.EAGAIN


def test_connect(host: Host) -> None:
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
