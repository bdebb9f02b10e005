"""Frames between applications, and between applications and an uplink."""

from __future__ import annotations

import itertools
import random

import pytest
from cltest import wait_until
from cltest.switching import (
    BROADCAST,
    STRANGER,
    arp_frame,
    assert_balanced,
    between,
    collect,
    ip_int,
    mac_bytes,
    stats_of,
    udp_frame,
)

from corelane.drivers.nic.nic import ipv4_to_int, mac_to_bytes
from corelane.drivers.port.port import PortMemory
from corelane.iokernel import AppConfig, Idle, NetworkConfig, Outside
from corelane.iokernel.control.addresses import stable_mac


@pytest.mark.parametrize("poll", ["spin", "adaptive", "block"])
def test_two_applications_exchange_frames(start, attach, poll):
    io = start(poll=poll)
    a, b = attach("a"), attach("b")
    there = [between(a, b, b"there %d" % i) for i in range(200)]
    back = [between(b, a, b"back %d" % i * 50) for i in range(200)]
    assert a.send(there) == b.send(back) == 200
    assert sorted(collect(b, 200)) == sorted(there)
    assert sorted(collect(a, 200)) == sorted(back)
    wait_until(lambda: stats_of(io, "a")["tx_local"] == 200 and stats_of(io, "b")["tx_local"] == 200)


def test_without_spinning_and_pausing_an_adaptive_loop_sleeps_at_once(start, attach):
    """0 is a time, not the default: every round that finds nothing is followed by a sleep."""
    io = start(poll="adaptive", idle=Idle(spin_us=0, pause_us=0))
    a = attach("a")
    nobody = udp_frame((mac_bytes(a), ip_int(a)), STRANGER, b"nobody")
    before = io.stats()["loops"][0]
    for n in range(1, 51):
        assert a.send(nobody) == 1
        wait_until(lambda n=n: stats_of(io, "a")["tx_dropped_no_route"] == n)
    after = io.stats()["loops"][0]
    rounds, busy, sleeps = (after[k] - before[k] for k in ("rounds", "busy_rounds", "sleeps"))
    assert sleeps > 0
    assert rounds - busy <= 2 * (sleeps + busy) + 10, "one finds nothing, one makes sure"


@pytest.mark.parametrize("poll", ["spin", "adaptive"])
def test_an_idle_loop_yields_its_cpu_before_it_sleeps_but_not_if_it_spins_for_ever(start, poll):
    io = start(poll=poll, idle=Idle(spin_us=600_000_000))
    calls = [io.stats()["loops"][0]["syscalls"]]
    if poll == "adaptive":
        wait_until(lambda: io.stats()["loops"][0]["syscalls"] > calls[0] + 2, what="yields")
    else:
        rounds = io.stats()["loops"][0]["rounds"]
        wait_until(lambda: io.stats()["loops"][0]["rounds"] > rounds + 100_000, what="rounds")
        assert io.stats()["loops"][0]["syscalls"] == calls[0]
    assert io.stats()["loops"][0]["sleeps"] == 0


def test_frames_of_every_length_arrive_whole_and_nothing_beyond_them(start, attach, rng):
    start(apps={"a": AppConfig(any_ethertype=True)})
    a, b = attach("a"), attach("b")
    src, dst = (mac_bytes(a), ip_int(a)), (mac_bytes(b), ip_int(b))
    dirty = udp_frame(src, dst, b"\xee" * 1472)
    for size in [*range(140), 511, 512, 513, 1471, 1472]:
        # The buffer that is sent next still holds the frame before it: none of that may arrive.
        assert a.send(dirty) == 1
        assert collect(b, 1) == [dirty]
        frame = udp_frame(src, dst, rng.randbytes(size))
        assert a.send(frame) == 1
        assert collect(b, 1) == [frame]
        short = dst[0] + src[0] + b"\x88\xb5" + rng.randbytes(size % 64)  # an ethertype for experiments, IEEE 802
        assert a.send(short) == 1
        assert collect(b, 1) == [short]


