"""A log that is older than what its node acknowledged: an old copy that was put back, or a disk that forgot."""

from __future__ import annotations

import contextlib
import copy
import random

import pytest
from raftlab import Lab, Node, random_run

from corelane.runtime.errors import CorelaneError


def put(lab: Lab, leader: int, n: int) -> None:
    for _ in range(n):
        lab.put(leader, b"x")
        lab.settle()


def put_back(lab: Lab, id: int, disk: object) -> None:
    """Start it on a copy of its log."""
    lab[id].crash()
    lab[id].disk = copy.deepcopy(disk)
    lab[id].restart()


def old_and_right(lab: Lab) -> tuple[object, object]:
    """Node 1 leads. Copies of node 2's log: half of what it acknowledges, and all of it."""
    lab.elect(1)
    put(lab, 1, 5)
    old = copy.deepcopy(lab[2].disk)
    put(lab, 1, 5)
    lab.tick(3)
    return old, copy.deepcopy(lab[2].disk)


def test_a_follower_whose_log_went_back_counts_no_more() -> None:
    lab = Lab(3)
    put_back(lab, 2, old_and_right(lab)[0])
    lab.tick(10)
    status = lab[1].core.status()
    assert (status["role"], status["gone_back"]) == ("leader", 2)
    lab.cut = {(3, 1), (1, 3)}
    before = status["commit"]
    lab.put(1, b"y")
    lab.settle()
    lab.tick(3)
    assert lab[1].core.status()["commit"] == before  # with 2 alone it would be a majority that may have lost it


def test_one_that_is_started_with_the_right_log_counts_again() -> None:
    lab = Lab(3)
    old, right = old_and_right(lab)
    put_back(lab, 2, old)
    lab.tick(10)
    put_back(lab, 2, right)
    lab.tick(20)
    lab.cut = {(3, 1), (1, 3)}
    lab.put(1, b"y")
    lab.settle()
    lab.tick(3)
    status = lab[1].core.status()
    assert status["commit"] == status["last"]
    assert status["gone_back"] == 0


def test_one_that_is_taken_out_is_not_spoken_of_any_more() -> None:
    lab = Lab(4)
    put_back(lab, 2, old_and_right(lab)[0])
    lab.tick(10)
    assert lab[1].core.status()["gone_back"] == 2
    lab[1].core.change_members([1, 3, 4])
    lab.tick(10)
    status = lab[1].core.status()
    assert (status["members"].voters, status["gone_back"]) == ({1, 3, 4}, 0)


def test_a_majority_of_old_logs_is_noticed_by_who_has_what_they_lost() -> None:
    """They elect a leader without it and go on: the third takes nothing of that, and says who leads so."""
    lab = Lab(3)
    lab.elect(3)
    put(lab, 3, 5)
    lab.tick(3)
    old = {i: copy.deepcopy(lab[i].disk) for i in (1, 2)}
    put(lab, 3, 5)
    lab.tick(3)
    kept = lab[3].core.status()["commit"]
    lab.isolate(3)
    for i in (1, 2):
        put_back(lab, i, old[i])
    lab.committed = lab.committed[:4]  # what they know of is all that there is, to them
    lab.nodes, third = {i: lab[i] for i in (1, 2)}, lab[3]
    lab.elect(1)
    put(lab, 1, 3)
    lab.tick(3)
    hear(third, lab[1])
    status = third.core.status()
    assert status["contradicts"] == 1
    assert status["commit"] == kept
    assert status["last"] >= kept
    state = list(third.state)
    while lab.leader() is not lab[1]:  # it has lost its quorum meanwhile
        lab.tick()
        if lab.leader() is lab[2]:
            lab[2].core.transfer(1)
            lab.settle()
    put(lab, 1, 20)
    lab[1].compact()  # what it would send the third next is a snapshot
    hear(third, lab[1])
    assert third.state == state
    assert third.core.status()["snapshot_index"] == 0


def hear(node: Node, leader: Node) -> None:
    """The two hear each other, for a while."""
    for _ in range(30):
        leader.core.tick()
        leader.drive()
        leader.write()
        leader.drive()
        for to, data in leader.outbox:
            if to == node.id:
                try_step(node, data)
                node.drive()
        leader.outbox.clear()
        node.write()
        node.drive()
        for to, data in node.outbox:
            if to == leader.id:
                leader.core.step(data)
        node.outbox.clear()


def try_step(node: Node, data: bytes) -> None:
    """A message that may be refused as none of a correct node."""
    with contextlib.suppress(CorelaneError):
        node.core.step(data)


LATER = [pytest.param(seed, marks=pytest.mark.soak(takes_s=1)) for seed in range(1, 40)]


@pytest.mark.parametrize("seed", [0, *LATER])
def test_no_correct_log_is_taken_for_an_old_one(seed: int) -> None:
    """Crashes that lose what was not durable, lost and doubled messages, changes of leaders."""
    rng = random.Random(seed)
    lab = Lab(3, seed=seed)
    random_run(lab, rng, 4000)
    assert {n.core.counters()["gone_back"] for n in lab.up()} <= {0}
    assert {n.core.counters()["contradictions"] for n in lab.up()} <= {0}
