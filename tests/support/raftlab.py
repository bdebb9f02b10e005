"""A cluster of Raft cores in memory, every step of which the test takes: deliver, lose, tick, write, crash.

Node: a Core with a disk of its own, where writes are durable only after `write`. Lab: the nodes, the messages between
them, and what must hold whatever happens (`check`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from corelane.apps._native import lib
from corelane.apps.raft.core.core import Chunk, Core, Entry, Members
from corelane.runtime.errors import CorelaneError

SMALL = {"log_entries": 64, "log_bytes": 32768, "entry_bytes": 1024, "message_bytes": 512, "trailing_entries": 4}


@dataclass
class Disk:
    """What survives a crash, and the writes that may still get lost, in order."""

    term: int = 0
    vote: int = 0
    entries: list[Entry] = field(default_factory=list)
    snapshot: tuple[int, int, bytes, Members] | None = None
    pending: list[tuple[str, Any]] = field(default_factory=list)

    def last(self) -> int:
        """Index of the last durable entry."""
        return self.entries[-1].index if self.entries else self.snapshot[0] if self.snapshot else 0


class Node:
    """One core and its disk. Applied commands are in `state`, the state machine: the list of all of them."""

    def __init__(self, id: int, members: Iterable[int] | Members, **settings: int) -> None:
        self.id, self.members, self.settings = id, members, {**SMALL, **settings}
        self.disk = Disk()
        self.down = False
        self.incoming = b""
        self._start()

    def _start(self) -> None:
        self.core = Core(self.id, self.members, **self.settings)
        self.state: list[tuple[int, int, bytes]] = []
        snapshot = None
        if self.disk.snapshot:
            index, term, data, members = self.disk.snapshot
            snapshot = (index, term, len(data), members)
            self.state = unpack(data)
        self.core.restore(self.disk.term, self.disk.vote, self.disk.entries, snapshot)
        self.outbox: list[tuple[int, bytes]] = []
        self.answers: list[tuple[int, int]] = []

    def drive(self) -> None:
        """The driver's loop, without waiting for the disk: writes are left pending."""
        while (r := self.core.ready()) is not None:
            if r.truncate_from:
                self.disk.pending.append(("truncate", r.truncate_from))
            self.disk.pending += [("entry", e) for e in r.entries]
            if r.hard:
                self.disk.pending.append(("hard", r.hard))
            for e in r.apply:
                self.apply(e)
            if r.chunk:
                self.take(r.chunk)
        snapshot = self.disk.snapshot[2] if self.disk.snapshot else b""
        self.outbox += self.core.messages(snapshot)
        self.answers += self.core.reads()

    def apply(self, e: Entry) -> None:
        """Apply a committed entry."""
        assert e.index == self.applied + 1
        self.state.append((e.index, e.term, e.data if e.kind == lib.CL_RAFT_COMMAND else b""))
        self.core.applied(e.index)

    @property
    def applied(self) -> int:
        """Index of the last entry applied."""
        return self.state[-1][0] if self.state else 0

    def take(self, chunk: Chunk) -> None:
        """Store a piece of a snapshot; the last one is durable at once."""
        self.incoming = chunk.data if chunk.offset == 0 else self.incoming + chunk.data
        self.core.chunk_taken()
        if not chunk.last:
            return
        self.write()
        self.state = unpack(self.incoming)
        self.disk.snapshot = (chunk.index, chunk.term, self.incoming, chunk.members)
        keep = self.core.snapshot_installed()
        self.disk.entries = [e for e in self.disk.entries if keep and e.index > chunk.index]

    def write(self, n: int | None = None) -> None:
        """The first n pending writes become durable."""
        for _ in range(len(self.disk.pending) if n is None else min(n, len(self.disk.pending))):
            kind, what = self.disk.pending.pop(0)
            if kind == "truncate":
                self.disk.entries = [e for e in self.disk.entries if e.index < what]
            elif kind == "hard":
                self.disk.term, self.disk.vote = what[0], what[1]
                self.core.hard_persisted(what[2])
            else:
                assert what.index == self.disk.last() + 1
                self.disk.entries.append(replace(what, generation=0))
                self.core.persisted(what)

    def compact(self) -> None:
        """Make a snapshot of what is applied, if all of that is durable."""
        index = self.applied
        newest = self.disk.snapshot[0] if self.disk.snapshot else 0
        again = index == newest and lib.cl_raft_snapshot_wanted(self.core.ptr)
        if index > self.disk.last() or (index <= newest and not again):
            return
        if any(kind == "truncate" for kind, _ in self.disk.pending):
            return
        data, term = pack(self.state), self.state[-1][1]
        try:
            members = self.core.members_at(index)
        except CorelaneError:
            return  # added later, and by an entry that is not here yet
        self.core.compact(index, len(data))
        self.disk.snapshot = (index, term, data, members)
        self.disk.entries = [e for e in self.disk.entries if e.index > index]

    def crash(self, lost: int | None = None) -> None:
        """Stop; the last `lost` pending writes are gone, those before them were done."""
        lost = len(self.disk.pending) if lost is None else lost
        self.core = Core(self.id)  # a write must not tell the old one
        for kind, what in self.disk.pending[: len(self.disk.pending) - lost]:
            if kind == "truncate":
                self.disk.entries = [e for e in self.disk.entries if e.index < what]
            elif kind == "hard":
                self.disk.term, self.disk.vote = what[0], what[1]
            else:
                self.disk.entries.append(replace(what, generation=0))
        self.disk.pending.clear()
        self.outbox.clear()
        self.down = True

    def restart(self) -> None:
        """Start again from the disk."""
        self.down = False
        self._start()


