"""The frame parser: a pure function, compared on every frame with a second implementation (cltest.packets.verdict)."""

from __future__ import annotations

import random
import struct

import pytest
from cltest.packets import BROADCAST, Host, arp, ethernet, icmp, ipv4, tcp, udp, verdict
from hypothesis import given
from hypothesis import strategies as st

from corelane.libos._native import ffi, lib

ME = Host("02:00:00:00:00:01", "10.0.0.1")
YOU = Host("02:00:00:00:00:02", "10.0.0.2")
VERDICTS = {
    lib.CL_RX_UDP: "udp",
    lib.CL_RX_ICMP: "icmp",
    lib.CL_RX_ICMP_ERROR: "about",
    lib.CL_RX_ARP: "arp",
    lib.CL_RX_TCP: "tcp",
}

_self = ffi.new("struct cl_net_self *")
lib.cl_net_self_set(_self, bytes.fromhex("020000000001"), 0x0A000001, 24, 0)


def parse(frame: bytes) -> str:
    """Verdict or reason of both paths, which must agree in every field."""
    fast, slow = ffi.new("struct cl_rx_info *"), ffi.new("struct cl_rx_info *")
    # A buffer of exactly the frame's size: ASan sees a read beyond it.
    data = ffi.new("uint8_t[]", frame) if frame else ffi.NULL
    lib.cl_rx_parse_any(_self, data, len(frame), fast)
    lib.cl_rx_parse_slow(_self, data, len(frame), slow)
    assert bytes(ffi.buffer(fast)) == bytes(ffi.buffer(slow)), frame.hex()
    if fast.verdict != lib.CL_RX_DROP:
        assert fast.l4 + fast.l4_len <= len(frame)
        assert fast.payload + fast.payload_len <= len(frame)
        return VERDICTS[fast.verdict]
    return str(ffi.string(lib.cl_drop_name(fast.reason)).decode())


def to_me(packet: bytes, kind: int = 0x0800, dst: str = ME.mac) -> bytes:
    return ethernet(packet, YOU.mac, dst, kind)


def packet(
    body: bytes | None = None, src: str = YOU.ip, dst: str = ME.ip, proto: int = 17, **options: int | bytes
) -> bytes:
    return ipv4(udp(b"hello", src, dst, 5, 9000) if body is None else body, src, dst, proto, **options)  # type: ignore[arg-type]


