"""What slow requests ran that ordinary ones did not: samples of program counters (runtime/perf.py), put to the requests
that were handled then.

A sample stands for 1/hz seconds of its thread's CPU time. Requests that waited are left out: others ran on their
kthread meanwhile. So the time is that which is spent running, and no time that a kthread stood still.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.perf import Sample
from .blame import FEWEST
from .stages import Table

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Stack = tuple[str, ...]
"""Functions, the outermost first."""


@dataclass(frozen=True)
class Part:
    """Requests of one kind. us: of each stack, in one of the requests, on average."""

    n: int
    samples: int
    us: dict[Stack, float]

    @property
    def total_us(self) -> float:
        """Of a request."""
        return sum(self.us.values())


@dataclass(frozen=True)
class Profile:
    """Of a service. slow: at or above its p99; ordinary: the others. samples: all that there were, of any thread's
    doing."""

    service: str
    value_us: float
    slow: Part
    ordinary: Part
    samples: int


@dataclass(frozen=True)
class Sampled:
    """samples: hz a second of CPU time. tsc_of: a stamp of a time in ns. name_of: the function of a program counter."""

    samples: Sequence[Sample]
    hz: int
    tsc_of: Callable[[int], int]
    name_of: Callable[[int], str]


def of_table(seen: Table, sampled: Sampled, quantile: float = 0.99) -> list[Profile]:
    """Of each service of which there are enough requests."""
    import numpy

    out = []
    for service in numpy.unique(seen.messages["service"]):
        name = seen.names[int(service)] if service < len(seen.names) else f"service {service}"
        found = of_service(seen.of_service(int(service)), name, sampled, quantile)
        out += [found] if found is not None else []
    return out


def of_service(one: Table, name: str, sampled: Sampled, quantile: float) -> Profile | None:
    """Of a table with one service. None: too few requests."""
    import numpy

    if len(one.messages) * (1 - quantile) < FEWEST:
        return None
    value = float(numpy.quantile(one.total, quantile))
    slow = one.total >= value
    samples = sampled.samples
    rows = owners(one.messages, samples, sampled.tsc_of)
    parts = []
    for mine in (slow, ~slow):
        stacks = Counter[Stack]()
        for row, sample in zip(rows, samples, strict=True):
            if row >= 0 and mine[row]:
                stacks[_stack(sample, sampled.name_of)] += 1
        n = int((mine & (one.messages["blocked"] == 0)).sum())
        each = 1e6 / sampled.hz / max(n, 1)
        parts.append(Part(n, sum(stacks.values()), {stack: count * each for stack, count in stacks.items()}))
    return Profile(name, value, parts[0], parts[1], len(samples))


def _stack(sample: Sample, name_of: Callable[[int], str]) -> Stack:
    """Return addresses are behind the call: of the call itself they say where it is."""
    inner, *callers = sample.chain
    return (*(name_of(pc - 1) for pc in reversed(callers)), name_of(inner))


def owners(messages: Array, samples: Sequence[Sample], tsc_of: Callable[[int], int]) -> list[int]:
    """Of each sample the row of the request that was handled then on its kthread; -1: none was."""
    import numpy

    out = [-1] * len(samples)
    for kthread in {sample.number for sample in samples}:
        rows = numpy.nonzero((messages["kthread"] == kthread) & (messages["blocked"] == 0) & (messages["ready"] == 0))[
            0
        ]
        begins = messages["begin"][rows] + messages["start"][rows]
        rows = rows[numpy.argsort(begins, kind="stable")]
        begins = messages["begin"][rows] + messages["start"][rows]
        ends = messages["begin"][rows] + messages["end"][rows]
        for i, sample in enumerate(samples):
            if sample.number == kthread:
                at = tsc_of(sample.ns)
                place = int(numpy.searchsorted(begins, numpy.uint64(max(at, 0)), side="right")) - 1
                if place >= 0 and at < int(ends[place]):
                    out[i] = int(rows[place])
    return out


def lines_of(profile: Profile, most: int = 8) -> list[str]:
    """For people: functions by how much more of them there is in a slow request."""
    slow, ordinary = (_by_function(part) for part in (profile.slow, profile.ordinary))
    lines = [
        f"{profile.service}: where handlers were, {profile.slow.samples:,} samples in {profile.slow.n:,} requests of "
        f"{profile.value_us:.1f} us or more, {profile.ordinary.samples:,} in {profile.ordinary.n:,} others"
    ]
    more = sorted(slow, key=lambda name: ordinary.get(name, 0.0) - slow[name])[:most]
    lines += [f"  {slow[name]:10.1f} us, not {ordinary.get(name, 0.0):.1f}: {name}" for name in more]
    if not more:
        lines.append("  none was in a handler: they wait, or are short; sample for longer")
    return lines


def _by_function(part: Part) -> dict[str, float]:
    """Time in each function itself."""
    out: dict[str, float] = {}
    for stack, us in part.us.items():
        out[stack[-1]] = out.get(stack[-1], 0.0) + us
    return out
