"""What a log says of itself and of what it keeps: the report of an opening, records, the snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..._native import ffi, lib

_TAILS = {lib.CL_LOG_TAIL_CLEAN: "clean", lib.CL_LOG_TAIL_TORN: "torn", lib.CL_LOG_TAIL_DAMAGED: "damaged"}


@dataclass(frozen=True, slots=True)
class LogReport:
    """What recovery found (struct cl_log_report). Records are first_index .. next_index - 1.

    tail: "clean", "torn" (a write that a crash cut short) or "damaged"; why, bad_offset, bad_index: where and what.
    bad_superblocks: slots of which the other one was used. unreadable_blocks: of 4096 bytes, that could not be read;
    unreadable_offset: where one of them is. beyond_flushes: later ones that were found behind what is bad.
    grown_bytes: what the log took over of a grown area; unused_bytes: what it could not, as its records wrap around.
    """

    area_id: int
    epoch: int
    first_index: int
    next_index: int
    flushes: int
    records: int
    read_bytes: int
    acknowledged_index: int
    last_offset: int
    tail: str
    bad_superblocks: tuple[int, ...]
    bad_offset: int
    bad_index: int
    beyond_offset: int
    beyond_flushes: int
    unreadable_blocks: int
    unreadable_offset: int
    last_flush: int
    grown_bytes: int
    unused_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Record:
    """A durable record; offset is where it lies on the device."""

    index: int
    tag: int
    kind: int
    epoch: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The snapshot that the log keeps: what the user said of it, and its length."""

    index: int
    tag: int
    bytes: int
    number: int


def report_of(c: Any) -> LogReport:
    """Of a `struct cl_log_report`."""
    return LogReport(
        area_id=c.area_id,
        epoch=c.epoch,
        first_index=c.first_index,
        next_index=c.next_index,
        flushes=c.flushes,
        records=c.records,
        read_bytes=c.read_bytes,
        acknowledged_index=c.acknowledged_index,
        last_offset=c.last_offset,
        tail=_TAILS[c.tail],
        bad_superblocks=tuple(slot for slot in (0, 1) if c.bad_superblocks >> slot & 1),
        bad_offset=c.bad_offset,
        bad_index=c.bad_index,
        beyond_offset=c.beyond_offset,
        beyond_flushes=c.beyond_flushes,
        unreadable_blocks=c.unreadable_blocks,
        unreadable_offset=c.unreadable_offset,
        last_flush=c.last_flush,
        grown_bytes=c.grown_bytes,
        unused_bytes=c.unused_bytes,
        why=ffi.string(c.why).decode(errors="replace"),
    )
