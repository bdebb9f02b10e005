"""What recorded logs of moves say: who had which core, moves by step, what went wrong; and the same as trace events."""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...iokernel._native import lib
from ...iokernel.control.moves import ALL_PARTS, STEP_NAMES, WORD, Move, parts_of, ticks_of, whole
from .output import place

NOBODY = "nobody"
FAULTS_KEPT = 1000
# Entries that tell of a fault of somebody, as sentences. {old}: who had the core; {owner}: who is to have it; {about}:
# whom the entry names besides.
FAULTS = {
    lib.CL_IO_LOG_STALLED: ("stalled", "{old} did not begin in time, and the core was taken back"),
    lib.CL_IO_LOG_DIED: ("died", "the thread of {old} does not exist any more"),
    lib.CL_IO_LOG_EVICTED: (
        "evicted",
        "{about} did not cede when asked and interrupted, and was demoted for {owner}",
    ),
    lib.CL_IO_LOG_OVERRUN: ("overrun", "{about} used the core of {owner} without owning one, and was demoted"),
    lib.CL_IO_LOG_BLOCKED: ("blocked", "{owner} sleeps in the kernel, or was stopped, while others wait for a core"),
}
_ENDS = (lib.CL_IO_LOG_STALLED, lib.CL_IO_LOG_DIED, lib.CL_IO_LOG_LEFT)


@dataclass
class Recording:
    """Entries of all loops between two stamps. gaps: stamps of entries before which some were lost, rising. names: of
    kthreads, by slot + 1, each with the stamp from which on the slot was its; see `learn`."""

    begin_tsc: int
    end_tsc: int
    hz: int
    moves: list[Move] = field(default_factory=list)
    lost: int = 0
    gaps: list[int] = field(default_factory=list)
    ended: bool = False  # with the iokernel, before its time
    names: dict[int, list[tuple[int, str]]] = field(default_factory=dict)

    def add(self, moves: Sequence[Move], lost: int) -> None:
        """The next entries of a loop's log; lost: as many before them were written over."""
        if lost and moves:
            self.lost += lost
            self.gaps = sorted([*self.gaps, moves[0].tsc])
        self.moves += moves

    def learn(self, slot: int, since_tsc: int, name: str) -> None:
        """A slot (plus 1) has a name since then; it may have had another before, and may be told again."""
        known = self.names.setdefault(slot, [])
        if not known or known[-1][1] != name:
            known.append((since_tsc, name))

    @property
    def seconds(self) -> float:
        return (self.end_tsc - self.begin_tsc) / self.hz

    def us(self, ticks: float) -> float:
        return 1e6 * ticks / self.hz

    def name(self, slot: int, at: int) -> str:
        """`application.kthread`, as of then; of one that was gone before it could be asked for, its slot."""
        if not slot:
            return NOBODY
        known = [name for since, name in self.names.get(slot, ()) if since <= at]
        return known[-1] if known else f"slot {slot - 1}"

    def by_core(self) -> dict[int, list[Move]]:
        cores: dict[int, list[Move]] = {}
        for move in self.moves:
            cores.setdefault(move.core, []).append(move)
        return dict(sorted(cores.items()))

    @functools.cached_property
    def followed(self) -> dict[int, tuple[list[Handover], list[Span], list[Fault]]]:
        """`follow` of each core. Once everything is added."""
        return {core: follow(moves, self) for core, moves in self.by_core().items()}


@dataclass(frozen=True, slots=True)
class Handover:
    """A move that ended: from the decision to the new owner's first instruction. old: who had the core, also where the
    move overtook another whose new owner never began. ticks None: it did not say when its first instruction was, and
    the end is the round that saw it run. An idle core and a parked owner are given work in the round of `begin`, which
    has no stamp of its own."""

    core: int
    old: int
    new: int
    step: str
    begin: int
    end: int
    ticks: int | None
    parts: Mapping[str, int] | None


@dataclass(frozen=True, slots=True)
class Span:
    """An owner of a core, from its first instruction on; the time of the move to the next one is nobody's."""

    core: int
    owner: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    core: int
    at: int
    kind: str
    text: str


