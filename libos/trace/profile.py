"""What ran while slow requests were under way that did not while ordinary ones were: samples of program counters
(runtime/perf.py), put to the requests that their kthread had then.

From its pick-up to its end a request has whatever its kthread runs: its own handler, and those in front of it, whose
fault it is if it waits. A sample stands for 1/hz seconds of its thread's CPU time, so time that a kthread stood still
is none of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime.perf import Sample
from ...runtime.trace import Records
from .blame import FEWEST
from .stages import Table

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

STANDS_MOST = 100
Stack = tuple[str, ...]
"""Functions, the outermost first."""


@dataclass(frozen=True)
class Part:
    """Requests of one kind. us: of each stack, while one of them was under way, on average. samples: that any has."""

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


def samples_of(records: Records) -> list[Sample]:
    """Those that a runtime took itself (sampled.c), with stamps in place of times; each as often as it stands for."""
    return [
        Sample(int(one["kthread"]), int(one["begin"]), tuple(int(pc) for pc in one["chain"][: one["n"]]))
        for one in records.samples
        for _ in range(min(int(one["stands"]), STANDS_MOST))
    ]


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
    parts = []
    for mine in (slow, ~slow):
        stacks = Counter[Stack]()
        weight = weights(one.messages[mine], samples, sampled.tsc_of)
        for times, sample in zip(weight.tolist(), samples, strict=True):
            if times > 0:
                stacks[_stack(sample, sampled.name_of)] += times
        n = int(mine.sum())
        each = 1e6 / sampled.hz / max(n, 1)
        us = {stack: count * each for stack, count in stacks.items()}
        parts.append(Part(n, int((weight > 0).sum()), us))
    return Profile(name, value, parts[0], parts[1], len(samples))


def _stack(sample: Sample, name_of: Callable[[int], str]) -> Stack:
    """Return addresses are behind the call: of the call itself they say where it is."""
    inner, *callers = sample.chain
    return (*(name_of(pc - 1) for pc in reversed(callers)), name_of(inner))


def weights(messages: Array, samples: Sequence[Sample], tsc_of: Callable[[int], int]) -> Array:
    """Of each sample how many of the requests its kthread had then: picked up, and not yet done."""
    import numpy

    out = numpy.zeros(len(samples), int)
    numbers = numpy.array([sample.number for sample in samples], int)
    stamps = numpy.array([max(tsc_of(sample.ns), 0) for sample in samples], numpy.uint64)
    for kthread in numpy.unique(numbers):
        mine = messages[messages["kthread"] == kthread]
        at = stamps[numbers == kthread]
        begun, ended = (
            numpy.searchsorted(numpy.sort(mine["begin"] + mine[edge]), at, side="right") for edge in ("pickup", "end")
        )
        out[numbers == kthread] = begun - ended
    return out


def lines_of(profile: Profile, most: int = 8) -> list[str]:
    """For people: functions, with their callers, by how much more of them there is in a slow request."""
    slow, ordinary = (_by_function(part) for part in (profile.slow, profile.ordinary))
    n, others = profile.slow, profile.ordinary
    lines = [
        f"{profile.service}: what ran while {n.n:,} requests of {profile.value_us:.1f} us or more were under way "
        f"({n.samples:,} samples), and {others.n:,} others ({others.samples:,})"
    ]
    more = sorted(slow, key=lambda name: ordinary.get(name, 0.0) - slow[name])[:most]
    lines += [f"  {slow[name]:10.1f} us, not {ordinary.get(name, 0.0):.1f}: {name}" for name in more]
    if not more:
        lines.append("  nothing: their kthread stood still, or they are short; sample for longer")
    return lines


def _by_function(part: Part) -> dict[str, float]:
    """Time in each function itself, by its name and its caller's."""
    out: dict[str, float] = {}
    for stack, us in part.us.items():
        name = stack[-1] if len(stack) < 2 else f"{stack[-1]}, called by {stack[-2]}"
        out[name] = out.get(name, 0.0) + us
    return out
