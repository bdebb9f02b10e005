"""Who had the core, or the CPU, of a kthread that stood still while slow requests were under way: evidence of blame.

Records say for how long, which slot had the core, and for how much of a gap the thread stood in line for its CPU. Names
of slots the iokernel knows, and what ran on a CPU the kernel: whoever reads the records asks them (Others).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .stages import STOPPED, Stage, Table
from .stopped import AWAY, COLLECTS, NO_CPU, Stood

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

MOST_NAMED = 3
_AGES = {1: "young objects", 2: "younger objects", 3: "all objects"}  # generation, + 1 (gc.collect)


def _slot(number: int) -> str:
    return f"slot {number - 1}"


@dataclass(frozen=True)
class Slice:
    """A thread had a CPU between two stamps."""

    cpu: int
    begin: int
    end: int
    name: str


@dataclass(frozen=True)
class Others:
    """slot: name of a slot + 1. ran: other threads, on the CPUs that kthreads have; None: the kernel does not say, and
    busy has, by CPU, who used it in all of the recording, with their seconds."""

    slot: Callable[[int], str] = _slot
    ran: Sequence[Slice] | None = None
    busy: Mapping[int, Sequence[tuple[str, float]]] = field(default_factory=dict)


def lines(stage: Stage, one: Table, rows: Array, others: Others) -> list[str]:
    """Of the slow requests (rows) of a service, whose excess is this stage's."""
    stood = one.stood.during(one.messages[rows])
    if stage[:2] == (STOPPED, AWAY):
        return _taken(stood, one.hz, others)
    if stage[:2] == (STOPPED, COLLECTS):
        return _collections(stood, one.hz)
    if stage[:2] == (STOPPED, NO_CPU):
        return _without_cpu(stood, one.hz, others)
    return []


def _taken(stood: Stood, hz: int, others: Others) -> list[str]:
    cores = stood.cores
    if not len(cores):
        return []
    times = int(cores["n"].sum())
    out = [f"its core was another's {_many(times)} then, {_each(cores['end'] - cores['begin'], hz)}"]
    had: Counter[str] = Counter()
    for core in cores:
        where = f" (CPU {int(core['cpu']) - 1})" if core["cpu"] else ""
        had[(others.slot(int(core["by"])) if core["by"] else "unknown") + where] += int(core["n"])
    named = ", ".join(f"{name} {n} of {times}" for name, n in had.most_common(MOST_NAMED))
    return [*out, f"who had it: {named}"]


def _collections(stood: Stood, hz: int) -> list[str]:
    found = stood.collections
    if not len(found):
        return []
    of = Counter(int(generation) for generation in found["n"])
    named = ", ".join(f"{n} of {_AGES.get(generation, 'others')}" for generation, n in of.most_common())
    return [f"garbage was collected {_many(len(found))} then ({named}), {_each(found['gone'], hz)}"]


def _without_cpu(stood: Stood, hz: int, others: Others) -> list[str]:
    gaps = stood.without_cpu
    gone = int(gaps["gone"].sum())
    if not gone:
        return []
    in_line, cpus = int(gaps["waited"].sum()), sorted({int(cpu) - 1 for cpu in gaps["cpu"] if cpu})
    where = " and ".join(f"CPU {cpu}" for cpu in cpus) or "its CPU"
    out = [
        f"of {_ms(gone, hz)} ms without a CPU its thread stood in line for {_ms(in_line, hz)}: others ran on {where} "
        f"then; {int(gaps['switches'].sum())} times it was switched away from, {int(gaps['sleeps'].sum())} it slept"
    ]
    if others.ran is not None:
        named = _ran(gaps, others.ran).most_common(MOST_NAMED)
        told = ", ".join(f"{name} {_ms(ticks, hz)} ms" for name, ticks in named) or "nobody else"
        return [*out, f"who ran there then: {told}"]
    for cpu in cpus:
        if named_s := others.busy.get(cpu):
            told = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in named_s[:MOST_NAMED])
            out.append(f"who used CPU {cpu} most, of others, while this was recorded: {told}")
    return out


def _ran(gaps: Array, slices: Sequence[Slice]) -> Counter[str]:
    """Ticks of each while a kthread stood still. Slices of a CPU do not overlap. Gaps may, as their writer likes: what
    they have in common is told once, and each slice meets few of them."""
    had: Counter[str] = Counter()
    stood: dict[int, list[tuple[int, int]]] = {}
    for gap in gaps:
        stood.setdefault(int(gap["cpu"]) - 1, []).append((int(gap["begin"]), int(gap["end"])))
    spans, at = {cpu: _united(of) for cpu, of in stood.items()}, dict.fromkeys(stood, 0)
    for one in sorted(slices, key=lambda one: one.begin):
        mine = spans.get(one.cpu, [])
        first = next((i for i in range(at.get(one.cpu, 0), len(mine)) if mine[i][1] > one.begin), len(mine))
        at[one.cpu] = first
        for i in range(first, len(mine)):
            begin, end = mine[i]
            if begin >= one.end:
                break
            had[one.name] += max(min(one.end, end) - max(one.begin, begin), 0)
    return +had


def _united(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same moments, in spans that do not overlap, upwards."""
    out: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def _many(n: int) -> str:
    return "once" if n == 1 else f"{n:,} times"


def _ms(ticks: int, hz: int) -> str:
    return f"{1e3 * ticks / hz:.1f}"


def _each(ticks: Array, hz: int) -> str:
    return f"for {1e6 * float(ticks.mean()) / hz:.0f} us on average, {1e6 * float(ticks.max()) / hz:.0f} at most"
