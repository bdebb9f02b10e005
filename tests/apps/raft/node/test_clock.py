"""The log's clock where nothing is written: a machine that ages has it go on with what is read."""

from __future__ import annotations

import errno

import pytest
from raftnodes import Nodes

from corelane.apps._native import ffi, lib


def clock(nodes: Nodes, i: int) -> int:
    return int(lib.cl_raft_node_clock_ms(nodes.nodes[i].ptr))


def last(nodes: Nodes, i: int) -> int:
    status = ffi.new("struct cl_raft_status *")
    lib.cl_raft_status(nodes.nodes[i].core, status)
    return int(status.last)


@pytest.mark.parametrize("lease_reads", [0, 1])
@pytest.mark.parametrize("leads", [True, False], ids=["asked of the leader", "of a follower"])
def test_a_read_is_answered_by_a_clock_that_is_a_second_old_at_most(leads: bool, lease_reads: int) -> None:
    nodes = Nodes(3, ages_ms=1000, lease_reads=lease_reads)
    leader = nodes.leader()
    asked = leader if leads else 1 + leader % 3
    assert nodes.command(leader, b"a") == ("ok", b"1")
    for _ in range(3):
        before = clock(nodes, leader), last(nodes, leader)
        nodes.run(3000)
        assert (clock(nodes, leader), last(nodes, leader)) == before
        answer = nodes.query(asked)
        assert answer is not None
        assert answer[0] == "ok"
        assert clock(nodes, leader) == nodes.wall_ms
        assert last(nodes, leader) == before[1] + 1
        nodes.run(900)
        nodes.query(asked)
        assert last(nodes, leader) == before[1] + 1  # young enough
    nodes.run(20)
    assert len({clock(nodes, i) for i in nodes.group}) == 1
    assert all(m.commands == [b"a"] for m in nodes.machines.values())


def test_reads_of_a_machine_that_does_not_age_write_nothing() -> None:
    nodes = Nodes(3)
    leader = nodes.leader()
    nodes.command(leader, b"a")
    before = last(nodes, leader)
    nodes.run(3000)
    answer = nodes.query(leader)
    assert answer is not None
    assert answer[0] == "ok"
    assert last(nodes, leader) == before


def test_a_read_that_waits_for_the_clock_is_asked_again_when_the_leader_is_cut_off() -> None:
    nodes = Nodes(3, ages_ms=1000, lease_reads=1)
    leader = nodes.leader()
    nodes.command(leader, b"a")
    nodes.run(3000)
    nodes.cut = {leader}
    assert nodes.query(leader) is None  # by its lease it might be answered, but the clock's entry finds no majority
    token = nodes.token
    nodes.run(2000)
    assert nodes.answers[token] == [("retry", b"")]
    other = nodes.leader()
    nodes.cut = set()
    nodes.run(200)
    answer = nodes.query(other)
    assert answer is not None
    assert answer[0] == "ok"


def test_many_reads_wait_for_one_entry() -> None:
    nodes = Nodes(3, ages_ms=1000)
    leader = nodes.leader()
    nodes.command(leader, b"a")
    nodes.run(3000)
    before = last(nodes, leader)
    for token in range(1000, 1010):
        nodes.nodes[leader].query(b"", token)
    nodes.settle()
    assert {nodes.answers[token][0][0] for token in range(1000, 1010)} == {"ok"}
    assert last(nodes, leader) == before + 1


def ahead(nodes: Nodes, i: int) -> int:
    return int(lib.cl_raft_node_clock_ahead_ms(nodes.nodes[i].ptr))


YEAR_MS = 365 * 24 * 3600 * 1000


@pytest.mark.parametrize("off_ms", [YEAR_MS, -YEAR_MS // 2], ids=["ahead", "behind"])
def test_a_clock_that_was_wrong_at_first_is_seen_and_set(off_ms: int) -> None:
    """The first command's stamp is taken as it is, so a wall clock that was wrong then is for ever."""
    nodes = Nodes(3, session_ms=10_000)
    nodes.wall_ms = 2 * YEAR_MS + off_ms
    leader = nodes.leader()
    assert nodes.command(leader, b"a") == ("ok", b"1")
    session = nodes.session(leader)
    nodes.wall_ms -= off_ms  # somebody mends the machines' clocks
    nodes.run(20)
    assert all(abs(ahead(nodes, i) - off_ms) < 1000 for i in nodes.group)
    assert lib.cl_raft_node_set_clock(nodes.nodes[1 + leader % 3].ptr, nodes.wall_ms) == -errno.EPERM
    assert lib.cl_raft_node_set_clock(nodes.nodes[leader].ptr, 0) == -errno.EINVAL
    assert lib.cl_raft_node_set_clock(nodes.nodes[leader].ptr, nodes.wall_ms) == 0
    nodes.settle()
    nodes.run(20)
    assert all(abs(ahead(nodes, i)) < 1000 for i in nodes.group)
    assert {nodes.nodes[i].counters()["clock_sets"] for i in nodes.group} == {1}
    assert nodes.command(leader, b"b", session=session, sequence=1) == ("ok", b"2")  # it is as old as before
    nodes.run(20)
    assert all(abs(clock(nodes, i) - nodes.wall_ms) < 1000 for i in nodes.group)
    nodes.run(9000)
    assert nodes.command(leader, b"c", session=session, sequence=2) == ("ok", b"3")


def test_a_clock_that_was_set_stays_so_with_the_next_leader() -> None:
    nodes = Nodes(3)
    nodes.wall_ms = YEAR_MS
    leader = nodes.leader()
    nodes.command(leader, b"a")
    nodes.wall_ms = YEAR_MS // 2
    assert lib.cl_raft_node_set_clock(nodes.nodes[leader].ptr, nodes.wall_ms) == 0
    nodes.settle()
    nodes.cut = {leader}
    nodes.run(50)
    following = nodes.leader()
    assert following != leader
    assert nodes.command(following, b"b") == ("ok", b"2")
    assert abs(clock(nodes, following) - nodes.wall_ms) < 1000
