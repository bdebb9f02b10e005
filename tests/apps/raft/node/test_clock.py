"""The log's clock where nothing is written: a machine that ages has it go on with what is read."""

from __future__ import annotations

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