def test_flows_spread_over_kthreads_and_stay_in_order(start, attach):
    start()
    a, b = attach("a"), attach("b", kthreads=4)
    sent = [between(a, b, i.to_bytes(4, "big"), flow=i % 64) for i in range(640)]
    assert a.send(sent) == 640
    by_queue: dict[int, list[bytes]] = {q: [] for q in range(4)}

    def look() -> bool:
        for q in range(4):
            by_queue[q] += b.recv(640, queue=q)
        return sum(map(len, by_queue.values())) == 640

    wait_until(look)
    queue_of: dict[bytes, int] = {}
    for q, frames in by_queue.items():
        assert len(frames) > 40, "64 flows leave no kthread of 4 without work"
        last: dict[bytes, int] = {}
        for frame in frames:
            port, number = frame[34:36], int.from_bytes(frame[42:46], "big")
            assert queue_of.setdefault(port, q) == q, "a flow keeps its kthread"
            assert last.get(port, -1) < number, "a flow keeps its order"
            last[port] = number


def test_addresses_come_from_the_name_alone(start, attach, socket_path):
    start()
    with attach("kv") as first:
        mac, ip = first.mac, first.ipv4
    assert mac_to_bytes(mac) == stable_mac("kv")
    assert mac.startswith("02:")
    assert attach("other").mac != mac
    again = attach("kv")
    assert (again.mac, again.ipv4) == (mac, ip)


def test_settings_give_an_application_its_addresses(start, attach):
    start(apps={"x": AppConfig(mac="02:00:00:00:aa:01", ip="10.77.0.5")})
    x = attach("x")
    assert (x.mac, x.ipv4, x.ipv4_prefix) == ("02:00:00:00:aa:01", "10.77.0.5", 16)


def test_the_iokernel_answers_arp_between_applications(start, attach):
    io = start()
    a, b = attach("a"), attach("b")
    mine, theirs = (mac_bytes(a), ip_int(a)), (mac_bytes(b), ip_int(b))
    assert a.send(arp_frame(1, mine, (bytes(6), theirs[1]), BROADCAST)) == 1
    assert collect(a, 1) == [arp_frame(2, theirs, mine, mine[0])]
    assert stats_of(io, "a")["tx_answered"] == 1
    assert b.recv(timeout_s=0) == []
    # Nobody outside who could answer for a stranger.
    assert a.send(arp_frame(1, mine, (bytes(6), STRANGER[1]), BROADCAST)) == 1
    wait_until(lambda: stats_of(io, "a")["tx_dropped_no_route"] == 1)


def test_broadcasts_reach_all_others_and_announcements_too(start, attach):
    io = start()
    ports = [attach(f"p{i}") for i in range(4)]
    me = (mac_bytes(ports[0]), ip_int(ports[0]))
    sent = [
        udp_frame(me, (BROADCAST, 0xFFFFFFFF), b"all"),
        udp_frame(me, (bytes.fromhex("01005e000001"), ipv4_to_int("224.0.0.1")), b"group"),
        arp_frame(1, me, (bytes(6), me[1]), BROADCAST),
    ]
    assert ports[0].send(sent) == 3
    for port in ports[1:]:
        assert collect(port, 3) == sent
    assert ports[0].recv() == []
    assert stats_of(io, "p0")["tx_flooded"] == 3


def spoofs(me, other):
    """Frames that claim to come from somebody else; (what, frame)."""
    stolen_mac, stolen_ip = (other[0], me[1]), (me[0], other[1])
    yield "MAC", udp_frame(stolen_mac, other, b"x")
    yield "IPv4", udp_frame(stolen_ip, other, b"x")
    yield "ARP sender IPv4", arp_frame(2, stolen_ip, other, other[0])
    yield "ARP sender MAC", arp_frame(2, stolen_mac, other, other[0], eth_src=me[0])
    tagged = udp_frame(stolen_ip, other, b"x")
    yield "VLAN tag", tagged[:12] + b"\x81\x00\x00\x01" + tagged[12:]
    yield "double tag", tagged[:12] + b"\x88\xa8\x00\x01" + tagged[12:]


def test_spoofed_sources_are_refused_and_counted(start, attach):
    io = start()
    a, b = attach("a"), attach("b")
    frames = list(spoofs((mac_bytes(a), ip_int(a)), (mac_bytes(b), ip_int(b))))
    for n, (what, frame) in enumerate(frames, 1):
        assert a.send(frame) == 1
        wait_until(lambda n=n: stats_of(io, "a")["tx_dropped_spoofed"] == n, what=what)
    assert b.recv() == []
    probe = arp_frame(1, (mac_bytes(a), 0), (bytes(6), STRANGER[1]), BROADCAST)  # RFC 5227: no address yet
    assert a.send(probe) == 1
    wait_until(lambda: stats_of(io, "a")["tx_dropped_no_route"] == 1)