class _Core:
    """One core's entries, in order. owner: who has it, None where that is not known: before the first entry, and after
    a gap; since: from when on."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.handovers: list[Handover] = []
        self.spans: list[Span] = []
        self.faults: list[Fault] = []
        self.owner: int | None = None
        self.since = recording.begin_tsc
        self.wanted: Move | None = None

    def ends(self, core: int, at: int) -> None:
        if self.owner and at > self.since:
            self.spans.append(Span(core, self.owner, self.since, at))

    def lost(self, core: int, last: int, gap: int) -> None:
        """Entries are missing between the stamps `last` and `gap`."""
        self.ends(core, last)
        self.owner, self.since, self.wanted = None, gap, None

    def take(self, move: Move) -> None:
        if self.owner is None:
            self.owner = move.from_slot
        if move.what in FAULTS:
            self.faults.append(self._fault(move))
        if move.what == lib.CL_IO_LOG_WANTED or move.what == lib.CL_IO_LOG_WOKEN:
            self.wanted = move
        elif move.what == lib.CL_IO_LOG_DONE:
            self._done(move)
        elif move.what in _ENDS:
            self.ends(move.core, move.tsc)
            self.owner, self.since, self.wanted = move.to_slot, move.tsc, None

    def _done(self, move: Move) -> None:
        begin, end = move.tsc, move.tsc
        if self.wanted is not None and self.wanted.to_slot == move.to_slot:
            handover = _handover(self.wanted, move, self.owner or 0)
            self.handovers.append(handover)
            begin, end = handover.begin, handover.end
        if self.owner != move.to_slot:
            self.ends(move.core, begin)
            self.owner, self.since = move.to_slot, end
        self.wanted = None

    def _fault(self, move: Move) -> Fault:
        kind, text = FAULTS[move.what]
        name = self.recording.name
        about, old, owner = (name(slot, move.tsc) for slot in (move.about, move.from_slot, move.to_slot))
        return Fault(move.core, move.tsc, kind, text.format(about=about, old=old, owner=owner))


def follow(moves: Sequence[Move], recording: Recording) -> tuple[list[Handover], list[Span], list[Fault]]:
    """The entries of one core, in order."""
    core, last = _Core(recording), recording.begin_tsc
    for move in moves:
        gap = bisect_right(recording.gaps, move.tsc)
        if gap > bisect_right(recording.gaps, last):
            core.lost(move.core, last, recording.gaps[gap - 1])
        core.take(move)
        last = move.tsc
    if moves:
        core.ends(moves[-1].core, recording.end_tsc)
    return core.handovers, core.spans, core.faults


def _handover(wanted: Move, done: Move, old: int) -> Handover:
    if done.step in (lib.CL_IO_STEP_IDLE, lib.CL_IO_STEP_WAKE):
        done = done._replace(decided=wanted.tsc % WORD or 1)
    ticks = ticks_of(wanted, done)
    begin = whole(done.decided, wanted.tsc) if done.decided else wanted.tsc
    end = begin + ticks if ticks is not None else max(done.tsc, begin)
    return Handover(done.core, old, done.to_slot, STEP_NAMES[done.step], begin, end, ticks, parts_of(wanted, done))


def summary(recording: Recording) -> dict[str, Any]:
    """The document of `corelane trace --json`: times in us, from the decision to the new owner's first instruction;
    of faults the last FAULTS_KEPT, and how many there were of each kind."""
    handovers = [move for moves, _, _ in recording.followed.values() for move in moves]
    faults = sorted((f for _, _, found in recording.followed.values() for f in found), key=lambda f: f.at)
    asks = [move.parts for move in handovers if move.step == "ask" and move.parts]
    name = recording.name
    pairs = Counter((name(m.old, m.begin), name(m.new, m.end)) for m in handovers if m.old != m.new)
    return {
        "seconds": recording.seconds,
        "entries": len(recording.moves),
        "lost": recording.lost,
        "moves": len(handovers),
        "steps": {step: _times(recording, handovers, step) for step in STEP_NAMES.values()},
        "ask_parts": {part: _marks(recording, [parts[part] for parts in asks]) for part in ALL_PARTS},
        "pairs": [{"from": old, "to": new, "moves": n} for (old, new), n in pairs.most_common()],
        "cores": [
            {"cpu": core, "moves": len(moves), "owners": _shares(recording, spans)}
            for core, (moves, spans, _) in recording.followed.items()
        ],
        "faults_by_kind": dict(Counter(f.kind for f in faults)),
        "faults": [
            {"at_s": _seconds(recording, f.at), "cpu": f.core, "kind": f.kind, "text": f.text}
            for f in faults[-FAULTS_KEPT:]
        ],
    }


def _seconds(recording: Recording, tsc: int) -> float:
    """Since the beginning; an entry has the stamp of its round, which may have begun before."""
    return round(max(tsc - recording.begin_tsc, 0) / recording.hz, 7)


def _times(recording: Recording, handovers: Sequence[Handover], step: str) -> dict[str, Any]:
    of = [move for move in handovers if move.step == step]
    known = [move.ticks for move in of if move.ticks is not None]
    return {"moves": len(of), "not_stamped": len(of) - len(known)} | _marks(recording, known)


def _marks(recording: Recording, ticks: Sequence[int]) -> dict[str, Any]:
    """Percentiles by nearest rank; None of nothing."""
    rising = sorted(ticks)
    marks = {"p50_us": 0.5, "p90_us": 0.9, "p99_us": 0.99, "max_us": 1.0}
    return {
        name: round(recording.us(rising[max(math.ceil(part * len(rising)), 1) - 1]), 3) if rising else None
        for name, part in marks.items()
    }


def _shares(recording: Recording, spans: Sequence[Span]) -> dict[str, float]:
    """Part of the time that each owner had the core, most first."""
    had: Counter[str] = Counter()
    for span in spans:
        had[recording.name(span.owner, span.end)] += span.end - span.begin
    total = max(recording.end_tsc - recording.begin_tsc, 1)
    return {name: round(ticks / total, 6) for name, ticks in had.most_common()}


def events(recording: Recording, begin_tsc: int | None = None) -> Iterator[dict[str, Any]]:
    """Trace Event Format, as Perfetto and chrome://tracing read it: a row of who has a core, and one of its moves.
    begin_tsc: where its time begins; None: where the recording does, as nothing does before."""
    origin = recording.begin_tsc if begin_tsc is None else begin_tsc
    owners, moved = 1, 2  # as processes, with the cores as their threads

    def us(tsc: int) -> float:
        return round(recording.us(max(tsc, recording.begin_tsc) - origin), 3)

    def event(phase: str, name: str, pid: int, core: int, **more: Any) -> dict[str, Any]:
        return {"ph": phase, "name": name, **place(pid, core), **more}

    def between(name: str, pid: int, core: int, begin: int, end: int, **args: float) -> dict[str, Any]:
        at = us(begin)
        return event("X", name, pid, core, ts=at, dur=round(us(end) - at, 3), args=args)

    for pid, name in ((owners, "cores: who has them"), (moved, "cores: moves")):
        yield event("M", "process_name", pid, 0, args={"name": name})
    for core, (handovers, spans, faults) in recording.followed.items():
        for pid in (owners, moved):
            yield event("M", "thread_name", pid, core, args={"name": f"CPU {core}"})
        for span in spans:
            yield between(recording.name(span.owner, span.end), owners, core, span.begin, span.end)
        for move in handovers:
            old, new = recording.name(move.old, move.begin), recording.name(move.new, move.end)
            name = f"{move.step}: {old} to {new}"
            parts = {f"{part} (us)": round(recording.us(ticks), 3) for part, ticks in (move.parts or {}).items()}
            yield between(name, moved, core, move.begin, move.end, **parts)
        for fault in faults:
            yield event("i", fault.kind, moved, core, s="t", ts=us(fault.at), args={"why": fault.text})
