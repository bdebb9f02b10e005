"""The Raft core (raft.h) from Python: one node, without disk, network or clock. For tests and tools, not for speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ....runtime.errors import CorelaneError, check
from ..._native import ffi, lib
from .orders import check_order

ROLES = {
    lib.CL_RAFT_FOLLOWER: "follower",
    lib.CL_RAFT_PRE_CANDIDATE: "pre-candidate",
    lib.CL_RAFT_CANDIDATE: "candidate",
    lib.CL_RAFT_LEADER: "leader",
    lib.CL_RAFT_FAILED: "failed",
}
PEER_STATES = {
    lib.CL_RAFT_PROBE: "probe",
    lib.CL_RAFT_REPLICATE: "replicate",
    lib.CL_RAFT_SNAPSHOTTING: "snapshot",
}


@dataclass(frozen=True)
class Members:
    """A configuration; `outgoing` is not empty in a joint one."""

    voters: frozenset[int] = frozenset()
    outgoing: frozenset[int] = frozenset()
    learners: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Entry:
    """An entry of the log. kind: lib.CL_RAFT_NOOP, _COMMAND or _MEMBERS."""

    index: int
    term: int
    kind: int
    data: bytes
    generation: int = field(default=0, compare=False)


@dataclass(frozen=True)
class Ready:
    """What a driver has to do (struct cl_raft_ready); what is None is not asked."""

    truncate_from: int | None
    entries: list[Entry]
    hard: tuple[int, int, int] | None  # term, vote, sequence
    apply: list[Entry]
    chunk: Chunk | None


@dataclass(frozen=True)
class Chunk:
    """A piece of a snapshot that the leader sent."""

    index: int
    term: int
    offset: int
    data: bytes
    last: bool
    members: Members


def members_of(struct: Any) -> Members:
    """The Members of a `struct cl_raft_members`."""
    return Members(
        frozenset(struct.voters[0 : struct.n_voters]),
        frozenset(struct.outgoing[0 : struct.n_outgoing]),
        frozenset(struct.learners[0 : struct.n_learners]),
    )


def members_struct(members: Members) -> dict[str, Any]:
    """What cffi makes a `struct cl_raft_members` of."""
    out: dict[str, Any] = {}
    for name in ("voters", "outgoing", "learners"):
        ids = sorted(getattr(members, name))
        out[name] = ids
        out[f"n_{name}"] = len(ids)
    return out


class Core:
    """One node's protocol state. `settings` are fields of struct cl_raft_config. Raises CorelaneError for bad ones.

    Messages are bytes, as wire.h has them.
    """

    def __init__(self, id: int, members: Members | Iterable[int] = (), **settings: int) -> None:
        self._ptr = ffi.NULL
        group = members if isinstance(members, Members) else Members(frozenset(members))
        config = ffi.new("struct cl_raft_config *", {"id": id, "members": members_struct(group), **settings})
        out, err = ffi.new("struct cl_raft **"), ffi.new("char[256]")
        check(lib.cl_raft_new(config, out, err), f"make Raft node {id}", err)
        self._ptr = ffi.gc(out[0], lib.cl_raft_delete)
        self.id = id
        self._cluster = settings.get("cluster", 0)
        self._wire = ffi.new("struct cl_raft_wire_counters *")
        self._msg = ffi.new("struct cl_raft_msg *")

    @property
    def ptr(self) -> Any:
        """The `struct cl_raft *`."""
        return self._ptr

    def restore(
        self,
        term: int,
        vote: int,
        entries: Iterable[Entry],
        snapshot: tuple[int, int, int, Members] | None = None,
    ) -> None:
        """Start from what was durable. snapshot: (index, term, bytes, members)."""
        index, snapshot_term, size = snapshot[:3] if snapshot else (0, 0, 0)
        group = ffi.new("struct cl_raft_members *", members_struct(snapshot[3])) if snapshot else ffi.NULL
        check(lib.cl_raft_restore(self._ptr, term, vote, index, snapshot_term, size, group), "restore a Raft node")
        for e in entries:
            rc = lib.cl_raft_restore_entry(self._ptr, e.term, e.kind, ffi.from_buffer(e.data), len(e.data))
            check(rc, f"restore entry {e.index}")

    def tick(self, times: int = 1) -> None:
        """Let time pass."""
        for _ in range(times):
            lib.cl_raft_tick(self._ptr)

    def campaign(self) -> None:
        """Ask for votes now."""
        lib.cl_raft_campaign(self._ptr)

    def decode(self, data: bytes) -> Any:
        """The `struct cl_raft_msg *` in `data`, or None, counted in `wire`. It points into `data`."""
        msg = ffi.new("struct cl_raft_msg *")
        rc = lib.cl_raft_decode(self._cluster, ffi.from_buffer(data), len(data), msg, self._wire)
        return msg if rc == 0 else None

    def step(self, data: bytes) -> int:
        """Handle an encoded message: 0, 1 (of no use) or -errno (refused); what cannot be decoded is -EINVAL."""
        buffer = ffi.from_buffer(data)
        rc = lib.cl_raft_decode(self._cluster, buffer, len(data), self._msg, self._wire)
        self._held = data  # a snapshot's chunk points into it until ready() has been asked
        return int(rc or lib.cl_raft_step(self._ptr, self._msg))

    def _ordered(self, rc: int, what: str) -> None:
        if rc < 0:
            check_order(rc, what, self.status()["leader"])

    def propose(self, data: bytes) -> tuple[int, int]:
        """Append a command: (index, term) where it may be committed. Raises CorelaneError if it is refused."""
        index, term = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        self._ordered(lib.cl_raft_propose(self._ptr, data, len(data), index, term), "propose a command")
        return int(index[0]), int(term[0])

    def read_index(self, context: int) -> None:
        """Ask for a linearizable read; its answer comes from `reads`."""
        self._ordered(lib.cl_raft_read_index(self._ptr, context), "ask for a read")

    def change_members(self, voters: Iterable[int], learners: Iterable[int] = (), force: bool = False) -> None:
        """Become this group. force: also if a majority of its voters is not heard from."""
        v, n = sorted(voters), sorted(learners)
        change = lib.cl_raft_force_members if force else lib.cl_raft_change_members
        self._ordered(change(self._ptr, v, len(v), n, len(n)), "change the members")

    def thrifty(self, on: bool = True) -> None:
        """While it leads: entries go to a quorum first, and to the others later."""
        lib.cl_raft_thrifty(self._ptr, on)

    def transfer(self, to: int) -> None:
        """Hand leadership over."""
        self._ordered(lib.cl_raft_transfer(self._ptr, to), f"hand leadership to {to}")

    def entry(self, index: int) -> Entry:
        """Entry `index`; raises CorelaneError if it is not held."""
        e = ffi.new("struct cl_raft_entry *")
        check(lib.cl_raft_entry(self._ptr, index, e), f"read entry {index}")
        data = bytes(ffi.buffer(e.data, e.bytes)) if e.bytes else b""
        return Entry(int(e.index), int(e.term), int(e.kind), data, int(e.generation))

    def term_at(self, index: int) -> int:
        """Term of an entry; 0: not known."""
        return int(lib.cl_raft_term_at(self._ptr, index))

    def ready(self) -> Ready | None:
        """What is to be done now, handed over once; None: nothing."""
        r = ffi.new("struct cl_raft_ready *")
        if not lib.cl_raft_ready(self._ptr, r):
            return None
        chunk = None
        if r.chunk:
            data = bytes(ffi.buffer(r.chunk_data, r.chunk_bytes)) if r.chunk_bytes else b""
            where = (int(r.chunk_index), int(r.chunk_term), int(r.chunk_offset))
            chunk = Chunk(*where, data, bool(r.chunk_last), members_of(r.chunk_members))
        return Ready(
            int(r.truncate_from) or None,
            [self.entry(i) for i in range(r.first, r.last + 1)] if r.first else [],
            (int(r.term), int(r.vote), int(r.hard_seq)) if r.hard else None,
            [self.entry(i) for i in range(r.apply_first, r.apply_last + 1)] if r.apply_first else [],
            chunk,
        )

    def messages(self, snapshot: bytes = b"") -> list[tuple[int, bytes]]:
        """All messages that may be sent now: (to, bytes). snapshot: the newest one's bytes."""
        out = []
        held = ffi.from_buffer(snapshot)
        while lib.cl_raft_poll_message(self._ptr, self._msg):
            m = self._msg
            if m.type == lib.CL_RAFT_SNAPSHOT:
                if m.offset + m.data_bytes > len(snapshot):
                    raise CorelaneError("send a snapshot", "the bytes given are not those of the newest one")
                m.data = ffi.cast("uint8_t *", held) + m.offset
            room = lib.cl_raft_encoded_bytes(m)
            buffer = ffi.new("uint8_t[]", room)
            check(int(lib.cl_raft_encode(self._ptr, m, buffer, room)), "encode a message")
            out.append((int(m.to), bytes(ffi.buffer(buffer, room))))
        return out

    def reads(self) -> list[tuple[int, int]]:
        """Reads that can be answered once `index` is applied: (context, index); index 0: failed."""
        out = []
        read = ffi.new("struct cl_raft_read *")
        while lib.cl_raft_poll_read(self._ptr, read):
            out.append((int(read.context), int(read.index)))
        return out

    def persisted(self, entry: Entry) -> None:
        """This entry is durable, and so are all before it."""
        lib.cl_raft_persisted(self._ptr, entry.index, entry.term, entry.generation)

    def hard_persisted(self, sequence: int) -> None:
        """Term and vote of that Ready are durable."""
        lib.cl_raft_hard_persisted(self._ptr, sequence)

    def fail(self) -> None:
        """A write failed."""
        lib.cl_raft_fail(self._ptr)

    def applied(self, index: int) -> None:
        """Applied up to there."""
        lib.cl_raft_applied(self._ptr, index)

    def compact(self, index: int, size: int) -> int:
        """A snapshot of `size` bytes covers up to `index`; returns the first entry still needed."""
        first = ffi.new("uint64_t *")
        check(lib.cl_raft_compact(self._ptr, index, size, first), f"compact up to {index}")
        return int(first[0])

    def snapshot_in_use(self) -> bool:
        """A follower is being sent the newest snapshot."""
        return bool(lib.cl_raft_snapshot_in_use(self._ptr))

    def members_at(self, index: int) -> Members:
        """The configuration as of an applied entry."""
        out = ffi.new("struct cl_raft_members *")
        check(lib.cl_raft_members_at(self._ptr, index, out), f"find the members as of entry {index}")
        return members_of(out)

    def chunk_taken(self, ok: bool = True) -> None:
        """The chunk of the last Ready was stored, or could not be."""
        lib.cl_raft_chunk_taken(self._ptr, int(ok))

    def snapshot_installed(self, ok: bool = True) -> bool:
        """The snapshot whose last chunk was taken is durable and restored; whether entries behind it are kept."""
        return bool(lib.cl_raft_snapshot_installed(self._ptr, int(ok)))

    def status(self) -> dict[str, Any]:
        """The fields of struct cl_raft_status; role by name, members as Members, peers by id."""
        s = ffi.new("struct cl_raft_status *")
        lib.cl_raft_status(self._ptr, s)
        out: dict[str, Any] = {n: int(getattr(s, n)) for n, f in ffi.typeof(s[0]).fields if f.type.kind == "primitive"}
        out["role"] = ROLES[s.role]
        out["members"] = members_of(s.members)
        peers = {}
        for i in range(s.n_peers):
            fields = [n for n, f in ffi.typeof(s.peers[i]).fields if f.type.kind == "primitive"]
            p: dict[str, Any] = {n: int(getattr(s.peers[i], n)) for n in fields}
            p["state"] = PEER_STATES[s.peers[i].state]
            peers[int(s.peers[i].id)] = p
        out["peers"] = peers
        return out

    def counters(self) -> dict[str, int]:
        """The fields of struct cl_raft_counters."""
        c = ffi.new("struct cl_raft_counters *")
        lib.cl_raft_counters(self._ptr, c)
        return {n: int(getattr(c, n)) for n, _ in ffi.typeof(c[0]).fields}

    @property
    def wire(self) -> dict[str, int]:
        """What the decoder took and refused (struct cl_raft_wire_counters)."""
        return {n: int(getattr(self._wire, n)) for n, _ in ffi.typeof(self._wire[0]).fields}
