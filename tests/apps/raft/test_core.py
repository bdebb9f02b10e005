"""The core, event by event: what the paper and the thesis ask of a node, and what must wait for the disk."""

from __future__ import annotations

import errno

import pytest
from raftlab import SMALL, Lab, Node, try_to

from corelane.apps._native import ffi, lib
from corelane.apps.raft.core import Core, Entry, Members
from corelane.runtime.errors import CorelaneError

TYPES = {
    getattr(lib, f"CL_RAFT_{n}"): n.lower()
    for n in ("PREVOTE", "PREVOTE_REPLY", "VOTE", "VOTE_REPLY", "APPEND", "APPEND_REPLY", "SNAPSHOT", "TIMEOUT_NOW")
}


def seen(node: Node) -> list[tuple[str, int]]:
    """(type, to) of what a node wants to send, taken from it."""
    node.drive()
    out = [(TYPES.get(data[5], "other"), to) for to, data in node.outbox]
    node.outbox.clear()
    return out


def message(to: int, type: str, source: int, term: int, cluster: int = 0, **fields: int) -> bytes:
    """A message that node `source` might send, encoded."""
    other = Core(source, {1, 2, 3}, cluster=cluster, log_entries=64, log_bytes=32768, entry_bytes=1024)
    number = next(n for n, name in TYPES.items() if name == type)
    m = ffi.new("struct cl_raft_msg *", {"type": number, "from": source, "to": to, "term": term, **fields})
    buffer = ffi.new("uint8_t[]", lib.cl_raft_encoded_bytes(m))
    assert lib.cl_raft_encode(other.ptr, m, buffer, len(buffer)) == len(buffer)
    return bytes(ffi.buffer(buffer))


def one() -> Node:
    """Node 1 of 3, just made."""
    return Node(1, {1, 2, 3}, seed=3)


def test_a_follower_that_hears_nothing_asks_for_prevotes_and_keeps_its_term():
    node = one()
    for _ in range(9):
        node.core.tick()
    assert seen(node) == []
    for _ in range(11):
        node.core.tick()
    assert ("prevote", 2) in seen(node)
    assert node.core.status()["term"] == 0


def test_a_candidate_asks_for_votes_only_once_its_own_is_durable():
    node = one()
    node.core.campaign()
    seen(node)
    node.core.step(message(1, "prevote_reply", 2, 1))
    assert node.core.status()["role"] == "candidate"
    assert seen(node) == []
    node.write()
    assert seen(node) == [("vote", 2), ("vote", 3)]
    assert (node.disk.term, node.disk.vote) == (1, 1)


def test_a_vote_is_told_only_once_it_is_durable():
    node = one()
    assert node.core.step(message(1, "vote", 2, 5)) == 0
    assert seen(node) == []
    node.write()
    assert seen(node) == [("vote_reply", 2)]
    assert (node.disk.term, node.disk.vote) == (5, 2)


def test_one_vote_a_term_also_after_a_crash():
    node = one()
    node.core.step(message(1, "vote", 2, 5))
    node.drive()
    node.write()
    node.crash()
    node.restart()
    node.core.step(message(1, "vote", 3, 5))
    node.drive()
    frames = [node.core.decode(data) for _, data in node.outbox]
    assert [(f.type, f.flags & lib.CL_RAFT_REJECT) for f in frames] == [(lib.CL_RAFT_VOTE_REPLY, lib.CL_RAFT_REJECT)]


def test_no_vote_for_a_log_that_lacks_something():
    lab = Lab(3)
    lab.elect(1)
    lab.put(1, b"x")
    lab.settle()
    node = lab[2]
    for _ in range(25):
        node.core.tick()
    node.drive()
    node.outbox.clear()
    node.core.step(message(2, "vote", 3, 50, index=1, log_term=1))
    node.drive()
    node.write()
    node.drive()
    assert all(node.core.decode(d).flags & lib.CL_RAFT_REJECT for _, d in node.outbox if d[5] == lib.CL_RAFT_VOTE_REPLY)
    assert node.disk.vote != 3


