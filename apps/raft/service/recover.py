"""Saving a group's state to a file, beginning a group anew from one, or from the log of a node that is left.

A new group has the same state, and other first voters than the old one, as its nodes' digest of them tells (first.c):
nodes of the old group that come back are refused by it, and refuse it. docs/raft.md says when an operator does what.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import struct
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ....libos.storage.log.log import Log
from ....libos.storage.log.report import Record
from ....runtime.errors import CorelaneError
from ....runtime.files import sync_folder, write_whole
from ..._native import ffi, lib
from ..core.core import Members, members_struct
from .logs import make_log_file

_MAGIC = b"CLRSNAP2"  # of a file: magic, u32 bytes of the header, the header in JSON, the snapshot
_MAGIC_BEFORE = b"CLRSNAP1"  # the same, with a digest of the snapshot alone
_META = struct.Struct("<IIQQIIQQII")  # disk.h: magic, version, cluster, term, vote, id, settings of the machine, ...
_META_MAGIC = 0x4D524C43
_FIRST = struct.Struct("<QI16I")  # first.c
_LOGS_BYTES = 124  # of the logs of the others: known.c
_HEADER = struct.Struct("<IIQIIQ")  # of a snapshot: snapshot.c
_SNAPSHOT_MAGIC = 0x53524C43

OpenLog = Callable[[], Log]


@dataclass(frozen=True)
class Settings:
    """What the group's state came about with, and its nodes must be started with (Group settings in docs/raft.md)."""

    cluster: int
    machine: int  # memory_bytes of the store
    session_ms: int
    max_sessions: int
    reply_bytes: int


@dataclass(frozen=True)
class Saved:
    """A group's state as of entry `index`, of that term; `data` is as a node keeps it."""

    index: int
    term: int
    settings: Settings
    data: bytes
    at_s: int = 0
    members: tuple[int, ...] = ()


@dataclass(frozen=True)
class Survivor:
    """What the log of a node holds: its last entry and the term of that, its last snapshot, who voted by its word."""

    id: int
    term: int
    last_index: int
    last_term: int
    snapshot_index: int
    voters: tuple[int, ...]
    settings: Settings


def write_saved(path: str, saved: Saved) -> None:
    """Make a file of it, which is there as a whole or not at all. Raises CorelaneError."""
    about: dict[str, Any] = {"index": saved.index, "term": saved.term, "at_s": saved.at_s or int(time.time())}
    about |= {"members": list(saved.members), "settings": asdict(saved.settings), "bytes": len(saved.data)}
    head = _head(about, saved.data)
    try:
        write_whole(path, _MAGIC + struct.pack("<I", len(head)) + head + saved.data)
    except OSError as error:
        raise CorelaneError(f"save to {path}", error.strerror or str(error), errno=error.errno or 0) from error


def _head(about: dict[str, Any], data: bytes) -> bytes:
    """A header with what it says, and a digest of that and of the snapshot."""
    digest = hashlib.sha256(json.dumps(about).encode() + data).hexdigest()
    return json.dumps({**about, "sha256": digest}).encode()


def read_saved(path: str) -> Saved:
    """What write_saved wrote. Raises CorelaneError, also if a byte of it is another one."""
    what = f"read the saved snapshot {path}"
    try:
        whole = Path(path).read_bytes()
    except OSError as error:
        raise CorelaneError(what, error.strerror or str(error), errno=error.errno or 0) from error
    begin = len(_MAGIC) + 4
    if not whole.startswith((_MAGIC, _MAGIC_BEFORE)) or len(whole) < begin:
        raise CorelaneError(what, "it is none", "give a file that `corelane raft snapshot save` made")
    (size,) = struct.unpack_from("<I", whole, len(_MAGIC))
    head, data = whole[begin : begin + size], whole[begin + size :]
    try:
        return _saved(head, data, _head if whole.startswith(_MAGIC) else None)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        why = "it was cut short or changed since it was saved"
        raise CorelaneError(what, why, "take another copy") from error


