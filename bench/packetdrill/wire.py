"""Packets as bytes: IPv4 (RFC 791) with TCP (9293), UDP (768) and ICMP (792), written and read. Pure functions.

Numbers are those on the wire; flow.py makes the script's of them.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from . import model as m

TCP, UDP, ICMP = socket.IPPROTO_TCP, socket.IPPROTO_UDP, socket.IPPROTO_ICMP

# Flags of a TCP header by the letters of scripts. "." is ACK; C is another letter for W.
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, ".": 16, "U": 32, "E": 64, "W": 128, "C": 128, "A": 256}
_LONGEST = 65535  # of a packet, and of a datagram
ECN = {"noecn": 0, "ect1": 1, "ect0": 2, "ce": 3}

# (type, code) by the words of scripts; RFC 792, 1191, 1812.
ICMP_KINDS = {"echo_reply": 0, "unreachable": 3, "unreach": 3, "source_quench": 4, "redirect": 5, "echo_request": 8}
ICMP_KINDS |= {"time_exceeded": 11, "parameter_problem": 12, "timestamp_request": 13, "timestamp_reply": 14}
ICMP_KINDS |= {"information_request": 15, "information_reply": 16, "address_mask_request": 17, "address_mask_reply": 18}
_UNREACHABLE = (
    *("net_unreachable", "host_unreachable", "protocol_unreachable", "port_unreachable", "frag_needed"),
    *("source_route_failed", "net_unknown", "host_unknown", "source_host_isolated", "net_prohibited"),
    *("host_prohibited", "net_unreachable_for_tos", "host_unreachable_for_tos", "communication_prohibited"),
    *("precedence_violation", "precedence_cutoff"),
)
ICMP_CODES: dict[int, dict[str, int]] = {
    3: {name: code for code, name in enumerate(_UNREACHABLE)} | {"packet_filtered": 13},
    11: {"exceeded_ttl": 0, "exceeded_frag": 1, "ttl_exceeded": 0, "frag_time_exceeded": 1},
}


def icmp_kind(word: str) -> int:
    """A type of ICMP by its word, or as `type_9`. Raises KeyError."""
    return _numbered("type", word) if word not in ICMP_KINDS else ICMP_KINDS[word]


def icmp_code(kind: int, word: str) -> int:
    """A code of that type by its word, or as `code_9`. Raises KeyError."""
    codes = ICMP_CODES.get(kind, {})
    return _numbered("code", word) if word not in codes else codes[word]


def _numbered(what: str, word: str) -> int:
    name, _, number = word.partition("_")
    if name != what or not number.isdecimal() or len(number) > 3 or int(number) > 255:
        raise KeyError(word)
    return int(number)


class NotAPacket(ValueError):
    """The bytes are not a packet that this can read; str() says why."""


@dataclass(frozen=True)
class Segment:
    """A TCP segment. flags: the bits of FLAGS. options: as they stand. malformed: why they cannot be read, or ""."""

    source: tuple[str, int]
    target: tuple[str, int]
    seq: int
    ack: int
    flags: int
    window: int
    urgent: int
    options: tuple[m.TcpOption, ...]
    data: bytes
    tos: int = 0
    ttl: int = 64
    malformed: str = ""


@dataclass(frozen=True)
class Datagram:
    """A UDP datagram."""

    source: tuple[str, int]
    target: tuple[str, int]
    data: bytes
    tos: int = 0
    ttl: int = 64


@dataclass(frozen=True)
class Message:
    """An ICMP message. rest: the four bytes behind the checksum. body: what follows."""

    source: str
    target: str
    kind: int
    code: int
    rest: bytes
    body: bytes
    tos: int = 0
    ttl: int = 64


def checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071); 0 over data that holds a right one."""
    total: int = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _ip(source: str, target: str, protocol: int, payload: bytes, tos: int, ttl: int) -> bytes:
    head = struct.pack("!BBHHHBBH", 0x45, tos, 20 + len(payload), 0, 0x4000, ttl, protocol, 0)
    head += socket.inet_aton(source) + socket.inet_aton(target)
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def _pseudo(source: str, target: str, protocol: int, length: int) -> bytes:
    if 20 + length > _LONGEST:
        raise NotAPacket(f"{20 + length} bytes do not fit into a packet of IPv4")
    return socket.inet_aton(source) + socket.inet_aton(target) + struct.pack("!BBH", 0, protocol, length)


