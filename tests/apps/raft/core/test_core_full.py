"""The core where logs are full: what is refused, and what makes room."""

from __future__ import annotations

import pytest
from raftlab import SMALL, Lab, Node, try_to

from corelane.apps.raft.core.core import Core, Entry


def test_a_full_log_refuses_proposals_until_it_is_compacted():
    lab = Lab(1)
    lab.elect(1)
    while try_to(lambda: lab.put(1, b"x" * 100)):
        lab.settle()
    assert lab[1].core.status()["free_entries"] < 10
    lab[1].compact()
    lab.put(1, b"y")


def test_a_snapshot_of_what_is_not_durable_yet_makes_room_when_that_is():
    """It dropped nothing, and nothing did later: a follower's log was full for ever (seed 700096613 of 3 nodes)."""
    lab = Lab(3)
    lab.elect(1)
    for _ in range(40):
        lab.put(1, b"x" * 10)
    for _ in range(10):
        for node in lab.nodes.values():
            node.drive()
            if node.id != 2:
                node.write()
        lab[1].core.tick()
        lab.collect()
        while lab.wire:
            lab.deliver()
    slow = lab[2]
    assert slow.applied > 40
    durable = slow.core.status()["durable"]
    assert durable < 5
    assert slow.core.compact(slow.applied, 100) <= durable + 1
    assert slow.core.status()["first"] <= durable + 1
    slow.write()
    assert slow.core.status()["first"] == slow.applied - SMALL["trailing_entries"] + 1


def test_a_log_full_to_its_last_entry_says_so():
    """A follower takes what commands leave to others; one that said it had room never made a snapshot (seed 553)."""
    core = Core(1, {1, 2, 3}, log_entries=64, log_bytes=32768, entry_bytes=1024)
    core.restore(1, 0, [Entry(i, 1, 1, b"x") for i in range(1, 65)])
    assert core.status()["last"] == 64
    assert core.status()["free_entries"] == 0


def test_a_follower_whose_log_is_full_is_left_in_peace_until_it_has_room():
    """It answered an append without entries as if it had room, was sent a window full, and refused that: for ever."""
    lab = Lab(3)
    for i in (1, 3):
        lab.nodes[i] = Node(i, {1, 2, 3}, seed=1, log_entries=256)
    lab.elect(1)
    for _ in range(100):
        lab.put(1, b"x" * 100)
        lab.settle()
    assert lab[2].core.status()["last"] == 64
    again = lab[1].core.counters()["messages_out"]
    lab[1].core.tick(2)
    lab.settle(rounds=5)
    assert lab[1].core.counters()["messages_out"] - again <= 4
    lab[2].compact()  # and now it is told without waiting for a heartbeat
    lab.settle()
    assert lab[2].core.status()["last"] == lab[1].core.status()["last"]
    lab.tick(2)
    assert lab[2].state == lab[1].state


def fill_both(lab: Lab) -> None:
    """Node 1 leads 2 until it takes no more, and does not hear that 2 has it all, and more behind its snapshot."""
    lab.elect(1)
    for _ in range(9):
        lab.put(1, b"x")
        lab.settle()
    lab.tick(3)
    for node in lab.nodes.values():
        node.compact()
    lab[1].crash()
    lab[1].restart()  # it keeps nothing behind its snapshot
    while lab.leader() is not lab[1]:
        lab.tick()
        if lab.leader() is lab[2]:
            lab[2].core.transfer(1)
            lab.settle()
    lab.tick(3)
    lab.cut = {(2, 1)}
    while try_to(lambda: lab.put(1, b"y")):
        lab.settle()
    lab.tick(40)


@pytest.mark.parametrize("first", [1, 2])
def test_what_a_snapshot_covers_goes_before_an_entry_is_refused(first: int) -> None:
    """The next leader's own entry did not fit behind what the other kept for those who lag: for ever."""
    lab = Lab(2, log_entries=64, log_bytes=1 << 16, trailing_entries=8)
    fill_both(lab)
    lab[1].crash()
    lab[1].restart()
    lab.heal()
    lab[first].core.campaign()
    lab.settle()
    lab.tick(100)
    status = [node.core.status() for node in lab.nodes.values()]
    assert [s["commit"] for s in status] == [s["last"] for s in status]
    assert status[0]["commit"] > 40
    assert lab[1].state == lab[2].state


def test_a_snapshot_that_is_made_after_an_entry_was_refused_makes_room_for_it() -> None:
    """It lay within what is kept behind a snapshot, so nothing went, and the leader was never told of room."""
    lab = Lab(2, log_entries=64, log_bytes=1 << 16, trailing_entries=8)
    lab.nodes[1] = Node(1, {1, 2}, seed=1, log_entries=256, log_bytes=1 << 16)
    lab.elect(1)
    for _ in range(5):
        lab.put(1, b"x")
        lab.settle()
    lab.tick(2)
    assert lab[2].applied == 6
    lab.cut = {(2, 1)}
    while lab[1].core.status()["last"] < 64:
        lab.put(1, b"y")
    lab.tick(40)
    lab[1].crash()
    lab[1].restart()
    lab.heal()
    while lab.leader() is not lab[1]:
        lab.tick()
    assert lab[1].core.status()["last"] == 65, "its own entry is the 65th"
    assert lab[2].core.counters()["entries_refused"]
    assert lab[2].core.status()["commit"] == 6
    lab[2].compact()
    lab.settle()
    lab.tick(5)
    assert [node.core.status()["commit"] for node in lab.nodes.values()] == [65, 65]


def test_what_all_have_and_a_snapshot_covers_makes_room_for_commands() -> None:
    lab = Lab(3, log_entries=64, log_bytes=1 << 16, trailing_entries=32)
    lab.elect(1)
    for _ in range(40):
        lab.put(1, b"x")
        lab.settle()
    lab.tick(3)
    lab[1].compact()
    kept = lab[1].core.status()
    assert kept["first"] <= kept["snapshot_index"] - 30
    lab.cut = {(i, 1) for i in (2, 3)}
    taken = 0
    while try_to(lambda: lab.put(1, b"y")):
        taken += 1
    assert taken >= 64 - 8 - 1