def test_truncated_frames_are_malformed_not_a_fault(start, attach):
    io = start()
    a, b = attach("a"), attach("b")
    whole = between(a, b, b"")
    arp = arp_frame(1, (mac_bytes(a), ip_int(a)), (bytes(6), ip_int(b)), BROADCAST)
    cut = [whole[:n] for n in (14, 20, 33)] + [arp[:n] for n in (14, 30, 41)]
    assert a.send(cut) == len(cut)
    wait_until(lambda: stats_of(io, "a")["tx_dropped_malformed"] == len(cut))
    assert b.recv() == []


OTHER_TYPES = {
    "IPv6": "86dd",
    "spanning tree, by a length": "0026",
    "LLDP": "88cc",
    "RARP": "8035",
    "MPLS": "8847",
    "PPPoE": "8863",
    "EtherCAT": "88a4",
    "for experiments": "88b5",
}


def test_only_ipv4_and_arp_leave_an_application_unless_it_may_send_more(start, attach, outside):
    inner, outer = outside
    io = start(uplinks=[inner], apps={"free": AppConfig(any_ethertype=True)})
    a, free = attach("a"), attach("free")
    for sender in (a, free):
        for destination in (mac_bytes(free if sender is a else a), WORLD[0], BROADCAST):
            for what, ethertype in OTHER_TYPES.items():
                frame = destination + mac_bytes(sender) + bytes.fromhex(ethertype) + what.encode().ljust(46)
                assert sender.send(frame) == 1
    wait_until(lambda: stats_of(io, "free")["tx_taken"] == stats_of(io, "a")["tx_taken"] == 3 * len(OTHER_TYPES))
    assert stats_of(io, "a")["tx_dropped_ethertype"] == 3 * len(OTHER_TYPES)
    assert stats_of(io, "free")["tx_dropped_ethertype"] == 0
    assert free.recv(timeout_s=0) == []
    assert len(collect(a, 2 * len(OTHER_TYPES))) == len(collect(outer, 2 * len(OTHER_TYPES)))


def impostors(me, world):
    """What is not the IPv4 or ARP that its type says; (what, frame)."""
    request = arp_frame(1, me, (bytes(6), world[1]), BROADCAST)
    yield "IPv6 as IPv4", BROADCAST + me[0] + b"\x08\x00\x60" + bytes(60)
    yield "ARP for token ring", request[:14] + b"\0\6" + request[16:]
    yield "ARP for IPv6", request[:16] + b"\x86\xdd" + request[18:]
    yield "ARP of long addresses", request[:18] + b"\x08\x04" + request[20:]
    yield "ARP of no operation", request[:20] + b"\0\0" + request[22:]
    yield "inverse ARP", request[:20] + b"\0\x08" + request[22:]


def test_frames_that_are_not_what_their_type_says_are_malformed_whoever_sends_them(start, attach, outside):
    inner, outer = outside
    io = start(uplinks=[inner])
    a = attach("a")
    mine = [frame for _, frame in impostors((mac_bytes(a), ip_int(a)), WORLD)]
    theirs = [frame for _, frame in impostors(WORLD, (mac_bytes(a), ip_int(a)))]
    assert a.send(mine) == len(mine)
    assert outer.send(theirs) == len(theirs)
    wait_until(lambda: stats_of(io, "a")["tx_dropped_malformed"] == len(mine))
    wait_until(lambda: io.stats()["loops"][0]["up_dropped_malformed"] == len(theirs))
    assert a.recv() == outer.recv() == []


def test_an_arp_answer_without_a_sender_is_spoofed(start, attach):
    io = start()
    a, b = attach("a"), attach("b")
    assert a.send(arp_frame(2, (mac_bytes(a), 0), (mac_bytes(b), ip_int(b)), mac_bytes(b))) == 1
    wait_until(lambda: stats_of(io, "a")["tx_dropped_spoofed"] == 1)


