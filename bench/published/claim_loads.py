"""Loads like those on which the policies' papers measure, made from a seed: shapes and orders of size, no traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..lab import generators
from ..lab.loads import Kind, Load, Phase, jobs

MEAN_NS = 2e6
# Models that are asked for, us: what a batch takes whatever its size, what each request adds, and the limit.
SESSIONS = ((2.0, 0.2, 40.0), (5.0, 0.5, 100.0), (1.0, 1.0, 25.0), (8.0, 0.4, 120.0), (3.0, 0.1, 30.0))


def _arrivals(rng: Any, work: Any, cores: int, load: float) -> Any:
    """Of a Poisson process that asks for that part of the cores."""
    gaps = rng.exponential(float(np.mean(work)) / (load * cores), len(work))
    return np.cumsum(gaps).astype(np.int64)


def heavy(rng: Any, cores: int) -> Load:
    """A production cluster's mix under pressure, nothing declared."""
    made = generators.make("cluster", {"jobs": 1500, "load": 1.05}, cores, int(rng.integers(1 << 30)))
    rows = made.jobs.copy()
    rows["declared_ns"] = 0.0
    return Load(made.kinds, rows)


def deadlines(rng: Any, cores: int) -> Load:
    """Elastic jobs of known length, each with a deadline of 0.5 to 1.5 times what it takes on its least cores, as in
    ElasticFlow's; more than can be met."""
    kinds = tuple(Kind(max_cores=m, serial=s, sync=0.002) for m, s in ((4, 0.02), (8, 0.05), (16, 0.1), (2, 0.0)))
    work = MEAN_NS * np.exp(1.2 * rng.standard_normal(600) - 0.72)
    due = np.maximum(work * rng.uniform(0.5, 1.5, 600), 1000).astype(np.int64)
    return Load(kinds, jobs(_arrivals(rng, work, cores, 0.9), work, rng.integers(0, 4, 600), due, 1.0, work))


def training(rng: Any, cores: int, load: float = 0.6) -> Load:
    """Elastic jobs that report losses and gradient noise; what they have left and how they scale is not declared. For
    most of the time there are fewer jobs than cores."""
    kinds, lengths = [], MEAN_NS * np.exp(rng.standard_normal(12))
    for length in lengths:
        floor, scale = float(rng.uniform(0.02, 0.2)), float(length * rng.uniform(0.05, 0.3))
        kinds.append(
            Kind(
                max_cores=int(rng.choice([4, 8, 16])),
                switch_ns=2000,
                serial=float(rng.uniform(0.02, 0.2)),
                sync=float(rng.uniform(0.001, 0.01)),
                declared_scaling=False,
                max_batch=float(rng.choice([8, 32])),
                noise=float(rng.uniform(5, 50)),
                loss_floor=floor,
                loss_scale=scale,
                loss_target=floor + 1.0 / (1.0 + length / scale),
            )
        )
    kind = rng.integers(0, 12, 400)
    work = lengths[kind] * rng.uniform(0.9, 1.1, 400)
    return Load(tuple(kinds), jobs(_arrivals(rng, work, cores, load), work, kind))


def pressed(rng: Any, cores: int) -> Load:
    """The same under pressure: more work than the cores can do while it comes, so that most jobs wait."""
    return training(rng, cores, 1.3)


def partial(rng: Any, cores: int) -> Load:
    """Jobs that use a part of a core each, all there at once, half of them opportunistic, with memory that shrinks."""
    uses = (0.2, 0.35, 0.5, 0.7, 0.9)
    kinds = tuple(
        Kind(guaranteed=bool(g), memory_floor=0.5, phases=(Phase(use=u, demand=(0.0, 0.0, 0.45, 0.0)),))
        for u in uses
        for g in (0, 1)
    )
    work = MEAN_NS * np.exp(0.5 * rng.standard_normal(400))
    return Load(kinds, jobs(np.arange(400) * 100, work, rng.integers(0, 10, 400)))


def recurring(rng: Any, cores: int) -> Load:
    """Tasks that recur, each with a best batch and number of cores of its own."""
    kinds = tuple(
        Kind(max_cores=8, serial=float(rng.uniform(0.02, 0.4)), sync=0.02, max_batch=32.0, noise=float(n))
        for n in (0.5, 2, 8, 30)
    )
    work = MEAN_NS * np.exp(0.1 * rng.standard_normal(800))
    return Load(kinds, jobs(_arrivals(rng, work, cores, 0.3), work, rng.integers(0, 4, 800)))


