"""What operators ask of a running group, over ordinary UDP sockets (admin.c): `corelane raft`.

    with Operator("1=10.77.0.11:7400,2=10.77.0.12:7400,3=10.77.0.13:7400") as group:
        group.add(3)
        group.transfer(2)

Who can reach the nodes' ports may do all this: nothing is authenticated (docs/raft.md).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import struct
import time
from typing import Any

from ....runtime.errors import CorelaneError
from ..core.orders import REASONS
from .client import Client
from .recover import Saved, Settings

_LOGGER = logging.getLogger("corelane.raft")
_STATUS, _MEMBERS, _TRANSFER, _CLOCK, _SNAPSHOT = 4, 5, 6, 7, 8
_NEW = 2**64 - 1  # in the place of an offset: have a snapshot made
_PIECE_S = 1.0
_ASK_AGAIN_S = 0.05
_ROUND_S, _LOOK_S = 0.5, 0.02
_REST = 4  # a transfer that came to nothing is ordered again after so many times as long as it took
_LATER = (errno.EPERM, errno.EBUSY, errno.ESTALE, errno.EAGAIN, errno.EHOSTUNREACH)


_VERSION, _SETTINGS = "it is of another version", "it was started with other group settings"


def why_refused(status: dict[str, Any], by: dict[str, Any]) -> str:
    """Why a node is refused by another, as what both say of themselves tells; "" if it is not."""
    mine, theirs = (s.get("digests", {}) for s in (status, by))
    versions = mine.get("version"), theirs.get("version")
    told = None not in versions  # the number came later, and is in the digest of the settings since before
    if told and versions[0] != versions[1]:
        return _VERSION
    if any(versions) and not (mine and theirs):  # no version that tells a number was ever without digests
        return _VERSION
    if mine.get("settings") != theirs.get("settings"):
        return _SETTINGS if told else f"{_SETTINGS}, or {_VERSION}"
    voters = mine.get("first_voters", "0"), theirs.get("first_voters", "0")
    if all(int(v, 16) for v in voters) and voters[0] != voters[1]:  # who joined is not told of them at once: 0
        return "its group began with other voters"
    return ""


def _first_voters(status: dict[str, Any]) -> str:
    return ",".join(map(str, sorted(status["first_voters"]))) or "some that it, which joined, does not name"


def _sure_leader(said: dict[int, dict[str, Any] | None]) -> dict[str, Any] | None:
    """The status of the node that leads, if most of its voters have answered and none of them knows a later term."""
    heard = {node: s for node, s in said.items() if s}
    leader = max((s for s in heard.values() if s["role"] == "leader"), key=lambda s: int(s["term"]), default=None)
    if leader is None or any(int(s["term"]) > int(leader["term"]) for s in heard.values()):
        return None
    voters = leader["members"]["voters"]
    return leader if 2 * len(heard.keys() & set(voters)) > len(voters) else None


class Operator(Client):
    """Asks the nodes of a group. `peers` as for Client; timeout_s: how long a change may take. Raises CorelaneError."""

    _silent: frozenset[int] = frozenset()  # who did not answer when it was asked last

    def _ask_node(self, node: int, kind: int, data: bytes = b"", wait_s: float = 0.5) -> bytes | None:
        """What that node answers, or None."""
        self._at = node
        for _ in range(2):
            self._ticket += 1
            self._send(kind, self._ticket, 0, 0, data)
            if answer := self._wait(time.monotonic() + wait_s / 2):
                return answer[2]
        return None

    def status(self, node: int) -> dict[str, Any] | None:
        """A node's own view: role, term, commit, ..., members; its peers if it leads. None: it does not answer."""
        answer = self._ask_node(node, _STATUS)
        return None if answer is None else dict(json.loads(answer.decode(errors="replace")))

    def _heard(self, node: int, deadline: float) -> dict[str, Any] | None:
        """The same, asked for until then: it may be starting, or what it says was lost."""
        while (status := self.status(node)) is None and time.monotonic() < deadline:
            time.sleep(_ASK_AGAIN_S)
        return status

    def all(self) -> dict[int, dict[str, Any] | None]:
        """The status of each node."""
        return {node: self.status(node) for node in sorted(self._nodes)}

    def leader_status(self) -> dict[str, Any]:
        """That of the node that leads, waited for. Who did not answer is asked last, and not if the others are sure."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            said: dict[int, dict[str, Any] | None] = {}
            for node in sorted(self._nodes, key=lambda node: (node in self._silent, node)):
                said[node] = self.status(node)
                self._silent = self._silent - {node} if said[node] else self._silent | {node}
                if sure := _sure_leader(said):
                    return sure
            known = [s for s in said.values() if s and s["role"] == "leader"]
            if known:
                return max(known, key=lambda s: int(s["term"]))
            if time.monotonic() > deadline:
                why = f"none of the nodes says that it leads{self.why_unsent()}"
                raise CorelaneError("find the leader", why, "look at `corelane raft status`")
            time.sleep(_ASK_AGAIN_S)

    def _order(self, what: str, done: Any, order: Any) -> dict[str, Any]:
        """Give the leader an order until `done(its status)`; `order(status)` is (kind, data). Its last status."""
        deadline = time.monotonic() + self._timeout_s
        code, given, rest_until = 0, 0.0, 0.0
        while True:
            status = self.leader_status()
            if done(status):
                return status
            if time.monotonic() > deadline:
                if code == errno.EHOSTUNREACH:
                    raise CorelaneError(what, *REASONS[code])
                why = f"it did not happen in {self._timeout_s:g} s, and may still"
                raise CorelaneError(what, why, "look at `corelane raft status`: a majority must be up, and who is new")
            idle = not status["members"]["outgoing"] and not status["transfer_to"]
            if idle and given:  # given up: while a transfer is tried, the group takes no commands
                rest_until, given = time.monotonic() + _REST * (time.monotonic() - given), 0.0
            if idle and time.monotonic() >= rest_until:
                kind, data = order(status)
                begun = time.monotonic()
                answer = self._ask_node(int(status["id"]), kind, data)
                code = int.from_bytes(answer, "little") if answer else 0
                if code and code not in _LATER:
                    why, hint = REASONS.get(code, (os.strerror(code).lower(), ""))
                    raise CorelaneError(what, why, hint)
                given = begun if kind == _TRANSFER and not code else 0.0
            time.sleep(_ASK_AGAIN_S)

    def _change(
        self, what: str, voters: set[int], learners: set[int], begun: int, force: bool = False
    ) -> dict[str, Any]:
        """From the configuration that came with entry `begun`. force: whoever of the voters is heard from."""
        v, n = sorted(voters), sorted(learners)

        def done(s: dict[str, Any]) -> bool:
            m = s["members"]
            there = sorted(m["voters"]) == v and sorted(m["learners"]) == n and not m["outgoing"]
            if not there and s["members_index"] != begun and not m["outgoing"] and s["commit"] >= s["members_index"]:
                raise CorelaneError(what, "somebody else changed the members", "look at them and try again")
            return bool(there and s["commit"] >= s["members_index"])

        data = struct.pack(f"<QIII{len(v) + len(n)}I", begun, len(v), len(n), force, *v, *n)
        return self._order(what, done, lambda _status: (_MEMBERS, data))

    def add(self, node: int, learner: bool = False, force: bool = False) -> dict[str, Any]:
        """Make a node a voter, or a learner; returns the leader's status once that is committed.

        A new voter is a learner until it has the log (thesis, section 4.2.1): before, the group might wait for it with
        each command. force: as for `remove`.
        """
        what = f"add node {node}"
        if node not in self._nodes:
            raise CorelaneError(what, "it is not among the peers", "give its address, too")
        self._check_can_follow(what, node)
        self._check_addresses(what, node)
        voters, learners, begun = self._members()
        if learner and voters == {node}:
            raise CorelaneError(what, "no voter would be left", "add another one first")
        if learner and node in voters and not force:
            self._check_left(what, node, voters - {node})
        if learner:
            return self._change(what, voters - {node}, learners | {node}, begun, force)
        if node not in voters:
            if node not in learners:
                self._change(what, voters, learners | {node}, begun)
            self._await_log(what, node)
            voters, learners, begun = self._members()
        return self._change(what, voters | {node}, learners - {node}, begun, force)

    def _check_can_follow(self, what: str, node: int) -> None:
        """It must have read its log, and neither have stopped nor be refused by the leader: it would never catch up."""
        deadline = time.monotonic() + self._timeout_s
        while (status := self._heard(node, deadline)) is not None:
            if status["state"] == "stopped":
                raise CorelaneError(what, f"it has stopped: {status['why']}", "mend that, and start it again")
            if status["state"] == "running":
                break
            if time.monotonic() > deadline:
                raise CorelaneError(what, "it reads its log still", "try again")
            time.sleep(_ASK_AGAIN_S)
        if status is None:
            raise CorelaneError(what, "it does not answer", "start it first, with the option join=yes")
        leader = self.leader_status()
        why = why_refused(status, leader)
        if why == _VERSION:
            why += " than the group's, which refuses it: their entries are not the same"
            raise CorelaneError(what, why, "start it with the corelane that the group has")
        if why.startswith(_SETTINGS):
            hint = f"start it like node {leader['id']}, which leads: both say on stderr what they have"
            hint += ", and with the corelane of that one" if _VERSION in why else ""
            raise CorelaneError(what, f"{why} than the group's, and is refused for it", hint)
        if why:
            why += f", {_first_voters(status)}, than this one, with {_first_voters(leader)}: it is refused for it"
            raise CorelaneError(what, why, "make its log anew, and start it with join=yes")

    def _check_addresses(self, what: str, node: int) -> None:
        """Whoever may have to send to it must know where it is. Who is down cannot be asked, and is named."""
        seen = self.all()
        for silent in (i for i, s in seen.items() if s is None and i != node):
            text = "node %d does not answer: when it comes back, start it with node %d among its peers"
            _LOGGER.warning(text, silent, node)
        without = [i for i, s in seen.items() if s and i != node and node not in {p["id"] for p in s["links"]}]
        if without:
            some = f"node {without[0]} does" if len(without) == 1 else f"nodes {', '.join(map(str, without))} do"
            hint = f"start each again with node {node} among its peers, one after the other; it changes no voters"
            raise CorelaneError(what, f"{some} not know its address", hint)

    def _await_log(self, what: str, node: int) -> None:
        """Wait until a learner gets, within a round of _ROUND_S, all that was committed when the round began.

        The leader alone is asked as long as it leads: a round has no time for those who do not answer.
        """
        deadline = time.monotonic() + self._timeout_s
        begun, commit, status = 0.0, 0, self.leader_status()
        while time.monotonic() < deadline:
            said = self.status(int(status["id"]))
            status = said if said and said["role"] == "leader" else self.leader_status()
            match = next((p["match"] for p in status["peers"] if p["id"] == node), 0)
            if begun and match >= commit and time.monotonic() - begun < _ROUND_S:
                return
            if not begun or match >= commit or time.monotonic() - begun > _ROUND_S:
                self._check_runs_on(what, node)
                begun, commit = time.monotonic(), int(status["commit"])
            time.sleep(_LOOK_S)
        why = f"it did not get the log in {self._timeout_s:g} s, and is a learner now"
        raise CorelaneError(what, why, "look at it with `corelane raft members`, and add it again later")

    def _check_runs_on(self, what: str, learner: int) -> None:
        status = self.status(learner)
        if status and status["state"] == "stopped":
            why = f"it has stopped, and is a learner now: {status['why']}"
            raise CorelaneError(what, why, f"`corelane raft remove {learner}` takes it out again")

    def _check_left(self, what: str, node: int, voters: set[int]) -> None:
        """Those who stay must be able to decide, or nobody can undo it."""
        deadline = time.monotonic() + self._timeout_s
        lost = voters - set(self._nodes)  # for good: whose address is not given, and who has stopped
        missing = set(voters)
        while True:
            said = {v: self.status(v) for v in missing - lost}
            lost |= {v for v, s in said.items() if s and s["state"] == "stopped"}
            missing = lost | {v for v, s in said.items() if s is None}
            if 2 * len(missing) < len(voters):
                return
            if 2 * len(lost) >= len(voters) or time.monotonic() > deadline:
                break
            time.sleep(_ASK_AGAIN_S)
        silent = sorted(missing)
        some, one = f"nodes {', '.join(map(str, silent))} do", "one of them"
        if len(silent) == 1:
            some, one = f"node {silent[0]} does", "it"
        why = f"{some} not answer: without node {node} the group could decide nothing any more"
        raise CorelaneError(what, why, f"start {one}, or take out {one} instead; --force for who means it")

    def remove(self, node: int, force: bool = False) -> dict[str, Any]:
        """Take a node out of the group. force: also if no majority of those who stay answers."""
        voters, learners, begun = self._members()
        if node not in voters | learners:
            raise CorelaneError(f"remove node {node}", "it does not belong to the group")
        if voters == {node}:
            raise CorelaneError(f"remove node {node}", "it is the only voter", "stop it instead")
        if node in voters and not force:
            self._check_left(f"remove node {node}", node, voters - {node})
        return self._change(f"remove node {node}", voters - {node}, learners - {node}, begun, force)

    def _members(self) -> tuple[set[int], set[int], int]:
        """Voters, learners, and the entry that they came with."""
        status = self.leader_status()
        members = status["members"]
        if members["outgoing"]:
            raise CorelaneError("change the members", "a change is under way", "wait until it is done")
        return set(members["voters"]), set(members["learners"]), int(status["members_index"])

    def set_clock(self, ms: int) -> dict[str, Any]:
        """Set the log's clock to `ms` since 1970 as of now, by an entry; the leader's status once that is applied."""
        begun: dict[int, int] = {}  # each node counts since its start
        at = time.monotonic()

        def done(status: dict[str, Any]) -> bool:
            sets = int(status["clock"]["sets"])
            return sets > begun.setdefault(int(status["id"]), sets)

        def order(_status: dict[str, Any]) -> tuple[int, bytes]:
            return _CLOCK, struct.pack("<Q", ms + int(1000 * (time.monotonic() - at)))

        return self._order("set the log's clock", done, order)

    def save(self, node: int = 0) -> Saved:
        """The state of the group as of now, or later, from that node, or the one that leads. Raises CorelaneError.

        Without a leader it is what that node has applied, which the logger `corelane.raft` says.
        """
        status = self.status(node) if node else self.leader_status()
        what = f"save a snapshot of node {node or 'the leader'}"
        if status is None or status["state"] != "running":
            raise CorelaneError(what, "it does not run", "choose another node with --node")
        least = max(int(status["applied"]), self._committed(node) if node else 0)
        asked, begun, newest, deadline = int(status["id"]), False, 0, time.monotonic() + self._timeout_s
        index, data, most = 0, bytearray(), 0
        while time.monotonic() < deadline:
            offset = len(data) if begun else _NEW
            answer = self._ask_node(asked, _SNAPSHOT, struct.pack("<Q", offset), _PIECE_S)
            if answer is None or len(answer) < 24:
                continue
            newest, term, size = struct.unpack_from("<QQQ", answer)
            if newest < least or not size or (data and newest != index):  # it is being made, or is not held any more
                begun, data = False, bytearray()
                time.sleep(_ASK_AGAIN_S)
                continue
            if begun:
                index = newest
                data += answer[24:]
            begun = True
            if len(data) > most:  # what comes again puts nothing off
                most, deadline = len(data), time.monotonic() + self._timeout_s
            if len(data) == size:
                voters = tuple(sorted(status["members"]["voters"]))
                return Saved(index, term, Settings(**status["settings"]), bytes(data), int(time.time()), voters)
        why = f"nothing more of it came in {self._timeout_s:g} s"
        if not data and newest < least:
            why = f"it made none of entry {least}, which is committed, in {self._timeout_s:g} s"
        raise CorelaneError(what, why, "try again, or another node")

    def _committed(self, node: int) -> int:
        """What is known to be committed, by the node that leads; 0, and a word of warning, if none does."""
        leader = _sure_leader(self.all())
        if leader is None:
            text = "no node leads, or most do not answer: what node %d has applied is saved, and others may have more"
            _LOGGER.warning(text, node)
        return int(leader["commit"]) if leader else 0

    def transfer(self, to: int) -> dict[str, Any]:
        """Hand leadership to a voter; returns its status."""
        what = f"hand leadership to node {to}"
        if to not in self._members()[0]:
            raise CorelaneError(what, "it is no voter of the group", "add it first")
        status = self._heard(to, time.monotonic() + self._timeout_s) if to in self._nodes else None
        if status is None:
            raise CorelaneError(what, "it does not answer", "start it, or choose another")
        if status["state"] == "stopped":
            raise CorelaneError(what, f"it has stopped: {status['why']}", "mend that and start it, or choose another")
        return self._order(what, lambda s: s["id"] == to, lambda _status: (_TRANSFER, struct.pack("<I", to)))
