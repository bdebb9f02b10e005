"""What `Operator` does with an order, by what the nodes say of themselves: whom it refuses, whom it waits for."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from corelane.apps.raft.service import operate
from corelane.apps.raft.service.operate import Operator, why_refused
from corelane.runtime.errors import CorelaneError

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


Says = Callable[[int], dict[str, Any] | None]  # by how often it was asked, this time included


def silent_for(looks: float, node: int, **more: Any) -> Says:
    """One that answers from then on."""
    return lambda look: said_by(node, **more) if look > looks else None


NEVER = float("inf")
LATE = 9  # more often than what was lost is asked for again


class Clock:
    """Time that passes in `sleep` alone."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Played(Operator):
    """Of nodes that say what they are told to; orders are kept."""

    def __init__(
        self,
        fourth: Says,
        *,
        others: Mapping[int, Says] | None = None,
        timeout_s: float = 60,
        peers: Sequence[int] = (1, 2, 3, 4),
    ) -> None:
        super().__init__({i: (f"10.0.0.{i}", 7400) for i in peers}, timeout_s=timeout_s)
        self.says = {4: fourth, **(others or {})}
        self.asked: Counter[int] = Counter()
        self.changes: list[dict[str, Any]] = []
        self.orders: list[tuple[int, bytes]] = []

    def status(self, node: int) -> dict[str, Any] | None:
        self.asked[node] += 1
        return self.says[node](self.asked[node]) if node in self.says else said_by(node)

    def _order(self, what: str, done: Any, order: Any) -> Any:
        self.orders.append(order(said_by(1)))
        return said_by(1)

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
        assert group.asked[4] >= read
        assert group.changes == [{"voters": {1, 2, 3}, "learners": {4}, "begun": 7}]


def test_a_learner_that_stops_while_it_gets_the_log_is_told_of() -> None:
    with Played(lambda look: said_by(4, **JOINED) if look < 3 else said_by(4, state="stopped", why="forgot")) as group:
        with pytest.raises(
            CorelaneError, match=r"it has stopped, and is a learner now: forgot \(`corelane raft remove 4"
        ):
            group.add(4)
        assert len(group.changes) == 1


@pytest.mark.parametrize("learner", [False, True])
def test_one_that_begins_to_answer_late_is_waited_for(monkeypatch: pytest.MonkeyPatch, learner: bool) -> None:
    monkeypatch.setattr(Played, "_await_log", lambda *_: None)
    with Played(silent_for(LATE, 4, **JOINED)) as group:
        group.add(4, learner)
        assert group.changes[0] == {"voters": {1, 2, 3}, "learners": {4}, "begun": 7}


@pytest.mark.parametrize("dead", [(2,), (1, 2), (2, 3), (4, 5)], ids=str)
def test_dead_peers_do_not_keep_a_new_node_from_becoming_a_voter(
    monkeypatch: pytest.MonkeyPatch, dead: tuple[int, ...]
) -> None:
    """Of five, beside the new one. Each that is asked in vain takes half a second: longer than a round may."""
    clock = Clock()
    monkeypatch.setattr("corelane.apps.raft.service.operate.time", clock)
    leader = min({1, 2, 3, 4, 5} - set(dead))

    class Group(Played):
        commit = 9

        def status(self, node: int) -> dict[str, Any] | None:
            clock.sleep(0.5 if node in dead else 0.01)
            self.commit += 1  # others go on writing
            voters = {"voters": [1, 2, 3, 4, 5], "outgoing": [], "learners": []}
            links = [{"id": i} for i in range(1, 7) if i != node]
            peers = [{"id": 6, "match": self.commit - 1}]
            more = {"role": "leader" if node == leader else "follower", "members": voters, "links": links}
            more |= {"peers": peers, "commit": self.commit} | (JOINED if node == 6 else {})
            return None if node in dead else said_by(node, **more)

    with Group(silent_for(NEVER, 4), peers=[1, 2, 3, 4, 5, 6], timeout_s=10) as group:
        group.add(6)
        assert [c["voters"] for c in group.changes] == [{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}]


def test_who_leads_is_known_by_most_voters_and_no_later_term() -> None:
    """A leader that was deposed and does not know it yet is not believed while one that knows better answers."""
    others = {1: silent_for(0, 1, term=3), 2: silent_for(0, 2, term=4, role="leader"), 3: silent_for(NEVER, 3)}
    with Played(silent_for(0, 4, term=4), others=others) as group:
        assert group.leader_status()["id"] == 2
        asked = group.asked[3]
        assert group.leader_status()["id"] == 2
        assert group.asked[3] == asked, "one that does not answer is asked though the others are sure"


def test_one_that_never_answers_is_not_made_a_learner() -> None:
    with Played(silent_for(NEVER, 4), timeout_s=0.2) as group:
        with pytest.raises(CorelaneError, match=r"it does not answer \(start it first, with the option join=yes\)$"):
            group.add(4)
        assert group.changes == []


