"""Packets as bytes, and the mapping between a script's numbers and those on the wire."""

from __future__ import annotations

import random

import pytest

from corelane.bench.packetdrill import flow as flows
from corelane.bench.packetdrill import model as m
from corelane.bench.packetdrill import wire

LOCAL, REMOTE = ("192.168.0.1", 8080), ("192.0.2.1", 49152)
NOPS = (m.Nop(), m.Nop())
OPTIONS = (
    (),
    (m.Mss(1),) * 10,
    (m.Mss(1460), m.SackOk(), m.Timestamp(7, 9), m.Nop(), m.Wscale(3)),
    (*NOPS, m.Sack(((1, 2), (3, 4)))),
    (m.FastOpen("12ab34cd"), *NOPS),
    (m.FastOpen("12ab34cd", True), m.Unknown(99, b"ab"), *NOPS, *NOPS),
    (m.Md5("00" * 16), *NOPS),
)


def a_segment(**changes: object) -> wire.Segment:
    """A segment from the remote side."""
    fields: dict[str, object] = {"source": REMOTE, "target": LOCAL, "seq": 1 << 31, "ack": 5, "flags": 0x110}
    fields |= {"window": 100, "urgent": 0, "options": (), "data": b"abc", "tos": 2}
    return wire.Segment(**(fields | changes))  # type: ignore[arg-type]


def test_what_is_written_is_what_is_read():
    for options in OPTIONS:
        segment = a_segment(options=options)
        assert wire.read(wire.write_tcp(segment)) == segment
    datagram = wire.Datagram(REMOTE, LOCAL, b"x" * 11)
    assert wire.read(wire.write_udp(datagram)) == datagram
    message = wire.Message("192.0.2.1", "192.168.0.1", 3, 4, b"\0\0\5\0", b"z" * 28)
    assert wire.read(wire.write_icmp(message)) == message


def test_options_that_do_not_fit_are_refused():
    with pytest.raises(wire.NotAPacket, match="do not fit"):
        wire.write_tcp(a_segment(options=(m.Timestamp(1, 2),) * 5))


@pytest.mark.parametrize(
    ("options", "says"),
    [(b"\2\0\0\0", "option 2 has the length 0"), (b"\1\1\1\3", "option 3"), (b"\5\x20\0\0", "option 5")],
)
def test_malformed_options_are_said(options: bytes, says: str):
    assert says in wire.read_options(options)[1]


def test_a_flipped_bit_is_seen():
    rng = random.Random(1)
    for whole in (
        wire.write_tcp(a_segment()),
        wire.write_icmp(wire.Message("1.1.1.1", "2.2.2.2", 8, 0, b"1234", b"z")),
    ):
        for _ in range(200):
            data = bytearray(whole)
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            with pytest.raises(wire.NotAPacket):
                wire.read(bytes(data))


def opened() -> flows.Flow:
    """A connection that the remote side began, with initial sequence numbers 1000 (theirs) and 2^32 - 5 (ours)."""
    flow = flows.Flow(wire.TCP, LOCAL, REMOTE)
    flow.to_wire(m.TcpPacket(m.IN, "S", 1000, 1000))
    flow.sees(a_segment(source=LOCAL, target=REMOTE, seq=2**32 - 5, ack=1001, flags=0x12, data=b""))
    return flow


def test_numbers_are_mapped_both_ways():
    flow = opened()
    came = flow.to_wire(m.TcpPacket(m.IN, "P.", 1, 11, 21, options=(m.Sack(((31, 41),)),)))
    assert (came.seq, came.ack, came.options) == (1001, 16, (m.Sack(((26, 36),)),))
    assert came.data == flows.pattern(0, 10)
    sent = flow.to_script(
        a_segment(source=LOCAL, target=REMOTE, seq=16, ack=1011, flags=0x10, options=(m.Sack(((1021, 1031),)),), tos=0)
    )
    assert (sent.seq, sent.end, sent.ack, sent.options) == (21, 24, 11, (m.Sack(((21, 31),)),))
    assert sent.ip == m.IpInfo()


def test_a_stray_syn_changes_nothing_and_a_reborn_connection_begins_anew():
    flow = opened()
    flow.to_wire(m.TcpPacket(m.IN, "S", 9000, 9000))
    assert flow.to_wire(m.TcpPacket(m.IN, ".", 1, 1, 1)).seq == 1001
    flow.sees(a_segment(source=LOCAL, target=REMOTE, seq=77, ack=9001, flags=0x12, data=b""))
    assert flow.to_wire(m.TcpPacket(m.IN, ".", 1, 1, 1)).seq == 9001
    assert flow.to_wire(m.TcpPacket(m.IN, ".", 1, 1, 1)).ack == 78


def test_timestamps_keep_the_scripts_names():
    flow = opened()
    expected = m.TcpPacket(m.OUT, ".", 1, 1, 1, options=(m.Timestamp(100, 1),))
    flow.begins_time(expected, a_segment(options=(m.Timestamp(5555, 1),)))
    flow.maps_time(expected, a_segment(options=(m.Timestamp(5555, 1),)))
    answer = flow.to_wire(m.TcpPacket(m.IN, ".", 1, 1, 1, options=(m.Timestamp(2, 100),)))
    assert answer.options == (m.Timestamp(2, 5555),)
    later = flow.to_script(a_segment(options=(m.Timestamp(5565, 2),)))
    assert later.options == (m.Timestamp(110, 2),)


def test_wrong_bytes_are_seen():
    flow = opened()
    data = flow.stream.offer(100)
    flow.stream.took(100, 50)
    good = a_segment(seq=2**32 - 5 + 11 & 0xFFFFFFFF, data=data[10:20])
    assert flow.check_data(good) is None
    wrong = bytes([data[10] ^ 1]) + data[11:20]
    assert flow.check_data(a_segment(seq=good.seq, data=wrong)) == (
        f"byte 11 of the stream is {data[10] ^ 1:#04x} and not {data[10]:#04x}"
    )
    assert "more than were written" in (flow.check_data(a_segment(seq=good.seq, data=data[10:60])) or "")
    assert flow.stream.check_read(flows.pattern(0, 5)) is None
    assert flow.stream.check_read(flows.pattern(5, 5), peek=True) is None
    assert flow.stream.check_read(flows.pattern(6, 5)) is not None
    flow.stream.urgent.add(5)
    assert flow.stream.check_read(flows.pattern(6, 5)) is None
