"""Limits and turns on a clock that only the test moves (1 tick = 1 ns)."""

from __future__ import annotations

import pytest
from cltest.switching import between, stats_of

from corelane.iokernel import AppConfig

HZ = 10**9
ROUND_NS = 1000


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
        io.step(now := now + ROUND_NS)
        while sink.recv(64):
            pass
        return stats_of(io, "a")["tx_taken"] - before

    beside = [taken_in_a_round(True) for _ in range(200)]
    assert max(beside[3:60]) > 4, "not at once: a burst is no flood"
    # 112 units a turn, 48 and more a frame, and what one turn exceeds the next is short of.
    assert max(beside[100:]) <= 4
    assert sum(beside[100:]) >= 150
    alone = [taken_in_a_round(False) for _ in range(600)]
    assert min(alone[-100:]) >= 7  # the receiver, which gives buffers back, still counts as present
    assert stats_of(io, "victim")["tx_local"] == 200


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
