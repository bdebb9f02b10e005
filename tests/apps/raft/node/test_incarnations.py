"""A node that is started again under its id and has forgotten what it promised is not let in: without logs each that
ended, with logs one whose log was lost and made again.
"""

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
    assert all(n.counters()["other_incarnation"] == 0 for n in nodes.nodes.values())


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_who_comes_back_is_refused_and_stops_and_the_others_go_on(nodes, who):
    leader = nodes.leader()
    victim = leader if who == "leader" else 1 + leader % 3
    again(nodes, victim)
    nodes.run(50)
    assert any(f"node {i}" in stopped(nodes, victim) for i in (1, 2, 3) if i != victim)
    others = {i: n for i, n in nodes.nodes.items() if i != victim}
    assert sum(n.counters()["other_incarnation"] for n in others.values()) > 0
    assert {n.counters()["other_incarnation_node"] for n in others.values()} <= {0, victim}
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
    """What is not covered (apps/raft/node/incarnations.c), and how it ends."""
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


def test_of_two_lives_that_were_heard_neither_is_let_in(nodes):
    """One and the same id, known to node 1 in one incarnation and to node 2 in the next, until those two meet."""
    knows, apart = lib.cl_raft_node_knows, [(1, 2), (2, 3)]

    def post(source: int, to: int, frame: bytes) -> bool:
        if (min(source, to), max(source, to)) not in apart:
            nodes.frames.append((source, to, frame))
        return True

    for i in (1, 2, 3):
        nodes.stop(i)
    nodes._post = post
    nodes.now_ns += 1
    for i in (1, 2, 3):
        nodes.start(i, incarnation=10 * i)
    nodes.run(50)
    nodes.stop(3)
    apart[:] = [(1, 2), (1, 3)]
    nodes.start(3, incarnation=31)
    nodes.run(50)
    assert knows(nodes.nodes[1].ptr, 3, 30)
    assert knows(nodes.nodes[2].ptr, 3, 31)
    apart[:] = [(1, 3), (2, 3)]
    nodes.run(50)
    assert not any(knows(nodes.nodes[i].ptr, 3, incarnation) for i in (1, 2) for incarnation in (30, 31))
    apart[:] = [(1, 2), (2, 3)]
    nodes.run(50)
    assert "node 1" in stopped(nodes, 3)


def test_nothing_is_taken_from_a_life_before_it_is_noted(disks):
    """A crash would forget it, and with it whom was promised what."""
    disks += [Disk(seed=i) for i in (1, 2, 3)]
    nodes = Nodes(3, {i + 1: d.open() for i, d in enumerate(disks)})
    nodes.cut.add(2)
    leader = nodes.leader()
    disks[1].faults(hang=1)
    nodes.cut.clear()
    nodes.run(30)
    late = nodes.nodes[2]
    assert late.counters()["unknown_incarnation"] > 0
    assert (late.leader, late.counters()["other_incarnation"]) == (0, 0)
    assert not any(
        lib.cl_raft_node_knows(late.ptr, i, lib.cl_raft_node_incarnation(nodes.nodes[i].ptr)) for i in (1, 3)
    )
    disks[1].faults()
    assert nodes.leader() == leader
    assert all(lib.cl_raft_node_knows(late.ptr, i, lib.cl_raft_node_incarnation(nodes.nodes[i].ptr)) for i in (1, 3))


def test_a_life_is_drawn_from_the_clocks_or_given():
    nodes = Nodes(3)
    knows = lib.cl_raft_node_knows
    nodes.start(3, incarnation=99)
    nodes.run(20)
    assert all(knows(nodes.nodes[i].ptr, 3, 99) for i in (1, 2, 3))
    assert not knows(nodes.nodes[1].ptr, 3, 98)
    assert not knows(nodes.nodes[1].ptr, 4, 99)
    nodes.stop(3)
    nodes.start(3, incarnation=99)  # the same incarnation: it is not noticed, so it has to be another one each time
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


def with_logs(disks: list[Disk], n: int = 3) -> Nodes:
    """A group with logs that has applied b"kept", and whose nodes all know each other."""
    disks += [Disk(seed=i + 1) for i in range(n)]
    nodes = Nodes(n, {i + 1: d.open() for i, d in enumerate(disks)})
    assert nodes.command(nodes.leader(), b"kept")[0] == "ok"
    nodes.run(50)
    return nodes


