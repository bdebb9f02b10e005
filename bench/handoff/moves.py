"""What the log of moves says of hand-overs: which belong together, how long they took, and which never came."""

from __future__ import annotations

from collections.abc import Sequence

from ...iokernel.control.moves import BESIDES, ROUND_TICKS, WORD, Move, parts_of, ticks_of
from .._native import lib
from ..tenant import shared

# Of an eviction.
TO_EVICTION = "decision until the round that evicts"
FROM_EVICTION = "that round until the new runs"
ENDS = {  # of a move that was not done
    lib.CL_IO_LOG_WANTED: "overtaken",
    lib.CL_IO_LOG_WOKEN: "woken again",
    lib.CL_IO_LOG_STALLED: "stalled",
    lib.CL_IO_LOG_DIED: "died",
    lib.CL_IO_LOG_LEFT: "left",
}
UNFINISHED, UNSTAMPED = "unfinished", "unstamped"


def pairs(moves: Sequence[Move], step: int) -> list[tuple[Move, Move, Move | None]]:
    """Each decision whose move ended by `step` or had to go further, the entry of its end, and the decision after it.

    A request that nobody answered in time belongs to the tail of requests.

    moves: of one core, in order. A move that was overtaken by another one has no end: see `lost`.
    """
    kept = [m for m in moves if m.what not in BESIDES]
    return [
        (wanted, done, after)
        for wanted, done, after in zip(kept, kept[1:], [*kept[2:], None], strict=False)
        if wanted.what == lib.CL_IO_LOG_WANTED and done.what == lib.CL_IO_LOG_DONE and done.step >= step
    ]


def lost(moves: Sequence[Move]) -> dict[str, int]:
    """How many decisions to take a core from an owner who runs (step ask) came to no end, by the reason.

    moves: as for `pairs`, up to a moment at which no move should be under way: one that has no end then has none.
    """
    kept = [m for m in moves if m.what not in BESIDES]
    out: dict[str, int] = {}
    for wanted, after in zip(kept, [*kept[1:], None], strict=False):
        if wanted.what == lib.CL_IO_LOG_WANTED and wanted.step == lib.CL_IO_STEP_REQUEST:
            why = UNFINISHED if after is None else ENDS.get(after.what)
            if why:
                out[why] = out.get(why, 0) + 1
    return out


def timed(
    found: Sequence[tuple[Move, Move, Move | None]], missed: dict[str, int]
) -> tuple[list[float], dict[str, int]]:
    """ns of the moves, and `missed` with those added that ended and did not say when the new owner began."""
    values = [took(*one) for one in found]
    ns = [value for value in values if value is not None]
    unstamped = len(values) - len(ns)
    return ns, missed | ({UNSTAMPED: unstamped} if unstamped else {})


def parked(moves: Sequence[Move]) -> list[tuple[Move, Move, Move | None]]:
    """As `pairs`, of moves from an owner that had parked, by its own ceding."""
    step = lib.CL_IO_STEP_PARKED
    return [one for one in pairs(moves, 0) if one[0].step == one[1].step == step]


def woken(moves: Sequence[Move]) -> tuple[list[float], dict[str, int]]:
    """Where nobody computes: ns from the beginning of the round in which work was found for an application whose core
    was idle to its first instruction, and how many did not begin, by reason. The decision has no stamp of its own
    there; it comes within the round."""
    kept = [m for m in moves if m.what not in BESIDES]
    ns: list[float] = []
    missed: dict[str, int] = {}
    for begun, after in zip(kept, [*kept[1:], None], strict=False):
        if begun.what != lib.CL_IO_LOG_WOKEN and not (
            begun.what == lib.CL_IO_LOG_WANTED and begun.step == lib.CL_IO_STEP_IDLE
        ):
            continue
        if after is not None and after.what == lib.CL_IO_LOG_DONE:
            ticks = (after.back - begun.tsc) % WORD
            if after.back and ticks <= after.tsc - begun.tsc + ROUND_TICKS:
                ns.append(shared.tsc_ns(ticks))
                continue
            why = UNSTAMPED
        else:
            why = UNFINISHED if after is None else ENDS.get(after.what, "woken again")
        missed[why] = missed.get(why, 0) + 1
    return ns, missed


def first_ask(moves: Sequence[Move], since: int) -> tuple[list[float], dict[str, int], int | None] | None:
    """The first decision from the stamp `since` on: its ns, or why it came to no end as in `lost`, and the step by
    which the new owner got the core. None: there is none, or the old owner did not run by its word.

    moves: as for `lost`.
    """
    kept = [m for m in moves if m.what not in BESIDES]
    for wanted, after in zip(kept, [*kept[1:], None], strict=False):
        if wanted.what != lib.CL_IO_LOG_WANTED or wanted.tsc < since:
            continue
        if wanted.step != lib.CL_IO_STEP_REQUEST:
            return None
        if after is None or after.what != lib.CL_IO_LOG_DONE:
            return [], {UNFINISHED if after is None else ENDS.get(after.what, "woken again"): 1}, None
        return *timed([(wanted, after, None)], {}), after.step
    return None


def under_way(moves: Sequence[Move], begin: int, end: int) -> list[Move]:
    """The last decision before the stamp `end`, and what followed it; nothing if its move was over at `begin`."""
    for at in range(len(moves) - 1, -1, -1):
        if moves[at].what == lib.CL_IO_LOG_WANTED and moves[at].tsc < end:
            after = next((m for m in moves[at + 1 :] if m.what not in BESIDES), None)
            return list(moves[at:]) if after is None or after.tsc > begin else []
    return []


def evictions(moves: Sequence[Move]) -> list[dict[str, float]]:
    """ns of the two parts of each move that ended by an eviction: up to the beginning of the round that evicts, and
    from there to the new owner's first instruction."""
    out = []
    kept = [m for m in moves if m.what not in BESIDES or m.what == lib.CL_IO_LOG_EVICTED]
    for wanted, evicted, done in zip(kept, kept[1:], kept[2:], strict=False):
        whole = took(wanted, done, None) if done.what == lib.CL_IO_LOG_DONE else None
        if wanted.what == lib.CL_IO_LOG_WANTED and evicted.what == lib.CL_IO_LOG_EVICTED and whole is not None:
            before = shared.tsc_ns((evicted.tsc - done.decided) % WORD)
            out.append({TO_EVICTION: before, FROM_EVICTION: whole - before})
    return out


def took(wanted: Move, done: Move, _: Move | None) -> float | None:
    """ns from the decision to the new owner's first instruction. None: it did not say when that was."""
    ticks = ticks_of(wanted, done)
    return None if ticks is None else shared.tsc_ns(ticks)


def broken_down(wanted: Move, done: Move, _: Move | None) -> dict[str, float] | None:
    """ns of each part of a move (moves.ALL_PARTS). None: a stamp is missing, or is of another move."""
    parts = parts_of(wanted, done)
    return None if parts is None else {name: shared.tsc_ns(ticks) for name, ticks in parts.items()}


def to_handler(moves: Sequence[Move], step: int, stamps: Sequence[int]) -> list[float]:
    """From each such decision (see pairs): ns to the first stamp of the new owner's handler, if there was one
    before the next move."""
    found, at = [], 0
    for wanted, _, after in pairs(moves, step):
        while at < len(stamps) and stamps[at] < wanted.tsc:
            at += 1
        if at < len(stamps) and (after is None or stamps[at] < after.tsc):
            found.append(shared.tsc_ns(stamps[at] - wanted.tsc))
    return found
