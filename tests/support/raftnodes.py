"""Raft nodes in one process: virtual time, frames in order, state machines in Python."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from typing import Any

from corelane.apps._native import lib
from corelane.apps.raft.node.node import Node


class Journal:
    """A state machine that keeps every command. apply answers with the length; query with the whole."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []

    def apply(self, command: bytes) -> bytes:
        """Keep it."""
        self.commands.append(command)
        return b"%d" % len(self.commands)

    def query(self, query: bytes) -> bytes:
        """All of it."""
        return b",".join(self.commands)[-1000:]

    def save(self) -> bytes:
        """With lengths, so that commands may hold anything."""
        return b"".join(len(c).to_bytes(4, "big") + c for c in self.commands)

    def load(self, state: bytes) -> None:
        """What save saved."""
        self.commands, at = [], 0
        while at < len(state):
            size = int.from_bytes(state[at : at + 4], "big")
            self.commands.append(state[at + 4 : at + 4 + size])
            at += 4 + size


SMALL = {"log_entries": 256, "log_bytes": 65536, "entry_bytes": 8192, "message_bytes": 2048, "trailing_entries": 8}


LIMITS = ("max_sessions", "session_ms", "compact_bytes", "reply_bytes", "tick_ns", "incarnation", "replicate")
"""Settings that are of struct cl_raft_node_config; the others are of struct cl_raft_config."""


class Nodes:
    """A cluster of n. `logs`: an opened `struct cl_log *` for each, or none: in memory."""

    def __init__(
        self, n: int = 3, logs: dict[int, Any] | None = None, spare: int = 0, ages_ms: int = 0, **settings: int
    ) -> None:
        # Settling takes no time, and what is sent to a majority that is cut off goes to the others a tick later.
        self.settings = {**SMALL, "seed": 7, "replicate": lib.CL_RAFT_TO_ALL, **settings}
        self.ages_ms = ages_ms
        self.now_ns, self.wall_ms = 1_000_000_000, 1_000_000
        self.group = list(range(1, n + 1))
        self.frames: deque[tuple[int, int, bytes]] = deque()
        self.answers: dict[int, list[tuple[str, bytes]]] = {}
        self.cut: set[int] = set()
        self.refuse: set[int] = set()  # frames to these are not taken
        self.machines: dict[int, Journal] = {}
        self.nodes: dict[int, Node] = {}
        self.token = 0
        for i in range(1, n + spare + 1):
            self.start(i, (logs or {}).get(i))

    def start(self, i: int, log: Any = None, **other: int) -> Node:
        """Start node i (again); other: settings that are its own."""
        settings = {**self.settings, **other}
        self.machines[i] = Journal()
        self.nodes[i] = Node(
            i,
            self.group if i in self.group else [],
            self.machines[i],
            lambda to, frame: self._post(i, to, frame),
            lambda token, status, reply: self.answers.setdefault(token, []).append((status, reply)),
            now_ns=lambda: self.now_ns,
            wall_ms=lambda: self.wall_ms,
            log=log,
            ages_ms=self.ages_ms,
            limits={k: v for k, v in settings.items() if k in LIMITS},
            **{k: v for k, v in settings.items() if k not in LIMITS},
        )
        return self.nodes[i]

    def _post(self, source: int, to: int, frame: bytes) -> bool:
        if to not in self.refuse:
            self.frames.append((source, to, frame))
        return to not in self.refuse

    def stop(self, i: int) -> None:
        """Node i is gone with what it had in memory."""
        del self.nodes[i]

    def settle(self, steps: int = 20000, stalled: Container[int] = ()) -> None:
        """Poll and deliver until nothing happens any more. Some may not run: frames for them wait."""
        waiting = []
        for i, node in list(self.nodes.items()):
            if i not in stalled:
                node.poll()
        while self.frames:
            steps -= 1
            assert steps, "frames without end"
            source, to, frame = self.frames.popleft()
            if to in stalled:
                waiting.append((source, to, frame))
            elif to in self.nodes and not {source, to} & self.cut:
                self.nodes[to].receive(frame)
                self.nodes[to].poll()
        self.frames.extend(waiting)

    def stall(self, ids: Container[int], ms: int) -> None:
        """Let time pass in which these do not run."""
        for _ in range(ms):
            self.now_ns += 1_000_000
            self.wall_ms += 1
            self.settle(stalled=ids)

    def burst(self, ids: Iterable[int]) -> None:
        """What waits for these is taken, as it is by a handler, and only then are they polled."""
        waiting = [frame for frame in self.frames if frame[1] in ids]
        for source, to, frame in waiting:
            self.frames.remove((source, to, frame))
            if not {source, to} & self.cut:
                self.nodes[to].receive(frame)
        for i in ids:
            self.nodes[i].poll()

    def run(self, ms: int) -> None:
        """Let time pass, a millisecond at a time."""
        for _ in range(ms):
            self.now_ns += 1_000_000
            self.wall_ms += 1
            self.settle()

    def leader(self) -> int:
        """Run until all that are not cut off agree on a leader; its id."""
        for _ in range(500):
            self.run(1)
            seen = {n.leader for i, n in self.nodes.items() if i not in self.cut and i in self.group}
            if len(seen) == 1 and seen <= set(self.nodes) - self.cut:
                return seen.pop()
        raise AssertionError("no leader")

    def command(self, i: int, data: bytes, **session: Any) -> tuple[str, bytes] | None:
        """Submit at node i and settle; the answer, or None."""
        self.token += 1
        self.nodes[i].submit(data, self.token, **session)
        self.settle()
        return self.answers.get(self.token, [None])[0]

    def query(self, i: int, data: bytes = b"") -> tuple[str, bytes] | None:
        """The same for a read."""
        self.token += 1
        self.nodes[i].query(data, self.token)
        self.settle()
        return self.answers.get(self.token, [None])[0]

    def session(self, i: int) -> int:
        """Open a session."""
        answer = self.command(i, b"", kind="open")
        assert answer is not None
        assert answer[0] == "ok"
        return int.from_bytes(answer[1], "little")