def restart(nodes: Nodes, disks: list[Disk], i: int, *, lost: bool = False) -> None:
    """Node i crashes and is started from its log, or from a new one in its place."""
    nodes.stop(i)
    disks[i - 1].crash()
    if lost:
        disks[i - 1].close()
        disks[i - 1] = Disk(seed=100 + i)
    nodes.start(i, disks[i - 1].open())


def stopped_without_its_log(nodes: Nodes, i: int) -> bool:
    node = nodes.nodes[i]
    return node.state == "stopped" and "it had another log, so it has forgotten its votes" in node.why


def knows(nodes: Nodes, i: int, other: int) -> bool:
    incarnation = lib.cl_raft_node_incarnation(nodes.nodes[other].ptr)
    return bool(lib.cl_raft_node_knows(nodes.nodes[i].ptr, other, incarnation))


@pytest.mark.parametrize("who", ["leader", "follower"])
@pytest.mark.parametrize("others_again", [False, True])
def test_whose_log_was_made_again_is_refused_by_all_who_knew_it(disks, who, others_again):
    nodes = with_logs(disks)
    leader = nodes.leader()
    victim = leader if who == "leader" else 1 + leader % 3
    others = [i for i in (1, 2, 3) if i != victim]
    for i in others if others_again else ():  # what they know is in their logs
        restart(nodes, disks, i)
    restart(nodes, disks, victim, lost=True)
    nodes.run(100)
    assert stopped_without_its_log(nodes, victim)
    assert "start it with the log that it had" in nodes.nodes[victim].why
    assert sum(nodes.nodes[i].counters()["other_incarnation"] for i in others) > 0
    nodes.stop(victim)
    assert nodes.command(nodes.leader(), b"more") == ("ok", b"2")
    assert nodes.query(nodes.leader()) == ("ok", b"kept,more")


def test_an_acknowledged_command_outlives_the_log_of_a_voter(disks):
    """It was on two disks; one is replaced, the other cannot be reached, and the third, which lacks it, can."""
    nodes = with_logs(disks)
    leader = nodes.leader()
    victim, third = (i for i in (1, 2, 3) if i != leader)
    nodes.cut.add(third)
    assert nodes.command(leader, b"acknowledged") == ("ok", b"2")
    nodes.cut = {leader}
    restart(nodes, disks, victim, lost=True)
    nodes.run(300)
    assert nodes.nodes[third].leader == 0
    assert stopped_without_its_log(nodes, victim)
    nodes.cut.clear()
    nodes.stop(victim)
    nodes.group.remove(victim)
    assert nodes.command(nodes.leader(), b"more") == ("ok", b"3")
    nodes.run(50)
    assert nodes.machines[third].commands == [b"kept", b"acknowledged", b"more"]


def test_a_majority_with_new_logs_does_not_begin_anew_beside_one_that_knew_it(disks):
    nodes = with_logs(disks)
    for i in (1, 2):
        restart(nodes, disks, i, lost=True)
    nodes.run(300)
    assert stopped_without_its_log(nodes, 1)
    assert stopped_without_its_log(nodes, 2)
    assert nodes.machines[3].commands == [b"kept"]


def test_a_group_all_of_whose_logs_were_made_again_begins_anew(disks):
    nodes = with_logs(disks)
    nodes.frames.clear()
    for i in (1, 2, 3):
        restart(nodes, disks, i, lost=True)
    assert nodes.command(nodes.leader(), b"new") == ("ok", b"1")


def test_a_node_that_was_taken_out_is_replaced_by_one_with_another_id(disks):
    nodes = with_logs(disks)
    leader = nodes.leader()
    victim = 1 + leader % 3
    restart(nodes, disks, victim, lost=True)
    nodes.run(50)
    nodes.stop(victim)
    disks.append(Disk(seed=4))
    nodes.start(4, disks[3].open())
    left = [i for i in (1, 2, 3) if i != victim]
    for voters, learners in ((left, [4]), ([*left, 4], [])):
        core = nodes.nodes[nodes.leader()].core
        assert lib.cl_raft_change_members(core, voters, len(voters), learners, len(learners)) == 0
        nodes.run(100)
    assert knows(nodes, 4, leader)
    assert knows(nodes, leader, 4)
    nodes.cut.add(next(i for i in left if i != leader))
    assert nodes.command(leader, b"more") == ("ok", b"2")  # 4 is one of the two


