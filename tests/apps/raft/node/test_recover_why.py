"""A node that cannot start from its log says at which offset, and why. The logs are whole; no node wrote this."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from raftdisks import Disk
from raftnodes import Nodes

from corelane.apps._native import ffi, lib
from corelane.runtime.errors import check

MEMBERS = lib.CL_RAFT_MEMBERS


@pytest.fixture
def disk() -> Iterator[Disk]:
    made = Disk(seed=1)
    yield made
    made.close()


@pytest.fixture
def nodes(disk: Disk) -> Nodes:
    """A group of one that has applied a command, and is stopped; its log is open."""
    group = Nodes(1, {1: disk.open()})
    assert group.command(group.leader(), b"one") == ("ok", b"1")
    group.run(20)
    group.stop(1)
    check(lib.cl_log_close(disk.log, ffi.NULL), "close the log")
    disk.open()
    return group


def wait(disk: Disk, op: Any, rc: int) -> int:
    check(rc, "ask the log")
    check(lib.cl_log_wait(disk.log, op), "write the log")
    return int(op.index)


def append(disk: Disk, term: int, kind: int = 0, data: bytes = b"") -> int:
    held = ffi.from_buffer(data)
    op = ffi.new("struct cl_log_op *", {"data": held, "bytes": len(data), "tag": term, "kind": kind})
    return wait(disk, op, lib.cl_log_append(disk.log, op))


def offset_of(disk: Disk, index: int) -> int:
    out, record = ffi.new("struct cl_log_cursor **"), ffi.new("struct cl_log_record *")
    check(lib.cl_log_cursor_open(disk.log, index, out), "read")
    while (rc := lib.cl_log_cursor_next(out[0], record)) == -11:
        lib.cl_log_pump(disk.log)
    assert rc == 1
    offset = int(record.offset)
    check(lib.cl_log_cursor_close(out[0]), "close")
    return offset


def why_of(nodes: Nodes, disk: Disk, load_raises: bool = False) -> str:
    check(lib.cl_log_close(disk.log, ffi.NULL), "close the log")
    node = nodes.start(1, disk.open())
    if load_raises:
        nodes.machines[1].load = lambda state: int(state)  # type: ignore[assignment,method-assign,return-value]
    nodes.run(20)
    assert node.state == "stopped"
    return node.why


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([(0, 0, b"")], "it has no term"),
        ([(9, 0, b""), (8, 0, b"")], "its term is lower than that of the entry before it"),
        ([(9, 77, b"")], "it is of no kind that there is"),
        ([(9, MEMBERS, b"nobody")], "it is no configuration of a group"),
    ],
)
def test_an_entry_that_cannot_be_used(
    nodes: Nodes, disk: Disk, entries: list[tuple[int, int, bytes]], why: str
) -> None:
    last = [append(disk, *entry) for entry in entries][-1]
    where = offset_of(disk, last)
    assert why_of(nodes, disk) == f"entry {last} of the log, at offset {where}, cannot be used: {why}"


def test_entries_that_are_gone_without_a_snapshot(nodes: Nodes, disk: Disk) -> None:
    last = append(disk, 9)
    op = ffi.new("struct cl_log_op *")
    wait(disk, op, lib.cl_log_trim(disk.log, last, op))
    why = why_of(nodes, disk)
    assert f"at offsets 0 and 4096, say that it begins at entry {last} and that its snapshot ends at 0" in why


def header(members: int, sessions: int, magic: bytes = b"CLRS", version: int = 1) -> bytes:
    return magic + struct.pack("<IQQQ", version, 0, members, sessions)


@pytest.mark.parametrize(
    ("snapshot", "why"),
    [
        (b"x" * 10, "it has 10 bytes, and its header takes 32"),
        (header(4, 0, b"XXXX") + bytes(4), "at its byte 0: it is not one of a Raft node"),
        (header(4, 0, version=9) + bytes(4), "at its byte 4: it is of version 9"),
        (header(4, 1) + bytes(4), "at its byte 16: its parts are said to be longer"),
        (header(4, 0) + b"\xff" * 4, "at its byte 32: that is no configuration"),
        (header(4, 8) + bytes(12), "at its byte 36: its sessions cannot be read"),
        (
            header(4, 0) + bytes(4) + b"state",
            "from its byte 36 on: the state machine says: ValueError: invalid literal",
        ),
    ],
)
def test_a_snapshot_that_cannot_be_restored_from(nodes: Nodes, disk: Disk, snapshot: bytes, why: str) -> None:
    index = lib.cl_log_durable_index(disk.log)
    check(lib.cl_log_snapshot_begin(disk.log, index, 1), "begin")
    assert lib.cl_log_snapshot_write(disk.log, snapshot, len(snapshot)) == len(snapshot)
    op = ffi.new("struct cl_log_op *")
    wait(disk, op, lib.cl_log_snapshot_commit(disk.log, op))
    said = why_of(nodes, disk, load_raises=True)
    assert said.startswith(f"the snapshot of entry {index} cannot be restored from: {why}")
