"""Requests that are preempted against closed forms, in every run of the benchmark; the tests go further.

With a quantum that is short beside the service, requests share the servers evenly: the mean time is that of processor
sharing, of several servers too, whatever the distribution of service (`formulas.mean_sojourn_shared`). A preemption is
made only where a request waits, so its cost makes everything longer while more requests are there than servers: that
has a closed form as well. Exponential requests have the same mean time with any quantum, and where a quantum is longer
than any request it is that of Pollaczek and Khinchine.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from ..harness.session import Session
from . import formulas
from .model import App, Bimodal, Costs, Distribution, Exponential, Simulation

LOAD = 0.7
MEAN_NS = 100_000.0
EXPONENTIAL, SPREAD = Exponential(MEAN_NS), Bimodal(MEAN_NS / 2, MEAN_NS * 5.5, 0.1)
SHORT, LONG = 1 / 50, 10.0  # quanta, of the mean
BATCHES = 20
LEAST_EVENTS = 20_000  # of a batch


@dataclass(frozen=True)
class Check:
    """A queue whose mean time is known. quantum: of the mean service; cost: of a preemption, of the quantum."""

    service: Distribution
    servers: int
    quantum: float
    cost: float = 0.0

    @property
    def name(self) -> str:
        kind = "M" if self.service == EXPONENTIAL else "G"
        cost = f", a preemption {self.cost:g} of it" if self.cost else ""
        return f"M/{kind}/{self.servers} with a quantum of {self.quantum:g} mean services{cost}"

    @property
    def expected_ns(self) -> float:
        """Mean time from arrival to completion."""
        first, second = self.service.moments()
        rate = LOAD * self.servers / first
        if self.quantum == LONG:
            return formulas.mean_wait_mg1(rate, first, second) + first
        return formulas.mean_sojourn_shared(self.servers, rate, first, 1 + self.cost)

    def world(self, seed: int) -> Simulation:
        quantum_ns = round(self.quantum * MEAN_NS)
        rate = LOAD * self.servers / self.service.moments()[0] * 1e9
        app = App("a", rate, self.service, guaranteed=self.servers, central=True, quantum_ns=quantum_ns)
        costs = Costs(preempt_ns=round(self.cost * quantum_ns))
        return Simulation([app], self.servers, interval_ns=0, costs=costs, seed=seed)


CHECKS = (
    Check(EXPONENTIAL, 1, 0.2),
    Check(SPREAD, 1, LONG),
    Check(SPREAD, 1, SHORT),
    Check(SPREAD, 16, SHORT),
    Check(SPREAD, 16, SHORT, 0.25),
)


@dataclass(frozen=True)
class Checked:
    """The mean time over the theory's, less 1, and its standard error by batch means. n: requests."""

    error: float
    standard_error: float
    n: int


def check(one: Check, events: float, seed: int = 1) -> Checked:
    """So many events in all, but LEAST_EVENTS a batch at least."""
    world, size = one.world(seed), max(round(events / (BATCHES + 2)), LEAST_EVENTS)
    world.run(events=2 * size)
    means, counts = [], []
    for _ in range(BATCHES):
        world.reset()
        world.run(events=size)
        seen = world.result("a")
        means.append(seen.mean_latency_ns)
        counts.append(seen.done)
    mean = statistics.fmean(means, counts)
    error = statistics.stdev(means) / BATCHES**0.5 / one.expected_ns
    return Checked(mean / one.expected_ns - 1, error, sum(counts))


def compare(session: Session, events: float) -> None:
    """A row for each check, of so many events each."""
    for one in CHECKS:
        session.say(one.name)
        seen = check(one, events)
        session.arm(one.name, cores=one.servers, load=LOAD, **vars(seen))
