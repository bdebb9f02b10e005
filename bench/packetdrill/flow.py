"""A connection under test: its addresses, and what maps the script's numbers to those on the wire.

A script counts from the initial sequence numbers: 1 is the first byte, whatever the stack chose. Numbers of segments
with SYN are the script's own. The remote side's initial number on the wire is the script's. Data is a pattern of its
place in the stream, so that a byte that is wrong, missing or doubled is seen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from . import model as m
from . import wire

_MASK = 0xFFFFFFFF
_PATTERN = random.Random(9293).randbytes(65521)  # a prime: no segment size divides it


def pattern(begin: int, length: int) -> bytes:
    """The bytes of a stream from place `begin` on."""
    at = begin % len(_PATTERN)
    if at + length <= len(_PATTERN):
        return _PATTERN[at : at + length]
    return (_PATTERN[at:] + _PATTERN * (length // len(_PATTERN) + 1))[:length]


@dataclass
class Stream:
    """What came in and was read, and what was written: places in both streams of a connection."""

    written: bytearray = field(default_factory=bytearray)
    read: int = 0
    urgent: set[int] = field(default_factory=set)  # places whose byte may be missing from what is read

    def offer(self, length: int) -> bytes:
        """Data for a call that writes."""
        data = pattern(len(self.written), length)
        self.written += data
        return data

    def took(self, offered: int, result: int) -> None:
        """A call that was offered so many bytes took `result`."""
        del self.written[len(self.written) - offered + max(result, 0) :]

    def check_read(self, data: bytes, peek: bool = False) -> str | None:
        """What is wrong with bytes that were read, or None."""
        at = self.read
        if data == pattern(at, len(data)):
            at, data = at + len(data), b""
        for i, byte in enumerate(data):
            if byte != pattern(at, 1)[0] and at in self.urgent:
                at += 1  # the urgent byte was taken out of the stream (RFC 6093, section 6, advises not to)
            if byte != pattern(at, 1)[0]:
                return f"byte {self.read + i + 1} of the stream is {byte:#04x} and not {pattern(at, 1)[0]:#04x}"
            at += 1
        if not peek:
            self.read = at
        return None


@dataclass
class Flow:
    """A connection, a UDP flow, or what a script takes for one. Addresses as the stack has them."""

    protocol: int
    local: tuple[str, int]
    remote: tuple[str, int]
    active: bool = False
    local_isn: int | None = None  # on the wire
    remote_isn: int | None = None  # on the wire, and in the script
    script_local_isn: int = 0
    stream: Stream = field(default_factory=Stream)
    _times: dict[int, int] = field(default_factory=dict)  # TS val: the script's -> on the wire
    _first_time: tuple[int, int] | None = None
    _offered_isn: int = 0  # of the last SYN that came in: a challenge, or a connection reborn

    # --- the script's to the wire's ---

    def to_wire(self, p: m.TcpPacket) -> wire.Segment:
        """A segment of the remote side."""
        syn = p.has("S")
        if syn:
            self._offered_isn = p.seq
            self.remote_isn = p.seq if self.remote_isn is None else self.remote_isn
        ours = (self.local_isn or 0) - (self.script_local_isn if syn else 0)
        seq = p.seq if syn else p.seq + (self.remote_isn or 0) & _MASK
        ack = (p.ack or 0) + ours & _MASK if p.has(".") else p.ack or 0
        flags = 0
        for letter in p.flags:
            flags |= wire.FLAGS[letter]
        if p.ace is not None:
            flags |= (p.ace & 1) << 6 | (p.ace & 2) << 6 | (p.ace & 4) << 6
        at = 0 if syn else p.seq - 1
        if p.urg is not None and p.has("U"):
            self.stream.urgent.add(at + p.urg - 1)
        options = tuple(self._option_to_wire(o, ours, p.has(".")) for o in p.options or ())
        source, target = self.remote, self.local
        if p.ports:
            source, target = (source[0], p.ports[0] or source[1]), (target[0], p.ports[1] or target[1])
        tos = p.ip.tos if p.ip.tos is not None else wire.ECN.get(p.ip.ecn or "", 0)
        return wire.Segment(
            *(source, target, seq, ack, flags, p.win if p.win is not None else 0, p.urg or 0, options),
            *(pattern(at, p.length), tos, p.ip.ttl or 255),
        )

    def _option_to_wire(self, o: m.TcpOption, ours: int, ack: bool) -> m.TcpOption:
        match o:
            case m.Sack(blocks):
                return m.Sack(tuple((a + ours & _MASK, b + ours & _MASK) for a, b in blocks))
            case m.Timestamp(val, ecr) if ack and ecr in self._times:
                return m.Timestamp(val, self._times[ecr])
            case m.Timestamp(val, ecr) if ack and self._first_time:
                script, live = self._first_time
                return m.Timestamp(val, ecr - script + live & _MASK)
        return o

    def icmp_to_wire(self, p: m.IcmpPacket) -> wire.Message:
        """A message about a packet of ours that did not arrive. Raises KeyError with the word that is unknown."""
        kind = wire.icmp_kind(p.kind)
        code = wire.icmp_code(kind, p.code) if p.code else 0
        echoed = p.echoed or m.Echoed("udp" if self.protocol == wire.UDP else "tcp", 0, 0)
        if (p.mtu or 0) > 0xFFFF:
            raise wire.NotAPacket(f"an MTU of {p.mtu} does not fit into an ICMP message")
        rest = b"\0\0" + (p.mtu or 0).to_bytes(2, "big")
        if p.echo_id is not None:
            rest = p.echo_id.to_bytes(2, "big") + b"\0\0"
        if echoed.protocol == "tcp":
            seq = echoed.seq + (self.local_isn or 0) & _MASK
            inner = wire.write_tcp(
                wire.Segment(self.local, self.remote, seq, self.remote_isn or 0, 16, 0, 0, (), b"\0" * echoed.length)
            )
        else:
            inner = wire.write_udp(wire.Datagram(self.local, self.remote, b"\0" * echoed.length))
        return wire.Message(self.remote[0], self.local[0], kind, code, rest, inner[:28])

    # --- the wire's to the script's ---

    def is_ours(self, source: tuple[str, int], target: tuple[str, int]) -> bool:
        """Whether a packet that the stack sent is of this flow; port 0 of ours is one not known yet."""
        if target != self.remote or source[0] != self.local[0]:
            return False
        return source[1] == self.local[1] or (self.active and self.local[1] == 0)

    def sees(self, s: wire.Segment) -> None:
        """Learn from a segment that the stack sent: its port and its initial sequence number."""
        if self.local[1] == 0:
            self.local = s.source
        if s.flags & wire.FLAGS["S"]:
            self.local_isn = s.seq
            if s.flags & wire.FLAGS["."] and s.ack == self._offered_isn + 1 & _MASK:
                self.remote_isn = self._offered_isn  # a SYN was taken in TIME_WAIT (RFC 6191)

    def to_script(self, s: wire.Segment, like: m.TcpPacket | None = None) -> m.TcpPacket:
        """A segment that the stack sent, in the script's numbers. like: what it is compared with, for what is shown."""
        syn = bool(s.flags & wire.FLAGS["S"])
        ours = (self.local_isn or 0) - (self.script_local_isn if syn else 0)
        theirs = 0 if syn else self.remote_isn or 0
        ace = like is not None and like.ace is not None
        flags = "".join(c for c in "FSRPEWAU." if s.flags & wire.FLAGS[c] and not (ace and c in "EWA"))
        seq = s.seq - ours & _MASK
        options = tuple(self._option_to_script(o, theirs) for o in s.options)
        ip = m.IpInfo(ecn=next(n for n, bits in wire.ECN.items() if bits == s.tos & 3) if s.tos & 3 else None)
        if like is not None:
            ecn = next(n for n, bits in wire.ECN.items() if bits == s.tos & 3)
            tos, ttl = like.ip.tos is not None, like.ip.ttl is not None
            ip = m.IpInfo(None if tos or ttl else ecn if like.ip.ecn or s.tos & 3 else None)
            ip = replace(ip, tos=s.tos if tos else None, ttl=s.ttl if ttl else None)
        return m.TcpPacket(
            m.OUT,
            flags,
            seq,
            seq + len(s.data),
            s.ack - theirs & _MASK if s.flags & wire.FLAGS["."] else None,
            s.window,
            s.urgent if s.flags & wire.FLAGS["U"] or s.urgent else None,
            options,
            ip,
            (s.source[1], s.target[1]) if like is not None and like.ports else None,
            s.flags >> 6 & 7 if ace else None,
        )

    def _option_to_script(self, o: m.TcpOption, theirs: int) -> m.TcpOption:
        match o:
            case m.Sack(blocks):
                return m.Sack(tuple((a - theirs & _MASK, b - theirs & _MASK) for a, b in blocks))
            case m.Timestamp(val, ecr) if self._first_time:
                script, live = self._first_time
                return m.Timestamp(val - live + script & _MASK, ecr)
        return o

    def begins_time(self, expected: m.TcpPacket, s: wire.Segment) -> None:
        """The first timestamp that is expected stands for the one that came; later ones are counted from it."""
        named, live = _timestamp(expected.options), _timestamp(s.options)
        if named and live and self._first_time is None:
            self._first_time = named.val, live.val

    def maps_time(self, expected: m.TcpPacket, s: wire.Segment) -> None:
        """The script's name for the timestamp of a segment: what later acknowledgements echo."""
        named, live = _timestamp(expected.options), _timestamp(s.options)
        if named and live:
            self._times[named.val] = live.val

    def ends_all(self, p: m.TcpPacket) -> bool:
        """Whether nothing that was written is behind the data of a segment, in the script's numbers."""
        return p.length == 0 or p.end >= len(self.stream.written) + 1

    def check_data(self, s: wire.Segment) -> str | None:
        """What is wrong with the bytes of a segment that the stack sent, or None."""
        if not s.data:
            return None
        at = 0 if s.flags & wire.FLAGS["S"] else (s.seq - (self.local_isn or 0) - 1) & _MASK
        should = bytes(self.stream.written[at : at + len(s.data)])
        if len(should) < len(s.data):
            return f"it carries {len(s.data) - len(should)} bytes more than were written"
        if should != s.data:
            wrong = next(i for i, (a, b) in enumerate(zip(should, s.data, strict=True)) if a != b)
            return f"byte {at + wrong + 1} of the stream is {s.data[wrong]:#04x} and not {should[wrong]:#04x}"
        return None


def _timestamp(options: tuple[m.TcpOption, ...] | None) -> m.Timestamp | None:
    return next((o for o in options or () if isinstance(o, m.Timestamp)), None)