def test_unknown_destinations_without_an_uplink_have_no_route(start, attach):
    io = start()
    a = attach("a")
    assert a.send([udp_frame((mac_bytes(a), ip_int(a)), STRANGER, b"x")] * 10) == 10
    wait_until(lambda: stats_of(io, "a")["tx_dropped_no_route"] == 10)


@pytest.fixture
def outside(link):
    """A memory link: (the iokernel's uplink, the world's end)."""
    return link(ring_slots=256, mac=("02:00:00:00:01:00", "02:00:00:00:02:00"))


WORLD = (bytes.fromhex("020000000200"), ipv4_to_int("10.77.0.1"))


def from_a_wire_as_if_local(local, victim, evil, mac):
    """Frames of a stranger `evil` that claim to come from the application `local`; (what, frame).

    mac: the address under which that one is seen outside.
    """
    for dst in (victim, (BROADCAST, 0xFFFFFFFF), (bytes.fromhex("01005e000001"), ipv4_to_int("224.0.0.1"))):
        yield "MAC and IPv4", udp_frame((mac, local[1]), dst, b"x")
        yield "MAC", udp_frame((mac, evil[1]), dst, b"x")
        yield "the application's own MAC", udp_frame((local[0], evil[1]), dst, b"x")
        yield "IPv4", udp_frame((evil[0], local[1]), dst, b"x")
        yield "MAC, another type", dst[0] + mac + b"\x86\xdd" + bytes(50)
        tagged = udp_frame((evil[0], local[1]), dst, b"x")
        yield "VLAN tag", tagged[:12] + b"\x81\x00\x00\x01" + tagged[12:]
        yield "double tag", tagged[:12] + b"\x88\xa8\x00\x01\x81\x00\x00\x01" + tagged[12:]
        for op in (1, 2):
            for target in (victim, local, (bytes(6), evil[1])):
                yield "ARP sender IPv4", arp_frame(op, (evil[0], local[1]), target, dst[0])
                yield "ARP sender MAC", arp_frame(op, (mac, evil[1]), target, dst[0], eth_src=evil[0])
                yield "ARP sender", arp_frame(op, (mac, local[1]), target, dst[0])


@pytest.mark.parametrize("shared", [False, True], ids=["own MACs", "shared MAC"])
@pytest.mark.parametrize("by", [0, 1])
def test_what_comes_from_a_wire_is_not_believed_about_what_is_local(start, attach, link, shared, by):
    """Dropped before anything is answered, delivered or learned, on any uplink."""
    ends = [link(ring_slots=256, mac=(f"02:00:00:00:01:0{i}", f"02:00:00:00:02:0{i}")) for i in range(2)]
    io = start(uplinks=[inner for inner, _ in ends], outside=Outside(share_mac=shared))
    a, b = attach("a"), attach("b")
    local, victim, evil = (mac_bytes(a), ip_int(a)), (mac_bytes(b), ip_int(b)), (STRANGER[0], WORLD[1])
    seen_as = [mac_bytes(inner) for inner, _ in ends] if shared else [local[0]]
    where = [victim, (mac_bytes(ends[by][0]), victim[1])] if shared else [victim]
    frames = [f for mac in seen_as for to in where for _, f in from_a_wire_as_if_local(local, to, evil, mac)]
    for frame in frames:
        wait_until(lambda frame=frame: ends[by][1].send(frame) == 1)
    wait_until(lambda: io.stats()["loops"][0]["up_received"] == len(frames))
    assert io.stats()["loops"][0]["up_dropped_spoofed"] == len(frames)
    assert a.recv() == b.recv() == ends[0][1].recv() == ends[1][1].recv() == []
    # Nothing was learned: whoever is local is still here, and the stranger might be anywhere.
    assert b.send([between(b, a, b"hello"), udp_frame(victim, evil, b"where?")]) == 2
    assert collect(a, 1) == [between(b, a, b"hello")]
    for _, outer in ends:
        assert len(collect(outer, 1)) == 1


