"""Nodes on logs that survive: restarts, crashes at any step, disks that fail, fill up, belong to another node."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from cltest.cbuild import setup_py
from raftdisks import Disk
from raftnodes import Nodes

from corelane.apps._native import lib
from corelane.runtime.errors import CorelaneError

Program = Callable[..., Callable[..., str]]


@pytest.fixture
def disks() -> Iterator[list[Disk]]:
    made: list[Disk] = []
    yield made
    for disk in made:
        disk.close()


def cluster(disks: list[Disk], n: int = 3, **settings: int) -> Nodes:
    disks += [Disk(seed=i + 1) for i in range(n)]
    return Nodes(n, {i + 1: d.open() for i, d in enumerate(disks)}, **settings)


def restart(nodes: Nodes, disks: list[Disk], i: int, power: bool = True) -> None:
    """Crash node i, unless it is down, with the power of its disk or alone, and start it from its disk."""
    if i in nodes.nodes:
        disks[i - 1].crash(power)
        nodes.stop(i)
    nodes.start(i, disks[i - 1].open())


@pytest.mark.parametrize("power", [True, False])
def test_a_cluster_that_lost_its_power_or_processes_has_all_that_was_acknowledged(disks, power):
    nodes = cluster(disks)
    leader = nodes.leader()
    sent = [b"%d" % n for n in range(50)]
    assert [nodes.command(leader, c)[0] for c in sent] == ["ok"] * 50
    for i in (1, 2, 3):
        restart(nodes, disks, i, power)
    assert nodes.query(nodes.leader()) == ("ok", b",".join(sent))


@pytest.mark.parametrize("power", [True, False])
def test_a_restarted_node_votes_as_it_did(disks, power):
    nodes = cluster(disks)
    leader = nodes.leader()
    other = 1 + leader % 3

    status = nodes_status(nodes, other)
    restart(nodes, disks, other, power)
    nodes.nodes[other].poll()
    again = nodes_status(nodes, other)
    assert (again["term"], again["vote"]) == (status["term"], status["vote"])


def nodes_status(nodes: Nodes, i: int) -> dict[str, int]:
    from corelane.apps._native import ffi

    s = ffi.new("struct cl_raft_status *")
    lib.cl_raft_status(nodes.nodes[i].core, s)
    return {n: int(getattr(s, n)) for n in ("term", "vote", "commit", "role", "disk_waits_ticks")}


def test_snapshots_and_compacted_logs_come_back(disks):
    nodes = cluster(disks)
    leader = nodes.leader()
    s = nodes.session(leader)
    for n in range(1, 401):
        assert nodes.command(leader, b"%03d" % n * 20, session=s, sequence=n)[0] == "ok"
    assert nodes.nodes[leader].counters()["snapshots"] > 1
    before = list(nodes.machines[leader].commands)
    for i in (1, 2, 3):
        restart(nodes, disks, i)
    leader = nodes.leader()
    assert nodes.command(leader, b"x", session=s, sequence=400) == ("ok", b"400")
    assert nodes.machines[leader].commands == before


def test_a_snapshot_that_was_installed_comes_back(disks):
    nodes = cluster(disks)
    leader = nodes.leader()
    behind = 1 + leader % 3
    nodes.cut.add(behind)
    for n in range(400):
        assert nodes.command(leader, b"%03d" % n * 20)[0] == "ok"
    nodes.cut.clear()
    nodes.run(100)
    assert nodes.machines[behind].commands == nodes.machines[leader].commands
    restart(nodes, disks, behind)
    nodes.run(50)
    assert nodes.machines[behind].commands == nodes.machines[leader].commands


@pytest.mark.parametrize("round", range(8))
def test_nothing_acknowledged_is_lost_by_crashes_of_either_kind_and_failed_writes(disks, seed, round):
    """What is found after a process ended alone may be in the disk's cache, and a later loss of power takes it."""
    rng = random.Random(seed + round)
    nodes = cluster(disks, seed=rng.randrange(1 << 30))
    acknowledged: list[bytes] = []
    for n in range(300):
        if rng.random() < 0.05:
            rng.choice(disks).faults(write_error=1.0)
        for i, node in list(nodes.nodes.items()):
            if rng.random() < (0.5 if node.state == "stopped" else 0.03):
                disks[i - 1].crash(power=rng.random() < 0.5)
                nodes.stop(i)
        for i in (1, 2, 3):
            if i not in nodes.nodes and rng.random() < 0.3:
                disks[i - 1].faults()
                nodes.start(i, disks[i - 1].open())
        nodes.run(rng.randrange(3))
        if nodes.nodes:
            command = b"%d-" % n * rng.randint(1, 30)
            answer = nodes.command(rng.choice(list(nodes.nodes)), command)
            if answer and answer[0] == "ok":
                acknowledged.append(command)
    for i in (1, 2, 3):
        disks[i - 1].faults()
        restart(nodes, disks, i)
    leader = nodes.leader()
    nodes.run(50)
    kept = nodes.machines[leader].commands
    assert len(acknowledged) > 50
    assert [c for c in kept if c in set(acknowledged)] == acknowledged
    assert all(m.commands == kept for m in nodes.machines.values())


