"""What becomes of a command that was passed on and not answered: it is said, and the command is not repeated."""

from __future__ import annotations

import pytest
from raftnodes import Nodes

UNKNOWN, BUSY = ("retry", b""), ("busy", b"")


@pytest.fixture
def nodes() -> Nodes:
    cluster = Nodes(3)
    cluster.leader()
    return cluster


def forward(nodes: Nodes, data: bytes) -> tuple[int, int, int]:
    """Pass a command on; its token, the leader, and who passed it on. What that sends is lost."""
    leader = nodes.leader()
    via = next(i for i in nodes.group if i != leader)
    nodes.token += 1
    nodes.nodes[via].submit(data, nodes.token)
    nodes.frames.clear()
    return nodes.token, leader, via


def counts(nodes: Nodes, i: int) -> tuple[int, int, int, int]:
    c = nodes.nodes[i].counters()
    return c["forwarded"], c["forward_answers"], c["forward_lost"], c["forward_refused"]


def test_the_outcome_is_unknown_when_the_leader_changed(nodes):
    token, leader, via = forward(nodes, b"lost")
    nodes.cut.add(leader)
    nodes.run(5)
    assert token not in nodes.answers  # the leader may still answer
    assert nodes.leader() != leader
    nodes.run(5)
    assert nodes.answers[token] == [UNKNOWN]
    assert counts(nodes, via) == (1, 0, 1, 0)
    nodes.cut.clear()
    nodes.run(500)
    assert nodes.answers[token] == [UNKNOWN]
    assert all(b"lost" not in m.commands for m in nodes.machines.values())


def test_the_outcome_is_unknown_when_no_answer_comes_from_a_leader_that_stays(nodes):
    token, leader, via = forward(nodes, b"lost")
    nodes.run(190)
    assert token not in nodes.answers
    nodes.run(20)
    assert nodes.answers[token] == [UNKNOWN]
    assert nodes.leader() == leader
    assert nodes.command(via, b"next") == ("ok", b"1")
    assert counts(nodes, via) == (2, 1, 1, 0)


def test_an_answer_that_comes_after_all_is_not_given(nodes):
    leader = nodes.leader()
    via = next(i for i in nodes.group if i != leader)
    nodes.token += 1
    nodes.nodes[via].submit(b"late", nodes.token)
    late = []
    while nodes.frames:  # all arrives, but for answers to who passed it on
        _, to, frame = nodes.frames.popleft()
        if to == via and frame.startswith(b"CLRA"):
            late.append(frame)
        else:
            nodes.nodes[to].receive(frame)
            nodes.nodes[to].poll()
    assert late
    nodes.run(250)
    assert nodes.answers[nodes.token] == [UNKNOWN]
    for frame in late:
        nodes.nodes[via].receive(frame)
    nodes.run(5)
    assert nodes.answers[nodes.token] == [UNKNOWN]
    assert nodes.machines[leader].commands == [b"late"]


def test_what_the_network_refuses_was_not_done(nodes):
    leader = nodes.leader()
    via = next(i for i in nodes.group if i != leader)
    nodes.refuse.add(leader)
    assert nodes.command(via, b"refused") == BUSY
    assert nodes.query(via) == BUSY
    nodes.refuse.clear()
    assert nodes.command(via, b"next") == ("ok", b"1")
    assert counts(nodes, via) == (1, 1, 0, 2)


def test_an_answer_that_the_network_refuses_is_counted(nodes):
    leader = nodes.leader()
    via = next(i for i in nodes.group if i != leader)
    before = nodes.nodes[leader].counters()["answers_not_sent"]
    nodes.nodes[via].submit(b"once", 500)
    frames = list(nodes.frames)
    nodes.frames.clear()
    for _, to, frame in frames:
        nodes.nodes[to].receive(frame)
    nodes.burst([i for i in nodes.group if i != leader])
    nodes.refuse.add(via)
    nodes.settle()
    nodes.refuse.clear()
    assert nodes.nodes[leader].counters()["answers_not_sent"] == before + 1
    nodes.run(21 * 200)
    assert nodes.answers[500] == [("retry", b"")]


def test_more_than_may_wait_are_refused(nodes):
    leader = nodes.leader()
    via = next(i for i in nodes.group if i != leader)
    before = nodes.token
    for _ in range(4097):
        nodes.token += 1
        nodes.nodes[via].submit(b"x", nodes.token)
    nodes.frames.clear()
    assert nodes.answers == {before + 4097: [BUSY]}
    nodes.run(250)
    assert all(nodes.answers[before + n] == [UNKNOWN] for n in range(1, 4097))
    assert nodes.command(via, b"next") == ("ok", b"1")
