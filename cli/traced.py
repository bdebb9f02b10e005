"""What recorded logs of moves say: who had which core, moves by step, what went wrong; and the same as trace events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..iokernel._native import lib
from ..iokernel.moves import ALL_PARTS, STEP_NAMES, WORD, Move, parts_of, ticks_of, whole

NOBODY = "nobody"
# Entries that tell of a fault of somebody, as sentences: {old}: who had the core, {owner}: who is to have it.
FAULTS = {
    lib.CL_IO_LOG_STALLED: ("stalled", "{old} did not begin in time, and the core was taken back"),
    lib.CL_IO_LOG_DIED: ("died", "the thread of {old} does not exist any more"),
    lib.CL_IO_LOG_LEFT: ("left", "the application of {old} has gone"),
    lib.CL_IO_LOG_EVICTED: (
        "evicted",
        "{old} did not step aside when asked and interrupted, and was demoted for {owner}",
    ),
    lib.CL_IO_LOG_SQUATTED: ("squatted", "a kthread used the core of {owner} without owning one, and was demoted"),
    lib.CL_IO_LOG_BLOCKED: ("blocked", "{owner} sleeps in the kernel, or was stopped, while others wait for a core"),
}
_ENDS = (lib.CL_IO_LOG_STALLED, lib.CL_IO_LOG_DIED, lib.CL_IO_LOG_LEFT)


@dataclass
class Recording:
    """Entries of all loops between two stamps. names: of kthreads, by slot + 1."""

    begin_tsc: int
    end_tsc: int
    hz: int
    moves: list[Move] = field(default_factory=list)
    lost: int = 0
    names: dict[int, str] = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return (self.end_tsc - self.begin_tsc) / self.hz

    def us(self, ticks: float) -> float:
        return 1e6 * ticks / self.hz

    def name(self, slot: int) -> str:
        """`application.kthread`; of one that was gone before it could be asked for, its slot."""
        return self.names.get(slot, f"slot {slot - 1}") if slot else NOBODY

    def by_core(self) -> dict[int, list[Move]]:
        cores: dict[int, list[Move]] = {}
        for move in self.moves:
            cores.setdefault(move.core, []).append(move)
        return dict(sorted(cores.items()))


@dataclass(frozen=True)
class Handover:
    """A move that ended: from the decision to the new owner's first instruction. ticks None: it did not say when that
    was, and the end is the round that saw it run. An idle core and a parked owner are given work in the round of
    `begin`, which has no stamp of its own."""

    core: int
    old: int
    new: int
    step: str
    begin: int
    end: int
    ticks: int | None
    parts: Mapping[str, int] | None


@dataclass(frozen=True)
class Span:
    """An owner of a core, from its first instruction on; the time of the move to the next one is nobody's."""

    core: int
    owner: int
    begin: int
    end: int


@dataclass(frozen=True)
class Fault:
    core: int
    at: int
    kind: str
    text: str


def follow(moves: Iterable[Move], recording: Recording) -> tuple[list[Handover], list[Span], list[Fault]]:
    """The entries of one core, in order."""
    handovers: list[Handover] = []
    spans: list[Span] = []
    faults: list[Fault] = []
    owner, since, wanted = None, recording.begin_tsc, None

    def ends(core: int, at: int) -> None:
        if owner and at > since:
            spans.append(Span(core, owner, since, at))

    for move in moves:
        if owner is None:  # who had it when the recording began
            owner = move.from_slot
        if move.what in FAULTS:
            kind, text = FAULTS[move.what]
            old = wanted.from_slot if wanted and move.what == lib.CL_IO_LOG_EVICTED else move.from_slot
            said = text.format(old=recording.name(old), owner=recording.name(move.to_slot))
            faults.append(Fault(move.core, move.tsc, kind, said))
        if move.what == lib.CL_IO_LOG_WANTED or move.what == lib.CL_IO_LOG_WOKEN:
            wanted = move
        elif move.what == lib.CL_IO_LOG_DONE and wanted is not None:
            done = _handover(wanted, move)
            handovers.append(done)
            if done.old != done.new:
                ends(move.core, done.begin)
                owner, since = done.new, done.end
            wanted = None
        elif move.what in _ENDS:
            ends(move.core, move.tsc)
            owner, since, wanted = move.to_slot, move.tsc, None
    if moves:
        ends(move.core, recording.end_tsc)
    return handovers, spans, faults