def test_a_disk_that_fails_silences_its_node_and_nobody_else(disks):
    nodes = cluster(disks)
    leader = nodes.leader()
    disks[leader - 1].faults(fail_after=1)
    for n in range(3):
        nodes.command(leader, b"%d" % n)
    nodes.run(5)
    assert nodes.nodes[leader].state == "stopped"
    assert "votes no more" in nodes.nodes[leader].why
    frames = len(nodes.frames)
    nodes.nodes[leader].poll()
    assert len(nodes.frames) == frames
    nodes.cut.add(leader)
    new = nodes.leader()
    assert nodes.command(new, b"b")[0] == "ok"


def test_a_leader_whose_disk_hangs_is_replaced_and_takes_part_again_when_it_goes_on(disks):
    nodes = cluster(disks)
    leader = nodes.leader()
    disks[leader - 1].faults(hang=1)
    assert nodes.command(leader, b"a")[0] == "ok"
    nodes.run(60)
    assert nodes_status(nodes, leader)["role"] == lib.CL_RAFT_FOLLOWER
    new = nodes.leader()
    assert new != leader
    assert nodes.command(new, b"b")[0] == "ok"
    disks[leader - 1].faults()
    nodes.run(20)
    status = nodes_status(nodes, leader)
    assert status["role"] == lib.CL_RAFT_FOLLOWER
    assert status["disk_waits_ticks"] == 0
    assert nodes.query(leader) == ("ok", b"a,b")


def test_a_node_shows_that_its_log_owes_it_an_answer_whatever_it_asked_for(disks):
    """An entry, a term and what it reads at its start: odd meanwhile, and another number with each answer."""

    def awaits(i: int) -> int:
        return int(lib.cl_raft_node_awaits(nodes.nodes[i].ptr))

    nodes = cluster(disks)
    leader = nodes.leader()
    nodes.run(5)
    before = awaits(leader)
    assert before % 2 == 0
    disks[leader - 1].faults(hang=1)
    assert nodes.command(leader, b"a")[0] == "ok"
    hung = awaits(leader)
    nodes.run(5)
    assert awaits(leader) == hung
    assert hung % 2
    disks[leader - 1].faults()
    nodes.run(5)
    assert awaits(leader) > hung
    assert awaits(leader) % 2 == 0

    other = 1 + leader % 3
    assert awaits(other) % 2 == 0
    disks[other - 1].faults(hang=1)
    nodes.stop(leader)  # no entry comes: only a term, or a vote
    nodes.run(60)
    hung = awaits(other)
    status = nodes_status(nodes, other)
    assert hung % 2
    nodes.run(5)
    assert awaits(other) == hung
    disks[other - 1].faults()
    nodes.leader()
    nodes.run(5)
    assert awaits(other) > hung
    assert nodes_status(nodes, other)["term"] >= status["term"]

    third = next(i for i in nodes.nodes if i != other)
    nodes.command(other, b"b")
    disks[third - 1].crash()
    nodes.stop(third)
    log = disks[third - 1].open()
    disks[third - 1].faults(hang=1)
    nodes.start(third, log)
    nodes.run(5)
    assert nodes.nodes[third].state == "recovering"
    hung = awaits(third)
    assert hung % 2
    disks[third - 1].faults()
    nodes.run(5)
    assert nodes.nodes[third].state == "running"
    assert awaits(third) > hung
    assert awaits(third) % 2 == 0


def test_a_log_owes_nothing_while_the_machine_loads_its_state(disks, monkeypatch):
    """Which may take longer than a disk may."""
    nodes = cluster(disks)
    leader = nodes.leader()
    for n in range(400):
        assert nodes.command(leader, b"%03d" % n * 20)[0] == "ok"
    disks[leader - 1].crash()
    nodes.stop(leader)
    nodes.start(leader, disks[leader - 1].open())
    node, machine = nodes.nodes[leader], nodes.machines[leader]
    load, owed = machine.load, []

    def slow(state: bytes) -> None:
        owed.append(int(lib.cl_raft_node_awaits(node.ptr)))
        load(state)

    monkeypatch.setattr(machine, "load", slow)
    nodes.run(5)
    assert node.state == "running"
    assert [word % 2 for word in owed] == [0]
    assert owed[0] > 0


def test_a_failed_flush_is_not_tried_again_as_if_nothing_had_happened(disks):
    nodes = cluster(disks)
    leader = nodes.leader()
    follower = 1 + leader % 3
    disks[follower - 1].faults(write_error=1.0, flush_error=1.0)
    assert nodes.command(leader, b"a")[0] == "ok"
    disks[follower - 1].faults()
    nodes.run(20)
    assert nodes.nodes[follower].state == "stopped"
    assert nodes_status(nodes, follower)["role"] == lib.CL_RAFT_FAILED


