"""The network stack behind a runtime: what it answers, what it drops and why, and that nothing is lost or kept."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from cltest.packets import (
    BROADCAST,
    Host,
    arp,
    checksum,
    ethernet,
    icmp,
    ipv4,
    mac_bytes,
    ones_sum,
    read_datagram,
    tcp,
    udp,
    verdict,
)

from corelane.apps.echo import handler as echo_handler
from corelane.libos import Network, Scheduler

SERVER = Host("02:00:00:00:00:01", "10.0.0.1")
CLIENT = Host("02:00:00:00:00:02", "10.0.0.2")
Serve = Callable[..., Any]


@pytest.mark.parametrize("size", [1, 2, 3, 21, 22, 23, 64, 500, 1471, 1472])
def test_echo_of_every_size(serve: Serve, size: int) -> None:
    served = serve(echo_handler("c"))
    payload = random.Random(size).randbytes(size)
    assert served.ask(payload) == payload
    served.settled(lambda s: s.net["replied"] == 1)


def test_reply_goes_back_by_the_requests_headers(serve: Serve) -> None:
    """The sender's MAC is not its ARP entry: the reply takes the frame's way back, through a router for instance."""
    served = serve(echo_handler("c"))
    far = Host("02:00:00:00:00:aa", "172.16.5.5")
    served.send(far.datagram(SERVER, b"from afar"))
    (frame,) = served.receive()
    assert frame[:6] == mac_bytes(far.mac)
    assert frame[6:12] == mac_bytes(SERVER.mac)
    assert read_datagram(frame).dst == far.ip
    assert served.runtime.stats().net["arp_requests_sent"] == 0


def test_reply_checksums(serve: Serve) -> None:
    payload = b"odd"
    assert serve(echo_handler("c")).ask(payload) == payload  # read_datagram verifies it
    served = serve(echo_handler("c"), network=Network(udp_checksums=False))
    served.send(CLIENT.datagram(SERVER, payload))
    (frame,) = served.receive()
    assert frame[40:42] == b"\0\0"


def test_request_without_checksum_and_with_options(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    body = udp(b"hello", CLIENT.ip, SERVER.ip, 5555, 9000, check=0)
    packet = ipv4(body, CLIENT.ip, SERVER.ip, options=b"\x94\x04\0\0")
    served.send(ethernet(packet, CLIENT.mac, SERVER.mac))
    assert served.datagrams(1)[0].payload == b"hello"


def test_broadcast_request_is_answered_from_our_address(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    everyone = Host(BROADCAST, "10.0.0.255")
    served.send(CLIENT.datagram(everyone, b"who?"))
    reply = served.datagrams(1)[0]
    assert (reply.src, reply.payload) == (SERVER.ip, b"who?")


def test_arp_request_is_answered(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    ask = arp(1, CLIENT.mac, CLIENT.ip, "00:00:00:00:00:00", SERVER.ip)
    served.send(ethernet(ask, CLIENT.mac, BROADCAST, 0x0806))
    (frame,) = served.receive()
    assert frame == ethernet(arp(2, SERVER.mac, SERVER.ip, CLIENT.mac, CLIENT.ip), SERVER.mac, CLIENT.mac, 0x0806)
    served.settled(lambda s: s.net["answered"] == 1)


def test_arp_probe_is_answered_and_not_learned(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    probe = arp(1, CLIENT.mac, "0.0.0.0", "00:00:00:00:00:00", SERVER.ip)
    served.send(ethernet(probe, CLIENT.mac, BROADCAST, 0x0806))
    (frame,) = served.receive()
    assert frame[20:22] == b"\0\2"
    assert frame[38:42] == bytes(4)


def test_an_arp_reply_without_a_question_is_dropped(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    for eth_dst in (SERVER.mac, BROADCAST):
        served.send(ethernet(arp(2, CLIENT.mac, "10.0.0.9", SERVER.mac, SERVER.ip), CLIENT.mac, eth_dst, 0x0806))
    served.settled(lambda s: s.dropped["arp_unsolicited"] == 2 and s.net["learned"] == 0)


def test_arp_for_others_is_dropped(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    served.send(ethernet(arp(1, CLIENT.mac, CLIENT.ip, "00:00:00:00:00:00", "10.0.0.9"), CLIENT.mac, BROADCAST, 0x0806))
    served.settled(lambda s: s.dropped["arp_not_ours"] == 1)


def test_address_conflict_is_counted_told_and_defended_once(serve: Serve) -> None:
    events: list[tuple[str, str]] = []
    served = serve(echo_handler("c"), on_event=lambda name, text: events.append((name, text)))
    claim = ethernet(arp(1, CLIENT.mac, SERVER.ip, "00:00:00:00:00:00", SERVER.ip), CLIENT.mac, BROADCAST, 0x0806)
    served.send(claim, claim)
    (defence,) = served.receive()
    assert defence == ethernet(
        arp(1, SERVER.mac, SERVER.ip, "00:00:00:00:00:00", SERVER.ip), SERVER.mac, BROADCAST, 0x0806
    )
    served.settled(lambda s: s.dropped["arp_conflict"] == 2 and s.net["arp_conflicts"] == 2)
    assert [name for name, _ in events] == ["conflict"]
    assert served.ask(b"still here") == b"still here"


@pytest.mark.parametrize("size", [0, 1, 56, 1472])
def test_ping(serve: Serve, size: int) -> None:
    served = serve(echo_handler("c"))
    data = random.Random(size).randbytes(size)
    ask = ipv4(icmp(8, 0, struct.pack(">HH", 77, 3) + data), CLIENT.ip, SERVER.ip, 1)
    served.send(ethernet(ask, CLIENT.mac, SERVER.mac))
    (frame,) = served.receive()
    packet = frame[14:]
    assert ones_sum(packet[:20]) == 0xFFFF
    assert packet[12:20] == bytes([10, 0, 0, 1, 10, 0, 0, 2])
    assert packet[20:] == icmp(0, 0, struct.pack(">HH", 77, 3) + data)
    served.settled(lambda s: s.net["answered"] == 1)


def test_closed_port_is_told_and_limited(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    request = CLIENT.datagram(SERVER, b"anybody?", 5555, 7)
    served.send(request)
    (frame,) = served.receive()
    message = frame[34:]
    assert message[:2] == b"\3\3"
    assert checksum(message) == 0
    assert message[8:36] == request[14:42], "header and 8 bytes of what could not be delivered"
    for _ in range(10):
        served.send(*[request] * 30)
    answered = ("icmp_unreachable_sent", "icmp_rate_limited")  # counted after the drop
    stats = served.settled(lambda s: s.dropped["udp_no_port"] == sum(s.net[name] for name in answered) == 301)
    assert stats.net["icmp_rate_limited"] > 0


FIN, SYN, RST, ACK = 1, 2, 4, 16


@pytest.mark.parametrize(
    ("flags", "payload", "fields", "answer"),
    [
        (SYN, b"", {"seq": 1000}, (0, 1001, RST | ACK)),
        (SYN, b"fast", {"seq": 0xFFFFFFFF}, (0, 4, RST | ACK)),
        (SYN, bytes(12) + b"xy", {"seq": 7, "offset": 8}, (0, 10, RST | ACK)),
        (FIN, b"abc", {"seq": 7}, (0, 11, RST | ACK)),
        (0, b"", {"seq": 7}, (0, 7, RST | ACK)),
        (ACK, b"abc", {"seq": 7, "ack": 0x80000001}, (0x80000001, 0, RST)),
        (SYN | ACK, b"", {"seq": 7, "ack": 55}, (55, 0, RST)),
        (RST, b"", {"seq": 7}, None),
        (RST | ACK, b"", {"seq": 7, "ack": 8}, None),
    ],
)
def test_a_segment_that_nobody_waits_for_is_reset(
    flags: int, payload: bytes, fields: dict[str, int], answer: tuple[int, int, int] | None, serve: Serve
) -> None:
    """RFC 9293, section 3.10.7.1: what arrives at a connection that is closed."""
    served = serve(echo_handler("c"))
    segment = tcp(payload, CLIENT.ip, SERVER.ip, 5555, 80, flags, **fields)
    served.send(ethernet(ipv4(segment, CLIENT.ip, SERVER.ip, 6), CLIENT.mac, SERVER.mac))
    sent = int(answer is not None)  # counted after the drop
    stats = served.settled(lambda s: s.dropped["tcp_no_port"] == 1 and s.net["tcp_resets_sent"] == sent)
    assert stats.net["tcp_rate_limited"] == 0
    if answer is not None:
        seq, ack, reset = answer
        (frame,) = served.receive()
        head = ethernet(b"", SERVER.mac, CLIENT.mac)
        assert frame[:14] == head
        expected = tcp(b"", SERVER.ip, CLIENT.ip, 80, 5555, reset, seq=seq, ack=ack)
        assert frame[34:46] + frame[46:48] == expected[:12] + expected[12:14]
        assert verdict(frame, CLIENT.mac, CLIENT.ip) == "tcp", "its sums are right"
    assert served.ask(b"next frame") == b"next frame"


def test_resets_are_limited_and_none_answers_a_broadcast(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    everybody = ipv4(tcp(b"", CLIENT.ip, "10.0.0.255", 5555, 80, SYN), CLIENT.ip, "10.0.0.255", 6)
    served.send(ethernet(everybody, CLIENT.mac, BROADCAST))
    stats = served.settled(lambda s: s.dropped["tcp_no_port"] == 1)
    assert stats.net["tcp_resets_sent"] == stats.net["tcp_rate_limited"] == 0
    one = ethernet(ipv4(tcp(b"", CLIENT.ip, SERVER.ip, 5555, 80, SYN), CLIENT.ip, SERVER.ip, 6), CLIENT.mac, SERVER.mac)
    for _ in range(10):
        served.send(*[one] * 30)
    answered = ("tcp_resets_sent", "tcp_rate_limited")  # counted after the drop
    stats = served.settled(lambda s: s.dropped["tcp_no_port"] == 301 and sum(s.net[name] for name in answered) == 300)
    assert stats.net["tcp_rate_limited"] > 0


@pytest.mark.parametrize("kind", ["udp", "tcp"])
def test_checksums_that_were_left_to_a_device_are_told_once(kind: str, serve: Serve) -> None:
    """Linux then puts the sum of the pseudo-header into the field, and the device is to add the rest."""
    told: list[tuple[str, str]] = []
    served = serve(echo_handler("c"), on_event=lambda *event: told.append(event))

    def datagram(check: int) -> bytes:
        if kind == "udp":
            body, number = udp(b"x" * 9, CLIENT.ip, SERVER.ip, 5555, 9000, check=check), 17
        else:
            body, number = tcp(b"x" * 9, CLIENT.ip, SERVER.ip, 5555, 80, SYN, check=check), 6
        return ethernet(ipv4(body, CLIENT.ip, SERVER.ip, number), CLIENT.mac, SERVER.mac)

    served.send(datagram(0x1234))
    assert served.ask(b"next frame") == b"next frame"
    assert not told, "wrong, and no more"
    length, number = (17, 17) if kind == "udp" else (29, 6)
    pseudo = bytes([10, 0, 0, 2, 10, 0, 0, 1, 0, number]) + struct.pack(">H", length)
    for _ in range(3):
        served.send(datagram(ones_sum(pseudo)))
    served.settled(lambda s: s.dropped[f"{kind}_checksum"] == 4)
    ((event, line),) = told
    assert event == "unfinished"
    assert "`ethtool -K IF tx off`" in line


def test_no_icmp_error_about_a_broadcast(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    served.send(CLIENT.datagram(Host(BROADCAST, "10.0.0.255"), b"?", 5555, 7))
    stats = served.settled(lambda s: s.dropped["udp_no_port"] == 1)
    assert stats.net["icmp_unreachable_sent"] == stats.net["icmp_rate_limited"] == 0
    assert served.ask(b"next frame") == b"next frame"


def test_malformed_frames_are_counted_by_reason_and_the_server_goes_on(serve: Serve, seed: int) -> None:
    """Each frame is counted once, under what the oracle says; between the bad ones the good are served."""
    rng = random.Random(seed)
    served = serve(echo_handler("c"))
    expected: dict[str, int] = {}
    good = CLIENT.datagram(SERVER, bytes(range(30)))
    for _ in range(60):
        bad = []
        for _ in range(20):
            frame = bytearray(good[: rng.randrange(14, len(good))] if rng.random() < 0.3 else good)
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
            reason = verdict(bytes(frame), SERVER.mac, SERVER.ip)
            if reason != "udp":
                bad.append(bytes(frame))
                expected[reason] = expected.get(reason, 0) + 1
        served.send(*bad)
        assert served.ask(b"alive") == b"alive"
    stats = served.settled(lambda s: sum(s.dropped.values()) == sum(expected.values()))
    assert {k: v for k, v in stats.dropped.items() if v} == expected


def test_requests_in_bursts_are_all_answered(serve: Serve, seed: int) -> None:
    rng = random.Random(seed)
    served = serve(echo_handler("c"), link={"ring_slots": 1024})
    sent = [i.to_bytes(4, "big") + rng.randbytes(rng.randrange(60)) for i in range(2000)]
    got: list[bytes] = []
    for start in range(0, len(sent), 100):
        served.send(*[CLIENT.datagram(SERVER, p) for p in sent[start : start + 100]])
        got += [d.payload for d in served.datagrams(100)]
    assert got == sent, "one kthread answers in order"


@pytest.mark.parametrize("poll", ["spin", "adaptive", "block"])
def test_every_polling_mode_and_more_kthreads_than_cores(serve: Serve, poll: str, seed: int) -> None:
    rng = random.Random(seed)
    served = serve(echo_handler("c"), kthreads=4, poll=poll)
    sent = sorted(rng.randbytes(20) for _ in range(400))
    for start in range(0, 400, 50):
        served.send(*[CLIENT.datagram(SERVER, p, 20000 + rng.randrange(64)) for p in sent[start : start + 50]])
    assert sorted(d.payload for d in served.datagrams(400)) == sent
    served.settled(lambda s: s.net["replied"] == 400)


def test_kthreads_share_the_flows(serve: Serve) -> None:
    served = serve(echo_handler("c"), kthreads=2, scheduler=Scheduler(steal=False))
    served.send(*[CLIENT.datagram(SERVER, b"x" * 8, port) for port in range(20000, 20064)])
    served.receive(64)
    served.settled(lambda s: s.net["replied"] == 64)
    assert all(served.runtime.stats(k).net["replied"] > 10 for k in range(2))


@pytest.mark.parametrize("poll", ["spin", "adaptive", "block"])
def test_replies_behind_a_full_queue_leave_without_another_request(serve: Serve, poll: str) -> None:
    """The link's ring holds 8, the runtime keeps 64 more; when the ring drains, nobody rings at the runtime's door."""
    served = serve(echo_handler("c"), link={"ring_slots": 8}, poll=poll)
    for i in range(8 + 64):
        assert served.end.send(CLIENT.datagram(SERVER, bytes([i]))) == 1
        served.settled(lambda stats, n=i + 1: stats.net["replied"] == n)
    assert served.runtime.stats().net["tx_frames"] == 1 + 8, "the announcement, and a ring of replies"
    assert [d.payload[0] for d in served.datagrams(72)] == list(range(72))


def test_echo_replies_behind_a_full_queue_leave_too(serve: Serve) -> None:
    """ICMP is answered inside the poll, where no uthread runs."""
    served = serve(link={"ring_slots": 8}, poll="block")
    for i in range(40):
        body = icmp(8, 0, struct.pack("!HH", 1, i) + b"ping")
        served.send(ethernet(ipv4(body, CLIENT.ip, SERVER.ip, proto=1), CLIENT.mac, SERVER.mac))
        served.settled(lambda stats, n=i + 1: stats.net["answered"] == n)
    assert len(served.receive(40)) == 40