def test_who_hears_a_leader_refuses_votes_and_keeps_its_term():
    lab = Lab(3)
    lab.elect(1)
    assert lab[2].core.step(message(2, "vote", 3, 9)) == 1
    assert lab[2].core.step(message(2, "prevote", 3, 9)) == 1
    assert lab[2].core.status()["term"] == 1
    assert lab[1].core.step(message(1, "vote", 3, 9)) == 1
    assert lab.leader() is lab[1]


def test_a_leader_that_hears_from_no_majority_steps_down():
    lab = Lab(3)
    lab.elect(1)
    lab.isolate(1)
    for _ in range(25):
        lab[1].core.tick()
        lab.collect(write=True)
    assert lab[1].core.status()["role"] != "leader"
    assert lab[1].core.counters()["quorum_lost"] == 1


def test_an_acknowledgement_waits_for_the_write():
    lab = Lab(3)
    lab.elect(1)
    lab.put(1, b"x")
    lab[1].drive()
    appends = [data for to, data in lab[1].outbox if to == 2]
    lab[2].core.step(appends[-1])
    assert seen(lab[2]) == []
    lab[2].write()
    assert seen(lab[2]) == [("append_reply", 1)]


def test_a_leaders_own_write_counts_only_when_it_is_durable():
    lab = Lab(3)
    lab.elect(1)
    index, _ = lab.put(1, b"x")
    lab[1].drive()
    data = next(d for to, d in lab[1].outbox if to == 2)
    lab[1].outbox.clear()
    lab[2].core.step(data)
    lab[2].drive()
    assert lab[1].core.status()["commit"] < index
    lab[1].write()
    assert lab[1].core.status()["commit"] < index, "its own write alone is no majority"
    lab[2].write()
    lab[2].drive()
    lab[1].core.step(lab[2].outbox[-1][1])
    assert lab[1].core.status()["commit"] == index


def appends(node: Node, to: int) -> list[bytes]:
    """AppendEntries with entries that a node wants to send to `to`, taken from it. u32 at 88 of the wire: how many."""
    node.drive()
    out = [d for t, d in node.outbox if t == to and TYPES[d[5]] == "append" and int.from_bytes(d[88:92], "little")]
    node.outbox.clear()
    return out


def test_what_is_proposed_while_a_batch_is_out_goes_as_one_when_it_is_committed():
    lab = Lab(3)
    lab.elect(1)
    lab.put(1, b"first")
    (first,) = appends(lab[1], 2)
    for i in range(5):
        lab.put(1, b"%d" % i)
        assert appends(lab[1], 2) == []
    lab[1].write()
    lab[2].core.step(first)
    lab[2].drive()
    lab[2].write()
    lab[2].drive()
    lab[1].core.step(lab[2].outbox[-1][1])
    (batch,) = appends(lab[1], 2)
    assert int.from_bytes(batch[88:92], "little") == 5


def test_nothing_waits_for_a_batch_for_longer_than_a_tick():
    lab = Lab(3)
    lab.elect(1)
    lab.put(1, b"lost")
    assert len(appends(lab[1], 2)) == 1
    lab.put(1, b"next")
    assert appends(lab[1], 2) == []
    lab[1].core.tick()
    assert len(appends(lab[1], 2)) == 1


def test_entries_of_older_terms_are_committed_only_with_one_of_this_term():
    """Figure 8 of the paper: an entry of term 1 on a majority may still be overwritten, so it may not be counted."""
    lab = Lab(3)
    lab.elect(1)
    lab.isolate(1)
    index, term = lab.put(1, b"old")
    lab[1].drive()
    lab[1].write()
    lab.heal()
    lab[1].outbox.clear()
    core = lab[1].core
    core.step(message(1, "append_reply", 2, term + 1, flags=lib.CL_RAFT_REJECT, index=1))  # a later term: follower
    assert core.status()["role"] == "follower"
    for i in (2, 3):  # they forget that there was a leader, so they do not refuse to vote
        lab[i].crash()
        lab[i].restart()
    lab.elect(1)
    assert core.term_at(index) == term
    assert core.status()["commit"] > index
    assert core.term_at(core.status()["commit"]) == core.status()["term"]


