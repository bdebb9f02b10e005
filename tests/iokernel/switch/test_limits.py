"""Limits, turns and pages, on a clock that only the test moves (1 tick = 1 ns)."""

from __future__ import annotations

import itertools
import resource

import pytest
from cltest.switching import BROADCAST, arp_frame, between, ip_int, mac_bytes, stats_of, udp_frame

from corelane.drivers.nic.nic import ipv4_to_int
from corelane.drivers.port.port import PortMemory
from corelane.iokernel import AppConfig, NetworkConfig

HZ = 10**9
ROUND_NS = 1000
FLOOD_NS = 10_000_000  # behind for so long is a flood (limits.h)
LONG = PortMemory(tx_slots=4096, tx_buffers=8192)


def send_all_the_time(io, src, frame: bytes, rounds: int, sink=None, start_ns: int = 0) -> list[int]:
    """Keep src's ring full for some rounds; returns how many frames were taken after each round."""
    taken = []
    for i in range(1, rounds + 1):
        src.send([frame] * 256)
        io.step(start_ns + i * ROUND_NS)
        if sink is not None:
            while sink.recv(64):
                pass
        taken.append(stats_of(io, "a")["tx_taken"])
    return taken


@pytest.mark.parametrize(("per_s", "burst"), [(1_000_000, 64), (100_000, 10), (3_333_333, 5)])
def test_a_frame_limit_holds_at_every_moment(start, attach, per_s, burst):
    io = start(manual_hz=HZ, apps={"a": AppConfig(rate_frames_per_s=per_s, burst_frames=burst)})
    a, b = attach("a"), attach("b")
    taken = send_all_the_time(io, a, between(a, b, b"x"), 600, b)
    for i, n in enumerate(taken, 1):
        assert n <= burst + per_s * i * ROUND_NS / HZ, f"after {i} us"
    assert taken[-1] >= per_s * 599 * ROUND_NS / HZ, "and it is used up"
    stats = stats_of(io, "a")
    assert stats["tx_throttled"] > 0, "back-pressure, counted"
    assert stats["tx_local"] == stats["tx_taken"], "nothing is dropped for being over the limit"


@pytest.mark.parametrize(("per_s", "burst"), [(100_000_000, 65536), (10_000_000, 3000)])
def test_a_byte_limit_holds(start, attach, per_s, burst):
    io = start(manual_hz=HZ, apps={"a": AppConfig(rate_bytes_per_s=per_s, burst_bytes=burst)})
    a, b = attach("a"), attach("b")
    frame = between(a, b, bytes(958))
    assert len(frame) == 1000
    taken = send_all_the_time(io, a, frame, 2000, b)
    allowed = max(burst, 2048)
    for i, n in enumerate(taken, 1):
        assert n * 1000 <= allowed + 1000 + per_s * i * ROUND_NS / HZ, f"after {i} us"
    assert taken[-1] * 1000 >= per_s * 1999 * ROUND_NS / HZ


def test_a_pause_gives_one_burst_and_no_more(start, attach):
    io = start(manual_hz=HZ, apps={"a": AppConfig(rate_frames_per_s=1000, burst_frames=16)})
    a, b = attach("a"), attach("b")
    frame = between(a, b, b"x")
    assert send_all_the_time(io, a, frame, 10, b)[-1] == 16
    day = 86400 * HZ
    assert send_all_the_time(io, a, frame, 10, b, start_ns=day)[-1] == 32


def test_without_limits_nothing_is_held_back(start, attach):
    io = start(manual_hz=HZ)
    a, b = attach("a"), attach("b")
    send_all_the_time(io, a, between(a, b, b"x"), 50, b)
    assert stats_of(io, "a")["tx_throttled"] == 0


def test_a_flooding_neighbour_leaves_every_round_to_the_others(start, attach):
    """Whatever the flooder sends, and wherever to, a neighbour's frame waits for one short turn only."""
    io = start(manual_hz=HZ)
    flooder, victim, sink = attach("a"), attach("victim"), attach("sink")
    stranger = between(flooder, sink, b"x")
    absent = b"\x02\x77\x77\x77\x77\x77" + stranger[6:]
    spoofed = stranger[:6] + b"\x02\x66\x66\x66\x66\x66" + stranger[12:]
    broadcast = b"\xff" * 6 + stranger[6:]
    now = 0
    for _ in range(2):  # the first frame of a neighbour ends the flooder's long turns, for some 256 rounds
        victim.send(between(victim, sink, b"mine"))
        io.step(now := now + ROUND_NS)
    for flood in (stranger, absent, spoofed, broadcast, between(flooder, sink, bytes(1400))):
        for _ in range(100):
            flooder.send([flood] * 1024)
            before = stats_of(io, "a")["tx_taken"]
            assert victim.send(between(victim, sink, b"mine")) == 1
            io.step(now := now + ROUND_NS)
            # A turn is 448 units (limits.h), a drop costs 24 of them and the last frame may exceed it.
            assert stats_of(io, "a")["tx_taken"] - before <= 448 // 24 + 1
            while sink.recv(64) or victim.recv(64):
                pass
    assert stats_of(io, "victim")["tx_local"] == 502, "each was taken in the round after it was sent"
    assert stats_of(io, "a")["backlogged"] >= 490