def test_an_address_is_local_on_every_loop_and_no_longer_when_its_application_has_gone(start, attach, link):
    ends = [link(mac=(f"02:00:00:00:01:0{i}", f"02:00:00:00:02:0{i}")) for i in range(2)]
    io = start(
        uplinks=[i for i, _ in ends],
        loop_cpus=[-1, -1],
        poll="block",
        apps={"a": AppConfig(loop=1), "b": AppConfig(loop=0)},
    )
    a, b = attach("a"), attach("b")
    frame = udp_frame((STRANGER[0], ip_int(a)), (mac_bytes(b), ip_int(b)), b"x")

    def total(what: str) -> int:
        return sum(loop[what] for loop in io.stats()["loops"])

    for n, (_, outer) in enumerate(ends, 1):
        assert outer.send(frame) == 1
        wait_until(lambda n=n: total("up_dropped_spoofed") == n)
    a.close()
    wait_until(lambda: io.apps == ("b",))
    for _, outer in ends:
        assert outer.send(frame) == 1
    assert collect(b, 2) == [frame, frame]


@pytest.mark.parametrize("poll", ["spin", "adaptive", "block"])
def test_an_uplink_carries_frames_both_ways(start, attach, outside, poll):
    inner, outer = outside
    io = start(uplinks=[inner], poll=poll)
    a = attach("a", kthreads=2)
    me = (mac_bytes(a), ip_int(a))
    there = [udp_frame(WORLD, me, b"in %d" % i, (1000 + i, 9000)) for i in range(100)]
    back = [udp_frame(me, WORLD, b"out %d" % i, (9000, 1000 + i)) for i in range(100)]
    assert outer.send(there) == 100
    assert sorted(collect(a, 100)) == sorted(there)
    assert a.send(back) == 100
    assert collect(outer, 100) == back
    not_ours = udp_frame(WORLD, STRANGER, b"x")
    assert outer.send(not_ours) == 1
    wait_until(lambda: io.stats()["loops"][0]["up_dropped_not_ours"] == 1)


def test_arp_through_the_uplink(start, attach, outside):
    inner, outer = outside
    start(uplinks=[inner])
    a, b = attach("a"), attach("b")
    me = (mac_bytes(a), ip_int(a))
    # The world asks for an application: the iokernel answers, the application is not bothered.
    assert outer.send(arp_frame(1, WORLD, (bytes(6), me[1]), BROADCAST)) == 1
    assert collect(outer, 1) == [arp_frame(2, me, WORLD, WORLD[0])]
    # An application asks for the world: the question goes out, the answer comes to the one that asked.
    question = arp_frame(1, me, (bytes(6), WORLD[1]), BROADCAST)
    assert a.send(question) == 1
    assert collect(outer, 1) == [question]
    answer = arp_frame(2, WORLD, me, me[0])
    assert outer.send(answer) == 1
    assert collect(a, 1) == [answer]
    # Strangers' questions for strangers are nobody's here; their announcements are everybody's.
    assert outer.send(arp_frame(1, WORLD, (bytes(6), STRANGER[1]), BROADCAST)) == 1
    announcement = arp_frame(1, WORLD, (bytes(6), WORLD[1]), BROADCAST)
    assert outer.send(announcement) == 1
    assert collect(a, 1) == collect(b, 1) == [announcement]


def test_a_shared_mac_hides_the_applications(start, attach, outside):
    inner, outer = outside
    start(uplinks=[inner], outside=Outside(share_mac=True))
    a = attach("a")
    me, public = (mac_bytes(a), ip_int(a)), (mac_bytes(inner), ip_int(a))
    assert outer.send(arp_frame(1, WORLD, (bytes(6), me[1]), BROADCAST)) == 1
    assert collect(outer, 1) == [arp_frame(2, public, WORLD, WORLD[0])]
    assert outer.send(udp_frame(WORLD, public, b"hello")) == 1
    assert collect(a, 1) == [udp_frame(WORLD, me, b"hello")]
    assert a.send(udp_frame(me, WORLD, b"reply")) == 1
    assert collect(outer, 1) == [udp_frame(public, WORLD, b"reply")]
    assert a.send(arp_frame(1, me, (bytes(6), WORLD[1]), BROADCAST)) == 1
    assert collect(outer, 1) == [arp_frame(1, public, (bytes(6), WORLD[1]), BROADCAST, eth_src=public[0])]
    assert outer.send(arp_frame(2, WORLD, public, public[0])) == 1
    assert collect(a, 1) == [arp_frame(2, WORLD, me, me[0], eth_src=WORLD[0])]


