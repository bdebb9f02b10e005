"""A leader that sends entries to a quorum first (pace.c): who gets them at once, and that no more depends on it."""

from __future__ import annotations

from raftlab import Lab

from corelane.apps._native import lib


def sent(lab: Lab, leader: int = 1) -> set[int]:
    """To whom the leader wants to send entries now. They go on their way."""
    node = lab[leader]
    node.drive()
    out = set()
    for to, data in node.outbox:
        m = node.core.decode(data)
        if m.type == lib.CL_RAFT_APPEND and m.n_entries:
            out.add(to)
    lab.collect()
    return out


def thrifty(n: int = 3, **settings: int) -> Lab:
    """A group whose leader, node 1, has heard from all and is thrifty."""
    lab = Lab(n, **{"trailing_entries": 32, **settings})
    lab.elect(1)
    lab[1].core.thrifty()
    lab.tick(3)
    return lab


def front(lab: Lab) -> set[int]:
    return {id for id, p in lab[1].core.status()["peers"].items() if p["front"]}


def matches(lab: Lab, *ids: int) -> list[int]:
    return [lab[1].core.status()["peers"][id]["match"] for id in ids]


def put(lab: Lab, data: bytes = b"x") -> tuple[int, set[int]]:
    """Propose, without delivering anything: its index, and to whom it goes at once."""
    index, _ = lab.put(1, data)
    return index, sent(lab)


def committed(lab: Lab) -> int:
    return int(lab[1].core.status()["commit"])


def test_as_many_as_a_quorum_needs_get_it_at_once():
    for nodes, followers in ((3, 1), (4, 2), (5, 2), (7, 3)):
        lab = thrifty(nodes)
        index, at_once = put(lab)
        assert len(at_once) == followers
        assert at_once == front(lab)
        lab.settle()
        assert committed(lab) == index


def test_to_all_unless_it_is_asked_for():
    lab = Lab(3)
    lab.elect(1)
    lab.tick(3)
    assert put(lab)[1] == {2, 3}
    assert not front(lab)
    assert lab[1].core.counters()["thrifty_batches"] == 0


def test_who_trails_has_it_a_tick_later_also_if_nothing_else_happens():
    lab = thrifty()
    index, (first,) = put(lab)
    lab.settle()
    other = 5 - first
    assert matches(lab, first, other) == [index, index - 1]
    lab.tick()
    assert matches(lab, first, other) == [index, index]
    assert lab[1].core.counters()["spreads"] == 1
    assert lab[1].core.counters()["hedges"] == 0


def test_what_is_held_back_goes_in_one_message():
    lab = thrifty()
    for _ in range(5):
        put(lab)
        lab.settle()
    _, other = sorted({2, 3} - front(lab) | {0})
    lab[1].core.tick()
    lab[1].drive()
    m = [lab[1].core.decode(data) for to, data in lab[1].outbox if to == other]
    assert [f.n_entries for f in m if f.type == lib.CL_RAFT_APPEND and f.n_entries] == [5]


def test_no_more_is_held_back_than_a_compaction_leaves():
    lab = thrifty(trailing_entries=4)
    for _ in range(4):
        assert len(put(lab)[1]) == 1
        lab.settle()
    assert put(lab)[1] == {2, 3}


def test_no_more_is_held_back_than_a_message_takes():
    lab = thrifty(message_bytes=300)
    assert len(put(lab, b"x" * 200)[1]) == 1
    lab.settle()
    assert put(lab, b"x" * 200)[1] == {2, 3}


def test_a_compaction_leaves_what_is_held_back():
    lab = thrifty(message_bytes=4096)
    index, (first,) = put(lab)
    lab.settle()
    for _ in range(10):
        lab[1].core.propose(b"y" * 1000)  # more than a quarter of the log's memory, not on its way yet
    assert lab[1].core.compact(index, 1) <= index
    lab.tick(3)
    assert lab[1].core.counters()["snapshots_sent"] == 0
    assert matches(lab, first, 5 - first) == [committed(lab)] * 2


def test_a_front_that_is_silent_costs_a_tick_once():
    lab = thrifty()
    (first,) = front(lab) or put(lab)[1]
    lab.settle()
    lab.isolate(first)
    index, at_once = put(lab)
    assert at_once == {first}
    lab.settle()
    assert committed(lab) < index
    lab.tick()
    assert committed(lab) == index
    assert lab[1].core.counters()["overtaken"] == 1
    for _ in range(5):
        index, at_once = put(lab)
        assert at_once == {5 - first}
        lab.settle()
        assert committed(lab) == index


def test_who_came_back_trails():
    lab = thrifty()
    (first,) = put(lab)[1]
    lab.settle()
    lab.isolate(first)
    put(lab)
    lab.tick(3)
    lab.heal()
    lab.tick(5)
    index, at_once = put(lab)
    assert at_once == {5 - first}
    lab.tick()
    assert matches(lab, first) == [index]


