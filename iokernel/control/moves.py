"""The log of moves (struct cl_io_move): reading its entries, and what they say of hand-overs."""

from __future__ import annotations

import itertools
import struct
from typing import Any, NamedTuple

from .._native import ffi, lib

# Parts of a move that ended. Those from the third to the fifth are the move, the others are outside of it.
BEFORE, STORED = "round until the decision", "words stored and seen by all"
SEEN, LEAVES, SWITCH = "decision until the old owner sees it", "old owner until it yields", "yield until the new runs"
SIGHT = "new owner runs until the loop sees it"
ALL_PARTS = (BEFORE, STORED, SEEN, LEAVES, SWITCH, SIGHT)
STEP_NAMES = {
    lib.CL_IO_STEP_IDLE: "idle",
    lib.CL_IO_STEP_WAKE: "wake",
    lib.CL_IO_STEP_PARKED: "parked",
    lib.CL_IO_STEP_REQUEST: "ask",
    lib.CL_IO_STEP_INTERRUPT: "interrupt",
    lib.CL_IO_STEP_EVICT: "evict",
}
WORD = 1 << 32  # of a stamp
ROUND_TICKS = 1 << 20  # far more than a round of the loop
# Entries that do not end a move.
BESIDES = (lib.CL_IO_LOG_INTERRUPTED, lib.CL_IO_LOG_EVICTED, lib.CL_IO_LOG_CEDED, lib.CL_IO_LOG_OVERRUN)

_ENTRY = struct.Struct("=QIHHBBBxI5IHxx")  # struct cl_io_move
ENTRY_BYTES = _ENTRY.size
if _ENTRY.size != ffi.sizeof("struct cl_io_move"):
    raise ImportError("struct cl_io_move is not what iokernel/control/moves.py takes it for")


class Move(NamedTuple):
    """An entry. from_slot, to_slot: slot + 1 of a kthread, 0: nobody. decided to back: low words of cl_tsc() at the
    steps of the hand-over, 0: unknown. core: CPU id.
    about: slot + 1 of whom an entry tells that is not the owner (EVICTED, CEDED, INTERRUPTED, OVERRUN)."""

    tsc: int
    from_slot: int
    to_slot: int
    what: int
    step: int
    decided: int = 0
    stored: int = 0
    lost: int = 0
    left: int = 0
    back: int = 0
    core: int = 0
    leaving: int = 0
    about: int = 0


def entries(data: Any, n: int | None = None) -> list[Move]:
    """The first n entries (all) of a buffer of struct cl_io_move."""
    wanted = memoryview(data)[: None if n is None else n * _ENTRY.size]
    return [
        Move(tsc, old, new, what, step, decided, stored, lost, left, back, core, leaving, about)
        for tsc, core, old, new, what, step, leaving, _, decided, stored, lost, left, back, about in _ENTRY.iter_unpack(
            wanted
        )
    ]


def answer(io: Any, loop: int, first: int) -> bytes:
    """What follows the header of MOVES_OK (runtime/control.h): entries of a loop's log from number `first` on."""
    next_, lost = ffi.new("uint64_t *", first), ffi.new("uint64_t *")
    tsc = lib.cl_tsc_read()  # before the end is read: whoever begins here gets no entry from before
    end = int(lib.cl_io_moves_end(io, loop))
    if first == lib.CL_CONTROL_FROM_NOW:
        next_[0], out, n = end, ffi.NULL, 0
    else:
        room = min(max(end - first, 0), lib.CL_IO_MOVES_LOG)
        out = ffi.new("struct cl_io_move[]", room)
        n = int(lib.cl_io_moves(io, loop, next_, out, room, lost))
        tsc = lib.cl_tsc_read()
    said = ffi.new(
        "struct cl_control_moves_ok *",
        {
            "next": next_[0],
            "lost": lost[0],
            "tsc": tsc,
            "hz": lib.cl_clock_default().hz,
            "n": n,
            "entry_bytes": _ENTRY.size,
        },
    )
    header = ffi.sizeof("struct cl_control_header")
    return bytes(ffi.buffer(said))[header:] + (bytes(ffi.buffer(out, n * _ENTRY.size)) if n else b"")


def ticks_of(wanted: Move, done: Move) -> int | None:
    """Ticks from the decision to the new owner's first instruction. None: it did not say when that was."""
    ticks = (done.back - done.decided) % WORD
    within = done.decided and done.back and ticks <= done.tsc - wanted.tsc + ROUND_TICKS
    return ticks if within else None


def parts_of(wanted: Move, done: Move) -> dict[str, int] | None:
    """Ticks of each of ALL_PARTS. None: a stamp is missing, or is of another move."""
    times = [done.decided, done.lost, done.left, done.back]
    if not all(times):
        return None
    # Low words of the counter, a second or two: modulo that, what is out of order is much longer than the whole.
    points = [wanted.tsc, *times, done.tsc]
    before, seen, leaves, switch, sight = ((b - a) % WORD for a, b in itertools.pairwise(points))
    if before + seen + leaves + switch > done.tsc - wanted.tsc + ROUND_TICKS:
        return None
    # The round that saw the new owner run may have begun, and taken its stamp, before that one did.
    values = [before, (done.stored - done.decided) % WORD, seen, leaves, switch, 0 if sight > WORD // 2 else sight]
    return dict(zip(ALL_PARTS, values, strict=True))


def whole(low: int, near: int) -> int:
    """The stamp whose low word is `low`, of those nearest to the stamp `near`."""
    return near + (low - near + WORD // 2) % WORD - WORD // 2
