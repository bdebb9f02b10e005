"""Whom `Operator.add` does not make a member, by what the nodes say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from corelane.apps.raft.operate import Operator, why_refused
from corelane.runtime.errors import CorelaneError

PEERS = ",".join(f"{i}=10.0.0.{i}:7400" for i in (1, 2, 3, 4))
JOINED: dict[str, Any] = {"first_voters": [], "digests": {"version": 4, "settings": "a", "first_voters": "0000"}}


def said_by(node: int, **more: Any) -> dict[str, Any]:
    """The status of a node of three, of which 1 leads, and which know node 4."""
    return {
        "id": node,
        "state": "running",
        "why": "",
        "role": "leader" if node == 1 else "follower",
        "term": 3,
        "first_voters": [3, 1, 2],
        "digests": {"version": 4, "settings": "a", "first_voters": "b"},
        "members": {"voters": [1, 2, 3], "outgoing": [], "learners": []},
        "members_index": 7,
        "links": [{"id": i} for i in (1, 2, 3, 4) if i != node],
        "peers": [],
        "commit": 9,
    } | more


class Played(Operator):
    """Of nodes that say what they are told to; orders are kept."""

    def __init__(self, fourth: Callable[[int], dict[str, Any] | None]) -> None:
        super().__init__(PEERS, timeout_s=60)
        self.fourth, self.looks = fourth, 0
        self.changes: list[dict[str, Any]] = []

    def status(self, node: int) -> dict[str, Any] | None:
        if node != 4:
            return said_by(node)
        self.looks += 1
        return self.fourth(self.looks)

    def _change(self, what: str, voters: set[int], learners: set[int], begun: int, force: bool = False) -> Any:
        self.changes.append({"voters": voters, "learners": learners, "begun": begun})
        return said_by(1)


@pytest.mark.parametrize("learner", [False, True])
@pytest.mark.parametrize(
    ("fourth", "says"),
    [
        ({"state": "stopped", "why": "its disk failed"}, r"add node 4: it has stopped: its disk failed \("),
        (
            {"first_voters": [4, 1], "digests": {"version": 4, "settings": "a", "first_voters": "c"}},
            r"group began with other voters, 1,4, than this one, with 1,2,3: it is refused for it \(make its log anew",
        ),
        (
            {"digests": {"version": 4, "settings": "c", "first_voters": "0"}},
            r"it was started with other group settings than the group's, and is refused for it \(start it like node 1",
        ),
        (
            {"digests": {"version": 5, "settings": "c", "first_voters": "b"}},
            r"it is of another version than the group's, which refuses it: .* \(start it with the corelane",
        ),
        (
            {"digests": {"settings": "c", "first_voters": "b"}},
            r"other group settings, or it is of another version than the group's, and is refused .* \(start it like",
        ),
        ({"digests": {}}, r"it is of another version than the group's"),
    ],
    ids=["stopped", "other voters", "other settings", "version 5", "no version told", "no digests"],
)
def test_one_that_can_never_follow_is_not_made_a_learner(fourth: dict[str, Any], says: str, learner: bool) -> None:
    with Played(lambda _: said_by(4, **fourth)) as group:
        with pytest.raises(CorelaneError, match=says):
            group.add(4, learner)
        assert group.changes == []


def test_one_that_does_not_tell_its_version_may_follow_all_the_same() -> None:
    """The version is in the digest of the settings, too."""
    fourth = JOINED | {"digests": {"settings": "a", "first_voters": "0000"}}
    with Played(lambda _: said_by(4, **fourth)) as group:
        group.add(4, learner=True)
        assert len(group.changes) == 1


def test_one_that_reads_its_log_is_waited_for() -> None:
    """What it says of its first voters is of no worth before."""
    read = 5

    def fourth(look: int) -> dict[str, Any]:
        return said_by(4, state="recovering", digests={}) if look < read else said_by(4, **JOINED)

    with Played(fourth) as group:
        group.add(4, learner=True)
        assert group.looks >= read
        assert group.changes == [{"voters": {1, 2, 3}, "learners": {4}, "begun": 7}]


def test_a_learner_that_stops_while_it_gets_the_log_is_told_of() -> None:
    with Played(lambda look: said_by(4, **JOINED) if look < 3 else said_by(4, state="stopped", why="forgot")) as group:
        with pytest.raises(
            CorelaneError, match=r"it has stopped, and is a learner now: forgot \(`corelane raft remove 4"
        ):
            group.add(4)
        assert len(group.changes) == 1


OTHER_SETTINGS = "it was started with other group settings"
NONE: dict[str, Any] = {}
UNTOLD = {"settings": "a", "first_voters": "b"}
TOLD = UNTOLD | {"version": 4}


@pytest.mark.parametrize(
    ("mine", "theirs", "why"),
    [
        (NONE, NONE, ""),
        (NONE, UNTOLD, f"{OTHER_SETTINGS}, or it is of another version"),
        (NONE, TOLD, "it is of another version"),
        (UNTOLD, UNTOLD, ""),
        (UNTOLD, TOLD, ""),
        (UNTOLD | {"settings": "c"}, TOLD, f"{OTHER_SETTINGS}, or it is of another version"),
        (TOLD, TOLD, ""),
        (TOLD | {"version": 5, "settings": "c"}, TOLD, "it is of another version"),
        (TOLD | {"settings": "c"}, TOLD, OTHER_SETTINGS),
        (TOLD | {"first_voters": "c"}, TOLD, "its group began with other voters"),
        (TOLD | {"first_voters": "0"}, TOLD, ""),
    ],
)
def test_a_version_is_said_to_be_another_only_by_a_number(
    mine: dict[str, Any], theirs: dict[str, Any], why: str
) -> None:
    """Digests came within a version, and the number of the version later, within the next one."""
    for one, other in ((mine, theirs), (theirs, mine)):
        assert why_refused({"digests": one}, {"digests": other}) == why
