"""A state machine in Python: what it raises, what it refuses, and replies that are longer than a node keeps."""

from __future__ import annotations

import errno

import pytest
from raftdisks import Disk
from raftnodes import Journal, Nodes

from corelane.apps._native import ffi, lib
from corelane.apps.raft.node.machine import CommandRefused

ROOM = 64


class Strict(Journal):
    """Refuses what begins with "no", in a reply of its own."""

    def apply(self, command: bytes) -> bytes:
        """Keep it, or say no."""
        if command.startswith(b"no"):
            raise CommandRefused(b"not " + command)
        if command.startswith(b"long"):
            super().apply(command)
            return b"x" * int(command[4:])
        return super().apply(command)

    def query(self, query: bytes) -> bytes:
        """All of it, or as many bytes as are asked for."""
        if query.startswith(b"no"):
            raise CommandRefused(b"not " + query)
        return b"x" * int(query) if query else super().query(query)


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Nodes:
    monkeypatch.setattr("raftnodes.Journal", Strict)
    cluster = Nodes(3, reply_bytes=ROOM)
    cluster.leader()
    return cluster


def other(nodes: Nodes) -> int:
    """One that does not lead."""
    return 1 + nodes.leader() % 3


def counted(nodes: Nodes, name: str) -> list[int]:
    return [nodes.nodes[i].counters()[name] for i in (1, 2, 3)]


@pytest.mark.parametrize("leads", [True, False])
def test_a_replica_whose_machine_raises_stops_and_says_what(nodes: Nodes, leads: bool) -> None:
    leader = nodes.leader()
    victim = leader if leads else other(nodes)
    assert nodes.command(leader, b"a") == ("ok", b"1")
    kept = nodes.machines[victim].apply

    def apply(command: bytes) -> bytes:
        if command == b"b":
            raise MemoryError("no room for b")
        return kept(command)

    nodes.machines[victim].apply = apply  # type: ignore[method-assign]
    answer = nodes.command(leader, b"b")
    assert answer == (("retry", b"") if leads else ("ok", b"2"))
    nodes.run(20)  # the followers hear of the commit
    nodes.cut = {victim}
    assert nodes.command(nodes.leader(), b"c") == ("ok", b"3")
    nodes.run(20)
    assert {i: nodes.nodes[i].state == "stopped" for i in (1, 2, 3)} == {i: i == victim for i in (1, 2, 3)}
    why = nodes.nodes[victim].why
    assert "could not apply entry" in why
    assert "MemoryError: no room for b (test_machine.py:" in why
    assert [nodes.machines[i].commands for i in (1, 2, 3) if i != victim] == [[b"a", b"b", b"c"]] * 2


def test_one_that_does_not_answer_with_bytes_stops(nodes: Nodes) -> None:
    victim = other(nodes)
    nodes.machines[victim].apply = lambda _: "text"  # type: ignore[assignment,method-assign,return-value]
    assert nodes.command(nodes.leader(), b"a") == ("ok", b"1")
    nodes.run(20)
    assert "TypeError: the state machine returned str in the place of bytes" in nodes.nodes[victim].why


def test_a_command_that_is_refused_is_refused_everywhere_and_stops_nobody(nodes: Nodes) -> None:
    leader = nodes.leader()
    assert nodes.command(leader, b"no way") == ("refused", b"not no way")
    assert nodes.command(other(nodes), b"no way") == ("refused", b"not no way")
    assert nodes.query(leader, b"nothing") == ("refused", b"not nothing")
    assert nodes.command(leader, b"a") == ("ok", b"1")
    nodes.run(20)
    assert [nodes.machines[i].commands for i in (1, 2, 3)] == [[b"a"]] * 3
    assert sum(counted(nodes, "replies_refused")) == 2 * 3 + 1
    assert {n.state for n in nodes.nodes.values()} == {"running"}


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (b"no", ("refused", b"not no")),
        (b"long%d" % (ROOM + 1), ("reply too large", b"")),
        (b"long%d" % ROOM, ("ok", b"x" * ROOM)),
        (b"no" + b"x" * ROOM, ("refused", b"")),
    ],
)
def test_what_was_answered_is_answered_again_also_by_one_that_has_it_from_a_snapshot(
    nodes: Nodes, command: bytes, answer: tuple[str, bytes]
) -> None:
    leader = nodes.leader()
    late = other(nodes)
    session = nodes.session(leader)
    nodes.cut = {late}
    assert nodes.command(leader, command, session=session, sequence=1) == answer
    for i in range(300):  # more than the log holds: the late one needs a snapshot
        assert nodes.command(leader, b"%d" % i) is not None
        if i % 50 == 0:
            nodes.nodes[leader].compact()
            nodes.settle()
    nodes.cut = set()
    nodes.run(200)
    assert nodes.machines[late].commands == nodes.machines[leader].commands
    before = nodes.nodes[late].counters()["duplicates"]
    nodes.cut = {leader}
    new = nodes.leader()
    assert nodes.command(new, command, session=session, sequence=1) == answer
    nodes.run(20)
    assert nodes.nodes[late].counters()["duplicates"] == before + 1