def resources(rng: Any, cores: int) -> Load:
    """Jobs of one core, some of which are sensitive to receive and transmit share and most of which are not."""
    kinds = tuple(
        Kind(phases=(Phase(demand=(r, t, 0.0, 0.0)),))
        for r, t in ((0.1, 0.1), (0.2, 0.1), (0.3, 0.3), (3.0, 0.5), (0.5, 4.0))
    )
    work = MEAN_NS * np.exp(0.8 * rng.standard_normal(800))
    kind = rng.choice(5, 800, p=[0.3, 0.25, 0.15, 0.15, 0.15])
    return Load(kinds, jobs(_arrivals(rng, work, cores, 0.75), work, kind))


def gangs(rng: Any, cores: int) -> Load:
    """Jobs of several cores, which split their work over them."""
    kinds = tuple(Kind(min_cores=k, max_cores=k, serial=0.02) for k in (2, 4, 8))
    work = MEAN_NS * np.exp(0.5 * rng.standard_normal(300))
    return Load(kinds, jobs(_arrivals(rng, work, cores, 0.3), work, rng.integers(0, 3, 300)))


def weighted(rng: Any, cores: int) -> Load:
    """Jobs of one core and known length, with weights."""
    work = MEAN_NS * np.exp(1.0 * rng.standard_normal(800) - 0.5)
    weight = rng.choice([1.0, 2.0, 5.0], 800)
    return Load((Kind(switch_ns=500),), jobs(_arrivals(rng, work, cores, 0.95), work, 0, 0, weight, work))


def pipelines(rng: Any, cores: int) -> Load:
    """Pipelines of four stages that are not balanced."""
    kinds = []
    for _ in range(6):
        parts = rng.uniform(0.5, 1.0, 4)
        kinds.append(Kind(min_cores=4, max_cores=4, stages=tuple(float(p) for p in parts / parts.sum())))
    work = MEAN_NS * np.exp(0.5 * rng.standard_normal(300))
    return Load(tuple(kinds), jobs(_arrivals(rng, work, cores, 0.5), work, rng.integers(0, 6, 300)))


def dispersed(rng: Any, cores: int) -> Load:
    """Requests of two classes: of 200, one takes 1000 times as long (0.5 and 500 us), as in a schedule of Persephone's
    artifact (maxdml/psp, SBIM2)."""
    long = rng.random(40000) < 0.005
    work = np.where(long, 500.0, 0.5) * 1e3
    kinds = (Kind(cls=0, limit_ns=5000, switch_ns=1000), Kind(cls=1, limit_ns=5_000_000, switch_ns=1000))
    return Load(kinds, jobs(_arrivals(rng, work, cores, 0.7), work, long.astype(np.int64)))


def sessions(rng: Any, cores: int, load: float = 8.0) -> Load:
    """Requests to five models, eight times as many as the cores could serve one at a time: about as many as they can
    in batches within the limits."""
    kinds = tuple(
        Kind(cls=i, batch_fixed_ns=int(f * 1e3), batch_item_ns=int(item * 1e3), limit_ns=int(limit * 1e3))
        for i, (f, item, limit) in enumerate(SESSIONS)
    )
    alone = np.array([1e3 * (fixed + item) for fixed, item, _ in SESSIONS])
    kind = rng.integers(0, len(SESSIONS), 20_000)
    return Load(kinds, jobs(_arrivals(rng, alone[kind], cores, load), alone[kind], kind))


def few_sessions(rng: Any, cores: int) -> Load:
    """The same, three times as many as could be served one at a time: larger batches answer all in time."""
    return sessions(rng, cores, 3.0)


def bursts(rng: Any, cores: int) -> Load:
    """Requests that are guaranteed and come in bursts, beside batch jobs that would fill all cores."""
    at, work, kind = [], [], []
    for start in range(0, 40_000_000, 2_000_000):
        n = int(rng.integers(cores, 4 * cores))
        at += list(start + rng.integers(0, 20_000, n))
        work += list(rng.exponential(20_000.0, n) + 100)
        kind += [0] * n
    more = 40 * cores
    at += list(rng.integers(0, 40_000_000, more))
    work += list(rng.exponential(1.2e6, more) + 100)
    kind += [1] * more
    order = np.argsort(at, kind="stable")
    rows = jobs(np.array(at)[order], np.array(work)[order], np.array(kind)[order])
    return Load((Kind(guaranteed=True), Kind(guaranteed=False, cls=1)), rows)


LOADS: dict[str, Callable[[Any, int], Load]] = {
    f.__name__: f
    for f in (
        heavy, deadlines, training, pressed, partial, recurring, resources, gangs, weighted, pipelines, dispersed,
        bursts, sessions, few_sessions,
    )
}  # fmt: skip
