"""The engine against queueing theory: means of long runs beside the formulas that they must come to.

A run's mean has a sampling error. Most of it is that of the draws: in this run jobs were a little longer, or came a
little faster, than they are on average. So the mean is corrected by how far the means of work and of gaps are from what
was drawn from, batch by batch (control variates, by least squares): their expectations are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..sim import formulas
from . import loads, policy
from .world import Machine, World

MEAN_NS = 100_000.0
WARM = 0.05  # of a run, before it counts
BATCHES = 100
LOAD = 0.7
SPLIT = (0.3, 0.5)  # of the arrivals, those of the first and, of the rest, of the second class


@dataclass(frozen=True)
class Service:
    """A distribution of work with mean 1 and this second moment."""

    name: str
    second: float
    draw: Callable[[Any, int], Any]


def _lognormal(sigma: float) -> Service:
    def draw(rng: Any, n: int) -> Any:
        return np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2)

    return Service("log-normal", math.exp(sigma**2), draw)


def _bimodal(short: float, long: float, share: float) -> Service:
    def draw(rng: Any, n: int) -> Any:
        return np.where(rng.random(n) < share, long, short)

    return Service("bimodal", share * long**2 + (1 - share) * short**2, draw)


M = Service("exponential", 2.0, lambda rng, n: rng.exponential(1.0, n))
D = Service("constant", 1.0, lambda rng, n: np.ones(n))
L = _lognormal(0.8)
B = _bimodal(0.5, 5.5, 0.1)


@dataclass(frozen=True)
class Case:
    """A queue with a known mean. expected: of the mean time, over the mean service, a value for each class. shared:
    servers are shared evenly by all jobs, which is one core of which each may use 1 / servers."""

    name: str
    servers: int
    service: Service
    discipline: str
    expected: tuple[float, ...]
    classes: tuple[float, ...] = (1.0,)
    shared: bool = False


def _rates(servers: int) -> list[float]:
    first, second = SPLIT
    return [LOAD * servers * part for part in (first, (1 - first) * second, (1 - first) * (1 - second))]


def cases() -> list[Case]:
    """All that is checked."""
    out = []
    for n in (1, 2, 4, 16, 64):
        wait = formulas.mean_wait_mmn(n, LOAD * n, 1.0)
        out.append(Case(f"M/M/{n}", n, M, "fifo", (1 + wait,)))
    for service in (D, L, B):
        wait = formulas.mean_wait_mg1(LOAD, 1.0, service.second)
        out.append(Case(f"M/G/1, {service.name}", 1, service, "fifo", (1 + wait,)))
    for n, service in ((1, L), (1, B), (4, D), (4, L), (16, B)):
        mean = formulas.mean_sojourn_shared(n, LOAD * n, 1.0)
        out.append(Case(f"M/G/{n} shared, {service.name}", n, service, "fifo", (mean,), shared=True))
    for n in (1, 4):
        rates = _rates(n)
        shares = tuple(rate / sum(rates) for rate in rates)
        waits = formulas.mean_waits_priority(n, rates, 1.0)
        out.append(Case(f"M/M/{n}, three classes", n, M, "priority", tuple(1 + w for w in waits), shares))
        times = formulas.mean_sojourns_preemptive(n, rates, 1.0)
        out.append(Case(f"M/M/{n}, three classes, preemptive", n, M, "preempt", tuple(times), shares))
    return out


@dataclass(frozen=True)
class Checked:
    """A class of a case: mean time over the formula's, less 1, its standard error, and the jobs behind it."""

    case: str
    cls: int
    error: float
    standard_error: float
    n: int


def check(case: Case, count: int, seed: int) -> list[Checked]:
    """Run a case with that many jobs."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(MEAN_NS / (LOAD * case.servers), count)
    work = np.maximum(case.service.draw(rng, count) * MEAN_NS, 1.0)
    kind = rng.choice(len(case.classes), count, p=case.classes)
    use = 1.0 / case.servers if case.shared else 1.0
    kinds = tuple(loads.Kind(cls=i, phases=(loads.Phase(use=use),)) for i in range(len(case.classes)))
    load = loads.Load(kinds, loads.jobs(np.cumsum(gaps).astype(np.int64), work, kind))
    machine = Machine(cores=1, seats=256) if case.shared else Machine(cores=case.servers)
    chosen = policy.load("priority", {"preempt": case.discipline == "preempt"}) if len(kinds) > 1 else None
    ran = World(load, machine, buckets=1, room=1 << 14).run(chosen or policy.load("fifo"))
    if not ran.over.all():
        raise AssertionError(f"{case.name}: {int((~ran.over).sum())} jobs found no room")
    keep = slice(int(WARM * count), count)
    columns = [work[keep] / MEAN_NS - 1, gaps[keep] / (MEAN_NS / (LOAD * case.servers)) - 1]
    columns.append((work[keep] / MEAN_NS) ** 2 - case.service.second)
    mine = kind[keep]
    out = []
    for cls, expected in enumerate(case.expected):
        mean, error = corrected(ran.completion_ns[keep] / MEAN_NS, mine == cls, columns)
        out.append(Checked(case.name, cls, mean / expected - 1, error / expected, int((mine == cls).sum())))
    return out


def corrected(values: Any, chosen: Any, controls: Sequence[Any]) -> tuple[float, float]:
    """Mean of the chosen values, corrected by controls of mean 0, and its standard error, by batch means."""
    batches = np.array_split(np.arange(len(values)), BATCHES)
    y = np.array([values[b][chosen[b]].mean() for b in batches])
    x = np.array([[1.0, *(float(c[b].mean()) for c in controls)] for b in batches])
    varies = [0, *(i for i in range(1, x.shape[1]) if np.ptp(x[:, i]) > 1e-12)]
    fit, *_ = np.linalg.lstsq(x[:, varies], y, rcond=None)
    rest = y - x[:, varies] @ fit
    return float(fit[0]), float(np.sqrt((rest**2).sum() / (len(y) - len(varies)) / len(y)))
