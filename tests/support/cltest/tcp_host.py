"""A host of the TCP machine alone (libos/net/tcp/host.h), and its peers' side of the wire.

Packets are bytes, and a test moves the clock."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from corelane.libos._native import ffi, lib

from .packets import checksum

OURS, PEER, PORT, PEER_PORT = 0xC0A80001, 0xC0000201, 8080, 40000
SYN, ACK, PSH, FIN, RST = lib.CL_TCPF_SYN, lib.CL_TCPF_ACK, lib.CL_TCPF_PSH, lib.CL_TCPF_FIN, lib.CL_TCPF_RST
MS = 1_000_000
NEVER = 2**64 - 1


class Heard(NamedTuple):
    """A segment that the host sent."""

    flags: int
    seq: int
    ack: int
    data: bytes
    window: int = 0
    options: bytes = b""
    port: int = 0  # to whom
    tos: int = 0


def times(val: int, ecr: int) -> bytes:
    """A timestamp option, with two fillers."""
    return struct.pack(">BBBBII", 1, 1, 8, 10, val, ecr)


class TcpHost:
    """The host, at time 1 s."""

    def __init__(self, mtu: int = 1500) -> None:
        out = ffi.new("struct cl_tcp_host **")
        assert lib.cl_tcp_host_new(OURS, mtu, 1000 * MS, out) == 0
        self.ptr, self.now_ns = out[0], 1000 * MS

    def close(self) -> None:
        lib.cl_tcp_host_delete(self.ptr)

    def run(self, for_ns: int) -> None:
        """Let time pass."""
        self.now_ns += for_ns
        lib.cl_tcp_host_run(self.ptr, self.now_ns)

    def take(self, protocol: int, payload: bytes, tos: int = 0, peer: int = PEER) -> None:
        """An IPv4 packet comes in."""
        ip = struct.pack(">BBHHHBBHII", 0x45, tos, 20 + len(payload), 0, 0, 64, protocol, 0, peer, OURS)
        lib.cl_tcp_host_take(self.ptr, ip + payload, 20 + len(payload))

    def say(
        self,
        flags: int,
        seq: int,
        ack: int = 0,
        data: bytes = b"",
        window: int = 60000,
        options: bytes = b"",
        port: int = PEER_PORT,
        own: int = PORT,
        tos: int = 0,
        spoil: int = 0,
    ) -> None:
        """A segment comes in."""
        assert len(options) % 4 == 0
        offset = (5 + len(options) // 4) << 4
        tcp = struct.pack(">HHIIBBHHH", port, own, seq % 2**32, ack % 2**32, offset, flags, window, 0, 0)
        tcp += options + data
        pseudo = struct.pack(">IIBBH", PEER, OURS, 0, 6, len(tcp))
        self.take(6, tcp[:16] + struct.pack(">H", checksum(pseudo + tcp) ^ spoil) + tcp[18:], tos)

    def complain(self, kind: int, code: int, seq: int, port: int = PEER_PORT, own: int = PORT, mtu: int = 0) -> None:
        """An ICMP error about a segment that the host has sent comes in."""
        quoted = struct.pack(">BBHHHBBHII", 0x45, 0, 1500, 0, 0x4000, 60, 6, 0, OURS, PEER)
        quoted += struct.pack(">HHI", own, port, seq % 2**32)
        message = struct.pack(">BBHHH", kind, code, 0, 0, mtu) + quoted
        self.take(1, message[:2] + struct.pack(">H", checksum(message)) + message[4:])

    def heard(self) -> list[Heard]:
        """What it has sent since; checksums are right."""
        out, room, at = [], ffi.new("uint8_t[10000]"), ffi.new("uint64_t *")
        while n := lib.cl_tcp_host_next(self.ptr, room, 10000, at):
            packet = bytes(ffi.buffer(room, n))
            assert checksum(packet[:20]) == 0
            pseudo = packet[12:20] + struct.pack(">BBH", 0, 6, n - 20)
            assert checksum(pseudo + packet[20:]) == 0
            port, seq, ack, offset, flags, window = struct.unpack(">2xHIIBBH", packet[20:36])
            head = 20 + 4 * (offset >> 4)
            out.append(Heard(flags, seq, ack, packet[head:], window, packet[40:head], port, packet[1]))
        return out

    def hear(self) -> list[tuple[int, int, int, bytes]]:
        """The same, shorter: flags, seq, ack and data."""
        return [s[:4] for s in self.heard()]

    def listen(self, backlog: int = 5) -> int:
        """A socket that listens on PORT."""
        s: int = lib.cl_tcp_host_listen(self.ptr, PORT, backlog)
        assert s >= 0
        return s

    def accept(self, listener: int) -> tuple[int, int]:
        """(socket, the peer's port) of the next connection, or (-errno, 0)."""
        peer, port = ffi.new("uint32_t *"), ffi.new("uint16_t *")
        s: int = lib.cl_tcp_host_accept(self.ptr, listener, peer, port)
        assert s < 0 or peer[0] == PEER
        return (s, port[0]) if s >= 0 else (s, 0)

    def opened(self, listener: int, port: int = PEER_PORT, options: bytes = b"") -> tuple[int, int]:
        """A connection from the peer, whose next number is 1. Returns its socket and the host's next number."""
        self.say(SYN, 0, port=port, options=options)
        ((flags, seq, ack, *_),) = self.heard()
        assert (flags & ~0xC0, ack) == (SYN | ACK, 1)
        self.say(ACK, 1, seq + 1, port=port)
        s, from_port = self.accept(listener)
        assert from_port == port
        return s, (seq + 1) % 2**32

    def read(self, s: int, size: int = 4096) -> bytes | int:
        """What came, or -errno; 0: the end."""
        room = ffi.new("uint8_t[]", size)
        n = lib.cl_tcp_host_read(self.ptr, s, room, size)
        return bytes(ffi.buffer(room, n)) if n > 0 else int(n)

    def write(self, s: int, data: bytes) -> int:
        """How much it took, or -errno."""
        return int(lib.cl_tcp_host_write(self.ptr, s, data, len(data)))

    def info(self, s: int) -> Any:
        """Numbers of a connection (struct cl_tcp_info)."""
        out = ffi.new("struct cl_tcp_info *")
        assert lib.cl_tcp_host_info(self.ptr, s, out) == 0
        return out

    def counts(self) -> Any:
        """struct cl_tcp_counts."""
        out = ffi.new("struct cl_tcp_counts *")
        lib.cl_tcp_host_counts(self.ptr, out)
        return out

    def held(self) -> int:
        """Bytes of chunks that its connections hold."""
        return int(lib.cl_tcp_host_held(self.ptr))


def mss_of(options: bytes) -> int:
    """The MSS that options of a SYN name first."""
    assert options[:2] == b"\2\4"
    return int.from_bytes(options[2:4], "big")


def joined(segments: Sequence[Heard]) -> bytes:
    """The data of segments, one behind the other."""
    return b"".join(s.data for s in segments)