def _handover(wanted: Move, done: Move) -> Handover:
    if done.step in (lib.CL_IO_STEP_IDLE, lib.CL_IO_STEP_WAKE):
        done = done._replace(decided=wanted.tsc % WORD or 1)
    ticks = ticks_of(wanted, done)
    begin = whole(done.decided, wanted.tsc) if done.decided else wanted.tsc
    end = begin + ticks if ticks is not None else max(done.tsc, begin)
    parts = parts_of(wanted, done)
    return Handover(done.core, wanted.from_slot, done.to_slot, STEP_NAMES[done.step], begin, end, ticks, parts)


def summary(recording: Recording) -> dict[str, Any]:
    """The document of `corelane trace --json`: times in us, from the decision to the new owner's first instruction."""
    followed = {core: follow(moves, recording) for core, moves in recording.by_core().items()}
    handovers = [move for moves, _, _ in followed.values() for move in moves]
    faults = sorted((f for _, _, found in followed.values() for f in found), key=lambda f: f.at)
    asks = [move.parts for move in handovers if move.step == "ask" and move.parts]
    pairs = Counter((recording.name(m.old), recording.name(m.new)) for m in handovers if m.old != m.new)
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
            for core, (moves, spans, _) in followed.items()
        ],
        "faults": [{"at_s": _seconds(recording, f.at), "cpu": f.core, "kind": f.kind, "text": f.text} for f in faults],
    }


def _seconds(recording: Recording, tsc: int) -> float:
    return round((tsc - recording.begin_tsc) / recording.hz, 7)


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
        had[recording.name(span.owner)] += span.end - span.begin
    total = max(recording.end_tsc - recording.begin_tsc, 1)
    return {name: round(ticks / total, 6) for name, ticks in had.most_common()}


def events(recording: Recording) -> Iterator[dict[str, Any]]:
    """Trace Event Format, as Perfetto and chrome://tracing read it: a row of who has a core, and one of its moves."""
    owners, moved = 1, 2  # as processes, with the cores as their threads

    def us(tsc: int) -> float:
        return round(recording.us(tsc - recording.begin_tsc), 3)

    def event(phase: str, name: str, pid: int, core: int, **more: Any) -> dict[str, Any]:
        return {"ph": phase, "name": name, "pid": pid, "tid": core, **more}

    def between(name: str, pid: int, core: int, begin: int, end: int, **args: float) -> dict[str, Any]:
        at = us(begin)
        return event("X", name, pid, core, ts=at, dur=round(us(end) - at, 3), args=args)

    for pid, name in ((owners, "cores: who has them"), (moved, "cores: moves")):
        yield event("M", "process_name", pid, 0, args={"name": name})
    for core, moves in recording.by_core().items():
        for pid in (owners, moved):
            yield event("M", "thread_name", pid, core, args={"name": f"CPU {core}"})
        handovers, spans, faults = follow(moves, recording)
        for span in spans:
            yield between(recording.name(span.owner), owners, core, span.begin, span.end)
        for move in handovers:
            name = f"{move.step}: {recording.name(move.old)} to {recording.name(move.new)}"
            parts = {f"{part} (us)": round(recording.us(ticks), 3) for part, ticks in (move.parts or {}).items()}
            yield between(name, moved, core, move.begin, move.end, **parts)
        for fault in faults:
            yield event("i", fault.kind, moved, core, s="t", ts=us(fault.at), args={"why": fault.text})