def test_leadership_goes_to_one_that_begins_to_answer_late() -> None:
    with Played(silent_for(NEVER, 4), others={2: silent_for(LATE, 2)}) as group:
        group.transfer(2)
        assert group.orders == [(6, struct.pack("<I", 2))]


def test_leadership_goes_to_nobody_who_does_not_run() -> None:
    stopped = {"state": "stopped", "why": "its disk failed"}
    others = {2: silent_for(NEVER, 2), 3: silent_for(0, 3, **stopped)}
    with Played(silent_for(NEVER, 4), others=others, timeout_s=0.2) as group:
        with pytest.raises(CorelaneError, match="hand leadership to node 2: it does not answer"):
            group.transfer(2)
        with pytest.raises(CorelaneError, match="hand leadership to node 3: it has stopped: its disk failed"):
            group.transfer(3)
        assert group.orders == []


def remove_3(group: Operator) -> None:
    group.remove(3)


def make_3_a_learner(group: Operator) -> None:
    group.add(3, learner=True)


@pytest.mark.parametrize("change", [remove_3, make_3_a_learner])
def test_whether_those_who_stay_can_decide(change: Callable[[Operator], None]) -> None:
    """1 and 2 stay, and both are needed."""
    with Played(silent_for(NEVER, 4), others={2: silent_for(LATE, 2)}) as group:
        change(group)
        assert [c["voters"] for c in group.changes] == [{1, 2}]
    with Played(silent_for(NEVER, 4), others={2: silent_for(NEVER, 2)}, timeout_s=0.2) as group:
        with pytest.raises(CorelaneError, match="node 2 does not answer: without node 3 the group could decide noth"):
            change(group)
        assert group.changes == []


def test_who_has_stopped_is_not_waited_for() -> None:
    """The same, however long it takes: it would have to be started again."""
    with Played(silent_for(NEVER, 4), others={2: silent_for(0, 2, state="stopped", why="its disk failed")}) as group:
        with pytest.raises(CorelaneError, match="node 2 does not answer: without node 3"):
            group.remove(3)
        assert group.changes == []
        assert group.asked[2] <= LATE


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


def test_the_state_of_a_node_that_lags_is_not_saved_for_that_of_the_group() -> None:
    """It is cut off from the leader, but not from the operator."""

    class Lagging(Played):
        def _ask_node(self, node: int, kind: int, data: bytes = b"", wait_s: float = 0.5) -> bytes | None:
            assert (node, kind) == (2, operate._SNAPSHOT)
            return struct.pack("<QQQ", 5, 1, 4) + (b"" if data == b"\xff" * 8 else b"data")

    others = {2: silent_for(0, 2, applied=5, settings={})}
    with (
        Lagging(silent_for(NEVER, 4), others=others, timeout_s=0.2) as group,
        pytest.raises(CorelaneError, match=r"node 2: it made none of entry 9, which is committed, in 0\.2 s"),
    ):
        group.save(2)


def test_without_a_leader_what_a_node_has_is_saved_and_said_so(caplog: pytest.LogCaptureFixture) -> None:
    class Left(Played):
        def _ask_node(self, node: int, kind: int, data: bytes = b"", wait_s: float = 0.5) -> bytes | None:
            return struct.pack("<QQQ", 5, 1, 4) + (b"" if data == b"\xff" * 8 else b"data")

    settings = {"cluster": 0, "machine": 0, "session_ms": 1, "max_sessions": 1, "reply_bytes": 8}
    others = {1: silent_for(NEVER, 1), 2: silent_for(0, 2, applied=5, settings=settings), 3: silent_for(NEVER, 3)}
    with Left(silent_for(NEVER, 4), others=others, timeout_s=10) as group:
        saved = group.save(2)
    assert (saved.index, saved.data) == (5, b"data")
    assert "no node leads, or most do not answer: what node 2 has applied is saved" in caplog.text


def test_the_clock_is_set_by_the_node_that_leads_whatever_others_have_counted() -> None:
    """The first order is lost with its leader; the next one had set clocks before, and had not set this one."""

    class Changing(Operator):
        orders = 0

        def leader_status(self) -> dict[str, Any]:
            clock = {"sets": 0} if not self.orders else {"sets": 5 + (self.orders > 1)}
            return said_by(2 if self.orders else 1, role="leader", transfer_to=0, clock=clock)

        def _ask_node(self, node: int, kind: int, data: bytes = b"", wait_s: float = 0.5) -> bytes | None:
            self.orders += 1
            return bytes(4)

    with Changing({1: ("10.0.0.1", 7400), 2: ("10.0.0.2", 7400)}) as group:
        assert group.set_clock(1_000_000)["id"] == 2
        assert group.orders == 2


def test_a_reason_that_was_cut_inside_a_letter_is_told() -> None:
    class Cut(Operator):
        def _ask_node(self, node: int, kind: int, data: bytes = b"", wait_s: float = 0.5) -> bytes | None:
            return b'{"state": "stopped", "why": "it broke: \xce"}'

    with Cut({1: ("10.0.0.1", 7400)}) as group:
        status = group.status(1)
        assert status is not None
        assert status["why"].startswith("it broke: ")