ECHO = icmp(8, 0, b"\0\1\0\2data")
SENT = packet(src=ME.ip, dst=YOU.ip)  # by us, and what errors about it quote
SEGMENT = packet(tcp(b"", ME.ip, YOU.ip, 5, 9, 16), src=ME.ip, dst=YOU.ip, proto=6)[:28]
IGMP = packet(src=ME.ip, dst=YOU.ip, proto=2)
NOT_SENT = packet(src=YOU.ip, dst=ME.ip)
TO_ITSELF = packet(src=ME.ip, dst=ME.ip)
LOCAL = packet(src="127.0.0.1", dst="127.0.0.1")
ABOUT = icmp(3, 3, bytes(4) + SENT[:28])
MALFORMED = {
    "empty": (b"", "eth_short"),
    "13 bytes": (bytes(13), "eth_short"),
    "another host's": (ethernet(packet(), YOU.mac, "02:00:00:00:00:09"), "eth_not_ours"),
    "multicast": (ethernet(packet(), YOU.mac, "01:00:5e:00:00:01"), "eth_not_ours"),
    "from a group": (ethernet(packet(), "01:00:5e:00:00:01", ME.mac), "eth_source"),
    "from broadcast": (ethernet(packet(), BROADCAST, ME.mac), "eth_source"),
    "from broadcast to broadcast": (ethernet(packet(), BROADCAST, BROADCAST), "eth_source"),
    "ARP in a frame from a group": (
        ethernet(arp(1, YOU.mac, YOU.ip, ME.mac, ME.ip), "01:00:00:00:00:02", BROADCAST, 0x0806),
        "eth_source",
    ),
    "IPv6": (to_me(packet(), 0x86DD), "eth_type"),
    "VLAN": (to_me(b"\0\1\x08\0" + packet(), 0x8100), "eth_type"),
    "nothing behind Ethernet": (to_me(b""), "ip_short"),
    "IP header cut": (to_me(packet()[:19]), "ip_short"),
    "version 6": (to_me(packet(version=6)), "ip_version"),
    "IHL 4": (to_me(packet(ihl=4)), "ip_ihl"),
    "IHL beyond the frame": (to_me(packet(b"", ihl=15)), "ip_ihl"),
    "total below the header": (to_me(packet(total=19)), "ip_length"),
    "total beyond the frame": (to_me(packet(total=200)), "ip_length"),
    "IP checksum": (to_me(packet(check=0x1234)), "ip_checksum"),
    "TTL 0": (to_me(packet(ttl=0)), "ip_ttl"),
    "source 0": (to_me(packet(src="0.0.0.5")), "ip_martian"),
    "source loopback": (to_me(packet(src="127.0.0.1")), "ip_martian"),
    "source multicast": (to_me(packet(src="224.0.0.1")), "ip_martian"),
    "source broadcast": (to_me(packet(src="255.255.255.255")), "ip_martian"),
    "source subnet broadcast": (to_me(packet(src="10.0.0.255")), "ip_martian"),
    "source ourselves": (to_me(packet(src=ME.ip)), "ip_martian"),
    "to another host": (to_me(packet(dst="10.0.0.77")), "ip_not_ours"),
    "to a group": (to_me(packet(dst="224.0.0.1")), "ip_not_ours"),
    "later fragment": (to_me(packet(frag=0x0010)), "ip_fragment"),
    "first fragment": (to_me(packet(frag=0x2000)), "ip_reassembly"),
    "SCTP": (to_me(packet(bytes(20), proto=132)), "ip_protocol"),
    "TCP cut": (to_me(packet(tcp(b"", YOU.ip, ME.ip, 5, 9, 2)[:19], proto=6)), "tcp_short"),
    "TCP of no header": (to_me(packet(tcp(b"", YOU.ip, ME.ip, 5, 9, 2, offset=4), proto=6)), "tcp_short"),
    "TCP options beyond": (to_me(packet(tcp(b"abc", YOU.ip, ME.ip, 5, 9, 2, offset=6), proto=6)), "tcp_short"),
    "TCP checksum": (to_me(packet(tcp(b"abc", YOU.ip, ME.ip, 5, 9, 2, check=1), proto=6)), "tcp_checksum"),
    "UDP cut": (to_me(packet(bytes(7))), "udp_short"),
    "UDP length 7": (to_me(packet(udp(b"", YOU.ip, ME.ip, 5, 9, length=7))), "udp_length"),
    "UDP length beyond": (to_me(packet(udp(b"abc", YOU.ip, ME.ip, 5, 9, length=12))), "udp_length"),
    "UDP checksum": (to_me(packet(udp(b"abc", YOU.ip, ME.ip, 5, 9, check=1))), "udp_checksum"),
    "UDP to port 0": (to_me(packet(udp(b"abc", YOU.ip, ME.ip, 5, 0))), "udp_port_zero"),
    "UDP from port 0": (to_me(packet(udp(b"abc", YOU.ip, ME.ip, 0, 9))), "udp_port_zero"),
    "ICMP cut": (to_me(packet(b"\x08\0\xf7\xff", proto=1)), "icmp_short"),
    "ICMP checksum": (to_me(packet(icmp(8, 0, bytes(8), check=7), proto=1)), "icmp_checksum"),
    "ICMP echo to all": (to_me(packet(ECHO, proto=1, dst="10.0.0.255"), dst=BROADCAST), "icmp_broadcast"),
    "ICMP unreachable": (to_me(packet(icmp(3, 3, bytes(32)), proto=1)), "icmp_error"),
    "ICMP unreachable, short": (to_me(packet(icmp(3, 3, bytes(4) + SENT[:27]), proto=1)), "icmp_error"),
    "ICMP unreachable to all": (to_me(packet(ABOUT, proto=1, dst="10.0.0.255"), dst=BROADCAST), "icmp_error"),
    "ICMP about another protocol": (to_me(packet(icmp(3, 3, bytes(4) + IGMP), proto=1)), "icmp_error"),
    "ICMP about another's": (to_me(packet(icmp(3, 3, bytes(4) + NOT_SENT), proto=1)), "icmp_error"),
    "ICMP about loopback": (to_me(packet(icmp(3, 3, bytes(4) + LOCAL), proto=1)), "icmp_error"),
    "ICMP about what we sent ourselves": (to_me(packet(icmp(3, 3, bytes(4) + TO_ITSELF), proto=1)), "icmp_error"),
    "ICMP source quench": (to_me(packet(icmp(4, 0, bytes(4) + SENT), proto=1)), "icmp_error"),
    "ICMP echo reply": (to_me(packet(icmp(0, 0, bytes(4)), proto=1)), "icmp_type"),
    "ICMP echo of code 1": (to_me(packet(icmp(8, 1, bytes(4)), proto=1)), "icmp_type"),
    "ARP cut": (to_me(arp(1, YOU.mac, YOU.ip, ME.mac, ME.ip)[:27], 0x0806), "arp_malformed"),
    "ARP for token ring": (to_me(b"\0\6" + arp(1, YOU.mac, YOU.ip, ME.mac, ME.ip)[2:], 0x0806), "arp_malformed"),
    "ARP of operation 3": (to_me(arp(3, YOU.mac, YOU.ip, ME.mac, ME.ip), 0x0806), "arp_malformed"),
    "ARP from a group": (to_me(arp(1, "01:00:00:00:00:02", YOU.ip, ME.mac, ME.ip), 0x0806), "arp_malformed"),
    "ARP from broadcast": (to_me(arp(1, YOU.mac, "255.255.255.255", ME.mac, ME.ip), 0x0806), "arp_malformed"),
}
GOOD = {
    "UDP": (to_me(packet()), "udp"),
    "UDP, no checksum": (to_me(packet(udp(b"abc", YOU.ip, ME.ip, 5, 9, check=0))), "udp"),
    "UDP, empty": (to_me(packet(udp(b"", YOU.ip, ME.ip, 5, 9))), "udp"),
    "UDP, odd length": (to_me(packet(udp(b"abc", YOU.ip, ME.ip, 5, 9))), "udp"),
    "UDP behind options": (to_me(packet(options=b"\x94\x04\0\0" + b"\1" * 4)), "udp"),
    "UDP with padding": (to_me(packet()) + bytes(20), "udp"),
    "UDP shorter than IP says": (to_me(packet(udp(b"abc", YOU.ip, ME.ip, 5, 9) + b"trailer")), "udp"),
    "UDP to all": (to_me(packet(dst="255.255.255.255"), dst=BROADCAST), "udp"),
    "UDP to the subnet": (to_me(packet(dst="10.0.0.255"), dst=BROADCAST), "udp"),
    "TTL 1": (to_me(packet(ttl=1)), "udp"),
    "don't fragment": (to_me(packet(frag=0x4000)), "udp"),
    "TCP": (to_me(packet(tcp(b"abc", YOU.ip, ME.ip, 5, 9, 2), proto=6)), "tcp"),
    "TCP with options": (to_me(packet(tcp(bytes(8), YOU.ip, ME.ip, 5, 9, 2, offset=7), proto=6)), "tcp"),
    "echo": (to_me(packet(ECHO, proto=1)), "icmp"),
    "port unreachable": (to_me(packet(ABOUT, proto=1)), "about"),
    "time exceeded": (to_me(packet(icmp(11, 0, bytes(4) + SENT), proto=1)), "about"),
    "unreachable, of a segment": (to_me(packet(icmp(3, 1, bytes(4) + SEGMENT), proto=1)), "about"),
    "ARP request": (to_me(arp(1, YOU.mac, YOU.ip, "00:00:00:00:00:00", ME.ip), 0x0806, BROADCAST), "arp"),
    "ARP probe": (to_me(arp(1, YOU.mac, "0.0.0.0", "00:00:00:00:00:00", ME.ip), 0x0806, BROADCAST), "arp"),
}


