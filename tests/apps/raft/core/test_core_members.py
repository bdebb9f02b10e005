"""The core where members change: joint configurations, who leaves, who joins, and learners."""

from __future__ import annotations

import errno

import pytest
from raftlab import Lab

from corelane.apps.raft.core.core import Members
from corelane.runtime.errors import CorelaneError


def test_a_change_of_voters_goes_through_a_joint_configuration():
    lab = Lab(3, spare=2)
    leader = lab.elect(1)
    with pytest.raises(CorelaneError, match="too few of those who would vote are heard from"):
        leader.core.change_members({1, 4, 5})  # it has not heard from any that are no members
    leader.core.change_members({1, 2, 3}, {4, 5})
    lab.tick(5)
    leader.core.change_members({1, 4, 5})
    leader.drive()
    joint = leader.core.status()["members"]
    assert (joint.voters, joint.outgoing) == ({1, 4, 5}, {1, 2, 3})
    with pytest.raises(CorelaneError, match="under way"):
        leader.core.change_members({1, 2, 3})
    lab.isolate(4, 5)
    lab.settle()
    assert leader.core.status()["members"].outgoing, "a majority of the incoming ones is needed, too"
    lab.heal()
    lab.tick(10)
    assert leader.core.status()["members"] == Members(frozenset({1, 4, 5}))
    assert lab[4].state == leader.state


def test_a_change_that_would_leave_a_group_that_decides_nothing_is_refused():
    lab = Lab(3)
    leader = lab.elect(1)
    lab.tick(5)
    lab.isolate(2)
    leader.core.change_members({1, 2, 3}, {4})  # the voters stay: 1 and 3 are heard from
    lab.tick(25)
    for voters, learners in (({1, 2}, {3}), ({1, 2}, ()), ({2, 3}, ())):
        with pytest.raises(CorelaneError, match="too few of those who would vote are heard from") as raised:
            leader.core.change_members(voters, learners)
        assert raised.value.errno == errno.EHOSTUNREACH
    index, _ = lab.put(1, b"x")
    lab.settle()
    assert leader.core.status()["commit"] == index
    leader.core.change_members({1, 3})
    lab.settle()
    assert leader.core.status()["members"] == Members(frozenset({1, 3}))
    leader.core.change_members({1, 2}, force=True)  # for who means it
    lab.settle()
    assert leader.core.status()["members"].outgoing == {1, 3}
    lab.heal()
    lab.tick(60)
    assert lab.leader().core.status()["members"] == Members(frozenset({1, 2}))


def test_what_the_outgoing_voters_lack_is_committed_with_the_end_of_the_joint_configuration():
    """Who is the only voter from then on hears of no acknowledgement that could make it look again."""
    lab = Lab(2)
    leader = lab.elect(1)
    leader.core.change_members({1})
    lab.collect(write=True)  # the joint configuration is on its way
    index, _ = lab.put(1, b"x")
    leader.core.tick()
    lab.isolate(2)  # a batch that is lost
    leader.drive()
    leader.outbox.clear()
    leader.write()
    lab.deliver()
    lab[2].write()
    lab[2].drive()
    assert leader.core.status()["members"].outgoing == {1, 2}
    for _, data in lab[2].outbox:
        leader.core.step(data)
    status = leader.core.status()
    assert status["members"] == Members(frozenset({1}))
    assert status["durable"] == status["commit"] == index


def test_a_change_that_is_truncated_is_rolled_back():
    lab = Lab(3)
    lab.elect(1)
    lab.isolate(1)
    lab[1].core.change_members({1})
    lab[1].drive()
    assert lab[1].core.status()["members"].outgoing == {1, 2, 3}
    lab[2].core.campaign()
    for _ in range(30):
        for node in lab.nodes.values():
            node.core.tick()
        lab.settle()
    lab.heal()
    lab.tick(40)
    assert lab[1].core.status()["members"] == Members(frozenset({1, 2, 3}))


def test_a_leader_that_is_left_out_goes_once_that_is_committed():
    lab = Lab(3)
    lab.elect(1)
    lab[1].core.change_members({2, 3})
    lab.settle()
    assert lab[1].core.status()["role"] == "follower"
    lab.tick(40)
    assert lab.leader() in (lab[2], lab[3])
    assert lab[1].core.status()["term"] <= lab.leader().core.status()["term"]


def test_a_removed_node_does_not_disturb():
    lab = Lab(3)
    lab.elect(1)
    lab.isolate(3)
    lab[1].core.change_members({1, 2})
    lab.settle()
    lab.heal()
    term = lab.leader().core.status()["term"]
    lab.tick(100)
    assert lab.leader().core.status()["term"] == term


def test_who_joined_and_compacted_before_it_knew_of_any_members_can_lead_and_send_its_snapshot():
    """It learns who was there before from the change that added it. Without that nobody led who could send one."""
    lab = Lab(3, spare=2)
    lab.elect(1)
    for _ in range(20):
        lab.put(1, b"x" * 100)
        lab.settle()
    lab.cut = {(1, 4)}
    lab[1].core.change_members({4, 5}, force=True)
    lab.collect(write=True)
    while lab.wire:
        lab.deliver()
        lab.collect(write=True)
        if not lab[5].core.status()["members"].voters:
            lab[5].compact()
    assert lab[5].disk.snapshot is not None
    assert lab[5].disk.snapshot[3] == Members()
    lab[1].core.transfer(5)
    lab.settle()
    assert lab.leader() is lab[5]
    lab[5].compact()
    assert lab[5].disk.snapshot[3].voters == {1, 2, 3}
    lab.heal()
    lab.tick(20)
    assert lab[4].state == lab[5].state
    assert lab[4].core.status()["members"] == Members(frozenset({4, 5}))


def test_learners_are_in_no_majority():
    lab = Lab(2, spare=2)
    leader = lab.elect(1)
    leader.core.change_members({1, 2}, {3, 4})
    lab.tick(5)
    lab.isolate(2)
    index, _ = lab.put(1, b"x")
    lab.settle()
    assert min(lab[i].disk.last() for i in (1, 3, 4)) == index
    assert leader.core.status()["commit"] < index
    lab.tick(25)
    assert lab.leader() is None, "it hears from no majority"
    assert leader.core.counters()["quorum_lost"] == 1
    lab.heal()
    lab.tick(60)
    assert lab[1].state == lab[2].state == lab[3].state == lab[4].state