def _saved(head: bytes, data: bytes, made: Callable[[dict[str, Any], bytes], bytes] | None) -> Saved:
    """Of a header and a snapshot. made: how such a header is made; None: as before. Raises ValueError, KeyError,
    TypeError: they are not as they were."""
    about = json.loads(head)
    digest = about.pop("sha256")
    whole = made(about, data) == head if made else hashlib.sha256(data).hexdigest() == digest
    settings = Settings(**about["settings"])
    saved = Saved(about["index"], about["term"], settings, data, about["at_s"], tuple(about["members"]))
    numbers = (saved.index, saved.term, saved.at_s, *saved.members, *asdict(settings).values())
    if not whole or len(data) != about["bytes"] or not all(type(n) is int and 0 <= n < 1 << 64 for n in numbers):
        raise ValueError
    return saved


def _digest(ids: Collection[int], word: int) -> int:
    """Of first voters; another one with another word, never that of a group that began by itself but for luck."""
    text = f"{word} {sorted(ids)}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") | 1


def _meta(id: int, term: int, settings: Settings, voters: Collection[int], word: int) -> bytes:
    """Of a node that knows nobody's log yet and has voted for nobody."""
    s = settings
    numbers = (s.cluster, term, 0, id, s.machine, s.session_ms, s.max_sessions, s.reply_bytes)
    fixed = _META.pack(_META_MAGIC, lib.CL_RAFT_NODE_VERSION, *numbers)
    ids = sorted(voters)
    first = _FIRST.pack(_digest(ids, word), len(ids), *ids, *[0] * (16 - len(ids)))
    return fixed + first + bytes(_LOGS_BYTES)


def _encoded(voters: Collection[int]) -> bytes:
    struct_ = ffi.new("struct cl_raft_members *", members_struct(Members(frozenset(voters))))
    out = ffi.new("uint8_t[512]")
    return bytes(ffi.buffer(out, lib.cl_raft_members_encode(struct_, out)))


def _with_members(data: bytes, voters: Collection[int]) -> bytes:
    """A snapshot with these voters in the place of its own."""
    magic, version, clock, members, flags, sessions = _header_of(data)
    new = _encoded(voters)
    head = _HEADER.pack(magic, version, clock, len(new), flags, sessions)
    return head + new + data[_HEADER.size + members :]


def _header_of(data: bytes) -> tuple[int, ...]:
    """That of a snapshot. Raises CorelaneError: it is none."""
    if len(data) < _HEADER.size or _HEADER.unpack_from(data)[0] != _SNAPSHOT_MAGIC:
        raise CorelaneError("use the snapshot", "it is not one of a Raft node", "take another copy")
    return _HEADER.unpack_from(data)


def state_of(data: bytes) -> bytes:
    """What the state machine saved, of a snapshot. Raises CorelaneError: it is none."""
    _, _, _, members, _, sessions = _header_of(data)
    return data[_HEADER.size + members + sessions :]


def check_voters(id: int, voters: Collection[int]) -> str:
    """What is to be done, in words. Raises CorelaneError for voters that are none, or not this node's."""
    what = f"restore node {id}"
    distinct = 1 <= len(set(voters)) == len(voters) <= lib.CL_RAFT_MAX_NODES
    if not distinct or not 1 <= min(voters) <= max(voters) < 1 << 32:
        raise CorelaneError(what, "the voters are not distinct ids from 1 on, 16 at most", "give them as in 1,2,3")
    if id not in voters:
        hint = "restore the voters, and add it with `corelane raft add`"
        raise CorelaneError(what, "it is none of the voters", hint)
    return what


def restore(saved: Saved, id: int, voters: Collection[int], open_log: OpenLog) -> None:
    """Make the empty log that open_log opens that of node `id` of a new group, which begins with the saved state.

    The nodes of the group are made of one file and have the same voters, whom this one need not belong to: it joins
    then. Raises CorelaneError.
    """
    what = check_voters(id, voters)
    data = _with_members(saved.data, voters)
    word = int.from_bytes(hashlib.blake2b(saved.data, digest_size=8).digest(), "little")
    with open_log() as log:
        if log.meta() or log.snapshot() or log.durable_index:
            raise CorelaneError(what, "its log is not empty", "make a new one with `corelane raft init`")
        log.save_snapshot(saved.index, [data], tag=saved.term)
        log.restart(saved.index + 1)
        log.set_meta(_meta(id, saved.term, saved.settings, voters, word))


