"""What an iokernel's log of moves must say (iokernel/state/iokernel.h, CL_IO_LOG_*), and when whom it let run.

`MoveLog` reads the log while it grows, `MoveChecker` follows it, `ran_unowned` compares with what applications noted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from corelane.iokernel import Iokernel
from corelane.iokernel._native import ffi, lib

WANTED, DONE, STALLED, DIED, LEFT, WOKEN, EVICTED, CEDED, OVERRUN, BLOCKED, INTERRUPTED = range(1, 12)
assert (lib.CL_IO_LOG_WANTED, lib.CL_IO_LOG_INTERRUPTED) == (WANTED, INTERRUPTED)
RELEASES = (STALLED, DIED, LEFT)
FOR_EVER = 2**62
_BATCH = 4096
_FIELDS = ("tsc", "core", "from", "to", "what", "step", "after", "leaving", "about")
_MOVE = np.dtype(
    {
        "names": _FIELDS,
        "formats": ["u8", "u4", "u2", "u2", "u1", "u1", "u4", "u1", "u2"],
        "offsets": [ffi.offsetof("struct cl_io_move", name) for name in _FIELDS],
        "itemsize": ffi.sizeof("struct cl_io_move"),
    }
)
_MOST_FAULTS = 100


class Move(NamedTuple):
    """struct cl_io_move; old, new and about are slots plus 1, 0 nobody."""

    tsc: int
    cpu: int
    old: int
    new: int
    what: int
    step: int = 0
    after: int = 0
    leaving: int = 0
    about: int = 0


class MoveLog:
    """Reads a loop's log."""

    def __init__(self, io: Iokernel, loop: int = 0) -> None:
        self._io, self._loop = io, loop
        self._next, self._lost = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        self._out = ffi.new("struct cl_io_move[]", _BATCH)

    @property
    def lost(self) -> int:
        """Entries that were written over before they were read."""
        return int(self._lost[0])

    def read(self) -> list[Move]:
        """The new entries."""
        found: list[Move] = []
        while n := lib.cl_io_moves(self._io.ptr, self._loop, self._next, self._out, _BATCH, self._lost):
            moves = np.frombuffer(ffi.buffer(self._out), _MOVE, n)
            found += map(Move, *(moves[name].tolist() for name in _FIELDS))
        return found


@dataclass
class Span:
    """Time in which a kthread may run on a CPU: from the decision for it until it has let go of its core for certain,
    or gets another one. That the next owner runs is no such thing: the steps of a move go on until the old one has
    ceded or was evicted, and the two share the CPU until then. If it dies before, its span ends with it."""

    slot: int
    cpu: int
    begin: int  # the round that decided for it began
    granted: int  # it was decided by then, and what it had elsewhere it had let go of
    end: int = FOR_EVER
    evicted: bool = False  # it did not let go, and runs at what the kernel gives it, until it gets a core again
    evicted_at: int = FOR_EVER  # and from then on anywhere
    begun: int = FOR_EVER  # it was seen to run
    stalled: bool = False  # it did not begin, and may have got up after all, without reading that its core is gone
    blocked: bool = False  # found asleep or stopped: without its core it may run for a while when it wakes up


@dataclass
class _Core:
    owner: int = 0
    moving: bool = False  # the owner has not begun
    span: Span | None = None  # the owner's
    leaver: Span | None = None  # of who had it before, and may not have let go


