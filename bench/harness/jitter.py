"""The canary: what the machine alone does to a tail.

A gap of g on a core makes a request that arrives within it wait for what is left of it, so over a time T of watching

    P(delay > d) = sum over gaps of max(g - d, 0) / T

is the delay that an otherwise instant server would show (arrivals at random times, no queue behind the gap: a lower
bound under load). A latency percentile of an arm of which this delay makes half or more is marked as the machine's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .numbers import PERCENTILES, plain

FLOOR_NS = 100
EXPLAINED_FRACTION = 0.5

# The share of a core's time that a run may lose and still be judged. The runs recorded in docs/performance*.md lost
# 0.8 to 3.7 % of their worse core, most of them less than 2.6 %. A host that ran others on these cores took 20 to 30 %,
# and what figures said there was of the host. Between the two lies the bound, nearer to what is normal.
LOST_MOST = 0.05


@dataclass
class Gaps:
    """Gaps seen on one core. buckets: start of the bucket in ns -> (gaps, their total in ns)."""

    cpu: int
    seconds: float = 0.0
    polls: int = 0
    max_ns: float = 0.0
    buckets: dict[float, tuple[int, float]] = field(default_factory=dict)

    def add(self, other: Gaps) -> None:
        """Add another watch of the same core."""
        self.seconds += other.seconds
        self.polls += other.polls
        self.max_ns = max(self.max_ns, other.max_ns)
        for start, (count, total) in other.buckets.items():
            have = self.buckets.get(start, (0, 0.0))
            self.buckets[start] = (have[0] + count, have[1] + total)

    @property
    def lost_fraction(self) -> float:
        """Part of the time that the core was not the canary's, counting gaps of a microsecond or more."""
        return sum(t for s, (_, t) in self.buckets.items() if s >= 1000) / (self.seconds * 1e9) if self.seconds else 0.0


def together(slices: Iterable[Sequence[Gaps]]) -> list[Gaps]:
    """The gaps of several slices, by core."""
    found: dict[int, Gaps] = {}
    for seen in slices:
        for gaps in seen:
            found.setdefault(gaps.cpu, Gaps(gaps.cpu)).add(gaps)
    return list(found.values())


def worst(cores: Iterable[Gaps]) -> Gaps:
    """The core that lost most."""
    return max(cores, key=lambda gaps: gaps.lost_fraction)


def watch(cpus: Sequence[int], seconds: float) -> list[Gaps]:
    """Spin on every core of `cpus` for `seconds` and return the gaps seen on each. CorelaneError if one is not ours."""
    out = ffi.new("struct cl_canary[]", len(cpus))
    err = ffi.new("char[256]")
    if lib.cl_canary_watch(list(cpus), len(cpus), int(seconds * 1e9), FLOOR_NS, out, err) < 0:
        raise CorelaneError(f"the canary could not run: {ffi.string(err).decode()}")
    seen = []
    for cpu, raw in zip(cpus, out, strict=True):
        buckets: dict[float, tuple[int, float]] = {}
        for i in range(len(raw.count)):
            if raw.count[i]:
                # Rounded, so that slices whose scale differs in the tenth digit share their buckets.
                start = float(f"{lib.cl_canary_bucket_start(i) * raw.ns_per_tick:.4g}")
                count, total = buckets.get(start, (0, 0.0))
                buckets[start] = (count + raw.count[i], total + raw.ticks[i] * raw.ns_per_tick)
        seen.append(Gaps(cpu, raw.seconds, raw.polls, raw.max_ticks * raw.ns_per_tick, buckets))
    return seen


def delay_us(gaps: Iterable[Gaps], q: float) -> float:
    """Delay in microseconds that a fraction `q` of random arrivals does not exceed, from the gaps of all cores given.

    A request needs every one of the cores, so their gaps add up.
    """
    terms = []  # (mean gap in ns, gaps a ns of watching)
    for g in gaps:
        if g.seconds > 0:
            terms += [(total / count, count / (g.seconds * 1e9)) for count, total in g.buckets.values()]
    terms.sort(reverse=True)
    want, rate, weight = 1.0 - q, 0.0, 0.0
    # P(delay > d) = weight - rate * d between two gap lengths: walk down until it reaches `want`.
    for mean, per_ns in terms:
        if weight - rate * mean >= want:
            break
        rate += per_ns
        weight += per_ns * mean
    if rate == 0.0 or weight < want:
        return 0.0
    return max((weight - want) / rate, 0.0) / 1000.0


class Canary:
    """The canary of one run: slices taken between the arms, added up by core."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self.cpus = tuple(cpus)
        self.by_cpu: dict[int, Gaps] = {cpu: Gaps(cpu) for cpu in cpus}
        self.slices = 0
        self.left_out: dict[int, Gaps] = {cpu: Gaps(cpu) for cpu in cpus}  # around rounds that were discarded
        self.slices_left_out = 0

    def slice(self, seconds: float) -> list[Gaps]:
        """Watch all measured cores for `seconds`, now. Returns this slice's gaps, by core."""
        seen = watch(self.cpus, seconds)
        self.count(seen)
        return seen

    def count(self, seen: Sequence[Gaps], *, left_out: bool = False) -> None:
        """Add a slice to the run. left_out: it was taken around a discarded round, and says nothing of the others."""
        for gaps in seen:
            (self.left_out if left_out else self.by_cpu)[gaps.cpu].add(gaps)
        self.slices_left_out += left_out
        self.slices += not left_out

    @property
    def loud(self) -> bool:
        """Whether a core lost so much that no figure of the run is judged."""
        return worst(self.by_cpu.values()).lost_fraction > LOST_MOST

    def delay_us(self, q: float) -> float:
        """See `delay_us`, over all measured cores."""
        return delay_us(self.by_cpu.values(), q)

    def explained(self, latencies_us: dict[str, float]) -> list[str]:
        """Those of p50, p90, p99, p999 of which the machine's own gaps make at least half."""
        out = []
        for name, q in PERCENTILES:
            value, alone = latencies_us.get(name, math.nan), self.delay_us(q)
            if alone > 0 and math.isfinite(value) and alone >= EXPLAINED_FRACTION * value:
                out.append(name)
        return out

    def document(self) -> dict[str, Any]:
        """The "canary" member of the JSON document."""
        cores = []
        for g in self.by_cpu.values():
            cores.append(
                {
                    "cpu": g.cpu,
                    "seconds": g.seconds,
                    "polls": g.polls,
                    "max_us": g.max_ns / 1e3,
                    "lost_fraction": g.lost_fraction,
                    "gaps": [[s, n, round(t, 1)] for s, (n, t) in sorted(g.buckets.items())],
                }
            )
        most = worst(self.by_cpu.values())
        keys = ("cpu", "seconds", "lost_fraction")
        left_out = [{key: getattr(gaps, key) for key in keys} for gaps in self.left_out.values()]
        return {
            "cpus": list(self.cpus),
            "slices": self.slices,
            "seconds": sum(g.seconds for g in self.by_cpu.values()),
            "gap_columns": ["from_ns", "count", "total_ns"],
            "cores": cores,
            "delay_us": {name: plain(self.delay_us(q)) for name, q in PERCENTILES},
            "max_us": max((g.max_ns for g in self.by_cpu.values()), default=0.0) / 1e3,
            "worst_cpu": most.cpu,
            "worst_lost_fraction": most.lost_fraction,
            "bound_lost_fraction": LOST_MOST,
            "loud": self.loud,
            "left_out": {"slices": self.slices_left_out, "cores": left_out},
        }