def restore_file(saved: Saved, id: int, voters: Collection[int], path: str, size: int) -> None:
    """The same into a new file, which is not there if it fails."""
    made = f"{path}.{secrets.token_hex(4)}.new"
    if Path(path).exists():
        raise CorelaneError(f"restore node {id}", f"there is a file {path}", "give another name", errno.EEXIST)
    try:
        make_log_file(made, size)
        restore(saved, id, voters, lambda: Log.open(made))
        os.link(made, path)
        sync_folder(Path(path).absolute().parent)
    finally:
        with contextlib.suppress(OSError):
            Path(made).unlink()


def survivor(log: Log) -> Survivor:
    """What a node's log holds. Raises CorelaneError if it is not one, or of another version."""
    what, meta, kept = "look at the node's log", log.meta(), log.snapshot()
    if len(meta) != _META.size + _FIRST.size + _LOGS_BYTES:
        raise CorelaneError(what, "no Raft node has written to it", "give the log of a node that has run")
    magic, version, cluster, term, _, id, machine, session_ms, max_sessions, reply_bytes = _META.unpack_from(meta)
    known = range(lib.CL_RAFT_NODE_VERSION_LEAST, lib.CL_RAFT_NODE_VERSION + 1)
    if magic != _META_MAGIC or version not in known:
        raise CorelaneError(what, f"it is of version {version}", "use the corelane that wrote it")
    _, n, *ids = _FIRST.unpack_from(meta, _META.size)
    voters = tuple(ids[:n])
    if kept:
        voters = _voters_of(b"".join(log.read_snapshot())) or voters
    last, last_term = (kept.index, kept.tag) if kept else (0, 0)
    for record in _entries(log):
        last, last_term = record.index, record.tag
        if record.kind == lib.CL_RAFT_MEMBERS:
            voters = tuple(_ids(record.data))
    settings = Settings(cluster, machine, session_ms, max_sessions, reply_bytes)
    return Survivor(id, max(term, last_term), last, last_term, kept.index if kept else 0, voters, settings)


def _follows(log: Log) -> bool:
    """Whether the log's records go on behind its snapshot. They do not where a snapshot came from a leader, and a crash
    before the log began anew behind it: then they end before it, or are of another log. A node that starts drops them.

    Raises CorelaneError if there is a gap in between.
    """
    kept = log.snapshot()
    index = kept.index if kept else 0
    if log.first_index > index + 1:
        why = f"its log begins at entry {log.first_index}, and its snapshot ends at {index}: what is between is gone"
        raise CorelaneError("look at the node's log", why, "take another node's")
    if not kept or log.first_index > index:
        return True
    return log.durable_index >= index and next(iter(log.records(index))).tag == kept.tag


def _entries(log: Log) -> Iterator[Record]:
    """The entries behind the snapshot, if there is one."""
    kept = log.snapshot()
    begin = kept.index + 1 if kept else 1
    if _follows(log) and begin <= log.durable_index:
        yield from log.records(begin)


def _ids(members: bytes) -> list[int]:
    """The voters of an encoded configuration."""
    return list(struct.unpack_from(f"<{members[0]}I", members, 4))


def _voters_of(data: bytes) -> tuple[int, ...]:
    return tuple(_ids(data[_HEADER.size :])) if data else ()


def recover(log: Log) -> Survivor:
    """Make the node of this log the only voter of a new group, which has all entries that the log holds.

    Those that were not committed yet are committed then; those that others acknowledged and this log does not hold are
    lost. What the log held is returned. A crash in between leaves one that this call can be made on again.
    """
    left = survivor(log)
    if not left.last_index:
        raise CorelaneError(f"recover node {left.id}", "its log holds nothing", "take another node's")
    if not _follows(log):
        log.restart(left.last_index + 1)  # as the node would at its start
    term = left.term + 1
    log.set_meta(_meta(left.id, term, left.settings, [left.id], secrets.randbits(63)))
    log.append(_encoded([left.id]), tag=term, kind=lib.CL_RAFT_MEMBERS)
    return left