def test_a_reply_that_is_too_long_is_not_sent_and_its_command_is_applied(nodes: Nodes) -> None:
    leader = nodes.leader()
    assert nodes.command(leader, b"long%d" % ROOM) == ("ok", b"x" * ROOM)
    assert nodes.command(leader, b"long%d" % (ROOM + 1)) == ("reply too large", b"")
    assert nodes.command(other(nodes), b"long100000") == ("reply too large", b"")
    nodes.run(20)
    assert {len(nodes.machines[i].commands) for i in (1, 2, 3)} == {3}
    assert counted(nodes, "replies_too_large") == [2, 2, 2]


def test_an_answer_to_a_read_that_is_too_long_is_not_sent(nodes: Nodes) -> None:
    leader = nodes.leader()
    assert nodes.query(leader, b"%d" % ROOM) == ("ok", b"x" * ROOM)
    assert nodes.query(leader, b"%d" % (ROOM + 1)) == ("reply too large", b"")
    assert nodes.query(other(nodes), b"100000") == ("reply too large", b"")
    assert nodes.nodes[leader].counters()["replies_too_large"] == 2


def test_a_read_that_the_machine_cannot_answer_says_why(nodes: Nodes) -> None:
    leader = nodes.leader()
    for asked in (leader, other(nodes)):
        answer = nodes.query(asked, b"many")
        assert answer is not None
        assert answer[0] == "query failed"
        assert answer[1].startswith(b"ValueError: invalid literal for int")
        assert len(answer[1]) <= ROOM
    assert nodes.nodes[leader].counters()["queries_failed"] == 2
    assert nodes.query(leader) == ("ok", b"")