def test_nobody_is_listened_to_before_it_is_durable_which_log_it_has(disks):
    disks += [Disk(seed=i + 1) for i in range(3)]
    nodes = Nodes(0)
    nodes.group = [1, 2, 3]
    nodes.start(1, disks[0].open())
    nodes.run(5)
    disks[0].faults(hang=1)
    for i in (2, 3):
        nodes.start(i, disks[i - 1].open())
    nodes.run(200)
    assert knows(nodes, 2, 3)
    assert not knows(nodes, 1, 2)
    assert nodes.nodes[1].leader == 0
    assert nodes.nodes[1].counters()["unknown_incarnation"] > 0
    disks[0].faults()
    nodes.run(200)
    assert knows(nodes, 1, 2)
    assert nodes.nodes[1].leader in (1, 2, 3)


def test_a_log_has_room_for_the_members_of_a_group_that_had_many(disks):
    nodes = with_logs(disks)
    learners = {i: Disk(seed=i) for i in range(4, 24)}
    disks += learners.values()
    for i, disk in learners.items():  # each was a learner for a while
        nodes.start(i, disk.open())
        core = nodes.nodes[nodes.leader()].core
        assert lib.cl_raft_change_members(core, [1, 2, 3], 3, [i], 1) == 0
        nodes.run(60)
        assert knows(nodes, 1, i)
        nodes.stop(i)
    core = nodes.nodes[nodes.leader()].core
    assert lib.cl_raft_change_members(core, [1, 2, 3], 3, [], 0) == 0
    nodes.run(60)
    leader = nodes.leader()
    for i in (1, 2, 3):
        restart(nodes, disks, i)
        nodes.run(5)
        assert all(knows(nodes, i, other) for other in (1, 2, 3))
    restart(nodes, disks, 1 + leader % 3, lost=True)
    nodes.run(100)
    assert stopped_without_its_log(nodes, 1 + leader % 3)


def test_who_is_heard_gets_room(disks):
    """It may be a member of a configuration that has not come yet."""
    nodes = with_logs(disks)
    leader = nodes.leader()
    learners = {i: Disk(seed=i) for i in range(4, 24)}
    disks += learners.values()
    frames: dict[int, bytes] = {}
    deliver = nodes._post

    def post(source: int, to: int, frame: bytes) -> bool:
        if to == leader and frame[:4] != b"CLRL":
            frames[source] = frame
        return deliver(source, to, frame)

    nodes._post = post
    for i, disk in learners.items():
        nodes.start(i, disk.open())
        assert lib.cl_raft_change_members(nodes.nodes[leader].core, [1, 2, 3], 3, [i], 1) == 0
        nodes.run(60)
    assert nodes.leader() == leader
    for i in [i for i in learners if not knows(nodes, leader, i)]:
        node = nodes.nodes[leader]
        before = node.counters()["unknown_incarnation"]
        node.receive(frames[i])
        assert node.counters()["unknown_incarnation"] == before + 1
        nodes.run(2)
        assert knows(nodes, leader, i)
        node.receive(frames[i])
        assert node.counters()["unknown_incarnation"] == before + 1
        assert all(knows(nodes, leader, other) for other in (1, 2, 3))


def test_who_becomes_a_member_again_is_noted_again(disks):
    nodes = with_logs(disks)
    learners = {i: Disk(seed=i) for i in range(4, 24)}
    disks += learners.values()

    def learn(*ids: int) -> None:
        assert lib.cl_raft_change_members(nodes.nodes[nodes.leader()].core, [1, 2, 3], 3, list(ids), len(ids)) == 0
        nodes.run(60)

    for i, disk in learners.items():
        nodes.start(i, disk.open())
        learn(i)
    learn()
    known = [i for i in learners if knows(nodes, 1, i)]
    assert known
    forgotten = next(i for i in learners if i not in known)  # there was no room for all
    learn(forgotten)
    assert knows(nodes, 1, forgotten)
    nodes.cut = {1}
    restart(nodes, disks, 1)
    nodes.run(1)
    assert knows(nodes, 1, forgotten)  # by its log, nobody else says it