def test_who_floods_for_long_gets_the_shortest_turns_beside_a_modest_neighbour(start, attach):
    """... and the long ones again when the neighbour is silent."""
    io = start(manual_hz=HZ)
    flooder, victim, sink = attach("a"), attach("victim"), attach("sink")
    now = 0

    def taken_in_a_round(victim_sends: bool) -> int:
        nonlocal now
        flooder.send([between(flooder, sink, b"x")] * 1024)
        if victim_sends:
            victim.send(between(victim, sink, b"mine"))
        before = stats_of(io, "a")["tx_taken"]
        io.step(now := now + FLOOD_NS // 100)
        while sink.recv(64):
            pass
        return stats_of(io, "a")["tx_taken"] - before

    beside = [taken_in_a_round(True) for _ in range(200)]
    assert min(beside[3:99]) > 4, "not at once: a burst is no flood"
    # 112 units a turn, 48 and more a frame, and what one turn exceeds the next is short of.
    assert max(beside[102:]) <= 4
    assert sum(beside[102:]) >= 147
    alone = [taken_in_a_round(False) for _ in range(600)]
    assert min(alone[-100:]) >= 7  # the receiver, which gives buffers back, still counts as present
    assert stats_of(io, "victim")["tx_local"] == 200


def test_what_queued_up_in_a_pause_drains_in_long_turns_beside_a_flood(start, attach):
    """Thousands of a modest neighbour's frames are no flood: it is behind for less time than one."""
    io = start(manual_hz=HZ)
    flooder, victim, sink = attach("a"), attach("victim", memory=LONG), attach("sink")
    now = 0

    def step(ns: int) -> None:
        nonlocal now
        flooder.send([between(flooder, sink, b"x")] * 1024)
        io.step(now := now + ns)
        while sink.recv(64):
            pass

    for _ in range(100):
        step(FLOOD_NS // 50)
    queued = victim.send([between(victim, sink, b"mine")] * 2048)
    assert queued == 2048, "some 256 turns"
    before, rounds = stats_of(io, "a")["tx_taken"], 0
    while stats_of(io, "victim")["tx_taken"] < queued:
        step(ROUND_NS)
        rounds += 1
    assert rounds <= queued // 7, "7 or more a turn, to the end"
    assert stats_of(io, "a")["tx_taken"] - before <= 3 * rounds


def test_a_loop_that_stood_still_makes_nobody_a_flooder(start, attach):
    io = start(manual_hz=HZ)
    victim, sink = attach("victim", memory=LONG), attach("sink")
    flooder = attach("a")
    now = 0
    taken = []
    victim.send([between(victim, sink, b"mine")] * 512)
    for i in range(40):  # fewer turns than a flood has
        flooder.send([between(flooder, sink, b"x")] * 1024)
        io.step(now := now + (2 * FLOOD_NS if i == 1 else ROUND_NS))
        while sink.recv(64):
            pass
        taken.append(stats_of(io, "victim")["tx_taken"])
    assert min(b - a for a, b in itertools.pairwise(taken[2:])) >= 7


def test_equal_floods_get_equal_turns(start, attach):
    io = start(manual_hz=HZ)
    sink = attach("sink")
    ports = [attach(n) for n in "abc"]
    for i in range(1, 400):
        for port in ports:
            port.send([between(port, sink, b"x")] * 64)
        io.step(i * ROUND_NS)
        while sink.recv(64):
            pass
    counts = [stats_of(io, n)["tx_taken"] for n in "abc"]
    assert max(counts) - min(counts) <= 12, counts


WORLD = (bytes.fromhex("020000000200"), ipv4_to_int("10.77.0.1"))


def floods(io) -> tuple[int, int]:
    """Frames for everybody that were delivered, and those that were too many."""
    loop = io.stats()["loops"][0]
    return loop["up_flooded"], loop["up_dropped_flood"]


@pytest.mark.parametrize(
    ("network", "per_s", "burst", "round_ns"),
    [
        (None, 250, 64, 1_000_000),
        (NetworkConfig(flood_frames_per_s=50_000, flood_burst_frames=5), 50_000, 5, 20_000),
    ],
    ids=["default", "configured"],
)
def test_an_uplink_may_bring_so_many_frames_for_everybody_and_no_more(
    start, attach, link, network, per_s, burst, round_ns
):
    inner, outer = link(ring_slots=256)
    io = start(uplinks=[inner], manual_hz=HZ, network=network)
    a = attach("a")
    kinds = [
        udp_frame(WORLD, (BROADCAST, 0xFFFFFFFF), b"all"),
        udp_frame(WORLD, (bytes.fromhex("01005e000001"), ipv4_to_int("224.0.0.1")), b"group"),
        arp_frame(1, WORLD, (bytes(6), WORLD[1]), BROADCAST),
        BROADCAST + WORLD[0] + bytes.fromhex("86dd") + bytes(40),
    ]
    mine = udp_frame(WORLD, (mac_bytes(a), ip_int(a)), b"for one")
    sent = got = 0
    for i in range(1, 1001):
        now = i * round_ns
        sent += outer.send(kinds * 5)
        assert outer.send(mine) == 1
        io.step(now)
        got += a.recv(64).count(mine)
        flooded, dropped = floods(io)
        assert flooded <= burst + per_s * now / HZ
        assert flooded + dropped == sent
    assert flooded >= per_s * now / HZ
    assert got == 1000, "what is for one application has no part in it"


@pytest.mark.parametrize(("per_s", "burst"), [(250, 64), (10, 1)])
def test_an_application_may_send_so_many_frames_for_everybody_and_no_more(start, attach, per_s, burst):
    """Or it has all others look at each, whatever an uplink may bring. What is for one has no part in it."""
    network = NetworkConfig(flood_frames_per_s=per_s, flood_burst_frames=burst)
    io = start(manual_hz=HZ, network=network)
    a, b = attach("a"), attach("b")
    me = (mac_bytes(a), ip_int(a))
    shouts = [
        udp_frame(me, (BROADCAST, 0xFFFFFFFF), b"all"),
        udp_frame(me, (bytes.fromhex("01005e000001"), ipv4_to_int("224.0.0.1")), b"group"),
        arp_frame(1, me, (bytes(6), me[1]), BROADCAST),
    ]
    mine, got = udp_frame(me, (mac_bytes(b), ip_int(b)), b"for one"), 0
    for i in range(1, 401):
        now = i * HZ // 100
        assert i > 300 or a.send([*shouts, mine]) == 4
        for _ in range(4):  # copies cost as much as they take: one round does not do all
            io.step(now)
        got += b.recv(64).count(mine)
        flooded = stats_of(io, "a")["tx_flooded"]
        assert flooded <= burst + per_s * now / HZ
    assert flooded + stats_of(io, "a")["tx_dropped_flood"] == 3 * 300
    assert flooded >= 0.9 * per_s * 3  # what comes between two steps while the bucket is full is lost
    assert got == 300


def test_without_a_limit_all_frames_for_everybody_come_in(start, attach, link):
    inner, outer = link(ring_slots=256)
    io = start(uplinks=[inner], manual_hz=HZ, network=NetworkConfig(flood_frames_per_s=0))
    attach("a")
    for i in range(1, 101):
        assert outer.send([udp_frame(WORLD, (BROADCAST, 0xFFFFFFFF), b"all")] * 64) == 64
        io.step(i)
    assert floods(io) == (6400, 0)


def test_each_uplink_has_its_own_budget(start, attach, link):
    """A wire that floods leaves the other one's announcements to all."""
    wires = [link(ring_slots=256) for _ in range(2)]
    io = start(uplinks=[inner for inner, _ in wires], manual_hz=HZ)
    attach("a")
    shout = [udp_frame(WORLD, (BROADCAST, 0xFFFFFFFF), b"all")] * 64
    for i in range(1, 11):
        wires[0][1].send(shout)
        io.step(i)
    assert floods(io) == (64, 9 * 64)
    wires[1][1].send(shout)
    io.step(11)
    assert floods(io) == (128, 9 * 64)


def faults() -> int:
    """Pages that this thread, which runs the loop, had to wait for."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_frames_for_everybody_wait_for_no_page_whoever_does_not_read_them(start, attach, link):
    """An application that does not read has some buffers with pages, and loses what does not fit into these."""
    inner, outer = link(ring_slots=256)
    io = start(uplinks=[inner], manual_hz=HZ, network=NetworkConfig(flood_frames_per_s=0))
    for i in range(20):
        attach(f"p{i}")
    shout = udp_frame(WORLD, (BROADCAST, 0xFFFFFFFF), bytes(1000))
    now, before = 0, 0
    for i in range(16):
        assert outer.send([shout] * 64) == 64
        if i == 1:
            before = faults()  # the memory of the loop itself, and of this test, is there
        io.step(now := now + 1)
    waited = faults() - before
    stats = io.stats()["apps"]
    assert {a["rx_delivered"] for a in stats} == {256}
    assert {a["rx_dropped_no_buffer"] for a in stats} == {1024 - 256}
    assert waited < 1000, "a page for each two of 15 360 copies would be some 7 700"


def test_pages_for_one_application_come_many_at_a_time(start, attach, link):
    """The kernel counts those that a call brings as faults, too; so the calls are counted."""
    inner, outer = link(ring_slots=256)
    io = start(uplinks=[inner], manual_hz=HZ)
    a = attach("a")
    frame = udp_frame(WORLD, (mac_bytes(a), ip_int(a)), bytes(1400))
    for i in range(1, 65):
        assert outer.send([frame] * 64) == 64
        io.step(i)
    assert stats_of(io, "a")["rx_delivered"] == 4096
    assert io.stats()["loops"][0]["syscalls"] == (4096 - 256) // 16
    assert len(a.recv(4096)) == 4096
