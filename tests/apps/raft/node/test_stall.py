"""Nodes that do not run for a while: what waits in their queues is of the time before, and none of it was silence."""

from __future__ import annotations

import pytest
from raftnodes import Nodes

from corelane.apps._native import ffi, lib


def others(nodes: Nodes, leader: int) -> list[int]:
    return [i for i in nodes.group if i != leader]


def core_counters(nodes: Nodes, i: int) -> list[int]:
    c = ffi.new("struct cl_raft_counters *")
    lib.cl_raft_counters(nodes.nodes[i].core, c)
    return [c.prevotes, c.elections, c.stepped_down, c.quorum_lost]


def test_a_heartbeat_taken_after_a_stall_keeps_its_promise_for_the_whole_timeout():
    nodes = Nodes(3)
    leader = nodes.leader()
    nodes.run(20)
    stalled, asks = others(nodes, leader)
    nodes.run(1)
    nodes.stall([stalled], 9)
    assert any(frame[1] == stalled for frame in nodes.frames)
    nodes.burst([stalled])
    nodes.frames.clear()
    for _ in range(10):  # a pre-vote that it would answer if it had forgotten its leader
        lib.cl_raft_campaign(nodes.nodes[asks].core)
        nodes.nodes[asks].poll()
        requests = [frame for frame in nodes.frames if frame[:2] == (asks, stalled)]
        assert requests
        nodes.frames.clear()
        for _, _, frame in requests:
            nodes.nodes[stalled].receive(frame)
        nodes.nodes[stalled].poll()
        assert not [frame for frame in nodes.frames if frame[:2] == (stalled, asks)]
        nodes.frames.clear()
        nodes.now_ns += 900_000  # nine tenths of a tick each: nine of ten ticks in all
        nodes.nodes[stalled].poll()
        nodes.frames.clear()
    assert nodes.nodes[stalled].leader == leader


@pytest.mark.parametrize("seed", range(40))
def test_reads_by_lease_are_not_stale_after_followers_were_stalled(seed):
    """A follower took a heartbeat, counted the 9 ms before it, and voted while the lease of that round was on."""
    nodes = Nodes(3, lease_reads=1, seed=seed)
    old = nodes.leader()
    nodes.run(20)
    assert nodes.command(old, b"one")[0] == "ok"
    assert nodes.query(old) == ("ok", b"one")
    followers = others(nodes, old)
    nodes.stall(followers, 9)
    nodes.burst(followers)
    nodes.settle()
    nodes.cut.add(old)
    new = 0
    for _ in range(60):
        nodes.run(1)
        leaders = {nodes.nodes[i].leader for i in followers}
        if leaders <= set(followers):
            (new,) = leaders
            break
    assert new, "nobody leads"
    assert nodes.command(new, b"two")[0] == "ok"
    answer = nodes.query(old)
    assert answer is None or answer[0] == "retry"


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ms", [25, 200])
def test_a_stall_of_all_elects_nobody_and_steps_nobody_down(seed, ms):
    nodes = Nodes(3, seed=seed)
    leader = nodes.leader()
    nodes.run(10 + seed)
    before = {i: core_counters(nodes, i) for i in nodes.group}
    nodes.now_ns += ms * 1_000_000
    for node in nodes.nodes.values():
        node.poll()  # timers come first
    nodes.settle()
    nodes.run(50)
    for i in nodes.group:
        assert core_counters(nodes, i) == before[i]
        assert nodes.nodes[i].leader == leader


@pytest.mark.parametrize("seed", range(10))
def test_a_follower_that_was_stalled_with_heartbeats_in_its_queue_keeps_its_leader(seed):
    nodes = Nodes(3, seed=seed)
    leader = nodes.leader()
    nodes.run(10)
    stalled = others(nodes, leader)[0]
    before = core_counters(nodes, stalled)
    nodes.stall([stalled], 25)
    nodes.nodes[stalled].poll()  # its timer comes first
    assert nodes.nodes[stalled].leader == leader
    nodes.burst([stalled])
    nodes.run(20)
    assert core_counters(nodes, stalled) == before
    assert nodes.leader() == leader


def test_a_leader_that_does_not_come_back_is_replaced_after_a_stall():
    """The time before does not count, the time after does."""
    nodes = Nodes(3)
    old = nodes.leader()
    nodes.now_ns += 500_000_000
    nodes.cut.add(old)
    nodes.frames.clear()
    for ms in range(60):
        nodes.run(1)
        leaders = {nodes.nodes[i].leader for i in others(nodes, old)}
        if leaders <= set(others(nodes, old)):
            assert ms >= 8
            return
    raise AssertionError("nobody leads")
