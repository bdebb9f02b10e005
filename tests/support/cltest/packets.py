"""Frames for tests, written from the RFCs in plain Python and sharing no code with corelane.

Addresses are text ("10.0.0.1", "02:00:00:00:00:01"). Keyword arguments put wrong values where a test wants them.
"""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass

BROADCAST = "ff:ff:ff:ff:ff:ff"


def ones_sum(data: bytes) -> int:
    """Folded ones' complement sum of 16-bit big-endian words (RFC 1071), odd lengths padded with a zero byte."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(word for (word,) in struct.iter_unpack(">H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def checksum(data: bytes) -> int:
    """The checksum field of data whose own field is zero."""
    return ones_sum(data) ^ 0xFFFF


def mac_bytes(mac: str) -> bytes:
    """Six bytes of a MAC address."""
    return bytes.fromhex(mac.replace(":", ""))


def ip_bytes(address: str) -> bytes:
    """Four bytes of an IPv4 address."""
    return ipaddress.IPv4Address(address).packed


def ethernet(payload: bytes, src: str, dst: str, kind: int = 0x0800) -> bytes:
    """An Ethernet II frame."""
    return mac_bytes(dst) + mac_bytes(src) + struct.pack(">H", kind) + payload


def ipv4(
    payload: bytes,
    src: str,
    dst: str,
    proto: int = 17,
    *,
    options: bytes = b"",
    version: int = 4,
    ihl: int | None = None,
    total: int | None = None,
    frag: int = 0,
    ttl: int = 64,
    check: int | None = None,
) -> bytes:
    """An IPv4 packet (RFC 791). options: a multiple of 4 bytes."""
    words = 5 + len(options) // 4 if ihl is None else ihl
    length = 20 + len(options) + len(payload) if total is None else total
    head = struct.pack(
        ">BBHHHBBH4s4s", version << 4 | words, 0, length, 7, frag, ttl, proto, 0, ip_bytes(src), ip_bytes(dst)
    )
    head += options
    value = checksum(head) if check is None else check
    return head[:10] + struct.pack(">H", value) + head[12:] + payload


def udp(
    payload: bytes, src: str, dst: str, sport: int, dport: int, *, length: int | None = None, check: int | None = None
) -> bytes:
    """A UDP datagram (RFC 768) with its checksum over the pseudo-header."""
    n = 8 + len(payload) if length is None else length
    head = struct.pack(">HHHH", sport, dport, n, 0)
    pseudo = ip_bytes(src) + ip_bytes(dst) + struct.pack(">BBH", 0, 17, n)
    value = (checksum(pseudo + head + payload) or 0xFFFF) if check is None else check
    return head[:6] + struct.pack(">H", value) + payload


def icmp(kind: int, code: int, rest: bytes, *, check: int | None = None) -> bytes:
    """An ICMP message (RFC 792); rest: what follows the checksum."""
    head = struct.pack(">BBH", kind, code, 0)
    value = checksum(head + rest) if check is None else check
    return head[:2] + struct.pack(">H", value) + rest


def arp(op: int, sender_mac: str, sender_ip: str, target_mac: str, target_ip: str) -> bytes:
    """An ARP message for IPv4 over Ethernet (RFC 826)."""
    return (
        struct.pack(">HHBBH", 1, 0x0800, 6, 4, op)
        + mac_bytes(sender_mac)
        + ip_bytes(sender_ip)
        + mac_bytes(target_mac)
        + ip_bytes(target_ip)
    )


@dataclass(frozen=True)
class Host:
    """One side of a conversation."""

    mac: str
    ip: str

    def datagram(self, to: Host, payload: bytes, sport: int = 5555, dport: int = 9000) -> bytes:
        """A whole frame with one right datagram."""
        body = udp(payload, self.ip, to.ip, sport, dport)
        return ethernet(ipv4(body, self.ip, to.ip), self.mac, to.mac)


@dataclass(frozen=True)
class Datagram:
    """A UDP datagram out of a frame whose every checksum was right."""

    src: str
    dst: str
    sport: int
    dport: int
    payload: bytes
    ttl: int


def read_datagram(frame: bytes) -> Datagram:
    """Take a frame apart; AssertionError if any length or checksum is wrong, or it is no UDP datagram."""
    assert frame[12:14] == b"\x08\x00", frame.hex()
    assert frame[14] == 0x45, frame.hex()
    (total,) = struct.unpack(">H", frame[16:18])
    packet = frame[14 : 14 + total]
    assert len(packet) == total
    assert ones_sum(packet[:20]) == 0xFFFF, "IPv4 header checksum"
    assert packet[9] == 17
    sport, dport, length, check = struct.unpack(">HHHH", packet[20:28])
    assert length == total - 20
    if check:
        assert ones_sum(packet[12:20] + struct.pack(">BBH", 0, 17, length) + packet[20:]) == 0xFFFF, "UDP checksum"
    src, dst = (str(ipaddress.IPv4Address(packet[i : i + 4])) for i in (12, 16))
    return Datagram(src, dst, sport, dport, packet[28:], packet[8])


def verdict(frame: bytes, mac: str, ip: str, prefix: int = 24) -> str:
    """What a host must make of a frame: "udp", "icmp", "about" (an error about what we sent), "arp", "tcp", or the
    reason to drop it as corelane names it.

    A second implementation of the rules, in the order of the layers; the oracle of the parser's property tests.
    """
    if len(frame) < 14:
        return "eth_short"
    broadcast = frame[:6] == b"\xff" * 6
    if not broadcast and frame[:6] != mac_bytes(mac):
        return "eth_not_ours"
    if frame[6] & 1:
        return "eth_source"
    if frame[12:14] == b"\x08\x06":
        return _arp_verdict(frame[14:])
    if frame[12:14] != b"\x08\x00":
        return "eth_type"
    packet = frame[14:]
    if len(packet) < 20:
        return "ip_short"
    if packet[0] >> 4 != 4:
        return "ip_version"
    hlen = (packet[0] & 15) * 4
    if not 20 <= hlen <= len(packet):
        return "ip_ihl"
    total, _, frag, ttl, proto = struct.unpack(">HHHBB", packet[2:10])
    if not hlen <= total <= len(packet):
        return "ip_length"
    if ones_sum(packet[:hlen]) != 0xFFFF:
        return "ip_checksum"
    if ttl == 0:
        return "ip_ttl"
    net = ipaddress.IPv4Network(f"{ip}/{prefix}", strict=False)
    src, dst = ipaddress.IPv4Address(packet[12:16]), ipaddress.IPv4Address(packet[16:20])
    if src.packed[0] in (0, 127) or src.packed[0] >= 224 or str(src) == ip or src == net.broadcast_address:
        return "ip_martian"
    ip_broadcast = dst in (ipaddress.IPv4Address("255.255.255.255"), net.broadcast_address)
    if not ip_broadcast and str(dst) != ip:
        return "ip_not_ours"
    if frag & 0x1FFF:
        return "ip_fragment"
    if frag & 0x2000:
        return "ip_reassembly"
    body = packet[hlen:total]
    if proto == 1:
        return _icmp_verdict(body, broadcast or ip_broadcast, ipaddress.IPv4Address(ip))
    if proto == 6:
        return _tcp_verdict(body, packet[12:20])
    if proto != 17:
        return "ip_protocol"
    return _udp_verdict(body, packet[12:20])


def _arp_verdict(body: bytes) -> str:
    if len(body) < 28 or body[:6] != bytes.fromhex("000108000604") or body[6:8] not in (b"\0\1", b"\0\2"):
        return "arp_malformed"
    if body[8] & 1 or body[8:14] == bytes(6) or body[14] >= 224 or body[14] == 127:
        return "arp_malformed"
    return "arp"


def _icmp_verdict(body: bytes, broadcast: bool, ours: ipaddress.IPv4Address) -> str:
    if len(body) < 8:
        return "icmp_short"
    if ones_sum(body) != 0xFFFF:
        return "icmp_checksum"
    if body[0] == 8 and body[1] == 0:
        return "icmp_broadcast" if broadcast else "icmp"
    if body[0] not in (3, 4, 5, 11, 12):
        return "icmp_type"
    quoted = body[8:]
    if body[0] in (4, 5) or broadcast or len(quoted) < 28 or quoted[0] != 0x45 or quoted[9] not in (6, 17):
        return "icmp_error"
    (frag,) = struct.unpack(">H", quoted[6:8])
    if quoted[16] == 127 or quoted[16:20] == ours.packed:
        return "icmp_error"  # what we send ourselves does not leave, so nobody else can tell of it
    return "about" if quoted[12:16] == ours.packed and not frag & 0x1FFF else "icmp_error"


def _tcp_verdict(body: bytes, addresses: bytes) -> str:
    if len(body) < 20 or not 20 <= (body[12] >> 4) * 4 <= len(body):
        return "tcp_short"
    wrong = ones_sum(addresses + struct.pack(">BBH", 0, 6, len(body)) + body) != 0xFFFF
    return "tcp_checksum" if wrong else "tcp"


def tcp(payload: bytes, src: str, dst: str, sport: int, dport: int, flags: int, **fields: int) -> bytes:
    """A TCP segment. flags: FIN 1, SYN 2, RST 4, ACK 16; fields: seq, ack, offset (words), check."""
    seq, ack, offset = fields.get("seq", 0), fields.get("ack", 0), fields.get("offset", 5)
    body = struct.pack(">HHIIBBHHH", sport, dport, seq, ack, offset << 4, flags, 8192, 0, 0) + payload
    addresses = ipaddress.IPv4Address(src).packed + ipaddress.IPv4Address(dst).packed
    check = fields.get("check", checksum(addresses + struct.pack(">BBH", 0, 6, len(body)) + body))
    return body[:16] + struct.pack(">H", check) + body[18:]


def _udp_verdict(body: bytes, addresses: bytes) -> str:
    if len(body) < 8:
        return "udp_short"
    sport, dport, length, check = struct.unpack(">HHHH", body[:8])
    if not 8 <= length <= len(body):
        return "udp_length"
    if sport == 0 or dport == 0:
        return "udp_port_zero"
    if check and ones_sum(addresses + struct.pack(">BBH", 0, 17, length) + body[:length]) != 0xFFFF:
        return "udp_checksum"
    return "udp"
