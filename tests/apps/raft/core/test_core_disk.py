"""The core where disks are slow or hang: who leads, who hands over, and what is committed meanwhile."""

from __future__ import annotations

import pytest
from raftlab import Lab, Node

from corelane.apps._native import lib


def asked(node: Node) -> list[int]:
    """Whom a node wants to ask for pre-votes, taken from it."""
    node.drive()
    out = [to for to, data in node.outbox if data[5] == lib.CL_RAFT_PREVOTE]
    node.outbox.clear()
    return out


def settle_but(lab: Lab, hung: set[int]) -> None:
    """All messages and all writes, but for the writes of those whose disks hang."""
    for _ in range(200):
        lab.collect()
        for node in lab.up():
            if node.id not in hung:
                node.write()
                node.drive()
        lab.collect()
        if not lab.wire:
            return
        for _ in range(len(lab.wire)):
            lab.deliver()
    raise AssertionError("messages without an end")


def tick_but(lab: Lab, hung: set[int], times: int) -> None:
    for _ in range(times):
        for node in lab.up():
            node.core.tick()
        settle_but(lab, hung)


def test_a_leader_whose_disk_hangs_hands_over_and_does_not_stand_again_before_it_goes_on():
    lab = Lab(3)
    lab.elect(1)
    index, _ = lab.put(1, b"x")
    settle_but(lab, {1})
    assert lab[1].core.status()["commit"] == index, "the two others are a majority"
    tick_but(lab, {1}, 49)
    assert lab.leader() is lab[1]
    assert lab[1].core.status()["disk_waits_ticks"] == 49
    tick_but(lab, {1}, 1)
    assert lab[1].core.counters()["disk_hung"] == 1
    assert lab.leader() in (lab[2], lab[3]), "no election timeout was waited for"
    put, _ = lab.put(lab.leader().id, b"y")
    settle_but(lab, {1})
    assert lab.leader().core.status()["commit"] == put
    for i in (2, 3):
        lab.isolate(i)
    for _ in range(50):
        lab[1].core.tick()
    assert asked(lab[1]) == []
    lab.heal()
    lab.tick(30)
    assert lab[1].core.status()["disk_waits_ticks"] == 0
    assert lab[1].state == lab[2].state == lab[3].state
    for _ in range(20):
        lab[1].core.tick()
    assert 2 in asked(lab[1])


def test_nobody_stands_while_its_term_and_vote_are_being_written():
    lab = Lab(3)
    lab[1].core.campaign()
    settle_but(lab, {1})
    status = lab[1].core.status()
    assert (status["role"], status["term"]) == ("candidate", 1)
    for _ in range(40):
        lab[1].core.tick()
    status = lab[1].core.status()
    assert (status["role"], status["term"]) == ("candidate", 1)
    assert asked(lab[1]) == []
    lab.settle()
    assert lab.leader() is lab[1]


def test_who_writes_its_vote_grants_no_prevote_and_its_vote_counts_when_it_is_late():
    lab = Lab(3)
    lab.isolate(3)
    lab[1].core.campaign()
    settle_but(lab, {2})
    for _ in range(100):  # 1 asks again and again
        lab[1].core.tick()
        settle_but(lab, {2})
    status = lab[1].core.status()
    assert (status["role"], status["term"], lab[1].core.counters()["elections"]) == ("pre-candidate", 1, 1)
    assert lab[2].disk.pending
    lab.settle()
    assert lab.leader() is lab[1]
    assert lab[1].core.status()["term"] == 1
    lab.put(1, b"x")
    lab.settle()
    assert lab[2].core.status()["last"] == lab[1].core.status()["commit"] == 2


def test_how_long_a_vote_took_is_forgotten_when_a_leader_is_heard():
    lab = Lab(3)
    lab[1].core.campaign()
    tick_but(lab, {2}, 40)
    lab.settle()
    lab.tick(5)
    lab.isolate(2)
    before = lab[2].core.counters()["prevotes"]
    for _ in range(60):
        lab[2].core.tick()
    assert lab[2].core.counters()["prevotes"] - before >= 3, "each after an election timeout of 10 to 19 ticks"


def test_a_leader_whose_disk_hangs_stays_until_another_disk_gets_on():
    lab = Lab(3)
    lab.elect(1)
    lab.put(1, b"x")
    tick_but(lab, {1, 2, 3}, 100)
    assert lab.leader() is lab[1]
    assert lab[1].core.counters()["disk_hung"] == 0
    lab[3].write()
    lab[3].drive()
    settle_but(lab, {1, 2, 3})
    lab[1].core.tick()
    assert lab[1].core.counters()["disk_hung"] == 1
    settle_but(lab, {1, 2})
    assert lab[3].core.status()["role"] == "candidate"


@pytest.mark.parametrize("takes", [5, 12, pytest.param(25, marks=pytest.mark.soak(takes_s=2)), 60])
def test_disks_that_are_all_as_slow_keep_their_leader_and_commit(takes: int) -> None:
    """Writes of half an election timeout to six of them, one after the other on each disk."""
    lab = Lab(3, log_entries=256)
    lab.elect(1)
    busy: dict[int, tuple[int, int]] = {}  # until when, and how many it began with
    for now in range(20 * takes):
        if now % takes == 0:
            lab.put(1, b"%d" % now)
        for node in lab.up():
            node.core.tick()
            until, n = busy.pop(node.id, (now + takes, len(node.disk.pending)))
            if n and until <= now:
                node.write(n)
                node.drive()
            elif n:
                busy[node.id] = (until, n)
        settle_but(lab, {1, 2, 3})
    assert lab.leader() is lab[1]
    status = lab[1].core.status()
    assert (status["term"], lab[1].core.counters()["disk_hung"]) == (1, 0)
    assert status["commit"] > 15, "puts wait for a write of the leader's disk or of two others', and for one under way"


def test_a_slow_disk_deposes_nobody():
    lab = Lab(3)
    lab.elect(1)
    for i in range(20):
        lab.put(1, b"%d" % i)
        tick_but(lab, {1}, 30)
        lab[1].write(1)
    assert lab.leader() is lab[1]
    assert lab[1].core.counters()["disk_hung"] == 0


def test_a_leader_whose_disk_hangs_stays_where_nobody_could_take_its_place():
    alone, lab = Lab(1), Lab(2)
    for group in (alone, lab):
        group.elect(1)
        group.put(1, b"x")
    lab[1].core.change_members({1}, {2})
    lab.tick(5)
    lab.put(1, b"y")
    tick_but(alone, {1}, 100)
    tick_but(lab, {1}, 100)
    assert alone.leader() is alone[1]
    assert lab.leader() is lab[1], "the other is a learner"