def test_several_uplinks_learn_who_is_behind_which(start, attach, link):
    ends = [link(mac=(f"02:00:00:00:01:0{i}", f"02:00:00:00:02:0{i}")) for i in range(2)]
    start(uplinks=[inner for inner, _ in ends])
    a = attach("a")
    me = (mac_bytes(a), ip_int(a))
    worlds = [(mac_bytes(outer), WORLD[1] + i) for i, (_, outer) in enumerate(ends)]
    unknown = udp_frame(me, worlds[0], b"where?")
    assert a.send(unknown) == 1
    for _, outer in ends:
        assert collect(outer, 1) == [unknown]  # flooded: not known yet
    for i, (_, outer) in enumerate(ends):
        assert outer.send(udp_frame(worlds[i], me, b"here")) == 1
        collect(a, 1)
        frame = udp_frame(me, worlds[i], b"found")
        assert a.send(frame) == 1
        assert collect(outer, 1) == [frame]
        assert ends[1 - i][1].recv() == []


def test_an_arp_reply_moves_no_station_to_another_uplink(start, attach, link):
    ends = [link() for _ in range(2)]
    io = start(uplinks=[inner for inner, _ in ends])
    a = attach("a")
    me = (mac_bytes(a), ip_int(a))
    assert ends[0][1].send(udp_frame(WORLD, me, b"here")) == 1
    collect(a, 1)
    for eth_dst in (me[0], BROADCAST):
        assert ends[1][1].send(arp_frame(2, WORLD, me, eth_dst)) == 1
    wait_until(lambda: io.stats()["loops"][0]["up_received"] == 3)
    found = udp_frame(me, WORLD, b"found")
    assert a.send(found) == 1
    assert collect(ends[0][1], 1) == [found]
    assert ends[1][1].recv() == []


def test_an_empty_place_of_the_learned_addresses_is_not_the_address_zero(start, attach, link):
    ends = [link(mac=(f"02:00:00:00:01:0{i}", f"02:00:00:00:02:0{i}")) for i in range(2)]
    start(uplinks=[inner for inner, _ in ends])
    a = attach("a")
    nobody = udp_frame((mac_bytes(a), ip_int(a)), (bytes(6), WORLD[1]), b"nobody has this address")
    assert a.send(nobody) == 1
    for _, outer in ends:
        assert collect(outer, 1) == [nobody]


def test_copies_that_find_the_ring_to_another_loop_full_are_counted(start, attach):
    apps = {"a": AppConfig(loop=0), "b": AppConfig(loop=1)}
    io = start(loop_cpus=[-1, -1], apps=apps, manual_hz=10**9, network=NetworkConfig(flood_frames_per_s=0))
    a, b = attach("a"), attach("b")
    call = udp_frame((mac_bytes(a), ip_int(a)), (BROADCAST, 0xFFFFFFFF), b"all")
    for now in range(1, 1001):  # loop 1 does not run meanwhile
        assert a.send(call) == 1
        io.step(now * 1000)
    first = io.stats()["loops"][0]
    assert first["loop_out"] + first["loop_out_dropped_full"] == 1000
    assert first["loop_out_dropped_full"] > 0
    for now in range(1001, 1100):
        io.step(now * 1000, loop=1)
        b.recv()
    assert io.stats()["loops"][1]["loop_in"] == first["loop_out"]


@pytest.mark.parametrize("loops", [2, 3])
def test_loops_hand_frames_to_each_other(start, attach, outside, loops):
    inner, outer = outside
    io = start(
        uplinks=[inner],
        loop_cpus=[-1] * loops,
        apps={f"p{i}": AppConfig(loop=i % loops) for i in range(4)},
        poll="block",
    )
    ports = [attach(f"p{i}") for i in range(4)]
    assert {a["loop"] for a in io.stats()["apps"]} == set(range(min(4, loops)))
    for a, b in itertools.permutations(ports, 2):
        frames = [between(a, b, b"%d" % i) for i in range(50)]
        assert a.send(frames) == 50
        assert collect(b, 50) == frames
    for port in ports:
        me = (mac_bytes(port), ip_int(port))
        frames = [udp_frame(me, WORLD, b"%d" % i) for i in range(20)]
        assert port.send(frames) == 20
        assert collect(outer, 20) == frames
        assert outer.send([udp_frame(WORLD, me, b"%d" % i) for i in range(20)]) == 20
        collect(port, 20)
        assert outer.send(arp_frame(1, WORLD, (bytes(6), me[1]), BROADCAST)) == 1
        assert collect(outer, 1) == [arp_frame(2, me, WORLD, WORLD[0])]
        assert port.send(udp_frame(me, (BROADCAST, 0xFFFFFFFF), b"all")) == 1
        for other in [p for p in ports if p is not port] + [outer]:
            assert len(collect(other, 1)) == 1
    assert_balanced(io)