@dataclass
class MoveChecker:
    """Follows a log: each core has one owner at any time, each change begins with the owner before, and every owner is
    registered. Faults are collected, in words."""

    faults: list[str] = field(default_factory=list)
    spans: dict[int, list[Span]] = field(default_factory=dict)  # by slot, in order
    seen: Counter[int] = field(default_factory=Counter)  # entries by `what`
    _cores: dict[int, _Core] = field(default_factory=dict)
    _users: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # by slot: (born, gone)
    _owned: list[tuple[int, int]] = field(default_factory=list)  # (slot, tsc): to be looked up in _users
    _last_tsc: int = 0

    def feed(self, moves: list[Move]) -> None:
        """The next entries."""
        for move in moves:
            self.seen[move.what] += 1
            if move.tsc < self._last_tsc:
                self._fault("a stamp went back", move)
            self._last_tsc = move.tsc
            self._one(self._cores.setdefault(move.cpu, _Core()), move)

    def came(self, slot: int, born: int) -> None:
        """An application has this slot, and had not before the stamp `born`."""
        self._users.setdefault(slot, []).append((born, FOR_EVER))

    def went(self, slot: int, gone: int) -> list[Span]:
        """It was removed before the stamp `gone`; the log was read to its end since. Returns what it had."""
        self._users[slot][-1] = (self._users[slot][-1][0], gone)
        for cpu, core in self._cores.items():
            if core.owner == slot:
                self._fault("the owner is gone, and the core was not taken from it", cpu, slot)
        return self.spans.pop(slot, [])

    @property
    def cpus(self) -> list[int]:
        """That ever had an owner."""
        return list(self._cores)

    def check_owners(self) -> None:
        """Whoever became an owner was registered then."""
        for slot, at in self._owned:
            if not any(born <= at <= gone for born, gone in self._users.get(slot, ())):
                self._fault("an owner that is not registered", slot, at)
        self._owned.clear()

    def _fault(self, what: str, *about: object) -> None:
        if len(self.faults) < _MOST_FAULTS:
            self.faults.append(f"entry {self.seen.total()}: {what}: {', '.join(map(str, about))}")

    def _one(self, core: _Core, move: Move) -> None:
        if move.old != core.owner:
            self._fault("the entry does not begin with the owner", core.owner, move)
        until = move.tsc + move.after
        if move.what in (WANTED, *RELEASES):
            self._change(core, move, until)
            return
        if move.new != move.old:
            self._fault("another owner, though nothing moved", move)
        if move.what == DONE:
            if not core.moving or not move.new:
                self._fault("begun without a move", move)
            core.moving = False
            if core.span and core.span.begun == FOR_EVER:
                core.span.begun = until
            if not move.leaving:
                self._out(core.leaver, until)
        elif move.what == WOKEN:
            if core.moving or not move.new:
                self._fault("woken in the middle of a move, or nobody", move)
            core.moving = True
        elif move.what == OVERRUN:
            pass  # by somebody who is not the owner before, or not any more
        elif move.what == BLOCKED:
            if core.moving or core.span is None:
                self._fault("found blocked in the middle of a move, or nobody", move)
            else:
                core.span.blocked = True
        elif move.what not in (INTERRUPTED, CEDED, EVICTED):
            self._fault("no such entry", move)
        elif (leaver := self._leaver(core, move)) is None:
            self._fault("it is about nobody who had the core before", move)
        elif move.what == INTERRUPTED:
            if leaver.stalled:
                leaver.end = FOR_EVER  # it got up, and has not ceded yet
        elif move.what == CEDED:
            self._out(leaver, until)
        else:
            leaver.end, leaver.evicted = FOR_EVER, True
            leaver.evicted_at = min(leaver.evicted_at, move.tsc)

    def _leaver(self, core: _Core, move: Move) -> Span | None:
        """Whose steps they are: the owner's before, or of one who goes on where its core was long ago, since it woke up
        or did not begin in time."""
        if core.leaver and core.leaver.slot == move.about:
            return core.leaver
        spans = self.spans.get(move.about)
        return spans[-1] if spans and spans[-1].cpu == move.cpu and (spans[-1].blocked or spans[-1].stalled) else None

    def _out(self, leaver: Span | None, at: int) -> None:
        if leaver and not leaver.evicted:
            leaver.end = at

    def _change(self, core: _Core, move: Move, until: int) -> None:
        if (move.what == WANTED) != (move.new != 0) or (move.new == 0 and move.old == 0):
            self._fault("an owner where there is none, or the reverse", move)
        if move.new and any(other.owner == move.new for other in self._cores.values()):
            self._fault("a second core for one kthread, or the same again", move)
        if move.leaving and move.what in RELEASES:  # the steps go on with the one before
            if core.span:
                core.span.end, core.span.stalled = until, move.what == STALLED
        else:
            if core.leaver and core.leaver.end == FOR_EVER:
                self._out(core.leaver, until)
            core.leaver = core.span
            if core.leaver and core.leaver.blocked and not move.leaving:  # nobody waits for it
                core.leaver.evicted, core.leaver.evicted_at = True, move.tsc
        core.owner, core.moving, core.span = move.new, move.new != 0, None
        if not move.new:
            return
        core.span = Span(move.new, move.cpu, move.tsc, until)
        self.spans.setdefault(move.new, []).append(core.span)
        self._owned.append((move.new, move.tsc))


def ran_unowned(
    runs: np.ndarray, spans: list[Span], life: tuple[int, int], gap_ticks: int, skew_ticks: int
) -> list[str]:
    """Where runs that an application noted in its life (cores.py) lie outside of the spans of its kthread.

    A run has stamps less than gap_ticks apart, so one that is off for less may look like one that was not; what begins
    or ends while it is off was noted there. skew_ticks: between the clocks of two CPUs.
    """
    faults = []
    for cpu in sorted({int(c) for c in runs["cpu"]}):
        mine = runs[runs["cpu"] == cpu]
        begin, end = mine["begin"].astype(np.int64), mine["end"].astype(np.int64)
        holes = np.array(_holes(cpu, spans, life), np.int64).reshape(-1, 2)
        first = np.searchsorted(holes[:, 1], begin, "right")  # the first hole that ends after the run begins
        last = np.searchsorted(holes[:, 0], end, "left")  # the first that begins when it has ended
        for i in np.nonzero(first < last)[0]:
            for lost, back in holes[first[i] : last[i]]:
                inside = begin[i] < lost and end[i] > back
                if min(end[i], back) - max(begin[i], lost) > (gap_ticks if inside else skew_ticks):
                    faults.append(f"ran on CPU {cpu} from {begin[i]} to {end[i]}, and might not from {lost} to {back}")
    return faults


def _holes(cpu: int, spans: list[Span], life: tuple[int, int]) -> list[tuple[int, int]]:
    """Times of a life in which no span allows this CPU."""
    holes, at = [], life[0]
    for span, after in zip(spans, [*spans[1:], None], strict=True):
        begin = span.begin if span.cpu == cpu else span.evicted_at
        end = after.granted if after else FOR_EVER  # it may have ceded in the middle of the round that found it so
        if (
            after and span.evicted
        ):  # it is bound to its new core, and not demoted any more, at the latest when it begins
            end = after.begun
        end = min(span.end, end)
        if begin >= end:
            continue
        if begin > at:
            holes.append((at, begin))
        at = max(at, end)
    if at < life[1]:
        holes.append((at, life[1]))
    return holes
