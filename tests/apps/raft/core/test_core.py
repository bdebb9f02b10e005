"""The core, event by event: what the paper and the thesis ask of a node, and what must wait for the disk."""

from __future__ import annotations

import errno

import pytest
from raftlab import Lab, Node

from corelane.apps._native import ffi, lib
from corelane.apps.raft.core.core import Core
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