@pytest.mark.parametrize("name", [*MALFORMED, *GOOD])
def test_each_case_has_its_reason(name: str) -> None:
    frame, expected = {**MALFORMED, **GOOD}[name]
    assert verdict(frame, ME.mac, ME.ip) == expected, "the oracle"
    assert parse(frame) == expected


def test_every_reason_that_a_frame_alone_can_have_is_tested() -> None:
    every = {ffi.string(lib.cl_drop_name(r)).decode() for r in range(1, lib.CL_DROP_REASONS)}
    later = {"arp_not_ours", "arp_conflict", "arp_unsolicited", "udp_no_port", "tcp_no_port", "udp_queue_full"}
    later |= {"udp_no_chunk", "flow_queue_full", "flow_table_full", "flow_budget"}
    later |= {"batch_queue_full", "batch_late"}
    later |= {"type_queue_full", "no_tx_buffer", "stopped"}
    assert {reason for _, reason in MALFORMED.values()} == every - later


def test_every_truncation_of_every_good_frame() -> None:
    for frame, _ in GOOD.values():
        for n in range(len(frame)):
            assert parse(frame[:n]) == verdict(frame[:n], ME.mac, ME.ip), (n, frame.hex())


def fix_checksums(frame: bytearray) -> None:
    """Make the IPv4 and UDP checksums of a mutated frame right where there is a place for them."""
    from cltest.packets import checksum

    if len(frame) >= 34 and frame[12:14] == b"\x08\x00":
        hlen = min((frame[14] & 15) * 4, len(frame) - 14)
        frame[24:26] = b"\0\0"
        frame[24:26] = struct.pack(">H", checksum(bytes(frame[14 : 14 + hlen])))