def test_a_conflicting_tail_is_replaced_and_its_late_write_does_not_count():
    lab = Lab(3)
    lab.elect(1)
    lab.isolate(1)
    for i in range(5):
        lab.put(1, b"lost %d" % i)
    lab[1].drive()
    stale = [what for kind, what in lab[1].disk.pending if kind == "entry"]
    for _ in range(30):
        lab[1].core.tick()
    lab[2].core.campaign()
    for _ in range(30):
        for i in (2, 3):
            lab[i].core.tick()
        lab.settle()
    lab.put(lab.leader().id, b"kept")
    lab.settle()
    lab.heal()
    lab[1].write()
    lab.tick(30)
    assert lab[1].state == lab[2].state == lab[3].state
    assert all(not data.startswith(b"lost") for _, _, data in lab[1].state)
    before = lab[1].core.status()["durable"]
    for entry in stale:
        lab[1].core.persisted(entry)
    assert lab[1].core.status()["durable"] == before
    assert lab[1].core.counters()["persisted_stale"] > 0


def test_the_same_entry_written_twice_counts_when_its_second_write_is_durable():
    """Truncated and appended again, an entry has another generation: word of the first write is not of the second."""
    lab = Lab(3)
    lab.elect(1)
    index, _ = lab.put(1, b"x")
    lab[1].drive()
    entry = lab[1].core.entry(index)
    forged = type(entry)(entry.index, entry.term, entry.kind, entry.data, entry.generation + 1)
    lab[1].core.persisted(forged)
    assert lab[1].core.status()["durable"] < index
    lab[1].core.persisted(entry)
    assert lab[1].core.status()["durable"] == index


def test_a_failed_write_silences_a_node_for_good():
    lab = Lab(3)
    lab.elect(1)
    lab.put(1, b"x")
    lab[1].core.fail()
    assert seen(lab[1]) == []
    assert lab[1].core.step(message(1, "vote", 2, 9)) < 0
    for _ in range(50):
        lab[1].core.tick()
    assert seen(lab[1]) == []
    with pytest.raises(CorelaneError):
        lab.put(1, b"y")


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


def test_leadership_is_handed_over_without_waiting_for_a_timeout():
    lab = Lab(3)
    lab.elect(1)
    lab.put(1, b"x")
    lab[1].core.transfer(3)
    with pytest.raises(CorelaneError, match="under way"):
        lab.put(1, b"y")
    lab.settle()
    assert lab.leader() is lab[3]
    assert lab[3].core.status()["ticks"] == 0


def test_a_handover_to_a_node_that_is_gone_is_given_up():
    lab = Lab(3)
    lab.elect(1)
    lab.isolate(3)
    lab[1].core.transfer(3)
    lab.tick(11)
    lab.put(1, b"on it goes")


def test_a_handover_to_a_node_that_was_not_heard_from_lately_is_refused_and_commands_go_on():
    lab = Lab(3)
    lab.elect(1)
    lab.tick(5)
    lab.isolate(3)
    lab.tick(25)
    with pytest.raises(CorelaneError, match="has not heard from that node lately") as raised:
        lab[1].core.transfer(3)
    assert raised.value.errno == errno.EHOSTDOWN
    index, _ = lab.put(1, b"on it goes")
    lab.settle()
    assert lab[1].core.status()["commit"] == index
    lab[1].core.transfer(2)
    lab.settle()
    assert lab.leader() is lab[2]