def pack(state: list[tuple[int, int, bytes]]) -> bytes:
    """A state machine's state as a snapshot."""
    return b"".join(i.to_bytes(8, "big") + t.to_bytes(8, "big") + len(d).to_bytes(4, "big") + d for i, t, d in state)


def unpack(data: bytes) -> list[tuple[int, int, bytes]]:
    """What `pack` packed."""
    out, at = [], 0
    while at < len(data):
        size = int.from_bytes(data[at + 16 : at + 20], "big")
        out.append(
            (
                int.from_bytes(data[at : at + 8], "big"),
                int.from_bytes(data[at + 8 : at + 16], "big"),
                data[at + 20 : at + 20 + size],
            )
        )
        at += 20 + size
    return out


class Lab:
    """Nodes 1..n and the messages that are under way between them, in order of sending."""

    def __init__(self, n: int = 3, seed: int = 1, spare: int = 0, **settings: int) -> None:
        ids = range(1, n + 1)
        self.nodes = {i: Node(i, ids, seed=seed, **settings) for i in ids}
        for i in range(n + 1, n + spare + 1):
            self.nodes[i] = Node(i, (), seed=seed, **settings)
        self.wire: list[tuple[int, int, bytes]] = []  # from, to, bytes
        self.cut: set[tuple[int, int]] = set()  # (from, to): what is sent there is lost
        self.leaders: dict[int, int] = {}
        self.committed: list[tuple[int, int, bytes]] = []
        self.acked: list[tuple[int, bytes]] = []

    def __getitem__(self, id: int) -> Node:
        return self.nodes[id]

    def up(self) -> list[Node]:
        """Nodes that run."""
        return [n for n in self.nodes.values() if not n.down]

    def collect(self, write: bool = False) -> None:
        """Drive every node, take its messages, and check what must always hold."""
        for node in self.up():
            node.drive()
            while write and node.disk.pending:
                node.write()
                node.drive()
            self.wire += [(node.id, to, data) for to, data in node.outbox if (node.id, to) not in self.cut]
            node.outbox.clear()
        self.check()

    def deliver(self, i: int = 0, keep: bool = False) -> None:
        """Deliver message i of those under way; keep: it will come again."""
        _, to, data = self.wire[i] if keep else self.wire.pop(i)
        if to in self.nodes and not self.nodes[to].down:
            self.nodes[to].core.step(data)
            self.nodes[to].drive()

    def settle(self, rounds: int = 200) -> None:
        """Write and deliver everything, in order, until nothing happens any more."""
        self.collect(write=True)
        for _ in range(rounds):
            if not self.wire:
                return
            for _ in range(len(self.wire)):
                self.deliver()
            self.collect(write=True)
        raise AssertionError(f"{len(self.wire)} messages still under way")

    def tick(self, times: int = 1) -> None:
        """All nodes' time passes, and everything settles after each tick."""
        for _ in range(times):
            for node in self.up():
                node.core.tick()
            self.settle()

    def leader(self) -> Node | None:
        """The node that leads in the highest term."""
        leading = [n for n in self.up() if n.core.status()["role"] == "leader"]
        return max(leading, key=lambda n: n.core.status()["term"], default=None)

    def elect(self, id: int) -> Node:
        """Have node `id` win an election."""
        self[id].core.campaign()
        self.settle()
        assert self.leader() is self[id], self[id].core.status()
        return self[id]

    def isolate(self, *ids: int) -> None:
        """Cut all links between these and the others."""
        for a in self.nodes:
            for b in self.nodes:
                if (a in ids) != (b in ids):
                    self.cut.add((a, b))

    def heal(self) -> None:
        """All links work again."""
        self.cut.clear()

    def put(self, id: int, data: bytes) -> tuple[int, int]:
        """Propose at a node."""
        return self[id].core.propose(data)

    def check(self) -> None:
        """Election safety; state-machine safety; what is committed is in every leader's log of a later term."""
        for node in self.up():
            s = node.core.status()
            if s["role"] == "leader":
                assert self.leaders.setdefault(s["term"], node.id) == node.id, f"two leaders in term {s['term']}"
            state = node.state
            shared = min(len(state), len(self.committed))
            assert state[:shared] == self.committed[:shared], f"node {node.id} applied something else"
            if len(state) > shared:
                self.committed = list(state)
        for node in self.up():
            s = node.core.status()
            if s["role"] != "leader" or any(t > s["term"] for t in self.leaders):
                continue
            for index, term, _ in self.committed:
                held = node.core.term_at(index)
                assert index < s["first"] - 1 or held == term, f"leader {node.id} lacks committed entry {index}"