def test_mutated_frames_agree_with_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    seeds = [f for f, _ in (*MALFORMED.values(), *GOOD.values())]
    seen = set()
    for _ in range(20_000):
        frame = bytearray(rng.choice(seeds))
        for _ in range(rng.choice((0, 1, 1, 2, 4))):
            if frame:
                frame[rng.randrange(min(len(frame), 44))] = rng.choice((0, 1, 0x45, 0x7F, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            del frame[rng.randrange(len(frame) + 1) :]
        if rng.random() < 0.6:
            fix_checksums(frame)
        expected = verdict(bytes(frame), ME.mac, ME.ip)
        assert parse(bytes(frame)) == expected, frame.hex()
        seen.add(expected)
    assert len(seen) > 20, seen


@given(st.binary(max_size=120))
def test_random_bytes_never_crash(data: bytes) -> None:
    for frame in (data, bytes.fromhex("020000000001020000000002") + data):
        assert parse(frame) == verdict(frame, ME.mac, ME.ip)


@pytest.mark.parametrize(("prefix", "broadcast"), [(24, "10.0.0.255"), (16, "10.0.255.255"), (31, None), (32, None)])
def test_subnet_broadcast(prefix: int, broadcast: str | None) -> None:
    me = ffi.new("struct cl_net_self *")
    lib.cl_net_self_set(me, bytes.fromhex("020000000001"), 0x0A000001, prefix, 0)
    value = struct.unpack(">I", struct.pack("=I", me.broadcast_be))[0]
    assert value == (int.from_bytes(bytes(map(int, broadcast.split("."))), "big") if broadcast else 0)