def test_two_of_five_are_silent():
    lab = thrifty(5)
    gone = put(lab)[1]
    lab.settle()
    lab.isolate(*gone)
    index, at_once = put(lab)
    assert at_once == gone
    lab.tick()
    assert committed(lab) == index
    index, at_once = put(lab)
    assert at_once == {2, 3, 4, 5} - gone
    lab.settle()
    assert committed(lab) == index


def settle_without_own_disk(lab: Lab) -> None:
    """All is written and delivered but what node 1 writes."""
    lab.collect()
    while lab.wire or any(lab[i].disk.pending for i in (2, 3)):
        for i in (2, 3):
            lab[i].write()
        lab.collect()
        for _ in range(len(lab.wire)):
            lab.deliver()
        lab.collect()


def test_a_leader_whose_own_disk_is_late_takes_one_more_to_the_front():
    lab = thrifty()
    index, at_once = put(lab)
    settle_without_own_disk(lab)
    assert committed(lab) < index
    lab[1].core.tick()
    settle_without_own_disk(lab)
    assert committed(lab) == index
    index, at_once = put(lab)
    assert at_once == {2, 3}
    settle_without_own_disk(lab)
    assert committed(lab) == index
    for _ in range(12):  # and one less once it has kept up for some time
        put(lab)
        lab.tick()
    for _ in range(12):
        put(lab)
        lab[1].core.tick()
        lab.settle()
    assert len(put(lab)[1]) == 1


def test_both_majorities_of_a_joint_configuration_are_in_front():
    lab = Lab(3, spare=2, trailing_entries=32)
    lab.elect(1)
    lab[1].core.thrifty()
    lab[1].core.change_members({1, 2, 3}, {4, 5})
    lab.tick(3)
    put(lab)
    assert not front(lab) & {4, 5}, "learners trail"
    lab.tick(3)
    lab[1].core.change_members({1, 4, 5}, force=True)
    assert sent(lab) == {2, 3, 4, 5}, "a configuration goes to all"
    put(lab)
    lab[1].core.tick()  # the next batch goes, though the one before is not committed
    assert sent(lab) >= front(lab)
    assert len(front(lab) & {2, 3}) == 1
    assert len(front(lab) & {4, 5}) == 1
    lab.settle()
    assert not lab[1].core.status()["members"].outgoing
    index, at_once = put(lab)
    assert len(at_once) == 1
    assert at_once < {4, 5}
    lab.settle()
    assert committed(lab) == index


def test_a_leader_that_is_no_member_any_more_needs_all_of_its_quorum():
    lab = thrifty()
    lab.tick(3)
    lab[1].core.change_members({2, 3}, force=True)
    lab.tick(25)
    assert lab.leader() in (lab[2], lab[3])
    assert lab[2].core.status()["members"].voters == {2, 3}
    assert not lab[2].core.status()["members"].outgoing


def test_who_is_to_lead_gets_all_at_once():
    lab = thrifty()
    index, (first,) = put(lab)
    lab.settle()
    other = 5 - first
    assert matches(lab, other) == [index - 1]
    lab[1].core.transfer(other)
    assert sent(lab) == {other}
    lab.settle()
    assert lab.leader() is lab[other]


def test_reads_are_confirmed_by_all_that_they_were():
    lab = thrifty()
    put(lab)
    lab.settle()
    lab[1].core.read_index(7)
    lab[1].drive()
    assert {to for to, _ in lab[1].outbox} == {2, 3}
    lab.settle()
    assert [context for context, _ in lab[1].answers] == [7]


def test_heartbeats_go_to_all():
    lab = thrifty()
    put(lab)
    lab.settle()
    told = set()
    for _ in range(3):
        lab[1].core.tick()
        lab[1].drive()
        told |= {to for to, _ in lab[1].outbox}
        lab.settle()
    assert told == {2, 3}


def test_switched_off_it_keeps_nothing_back():
    lab = thrifty()
    _, (first,) = put(lab)
    lab.settle()
    lab[1].core.thrifty(False)
    assert sent(lab) == {5 - first}
    lab.settle()
    assert put(lab)[1] == {2, 3}


def test_who_is_far_behind_is_not_waited_for():
    lab = thrifty()
    (first,) = put(lab)[1]
    lab.settle()
    lab.isolate(first)
    for _ in range(40):
        put(lab)
        lab.tick()
        if len(lab[1].state) % 8 == 0:
            lab[1].compact()
    lab.heal()
    index, at_once = put(lab)
    assert at_once == {5 - first}
    lab.settle()
    assert committed(lab) == index
    lab.tick(30)
    assert matches(lab, first) == [index]
