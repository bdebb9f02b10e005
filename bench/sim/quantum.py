"""The quantum, and what a preemption may cost: Shinjuku's question (NSDI 2019), asked of other mechanisms than its own.

One application on 16 to 64 cores of its own serves requests of which few are long. A request that has run for a quantum
goes behind others that wait, and that takes `preempt_ns` of its core. The queue is one for all cores, as a dispatcher
has it; a few rows have one a core and stealing, as libos has it. Two studies:

- `tails_against_load`: p99.9 of latency and of slowdown, with no quantum and with quanta of 5 to 100 us, up to the
  first load that is not carried;
- `loads_for_a_goal`: the largest load at which p99.9 of the slowdown keeps GOAL, for each cost of a preemption.

Slowdown is latency over length. A request counts as at least SHORTEST_NS long, else the p99.9 of a distribution that
goes down to 0 is that of requests of some nanoseconds. Cases of the same workload and number of cores have the same
arrivals and lengths (draws.py), at the same load: what differs is the quantum and its cost.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..harness.session import Session
from . import formulas
from .model import (
    App,
    Bimodal,
    BoundedPareto,
    Costs,
    Distribution,
    Exponential,
    LogNormal,
    Result,
    Simulation,
    Trimodal,
)
from .sampling import Sampled, carried, memory_ns, sample, slowdowns
from .studies import COSTS, EVENTS_PER_S, finite

BIMODAL, LOG_NORMAL = "bimodal 99.5-0.5", "lognormal"
WORKLOADS: dict[str, Distribution] = {
    BIMODAL: Bimodal(500, 500_000, 0.005),
    LOG_NORMAL: LogNormal(1000, math.sqrt(math.log(101))),  # a standard deviation of ten means
    "Pareto": BoundedPareto(500, 1_000_000, 1.2),
    "bimodal 50-50": Bimodal(1000, 100_000, 0.5),
    "trimodal": Trimodal(1000, 10_000, 100_000),
    "exponential": Exponential(1000),
}
QUANTA_US = (0, 5, 50, 100)  # 0: none
# What a preemption takes of a core, us: nothing; about a probe that finds the flag set, a user interrupt, an
# inter-processor interrupt, a signal to a core that is busy (docs/simulator.md says where these come from).
COSTS_US = (0, 1, 2, 5, 14)
PROBE_US = 1
GOAL = 50.0  # p99.9 of the slowdown
SHORTEST_NS = 500

CORES = (16, 32, 64)
CURVES = ((BIMODAL, 16), (BIMODAL, 64), (LOG_NORMAL, 16))
CURVES_LOADS = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05)  # the last one nobody carries
WHAT_IF = (BIMODAL, LOG_NORMAL)
LOADS = tuple(round(0.02 * i, 2) for i in range(1, 50))
LEAST_IDLE = 0.005  # part of its time that a core idles, if the load is carried
MOST_REMEMBERED = 0.9  # load up to which the warm-up grows with the queue's memory


@dataclass(frozen=True)
class Case:
    """What is simulated, but for its load. cost_us: of a preemption; central: one queue for all cores."""

    workload: str
    quantum_us: int
    cost_us: int
    cores: int = 16
    central: bool = True

    @property
    def name(self) -> str:
        quantum = f"quantum {self.quantum_us} us at {self.cost_us} us" if self.quantum_us else "no quantum"
        return f"{quantum}, {self.workload}, {self.cores} cores{'' if self.central else ', a queue a core'}"

    @property
    def most_load(self) -> float:
        """At which no time is left, since all requests are preempted as often as they can be."""
        service = WORKLOADS[self.workload]
        often = formulas.preemptions(service.over, self.quantum_us * 1e3) if self.quantum_us else 0.0
        return formulas.most_load(service.moments()[0], often, self.cost_us * 1e3)

    def world(self, load: float) -> Simulation:
        service = WORKLOADS[self.workload]
        rate = load * self.cores / service.moments()[0] * 1e9
        how: dict[str, Any] = {"guaranteed": self.cores, "central": self.central, "quantum_ns": self.quantum_us * 1000}
        costs = Costs(preempt_ns=self.cost_us * 1000, steal_ns=COSTS.steal_ns)
        app = App("a", rate_rps=rate, service=service, **how)
        return Simulation([app], self.cores, interval_ns=0, costs=costs, shortest_ns=SHORTEST_NS, seed=17)


@dataclass(frozen=True)
class Seen:
    """A case at a load."""

    case: Case
    load: float
    result: Result
    sampled: Sampled

    @property
    def p999(self) -> float:
        """Of the slowdown."""
        return self.result.slowdown(99.9)

    @property
    def carried(self) -> bool:
        """As of a load on the machine; and cores have time left. Where requests are preempted the long ones alone pile
        up, which are few."""
        return carried(self.result) and self.result.cores_idle >= LEAST_IDLE * self.case.cores

    @property
    def meets(self) -> bool:
        """The goal."""
        return self.carried and self.p999 <= GOAL

    @property
    def surely_misses(self) -> bool:
        """It, by two standard errors, or is not carried."""
        return not self.carried or self.p999 * (1 - 2 * self.sampled.error) > GOAL

    def row(self) -> dict[str, Any]:
        """For the document."""
        result, case = self.result, self.case
        return {
            "workload": case.workload,
            "cores": case.cores,
            "quantum_us": case.quantum_us,
            "preempt_us": case.cost_us,
            "n": result.done,
            **{f"{name}_us": finite(result.percentile_us(p)) for name, p in (("p50", 50), ("p99", 99), ("p999", 99.9))},
            "p99_slowdown": finite(result.slowdown(99)),
            "p999_slowdown": finite(self.p999),
            "p999_error": finite(self.sampled.error),
            "known": self.sampled.known,
            "carried": self.carried,
            "preemptions_per_request": result.preemptions / max(result.done, 1),
            "cores_requests": result.cores_worked / case.cores,
            "cores_preempting": result.preemptions * case.cost_us / 1e6 / result.seconds / case.cores,
        }

    def why_full(self) -> str:
        """What the cores are used for."""
        row = self.row()
        parts = {"requests": row["cores_requests"], "preemptions": row["cores_preempting"]}
        return ", ".join(f"{name} {100 * part:.0f} %" for name, part in parts.items() if part >= 0.005)


def measure(case: Case, load: float, events: float) -> Seen:
    """Simulate it until its p99.9 of the slowdown is known, or its events are spent."""
    world = case.world(load)
    first, second = WORKLOADS[case.workload].moments()
    # A request that is found on a core is so long on average.
    memory = memory_ns(min(load, MOST_REMEMBERED), case.cores, second / first)
    seen, sampled = sample(world, lambda: world.result("a"), events, memory, counts=slowdowns)
    return Seen(case, load, seen, sampled)


@dataclass(frozen=True)
class Found:
    """The largest load that meets the goal, by what was tried of LOADS, by index."""

    case: Case
    tried: dict[int, Seen] = field(default_factory=dict)

    @property
    def best(self) -> Seen | None:
        """At that load; None: no load meets it."""
        return max((seen for seen in self.tried.values() if seen.meets), key=lambda seen: seen.load, default=None)

    @property
    def load(self) -> float:
        return self.best.load if self.best else 0.0


def largest(case: Case, events: float, most: int | None = None) -> Found:
    """Search those of LOADS at which time is left, by bisection. most: only so many, and near the last one of them: in
    steps that double, downwards, before."""
    found = Found(case)

    def misses(i: int) -> bool:
        found.tried[i] = measure(case, LOADS[i], events)
        return not found.tried[i].meets

    low, high, step = -1, bisect_left(LOADS, case.most_load), 1
    if most is not None:
        high = min(most, high)
        low = high - 1
        while low >= 0 and misses(low):
            low, high, step = low - step, low, 2 * step
    bisect_left(range(high), True, lo=max(low + 1, 0), key=misses)
    return found


def tails_against_load(session: Session, seconds: float) -> None:
    """A row for each load, up to the first one that is not carried."""
    for workload, cores in CURVES:
        for quantum_us in QUANTA_US:
            case = Case(workload, quantum_us, PROBE_US if quantum_us else 0, cores)
            session.say(case.name)
            session.stop_uncounted(case.name, _curve(session, case, seconds * EVENTS_PER_S))


def _curve(session: Session, case: Case, events: float) -> str:
    """Its rows; where and why it ends, and where the goal is missed."""
    said: list[str] = []
    for load in CURVES_LOADS:
        seen = measure(case, load, events)
        session.arm(case.name, load=load, **seen.row())
        if not said and seen.surely_misses:
            said.append(f"p99.9 of the slowdown is beyond {GOAL:g} at load {load:g}")
        if not seen.carried:
            return "; ".join([*said, f"load {load:g} is not carried: the cores are full ({seen.why_full()})"])
    return "; ".join([*said, "the highest load tried is carried"])


def families() -> Iterator[list[Case]]:
    """Cases that differ in the cost of a preemption alone, which ascends."""
    for workload in WORKLOADS:
        for quantum_us in QUANTA_US:
            costs = COSTS_US if workload in WHAT_IF else (PROBE_US,)
            yield [Case(workload, quantum_us, cost_us) for cost_us in (costs if quantum_us else (0,))]
    for quantum_us in QUANTA_US:
        case = Case(BIMODAL, quantum_us, PROBE_US if quantum_us else 0)
        yield from ([replace(case, cores=cores)] for cores in CORES[1:])
        yield [replace(case, central=False)]


def loads_for_a_goal(session: Session, seconds: float) -> None:
    """A row for each case. A dearer preemption is not tried at loads at which a cheaper one misses the goal."""
    for cases in families():
        most = None
        for case in cases:
            session.say(f"{case.name}: the largest load for a slowdown of {GOAL:g}")
            found = largest(case, seconds * EVENTS_PER_S, most)
            most = LOADS.index(found.load) + 1 if found.best else 0
            session.arm(f"largest load: {case.name}", **_goal_row(found))
    session.settings["slowdown_goal"] = GOAL


def _goal_row(found: Found) -> dict[str, Any]:
    case, best = found.case, found.best
    return {
        "workload": case.workload,
        "cores": case.cores,
        "central": case.central,
        "quantum_us": case.quantum_us,
        "preempt_us": case.cost_us,
        "load_for_goal": found.load,
        "most_load": case.most_load,
        "n": sum(seen.result.done for seen in found.tried.values()),
        "p999_slowdown": finite(best.p999) if best else None,
        "p999_error": finite(best.sampled.error) if best else None,
        "p999_us": finite(best.result.percentile_us(99.9)) if best else None,
        "cores_preempting": best.row()["cores_preempting"] if best else None,
    }