def random_run(lab: Lab, rng: random.Random, steps: int, change: bool = False) -> None:
    """Random deliveries, losses, duplicates, ticks, writes, proposals, crashes, cuts, compactions."""
    for step in range(steps):
        node = rng.choice(list(lab.nodes.values()))
        what = rng.random()
        if node.down:
            if what < 0.2:
                node.restart()
        elif what < 0.25:
            node.core.tick()
        elif what < 0.45:
            node.write(rng.randint(1, 3))
        elif what < 0.50:
            try_to(lambda n=node, s=step: n.core.propose(b"%d" % s * rng.randint(1, 30)))
        elif what < 0.51:
            node.compact()
        elif what < 0.515:
            node.crash(rng.randint(0, len(node.disk.pending)))
        elif what < 0.52:
            lab.isolate(*rng.sample(list(lab.nodes), rng.randint(1, max(len(lab.nodes) // 2, 1))))
        elif what < 0.53:
            lab.heal()
        elif what < 0.535:
            node.core.campaign()
        elif what < 0.54 and change:
            voters = rng.sample(list(lab.nodes), rng.randint(1, len(lab.nodes)))
            learners = [i for i in lab.nodes if i not in voters and rng.random() < 0.5]
            try_to(lambda n=node, v=voters, a=learners: n.core.change_members(v, a, force=True))
        elif what < 0.543:
            try_to(lambda n=node: n.core.transfer(rng.choice(list(lab.nodes))))
        elif lab.wire:
            i = min(int(rng.expovariate(0.5)), len(lab.wire) - 1)
            if rng.random() < 0.05:
                lab.wire.pop(i)
            else:
                lab.deliver(i, keep=rng.random() < 0.05)
        lab.collect()
        del lab.wire[:-200]


def try_to(call: Any) -> bool:
    """Whether a call that may be refused was not."""
    try:
        call()
    except CorelaneError:
        return False
    return True
