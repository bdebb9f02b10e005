"""Groups without logs: a node that is started again under its id has forgotten what it promised, and is not let in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from raftdisks import Disk
from raftnodes import Nodes

from corelane.apps._native import lib


def stopped(nodes: Nodes, i: int) -> str:
    """Why a node has stopped, which it must have."""
    assert nodes.nodes[i].state == "stopped"
    why = nodes.nodes[i].why
    assert "keeps no log and was started again under its id" in why
    assert "add it under another id" in why
    return why


def again(nodes: Nodes, i: int) -> None:
    """Node i ends and is started again, with nothing."""
    nodes.stop(i)
    nodes.now_ns += 1
    nodes.start(i)


@pytest.fixture
def nodes() -> Nodes:
    group = Nodes(3)
    assert group.command(group.leader(), b"kept")[0] == "ok"
    return group


@pytest.fixture
def disks() -> Iterator[list[Disk]]:
    made: list[Disk] = []
    yield made
    for disk in made:
        disk.close()


def test_all_know_each_other_soon_and_then_say_no_more_about_it():
    nodes = Nodes(5)
    nodes.run(25)
    sent: list[bytes] = []
    deliver = nodes._post

    def post(source: int, to: int, frame: bytes) -> bool:
        sent.append(frame[:4])
        return deliver(source, to, frame)

    nodes._post = post
    nodes.run(100)
    assert b"CLRF" in sent
    assert b"CLRL" not in sent
    assert all(n.counters()["other_life"] == 0 for n in nodes.nodes.values())


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_who_comes_back_is_refused_and_stops_and_the_others_go_on(nodes, who):
    leader = nodes.leader()
    victim = leader if who == "leader" else 1 + leader % 3
    again(nodes, victim)
    nodes.run(50)
    assert any(f"node {i}" in stopped(nodes, victim) for i in (1, 2, 3) if i != victim)
    others = {i: n for i, n in nodes.nodes.items() if i != victim}
    assert sum(n.counters()["other_life"] for n in others.values()) > 0
    assert {n.counters()["other_life_node"] for n in others.values()} <= {0, victim}
    nodes.stop(victim)
    assert nodes.command(nodes.leader(), b"more")[0] == "ok"
    assert nodes.query(nodes.leader()) == ("ok", b"kept,more")


def test_one_that_knew_them_keeps_a_majority_from_beginning_anew(nodes):
    """Two of three end and come back: with each other they would be a majority that knows of nothing."""
    nodes.run(5)
    kept = nodes.leader()
    others = [i for i in (1, 2, 3) if i != kept]
    for i in others:
        nodes.stop(i)
    nodes.now_ns += 1
    for i in others:
        nodes.start(i)
    nodes.settle()
    for i in others:
        stopped(nodes, i)
    assert nodes.machines[kept].commands == [b"kept"]


def test_a_group_of_which_all_ended_begins_anew(nodes):
    nodes.frames.clear()
    for i in (1, 2, 3):
        nodes.stop(i)
    nodes.now_ns += 1
    for i in (1, 2, 3):
        nodes.start(i)
    assert nodes.command(nodes.leader(), b"new") == ("ok", b"1")


def test_frames_of_before_all_ended_change_nothing():
    nodes = Nodes(3)
    old: list[tuple[int, int, bytes]] = []
    deliver = nodes._post

    def post(source: int, to: int, frame: bytes) -> bool:
        old.append((source, to, frame))
        return deliver(source, to, frame)

    nodes._post = post
    assert nodes.command(nodes.leader(), b"old")[0] == "ok"
    nodes._post = deliver
    for i in (1, 2, 3):
        nodes.stop(i)
    nodes.now_ns += 1
    for i in (1, 2, 3):
        nodes.start(i)
    nodes.frames.extend(old)  # before anybody knows anybody
    assert nodes.command(nodes.leader(), b"new") == ("ok", b"1")
    nodes.frames.extend(old)
    nodes.run(50)
    assert [n.state for n in nodes.nodes.values()] == ["running"] * 3
    assert all(m.commands == [b"new"] for m in nodes.machines.values())


def test_who_was_away_hears_from_the_others_of_a_life_that_it_never_met(nodes):
    """Node 5 comes when another is gone already, and does not let that one in, though nobody else can be reached."""
    leader = nodes.leader()
    gone = 1 + leader % 3
    nodes.run(5)
    nodes.stop(gone)
    nodes.start(5)
    assert lib.cl_raft_change_members(nodes.nodes[leader].core, [1, 2, 3, 5], 4, [], 0) == 0
    nodes.run(50)
    nodes.group.append(5)
    nodes.cut |= {i for i in (1, 2, 3) if i != gone}
    nodes.start(gone)
    nodes.run(20)
    assert "node 5" in stopped(nodes, gone)


def test_one_that_came_back_to_who_did_not_know_is_found_out_when_they_meet_others(nodes):
    """What is not covered (node_lives.c), and how it ends."""
    known = nodes.leader()
    others = [i for i in (1, 2, 3) if i != known]
    nodes.run(5)
    nodes.cut.add(known)
    for i in others:  # both end, so a majority does
        nodes.stop(i)
    nodes.now_ns += 1
    for i in others:
        nodes.start(i)
    nodes.run(100)
    assert nodes.command(nodes.leader(), b"anew") == ("ok", b"1")
    nodes.cut.clear()
    nodes.run(50)
    for i in others:
        stopped(nodes, i)
    assert nodes.nodes[known].state == "running"


def test_a_life_is_drawn_from_the_clocks_or_given():
    nodes = Nodes(3)
    knows = lib.cl_raft_node_knows
    nodes.start(3, life=99)
    nodes.run(20)
    assert all(knows(nodes.nodes[i].ptr, 3, 99) for i in (1, 2, 3))
    assert not knows(nodes.nodes[1].ptr, 3, 98)
    assert not knows(nodes.nodes[1].ptr, 4, 99)
    nodes.stop(3)
    nodes.start(3, life=99)  # the same life: it is not noticed, so it has to be another one each time
    nodes.run(50)
    assert nodes.nodes[3].state == "running"


def test_nodes_with_and_without_logs_are_of_no_group_together(disks):
    disks += [Disk(seed=i) for i in (1, 2)]
    nodes = Nodes(3, {i + 1: d.open() for i, d in enumerate(disks)})
    nodes.run(100)
    leader = nodes.nodes[1].leader
    assert leader in (1, 2)
    assert nodes.command(leader, b"one")[0] == "ok"
    assert nodes.nodes[3].leader == 0
    assert nodes.nodes[leader].counters()["other_settings_node"] == 3
