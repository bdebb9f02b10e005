"""Planners and packers beside exact answers, on small random cases: the code that policies run against dynamic
programming, an integer program (HiGHS, by scipy) or all partitions.

    for found in every(cases=1000, seed=1): print(found)

Optimus: cores by marginal gain. ElasticFlow: whom it admits. Synergy: resources above the proportional share. Nexus:
cores for sessions. A gap is the exact value over ours, less 1, and what makes it is said where it is not 0.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from ..lab.mechanisms import gain, packing, shares


@dataclass(frozen=True)
class Found:
    """equal: cases in which ours is as good as the exact answer; gap: mean of all cases; worst: the greatest one, and
    the seed of its case. why: where a gap comes from."""

    name: str
    cases: int
    equal: int
    gap: float
    worst: float
    worst_seed: int
    seed: int
    why: str

    def __str__(self) -> str:
        said = f"{self.name}: {self.equal} of {self.cases} equal, mean gap {100 * self.gap:.3g} %, seeds {self.seed}.."
        if self.equal == self.cases:
            return said
        return f"{said}; worst {100 * self.worst:.2g} % (seed {self.worst_seed}): {self.why}"


def optimus(rng: Any) -> tuple[float, float]:
    """Sum of the times of all jobs with ours, and the least by dynamic programming over all ways to share out."""
    n, cores = int(rng.integers(2, 6)), int(rng.integers(6, 13))
    memory = np.zeros(n * gain.ROW)
    for i in range(n):
        limit = int(rng.integers(1, cores + 1))
        row = (rng.uniform(1, 100), rng.uniform(0, 0.5), rng.uniform(0, 0.02), 1, limit, 0, 1, 0)
        memory[gain.ROW * i : gain.ROW * (i + 1)] = row
    times = [[gain.time_of(memory, gain.ROW * i, float(k)) for k in range(1, cores + 1)] for i in range(n)]
    most = [int(memory[gain.ROW * i + gain.MOST]) for i in range(n)]
    gain.allocate(memory, 0, n, cores)
    ours = sum(times[i][int(memory[gain.ROW * i + gain.OUT]) - 1] for i in range(n))
    best = {0: 0.0}
    for i in range(n):
        after: dict[int, float] = {}
        for used, value in best.items():
            for k in range(1, min(most[i], cores - used) + 1):
                after[used + k] = min(after.get(used + k, math.inf), value + times[i][k - 1])
        best = after
    return ours, min(best.values())


def _scipy() -> Any:
    """scipy.optimize; CorelaneError if it is not installed."""
    try:
        from scipy import optimize  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        what = "compare planners with exact answers"
        raise CorelaneError(what, "scipy is not installed", "pip install 'corelane[lab]'") from error
    return optimize


def synergy(rng: Any) -> tuple[float, float]:
    """Least normalised throughput of the jobs of a loop with ours (negative), and the greatest by a linear program."""
    linprog = _scipy().linprog
    n = int(rng.integers(2, 7))
    resources = 2
    demand = rng.uniform(0.05, 3.0, (resources, n))
    cores = rng.integers(1, 3, n).astype(float)
    total = float(cores.sum())
    ours = math.inf
    for r in range(resources):
        memory = np.column_stack([demand[r], cores]).ravel().copy()
        packing.water(memory, 0, n, total, 1.0)
        grants = memory[::2]
        short = demand[r] > 1.0  # those that ask for more than their part
        if short.any():
            ours = min(ours, float(grants[short].min()))
        assert (grants * cores).sum() <= total * (1 + 1e-9)
        assert (grants >= np.minimum(demand[r], 1.0) - 1e-9).all()
    if ours is math.inf:
        return -1.0, -1.0
    # Grants for each core g >= min(d, 1), g <= d, sum of g * cores <= capacity; of those that ask for more than their
    # part the least grant is to be the greatest, which is what a max-min share promises.
    best = math.inf
    for r in range(resources):
        short = demand[r] > 1.0
        if not short.any():
            continue
        cost = np.zeros(n + 1)
        cost[n] = -1.0
        upper = [np.append(cores, 0.0)]
        limit = [total]
        for i in np.flatnonzero(short):
            row = np.zeros(n + 1)
            row[i], row[n] = -1.0, 1.0
            upper.append(row)
            limit.append(0.0)
        bounds = [(min(d, 1.0), d) for d in demand[r]] + [(0, None)]
        done = linprog(cost, A_ub=np.array(upper), b_ub=limit, bounds=bounds, method="highs")
        best = min(best, float(-done.fun))
    return -ours, -best


def elasticflow(rng: Any) -> tuple[float, float]:
    """Whether jobs are admitted (-1) or not (-0.5 less), by ours and by an integer program over all shares in all
    spans: -(1 + admitted)."""
    n, cores = int(rng.integers(2, 5)), 4
    spans = int(rng.integers(2, 5))
    ends = np.cumsum(rng.uniform(5, 20, spans))
    due = np.sort(rng.integers(1, spans + 1, n))
    work = np.array([rng.uniform(0.2, 2.2) * ends[d - 1] for d in due])
    scale = rng.uniform(0, 0.3, n)
    memory = np.zeros(2 * spans + n * (shares.ROW + spans))
    memory[:spans] = ends
    for i in range(n):
        at = 2 * spans + shares.ROW * i
        memory[at : at + shares.ROW] = (work[i], scale[i], 0.0, 1, cores, due[i], 0)
    table = 2 * spans + n * shares.ROW
    ours = shares.fill(memory, 2 * spans, n, 0, spans, spans, float(cores), table, spans) == 0
    return -(1.0 + ours), -(1.0 + _feasible(work, scale, due, ends, cores))


def _feasible(work: Any, scale: Any, due: Any, ends: Any, cores: int) -> bool:
    """Whether 1, 2 or 4 cores or none in each span for each job can be found with which all are done in time."""
    optimize = _scipy()
    n, spans, steps = len(work), len(ends), (1, 2, 4)
    lengths = np.diff(np.append(0.0, ends))
    places = list(itertools.product(range(n), range(spans), range(len(steps))))
    rows, low, high = [], [], []
    for i, s in itertools.product(range(n), range(spans)):
        rows.append([float((a, b) == (i, s)) for a, b, _ in places])
        low.append(0.0)
        high.append(1.0 if s < due[i] else 0.0)
    for s in range(spans):
        rows.append([float(steps[k]) if b == s else 0.0 for _, b, k in places])
        low.append(0.0)
        high.append(float(cores))
    for i in range(n):
        speed = [gain.goodput(float(k), 1.0, scale[i], 0.0, 0.0) for k in steps]
        rows.append([lengths[b] * speed[k] if a == i else 0.0 for a, b, k in places])
        low.append(work[i] * (1 - 1e-6))
        high.append(np.inf)
    one = np.ones(len(places))
    done = optimize.milp(
        0 * one, constraints=optimize.LinearConstraint(np.array(rows), low, high), integrality=one, bounds=(0, 1)
    )
    return bool(done.success)


def nexus(rng: Any) -> tuple[float, float]:
    """Cores for sessions that do not fill one, by ours and by the best of all partitions."""
    n = int(rng.integers(2, 6))
    memory = np.zeros(n * packing.ROW)
    for i in range(n):
        fixed, item = rng.uniform(1, 10), rng.uniform(0.2, 2)
        limit = rng.uniform(4, 20) * (fixed + item)
        size = math.floor((limit / 2 - fixed) / item)
        rate = rng.uniform(0.1, 0.9) * size / (fixed + item * size)
        memory[packing.ROW * i : packing.ROW * i + 5] = (rate, fixed, item, limit, 64)
    ours = packing.squishy(memory, 0, n)
    groups = {g: _one_core(memory, g) for size in range(1, n + 1) for g in itertools.combinations(range(n), size)}
    exact = next(k for k in range(1, n + 1) if any(all(groups[g] for g in p) for p in _partitions(list(range(n)), k)))
    return float(ours), float(exact)


def _one_core(memory: Any, group: tuple[int, ...]) -> bool:
    """Whether some cycle serves these sessions together: one at which a batch grows, or a limit. One alone is served
    whenever its request comes."""
    if len(group) == 1:
        return True
    rows = memory.reshape(-1, packing.ROW).copy()
    rows[:, packing.BIN] = -1
    rows[list(group), packing.BIN] = 0
    flat = rows.ravel()
    sizes = [(rows[i], b) for i in group for b in range(1, int(rows[i, packing.MOST]) + 1)]
    cycles = {b / row[packing.RATE] for row, b in sizes}
    cycles |= {row[packing.LIMIT] - row[packing.FIXED] - row[packing.ITEM] * b for row, b in sizes}
    return any(packing.together(flat, 0, len(rows), 0, -1, c) <= 1.0 + 1e-9 for c in cycles if c > 0)


def _partitions(items: list[int], parts: int) -> Iterator[list[tuple[int, ...]]]:
    """All partitions into so many groups."""
    if not items:
        if parts == 0:
            yield []
        return
    first, rest = items[0], items[1:]
    for size in range(len(rest) + 1):
        for others in itertools.combinations(rest, size):
            left = [x for x in rest if x not in others]
            for more in _partitions(left, parts - 1):
                yield [(first, *others), *more]


PLANNERS: dict[str, tuple[Callable[[Any], tuple[float, float]], str]] = {
    "optimus": (optimus, "a job at its most cores, or whose time no longer falls, ends its greedy row"),
    "elasticflow": (elasticflow, "it keeps one share for a job in all spans, the program may change it"),
    "synergy": (synergy, "none: a max-min share is the exact one"),
    "nexus": (nexus, "it joins sessions one by one at the shorter cycle, the partition may choose any"),
}


def check(name: str, cases: int, seed: int) -> Found:
    """Run a planner on so many cases, of seeds seed, seed + 1, ..."""
    plan, why = PLANNERS[name]
    gaps = []
    for i in range(cases):
        ours, exact = plan(np.random.default_rng([seed + i, len(name)]))
        gaps.append(abs(ours / exact - 1.0) if exact else 0.0)
    worst = int(np.argmax(gaps))
    equal = sum(gap < 1e-6 for gap in gaps)
    return Found(name, cases, equal, float(np.mean(gaps)), float(gaps[worst]), seed + worst, seed, why)


def every(cases: int = 1000, seed: int = 1) -> list[Found]:
    """All planners."""
    return [check(name, cases, seed) for name in PLANNERS]