def test_a_machine_that_cannot_save_is_asked_again_and_told_of(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    leader = nodes.leader()
    node = nodes.nodes[leader]
    assert nodes.command(leader, b"a") == ("ok", b"1")
    kept = nodes.machines[leader].save

    def save() -> bytes:
        raise OSError("no room")

    nodes.machines[leader].save = save  # type: ignore[method-assign]
    for tries in (1, 2, 3):
        node.compact()
        nodes.settle()
        assert node.counters()["snapshots_failed"] == tries
        node.compact()
        nodes.settle()
        assert node.counters()["snapshots_failed"] == tries, "not before it has waited"
        nodes.run(100 << tries)
    assert node.counters()["snapshot_errno"] == errno.EIO
    assert [r.getMessage().partition(" (")[0] for r in caplog.records] == [
        "the state machine cannot save its state: OSError: no room"
    ]
    nodes.machines[leader].save = kept  # type: ignore[method-assign]
    nodes.run(2000)
    node.compact()
    nodes.settle()
    assert node.counters()["snapshots"] == 1
    assert node.state == "running"


def test_a_leader_that_stops_answers_commands_and_reads(nodes):
    leader = nodes.leader()
    node = nodes.nodes[leader]
    nodes.machines[leader].apply = lambda _: "text"  # type: ignore[assignment,method-assign,return-value]
    node.submit(b"one", 1)
    node.poll()
    nodes.burst([i for i in nodes.group if i != leader])
    node.query(b"", 2)  # its round has not gone out when the followers' acknowledgements make the node stop
    nodes.burst([leader])
    assert node.state == "stopped"
    assert [nodes.answers[token] for token in (1, 2)] == [[("retry", b"")]] * 2
    counters = node.counters()
    assert counters["answered"] == counters["commands"] + counters["queries"]
    node.query(b"", 3)
    assert nodes.answers[3][0][0] != "ok"


class Checked(Journal):
    """Takes only what begins with "a" into the log, and is broken by what begins with "ab"."""

    def check(self, command: bytes) -> None:
        """Of the command alone."""
        if command.startswith(b"raise"):
            raise ValueError(command.decode())
        if not command.startswith(b"a"):
            raise CommandRefused(b"not " + command)


@pytest.mark.parametrize("leads", [True, False])
def test_a_command_that_is_checked_and_refused_does_not_enter_the_log(
    monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    monkeypatch.setattr("raftnodes.Journal", Checked)
    nodes = Nodes(3, reply_bytes=ROOM)
    leader = nodes.leader()
    asked = leader if leads else other(nodes)
    assert nodes.command(asked, b"a") == ("ok", b"1")
    before = last_index(nodes, leader)
    session = nodes.session(leader)
    opened = last_index(nodes, leader)
    assert nodes.command(asked, b"b") == ("refused", b"not b")
    assert nodes.command(asked, b"b", session=session, sequence=1) == ("refused", b"not b")
    status, why = nodes.command(asked, b"raise this") or ("", b"")
    assert status == "refused"
    assert b"ValueError: raise this" in why
    assert last_index(nodes, leader) == opened == before + 1
    assert nodes.command(asked, b"a2", session=session, sequence=2) == ("ok", b"2")
    nodes.run(20)
    assert [nodes.machines[i].commands for i in (1, 2, 3)] == [[b"a", b"a2"]] * 3
    assert counted(nodes, "commands_refused")[leader - 1] == 3


def last_index(nodes: Nodes, i: int) -> int:
    status = ffi.new("struct cl_raft_status *")
    lib.cl_raft_status(nodes.nodes[i].core, status)
    return int(status.last)


class Atomic(Journal):
    """Fails at what begins with "bad", and has changed nothing then."""

    atomic = True

    def apply(self, command: bytes) -> bytes:
        """Keep it, or raise."""
        if command.startswith(b"bad"):
            raise ValueError(command.decode())
        return super().apply(command)


def test_an_atomic_machine_that_fails_changes_nothing_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftnodes.Journal", Atomic)
    nodes = Nodes(3)
    leader = nodes.leader()
    session = nodes.session(leader)
    first = nodes.command(leader, b"bad one", session=session, sequence=1)
    assert first is not None
    assert first[0] == "apply failed"
    assert b"ValueError: bad one" in first[1]
    assert nodes.command(other(nodes), b"bad one", session=session, sequence=1) == first  # the answer of then
    assert nodes.command(leader, b"good") == ("ok", b"1")
    nodes.run(20)
    assert {n.state for n in nodes.nodes.values()} == {"running"}
    assert [nodes.machines[i].commands for i in (1, 2, 3)] == [[b"good"]] * 3
    assert counted(nodes, "applies_failed") == [1, 1, 1]


@pytest.mark.parametrize("raises", [True, False])
def test_an_atomic_machine_that_one_replica_cannot_follow_stops_there(
    monkeypatch: pytest.MonkeyPatch, raises: bool
) -> None:
    """Of memory one has less than another; and what does not answer with bytes has been carried out."""
    monkeypatch.setattr("raftnodes.Journal", Atomic)
    nodes = Nodes(3)
    leader, victim = nodes.leader(), other(nodes)
    kept = nodes.machines[victim].apply

    def apply(command: bytes) -> bytes:
        if raises:
            raise MemoryError("none left")
        kept(command)
        return None  # type: ignore[return-value]

    nodes.machines[victim].apply = apply  # type: ignore[method-assign]
    assert nodes.command(leader, b"a") == ("ok", b"1")
    nodes.run(20)
    assert {i: nodes.nodes[i].state for i in (1, 2, 3)} == {
        i: "stopped" if i == victim else "running" for i in (1, 2, 3)
    }
    assert ("MemoryError: none left" if raises else "NoneType in the place of bytes") in nodes.nodes[victim].why
    assert counted(nodes, "applies_failed") == [0, 0, 0]


@pytest.mark.parametrize("text", ["\N{GREEK SMALL LETTER ALPHA}" * 100, "x" + "\N{SNOWMAN}" * 100, "\udcff"])
def test_why_a_machine_failed_can_be_read_in_any_script(nodes: Nodes, text: str) -> None:
    """Only so much of it is told, and it was cut inside a letter: then nothing was told at all."""
    victim = other(nodes)

    def apply(_command: bytes) -> bytes:
        raise ValueError(text)

    nodes.machines[victim].apply = apply  # type: ignore[method-assign]
    assert nodes.command(nodes.leader(), b"a") == ("ok", b"1")
    nodes.run(20)
    raw = ffi.string(lib.cl_raft_node_why(nodes.nodes[victim].ptr))
    assert "ValueError: " + text.encode(errors="backslashreplace").decode()[:20] in raw.decode()


def test_a_poisoned_group_comes_back_with_a_machine_that_refuses_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/raft.md says: it is committed and applied nowhere, so all may learn to refuse it before they start."""

    class Poisoned(Journal):
        def apply(self, command: bytes) -> bytes:
            if command == b"poison":
                raise ZeroDivisionError("nobody can apply that")
            return super().apply(command)

    class Mended(Journal):
        def apply(self, command: bytes) -> bytes:
            if command == b"poison":
                raise CommandRefused(b"it broke the group")
            return super().apply(command)

    disks = {i: Disk(i) for i in (1, 2, 3)}
    monkeypatch.setattr("raftnodes.Journal", Poisoned)
    nodes = Nodes(3, logs={i: d.open() for i, d in disks.items()})
    leader = nodes.leader()
    assert nodes.command(leader, b"a") == ("ok", b"1")
    nodes.command(leader, b"poison")
    nodes.run(200)  # one after the other leads, hears that it is committed, and stops; the last one leads nobody
    assert [n.state for n in nodes.nodes.values()].count("stopped") >= 2
    monkeypatch.setattr("raftnodes.Journal", Mended)
    for i, disk in disks.items():
        nodes.stop(i)
        disk.crash(power=False)
        nodes.start(i, disk.open())
    nodes.settle()
    assert nodes.command(nodes.leader(), b"b") == ("ok", b"2")
    nodes.run(20)
    assert [nodes.machines[i].commands for i in (1, 2, 3)] == [[b"a", b"b"]] * 3
    for i, disk in disks.items():
        nodes.stop(i)
        disk.close()


class Seeded(Journal):
    """Keeps the group's random word, and when it came."""

    def __init__(self) -> None:
        super().__init__()
        self.word = 0

    def seed(self, word: int) -> None:
        """Before all commands."""
        assert not self.commands
        assert not self.word
        self.word = word

    def save(self) -> bytes:
        """The word, and the rest."""
        return self.word.to_bytes(8, "big") + super().save()

    def load(self, state: bytes) -> None:
        """The same."""
        self.word = int.from_bytes(state[:8], "big")
        super().load(state[8:])


def test_a_group_draws_its_random_word_before_its_first_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raftnodes.Journal", Seeded)
    words = set()
    for incarnation in (1, 2):
        nodes = Nodes(3, incarnation=incarnation)
        leader, late = nodes.leader(), 0
        late = other(nodes)
        nodes.cut = {late}
        for i in range(60):
            assert nodes.command(leader, b"%d" % i) == ("ok", b"%d" % (i + 1))
        nodes.nodes[leader].compact()
        nodes.settle()
        nodes.cut = set()
        nodes.run(200)  # the late one has it from a snapshot, or from the entry
        seen = {m.word for m in nodes.machines.values() if isinstance(m, Seeded)}
        assert len(seen) == 1
        words |= seen
        assert nodes.command(late, b"more") == ("ok", b"61")
    assert 0 not in words
    assert len(words) == 2
