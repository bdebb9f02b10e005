"""The voters that a group began with: decided once, whatever its nodes are started with later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from raftdisks import Disk
from raftnodes import Nodes

from corelane.apps._native import ffi, lib


@pytest.fixture
def disks() -> Iterator[list[Disk]]:
    made = [Disk(seed=i + 1) for i in range(5)]
    yield made
    for disk in made:
        disk.close()


def cluster(disks: list[Disk], n: int = 3) -> Nodes:
    return Nodes(n, {i: disks[i - 1].open() for i in range(1, n + 1)})


def start(nodes: Nodes, disks: list[Disk], i: int, peers: list[int]) -> None:
    """Start node i, again if it was there, with these first members; none: it joins."""
    if i in nodes.nodes:
        disks[i - 1].crash()
        nodes.stop(i)
    usual, nodes.group = nodes.group, peers
    nodes.start(i, disks[i - 1].open())
    nodes.group = usual


def status(nodes: Nodes, i: int) -> tuple[bool, int, list[int]]:
    """Whether it leads, its term, its voters."""
    s = ffi.new("struct cl_raft_status *")
    lib.cl_raft_status(nodes.nodes[i].core, s)
    return s.role == lib.CL_RAFT_LEADER, int(s.term), sorted(s.members.voters[0 : s.members.n_voters])


def leaders(nodes: Nodes) -> list[int]:
    return [i for i in nodes.nodes if status(nodes, i)[0]]


def divide(nodes: Nodes, one: set[int]) -> None:
    """Nothing goes between these and the others."""
    post = nodes._post
    nodes._post = lambda source, to, frame: (source in one) != (to in one) or post(source, to, frame)


def first_voters(nodes: Nodes, i: int) -> list[int]:
    ids = ffi.new("uint32_t[16]")
    return list(ids[0 : lib.cl_raft_node_first_voters(nodes.nodes[i].ptr, ids)])


def digest(disk: Disk) -> int:
    """Of the first voters, as its log has it."""
    meta = ffi.new("uint8_t[256]")
    assert lib.cl_log_meta_get(disk.log, meta) > 64
    return int.from_bytes(ffi.buffer(meta, 64)[56:64], "little")


def change(nodes: Nodes, voters: list[int], learners: list[int] = ()) -> int:
    core = nodes.nodes[nodes.leader()].core
    rc = lib.cl_raft_change_members(core, voters, len(voters), list(learners), len(learners))
    nodes.run(50)
    return rc


@pytest.mark.parametrize("all_again", [False, True])
def test_a_node_started_with_a_longer_list_makes_no_second_majority(disks, all_again):
    nodes = cluster(disks)
    assert nodes.command(nodes.leader(), b"a") == ("ok", b"1")
    start(nodes, disks, 1, [1, 2, 3, 4, 5])
    start(nodes, disks, 4, [])
    start(nodes, disks, 5, [])
    nodes.run(60)
    nodes.frames.clear()
    divide(nodes, {2, 3})
    if all_again:
        for i in (1, 2, 3):
            start(nodes, disks, i, [1, 2, 3, 4, 5] if i == 1 else [1, 2, 3])
    nodes.run(300)
    assert len(leaders(nodes)) == 1
    assert leaders(nodes)[0] in (2, 3)
    assert nodes.command(leaders(nodes)[0], b"red") == ("ok", b"2")
    assert nodes.command(1, b"blue") != ("ok", b"2")
    del nodes._post
    nodes.run(300)
    for i in (1, 2, 3):
        assert nodes.machines[i].commands[:2] == [b"a", b"red"]
        assert status(nodes, i)[2] == [1, 2, 3]
    for i in (4, 5):
        assert nodes.machines[i].commands == []


def test_a_fourth_node_is_added_after_all_were_started_with_it_among_their_peers(disks):
    nodes = cluster(disks)
    assert nodes.command(nodes.leader(), b"a")[0] == "ok"
    for i in (1, 2, 3):
        start(nodes, disks, i, [1, 2, 3, 4])
        nodes.run(60)
    start(nodes, disks, 4, [])
    nodes.run(60)
    assert [status(nodes, i)[2] for i in (1, 2, 3, 4)] == [[1, 2, 3]] * 3 + [[]]
    assert change(nodes, [1, 2, 3], [4]) == 0
    assert change(nodes, [1, 2, 3, 4]) == 0
    assert [status(nodes, i)[2] for i in (1, 2, 3, 4)] == [[1, 2, 3, 4]] * 4
    nodes.cut = {nodes.leader()}
    nodes.run(300)
    leader = nodes.leader()
    assert nodes.command(leader, b"b") == ("ok", b"2")  # three of four, and 4 is one of them
    nodes.run(20)
    assert nodes.machines[4].commands == [b"a", b"b"]
    nodes.cut |= {next(i for i in (1, 2, 3) if i not in nodes.cut)}
    nodes.run(300)
    assert leaders(nodes) == [] or set(leaders(nodes)) <= nodes.cut  # two of four are no majority


@pytest.mark.parametrize("peers", [[], [1], [2, 3], [1, 2, 3, 4, 5]])
def test_a_restarted_node_has_the_voters_that_it_began_with(disks, peers):
    nodes = cluster(disks)
    assert nodes.command(nodes.leader(), b"a")[0] == "ok"
    for i in (1, 2, 3):
        start(nodes, disks, i, peers)
        nodes.nodes[i].poll()
        assert status(nodes, i)[2] == first_voters(nodes, i) == [1, 2, 3]
    assert nodes.command(nodes.leader(), b"b") == ("ok", b"2")


def test_the_first_voters_are_durable_before_a_node_says_anything(disks):
    """A node that never heard of anybody, started again with another list."""
    nodes = Nodes(0)
    start(nodes, disks, 1, [1, 2, 3])
    disks[0].faults(hang=1)
    nodes.run(200)
    assert nodes.nodes[1].state == "recovering"
    assert not nodes.frames
    disks[0].faults()
    nodes.run(1)
    assert nodes.nodes[1].state == "running"
    start(nodes, disks, 1, [1])
    nodes.run(200)
    assert status(nodes, 1)[2] == [1, 2, 3]
    assert leaders(nodes) == []


def test_nodes_that_began_with_other_voters_refuse_each_other(disks):
    nodes = Nodes(0)
    for i, peers in ((1, [1, 2, 3]), (2, [3, 2, 1]), (3, [1, 2, 3, 4]), (4, [1, 2, 3, 4])):
        start(nodes, disks, i, peers)
    nodes.run(200)
    assert leaders(nodes) in ([1], [2])
    assert nodes.command(leaders(nodes)[0], b"a") == ("ok", b"1")
    for i in (1, 2, 3):  # nobody speaks to 4
        counters = nodes.nodes[i].counters()
        assert counters["other_voters"] > 0
        assert counters["other_voters"] == counters["frames_refused"] - counters["unknown_incarnation"]
        assert counters["other_voters_node"] in ((3, 4) if i < 3 else (1, 2))
    assert nodes.machines[3].commands == nodes.machines[4].commands == []


def test_a_node_without_a_log_that_began_with_other_voters_is_refused():
    nodes = Nodes(3)
    nodes.group = [1, 2, 3, 4]
    nodes.start(4)
    nodes.group = [1, 2, 3]
    nodes.run(200)
    assert nodes.command(nodes.leader(), b"a")[0] == "ok"
    assert nodes.nodes[4].leader == 0
    assert nodes.nodes[4].counters()["other_voters_node"] in (1, 2, 3)
    assert nodes.nodes[1].counters()["other_voters_node"] == 4


def test_who_joins_learns_of_the_first_voters_and_keeps_that(disks):
    nodes = cluster(disks)
    assert nodes.command(nodes.leader(), b"a")[0] == "ok"
    start(nodes, disks, 4, [])
    assert change(nodes, [1, 2, 3], [4]) == 0
    assert nodes.machines[4].commands == [b"a"]
    start(nodes, disks, 4, [4])  # a list that would let it lead by itself
    assert {digest(disks[i]) for i in range(4)} == {digest(disks[0])} != {0}
    nodes.run(50)
    assert first_voters(nodes, 4) == []
    assert status(nodes, 4)[2] == [1, 2, 3]
    assert nodes.machines[4].commands == [b"a"]
    start(nodes, disks, 5, [5])
    nodes.run(50)
    assert change(nodes, [1, 2, 3], [4, 5]) == 0
    assert nodes.machines[5].commands == []
    assert nodes.nodes[5].counters()["other_voters_node"] in (1, 2, 3, 4)


def why_it_stops(log) -> str:
    """Of a node that is started on it."""
    nodes = Nodes(0)
    nodes.group = [1, 2, 3]
    nodes.start(1, log)
    nodes.run(5)
    assert nodes.nodes[1].state == "stopped"
    return nodes.nodes[1].why


def test_a_log_with_entries_that_does_not_say_who_voted_first_is_refused(disks):
    log = disks[0].open()
    done = ffi.new("struct cl_log_op *", {"data": ffi.from_buffer(b"x"), "bytes": 1, "kind": 1, "tag": 1})
    assert lib.cl_log_append(log, done) == 0
    while lib.cl_log_durable_index(log) < 1:
        lib.cl_log_pump(log)
    assert "up to 1, but not who voted first" in why_it_stops(log)


def test_a_log_of_another_version_is_refused(disks):
    log = disks[0].open()
    old = b"CLRM" + bytes(52)  # as it was before it said who voted first
    op = ffi.new("struct cl_log_op *", {"data": ffi.from_buffer(old), "bytes": len(old)})
    assert lib.cl_log_meta_set(log, op) == 0
    for _ in range(50):
        lib.cl_log_pump(log)
    assert "not that of a Raft node of versions 4 to 5" in why_it_stops(log)


def test_a_log_of_the_version_before_is_read_and_written_on_as_of_this_one(disks):
    """Once that has happened who knows the older one only must not read it."""
    nodes = Nodes(1, logs={1: disks[0].open()})
    assert nodes.command(nodes.leader(), b"a") == ("ok", b"1")
    meta = ffi.new("uint8_t[256]")
    size = lib.cl_log_meta_get(disks[0].log, meta)
    assert int.from_bytes(bytes(meta[4:8]), "little") == lib.CL_RAFT_NODE_VERSION
    ffi.memmove(meta + 4, lib.CL_RAFT_NODE_VERSION_LEAST.to_bytes(4, "little"), 4)
    op = ffi.new("struct cl_log_op *", {"data": meta, "bytes": size})
    assert lib.cl_log_meta_set(disks[0].log, op) == 0
    while lib.cl_log_busy(disks[0].log):
        lib.cl_log_pump(disks[0].log)
    nodes.stop(1)
    disks[0].crash(power=False)
    nodes.start(1, disks[0].open())
    nodes.settle()
    assert nodes.command(nodes.leader(), b"b") == ("ok", b"2")
    lib.cl_log_meta_get(disks[0].log, meta)
    assert int.from_bytes(bytes(meta[4:8]), "little") == lib.CL_RAFT_NODE_VERSION
    nodes.stop(1)