def test_a_neighbour_that_floods_does_not_take_the_uplink(start, attach, outside):
    inner, outer = outside
    io = start(uplinks=[inner], manual_hz=10**9)
    flooder, victim = attach("flooder"), attach("victim")
    flood = [udp_frame((mac_bytes(flooder), ip_int(flooder)), WORLD, b"x")] * 1000
    plea = udp_frame((mac_bytes(victim), ip_int(victim)), WORLD, b"please")
    now, got = 1, 0
    for _ in range(200):  # the world reads nothing at first: the link (256 slots) and what is staged fill up
        flooder.send(flood)
        io.step(now := now + 1000)
    assert stats_of(io, "flooder")["tx_dropped_uplink_full"] > 0
    assert victim.send([plea] * 20) == 20
    for _ in range(50):
        flooder.send(flood)
        io.step(now := now + 1000)
    assert stats_of(io, "victim")["tx_dropped_uplink_full"] == 0, "its share of the queue was free"
    for _ in range(50):
        got += outer.recv(64).count(plea)
        io.step(now := now + 1000)
    assert got == 20


def test_random_traffic_balances(start, attach, outside, rng: random.Random):
    inner, outer = outside
    io = start(uplinks=[inner])
    ports = [attach(f"p{i}", kthreads=1 + i % 3, memory=PortMemory(rx_buffers=64, rx_slots=16)) for i in range(4)]
    everyone = [(mac_bytes(p), ip_int(p)) for p in ports] + [WORLD, STRANGER, (BROADCAST, 0xFFFFFFFF)]
    for _ in range(3000):
        src = rng.choice(ports)
        claimed = rng.choice(everyone[:4]) if rng.random() < 0.1 else (mac_bytes(src), ip_int(src))
        frame = udp_frame(claimed, rng.choice(everyone), rng.randbytes(rng.randrange(1400)), (rng.randrange(99), 9))
        src.send(frame[: rng.randrange(14, len(frame) + 1)] if rng.random() < 0.1 else frame)
        if rng.random() < 0.2:
            outer.send(udp_frame(WORLD, rng.choice(everyone), rng.randbytes(30)))
        if rng.random() < 0.3:
            port = rng.choice(ports)
            port.recv(queue=rng.randrange(port.queues))
            outer.recv()
    wait_until(lambda: outer.recv() == [] and io.stats()["loops"][0]["out_staged"] == 0)
    for port in ports:
        for queue in range(port.queues):
            port.recv(9999, queue=queue)
        wait_until(lambda p=port: p.buffers_free == p.buffers, what="a port's buffers")
    stats = io.stats()
    apps, loop = stats["apps"], stats["loops"][0]
    delivered = sum(a["rx_offered"] for a in apps)
    flooded = sum(a["tx_flooded"] for a in apps) * 3 + loop["up_flooded"] * 4
    answered = sum(a["tx_answered"] for a in apps)
    assert delivered == sum(a["tx_local"] for a in apps) + loop["up_local"] + flooded + answered
    assert sum(a["rx_dropped_ring_full"] for a in apps) > 0, "the small rings were overrun"


def test_every_buffer_is_used_before_a_frame_is_dropped(start, attach):
    """They come into the free list a few at a time, as they are needed."""
    io = start()
    a, b = attach("a", memory=PortMemory(rx_slots=1024, rx_buffers=500)), attach("b")
    assert b.send([between(b, a, b"%d" % i) for i in range(600)]) == 600
    wait_until(lambda: stats_of(io, "a")["rx_offered"] == 600)
    got = stats_of(io, "a")
    assert (got["rx_delivered"], got["rx_dropped_no_buffer"], got["buffers_free"]) == (500, 100, 0)
    assert [frame[-3:] for frame in collect(a, 500)][-1] == b"499"