def led(lab: Lab):
    """Who leads when time has passed for all nodes, as voters with a lease want it; else node 1 is elected."""
    for node in lab.nodes.values():
        for _ in range(10):
            node.core.tick()
    lab.settle()
    return lab.leader() or lab.elect(1)


def test_a_read_waits_for_a_round_and_a_lease_read_does_not():
    for lease in (0, 1):
        lab = Lab(3, lease_reads=lease)
        leader = led(lab)
        lab.tick(3)
        leader.answers.clear()
        leader.core.read_index(7)
        leader.answers += leader.core.reads()
        assert bool(leader.answers) == bool(lease)
        lab.settle()
        assert leader.answers == [(7, leader.core.status()["commit"])]


def test_a_read_does_not_join_a_round_that_is_on_its_way():
    """Its answers may have been given before the read was asked for, and another may lead since."""
    lab = Lab(3)
    leader = lab.elect(1)
    lab.tick(3)
    leader.answers.clear()
    for _ in range(2):
        leader.core.tick()
    lab.collect()
    while lab.wire:
        lab.deliver()
    answers = [data for i in (2, 3) for _, data in lab[i].outbox]
    assert len(answers) == 2
    for i in (2, 3):
        lab[i].outbox.clear()
    leader.core.read_index(7)
    for data in answers:
        leader.core.step(data)
    leader.drive()
    assert leader.answers == []
    lab.settle()
    assert leader.answers == [(7, leader.core.status()["commit"])]


def test_a_lease_ends_with_a_transfer_and_before_others_may_be_elected():
    lab = Lab(3, lease_reads=1)
    leader = led(lab)
    lab.tick(2)
    s = leader.core.status()
    assert s["ticks"] < s["lease_until_tick"] <= s["ticks"] + 9 - 2
    leader.core.transfer(next(i for i in lab.nodes if i != leader.id))
    assert leader.core.status()["lease_until_tick"] == 0


def test_a_follower_asks_its_leader_for_a_read_index():
    lab = Lab(3)
    lab.elect(1)
    lab.tick(2)
    lab[2].core.read_index(9)
    lab.settle()
    assert lab[2].answers == [(9, lab[1].core.status()["commit"])]


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


def test_a_lease_is_not_lent_to_a_follower():
    """The leader's clock was not looked at for a message: its ticks may be late, and its lease over."""
    lab = Lab(3, lease_reads=1)
    leader = led(lab)
    lab.tick(2)
    assert leader.core.status()["ticks"] < leader.core.status()["lease_until_tick"]
    follower = next(n for i, n in lab.nodes.items() if i != leader.id)
    follower.core.read_index(9)
    lab.settle()
    assert follower.answers == [(9, leader.core.status()["commit"])]
    assert leader.core.counters()["reads_by_lease"] == 0


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


def test_messages_of_another_cluster_or_damaged_ones_are_refused_and_counted():
    node = one()
    good = message(1, "append", 2, 1)
    assert node.core.step(message(1, "append", 2, 1, cluster=5)) < 0
    for at in range(len(good)):
        assert node.core.step(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]) < 0
    assert node.core.step(good[:-1]) < 0
    wire = node.core.wire
    assert wire["other_cluster"] == 1
    assert sum(wire.values()) == len(good) + 2
    assert wire["decoded"] == 0
    assert node.core.status()["term"] == 0


def test_a_probe_has_its_entries_once_and_heartbeats_none():
    """The transport keeps what it took; a follower that does not answer is not sent the same with each heartbeat."""
    lab = Lab(3)
    lab[3].crash()
    lab.elect(1)
    lab.put(1, bytes(200))
    long = 0
    for _ in range(50):
        lab[1].core.tick()
        lab[1].drive()
        long += sum(to == 3 and len(data) > 200 for to, data in lab[1].outbox)
        lab.settle()
    assert long <= 1
    lab[3].restart()
    lab.tick(5)
    assert lab[3].state == lab[1].state


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