def write_options(options: tuple[m.TcpOption, ...]) -> bytes:
    """Options as bytes, filled up with end marks to a multiple of four."""
    out = b"".join(map(_write_option, options))
    return out + b"\0" * (-len(out) % 4)


def _write_option(o: m.TcpOption) -> bytes:
    """Raises NotAPacket: it has more bytes than any header has room for."""
    found = _option_bytes(o)
    if len(found) > 40:
        raise NotAPacket(f"{len(found)} bytes of options do not fit into a header")
    return found


def _option_bytes(o: m.TcpOption) -> bytes:
    match o:
        case m.Nop():
            return b"\1"
        case m.Eol():
            return b"\0"
        case m.Mss(size):
            return struct.pack("!BBH", 2, 4, size)
        case m.Wscale(shift):
            return struct.pack("!BBB", 3, 3, shift)
        case m.SackOk():
            return b"\4\2"
        case m.Sack(blocks):
            return bytes((5, 2 + 8 * len(blocks) & 255)) + b"".join(struct.pack("!II", *b) for b in blocks)
        case m.Timestamp(val, ecr):
            return struct.pack("!BBII", 8, 10, val, ecr)
        case m.FastOpen(cookie, experimental):
            data = (b"\xf9\x89" if experimental else b"") + bytes.fromhex(cookie)
            return bytes((254 if experimental else 34, 2 + len(data) & 255)) + data
        case m.Md5(digest):
            return bytes((19, 2 + len(digest) // 2 & 255)) + bytes.fromhex(digest)
        case m.Unknown(kind, data):
            return bytes((kind, 2 + len(data) & 255)) + data
    raise AssertionError(o)


def _read_option(kind: int, data: bytes) -> m.TcpOption:
    match kind, len(data):
        case 2, 2:
            return m.Mss(int.from_bytes(data, "big"))
        case 3, 1:
            return m.Wscale(data[0])
        case 4, 0:
            return m.SackOk()
        case 5, n if n and n % 8 == 0:
            numbers = struct.unpack(f"!{n // 4}I", data)
            return m.Sack(tuple(zip(numbers[::2], numbers[1::2], strict=True)))
        case 8, 8:
            return m.Timestamp(*struct.unpack("!II", data))
        case 34, _:
            return m.FastOpen(data.hex())
        case 254, n if n >= 2 and data[:2] == b"\xf9\x89":
            return m.FastOpen(data[2:].hex(), True)
        case 19, 16:
            return m.Md5(data.hex())
    return m.Unknown(kind, data)


def read_options(data: bytes) -> tuple[tuple[m.TcpOption, ...], str]:
    """The options of a header, and why the rest cannot be read, or "". What fills up behind an end mark is left out."""
    out: list[m.TcpOption] = []
    at = 0
    while at < len(data):
        kind = data[at]
        if kind == 0:
            return (*out, m.Eol()), ""
        if kind == 1:
            out.append(m.Nop())
            at += 1
            continue
        size = data[at + 1] if at + 1 < len(data) else 0
        if not 2 <= size <= len(data) - at:
            return tuple(out), f"option {kind} has the length {size}"
        out.append(_read_option(kind, data[at + 2 : at + size]))
        at += size
    return tuple(out), ""


def write_tcp(s: Segment) -> bytes:
    """An IPv4 packet with right checksums."""
    options = write_options(s.options)
    if len(options) > 40:
        raise NotAPacket(f"{len(options)} bytes of options do not fit into a header")
    words = 5 + len(options) // 4
    fields = (s.source[1], s.target[1], s.seq, s.ack, words << 12 | s.flags, s.window)
    bare = struct.pack("!HHIIHHHH", *fields, 0, s.urgent) + options + s.data
    total = checksum(_pseudo(s.source[0], s.target[0], TCP, len(bare)) + bare)
    return _ip(s.source[0], s.target[0], TCP, bare[:16] + struct.pack("!H", total) + bare[18:], s.tos, s.ttl)


def write_udp(d: Datagram) -> bytes:
    """An IPv4 packet with right checksums."""
    length = 8 + len(d.data)
    bare = struct.pack("!HHHH", d.source[1], d.target[1], length, 0) + d.data
    total = checksum(_pseudo(d.source[0], d.target[0], UDP, length) + bare) or 0xFFFF
    return _ip(d.source[0], d.target[0], UDP, bare[:6] + struct.pack("!H", total) + bare[8:], d.tos, d.ttl)


def write_icmp(i: Message) -> bytes:
    """An IPv4 packet with right checksums."""
    bare = struct.pack("!BBH", i.kind, i.code, 0) + i.rest + i.body
    return _ip(i.source, i.target, ICMP, bare[:2] + struct.pack("!H", checksum(bare)) + bare[4:], i.tos, i.ttl)


def read(data: bytes) -> Segment | Datagram | Message:
    """What an IPv4 packet holds. Raises NotAPacket, for wrong checksums, too."""
    if len(data) < 20 or data[0] >> 4 != 4:
        raise NotAPacket("it is not IPv4")
    head = (data[0] & 15) * 4
    total = int.from_bytes(data[2:4], "big")
    if head < 20 or not head <= total <= len(data):
        raise NotAPacket("its lengths do not fit")
    if checksum(data[:head]):
        raise NotAPacket("the checksum of its IP header is wrong")
    if int.from_bytes(data[6:8], "big") & 0x3FFF:
        raise NotAPacket("it is a fragment")
    source, target = socket.inet_ntoa(data[12:16]), socket.inet_ntoa(data[16:20])
    payload, tos, ttl, protocol = data[head:total], data[1], data[8], data[9]
    summed = protocol == TCP or (protocol == UDP and payload[6:8] != b"\0\0")  # 0: UDP without one
    if summed and checksum(_pseudo(source, target, protocol, len(payload)) + payload):
        raise NotAPacket(f"the checksum of its {'TCP' if protocol == TCP else 'UDP'} header is wrong")
    if protocol == TCP:
        return _read_tcp(source, target, payload, tos, ttl)
    if protocol == UDP and len(payload) >= 8:
        ports = struct.unpack("!HH", payload[:4])
        return Datagram((source, ports[0]), (target, ports[1]), payload[8:], tos, ttl)
    if protocol == ICMP and len(payload) >= 8:
        if checksum(payload):
            raise NotAPacket("the checksum of its ICMP header is wrong")
        return Message(source, target, payload[0], payload[1], payload[4:8], payload[8:], tos, ttl)
    raise NotAPacket(f"it is too short, or of protocol {protocol}")


def _read_tcp(source: str, target: str, payload: bytes, tos: int, ttl: int) -> Segment:
    if len(payload) < 20:
        raise NotAPacket("its TCP header is cut off")
    ports_from, ports_to, seq, ack, bits, window, _, urgent = struct.unpack("!HHIIHHHH", payload[:20])
    head = (bits >> 12) * 4
    if not 20 <= head <= len(payload):
        raise NotAPacket("the length of its TCP header does not fit")
    options, malformed = read_options(payload[20:head])
    return Segment(
        *((source, ports_from), (target, ports_to), seq, ack, bits & 0x1FF, window, urgent, options),
        *(payload[head:], tos, ttl, malformed),
    )