def test_a_full_disk_is_refused_or_compacted_and_never_success(disks):
    disks += [Disk(seed=i + 1, size=384 << 10, snapshot_bytes=64 << 10) for i in range(3)]
    nodes = Nodes(3, {i + 1: d.open() for i, d in enumerate(disks)}, entry_bytes=4096)
    leader = nodes.leader()
    done = []
    for n in range(600):
        answer = nodes.command(nodes.leader() if leader not in nodes.nodes else leader, b"%04d" % n * 10)
        if answer and answer[0] == "ok":
            done.append(b"%04d" % n * 10)
        nodes.run(1)
    assert len(done) > 100
    for i in (1, 2, 3):
        restart(nodes, disks, i)
    leader = nodes.leader()
    kept = nodes.machines[leader].commands
    assert [c for c in kept if c in set(done)] == done


def test_a_state_that_outgrew_its_snapshots_is_counted_and_not_saved_over_and_over(disks):
    disks += [Disk(seed=i + 1, size=512 << 10, snapshot_bytes=64 << 10) for i in range(3)]
    nodes = Nodes(3, {i + 1: d.open() for i, d in enumerate(disks)})
    leader = nodes.leader()
    saves = [0]
    save = nodes.machines[leader].save

    def counted() -> bytes:
        saves[0] += 1
        return save()

    nodes.machines[leader].save = counted
    statuses = []
    for _ in range(400):
        answer = nodes.command(leader, b"x" * 900)
        statuses.append(answer[0] if answer else None)
        nodes.run(1)
    counters = nodes.nodes[leader].counters()
    assert nodes.nodes[leader].state == "running"
    assert counters["snapshots_too_large"] > 0
    assert saves[0] <= counters["snapshots"] + 4  # it waits for 0.1, 0.2, 0.4 s
    assert statuses[0] == "ok"
    assert statuses[-1] == "busy"
    nodes.machines[leader].commands.clear()  # as if it had become small again
    nodes.run(1000)
    assert nodes.nodes[leader].counters()["snapshots"] > counters["snapshots"]


def test_a_log_of_another_node_is_refused(disks):
    nodes = cluster(disks)
    nodes.leader()
    disks[0].crash()
    nodes.stop(1)
    disks[1].crash()
    nodes.stop(2)
    nodes.start(1, disks[1].open())
    nodes.nodes[1].poll()
    assert nodes.nodes[1].state == "stopped"
    assert "of node 2" in nodes.nodes[1].why


@pytest.mark.parametrize(("name", "value"), [("max_sessions", 7), ("session_ms", 12345), ("reply_bytes", 77)])
def test_a_log_that_was_written_with_other_group_settings_is_refused_with_both_values(disks, name, value):
    nodes = cluster(disks)
    assert nodes.command(nodes.leader(), b"one")[0] == "ok"
    disks[0].crash()
    nodes.stop(1)
    node = nodes.start(1, disks[0].open(), **{name: value})
    node.poll()
    assert node.state == "stopped"
    now = {"max_sessions": 1024, "session_ms": 3600000, "reply_bytes": 1400}
    assert ", ".join(f"{k} {v}" for k, v in now.items()) in node.why
    assert ", ".join(str(v) for v in {**now, name: value}.values()) in node.why
    assert node.why.endswith("start it with those of the log")
    restart(nodes, disks, 1)  # with what it was
    nodes.run(50)
    assert nodes.machines[1].commands == [b"one"]


def test_election_timeout_and_lease_may_change_when_all_nodes_are_stopped(disks):
    nodes = cluster(disks)
    assert nodes.command(nodes.leader(), b"one")[0] == "ok"
    for i in (1, 2, 3):
        disks[i - 1].crash()
        nodes.stop(i)
    nodes.settings |= {"election_ticks": 15, "lease_reads": 1}
    for i in (1, 2, 3):
        nodes.start(i, disks[i - 1].open())
    assert nodes.query(nodes.leader()) == ("ok", b"one")


@pytest.mark.parametrize("scenario", ["trim", "order"])
def test_nothing_counts_as_durable_before_it_is(c_program: Program, scenario: str) -> None:
    """Superblocks and flushes that end in another order than they began."""
    below = [s for s in setup_py().c_sources() if s.parts[0] in ("runtime", "drivers", "libos")]
    program = c_program("tests/apps/raft/node/c/disk_acks.c", [*below, "apps/raft/node/disk.c"], one_thread=True)
    assert program(scenario).endswith("ok\n")


def test_commands_that_the_log_does_not_take_are_refused_and_stop_nobody(disks):
    """The log takes records of a sixteenth of its ring at most; one too large would silence whoever leads, in turn."""
    disks.append(Disk(seed=1))
    log = disks[0].open()
    most = lib.cl_log_max_bytes(log)
    settings = {"log_bytes": 1 << 20}
    with pytest.raises(CorelaneError, match=f"do not fit the log, which takes {most}"):
        Nodes(1, {1: log}, **settings, entry_bytes=most + 1)
    nodes = Nodes(1, {1: log}, **settings, entry_bytes=0)  # as much as it takes
    assert nodes.command(nodes.leader(), bytes(most + 1))[0] == "too large"
    assert nodes.command(nodes.leader(), bytes(most // 2))[0] == "ok"
