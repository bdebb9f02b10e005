"""What a policy says that it holds, checked on many small random loads.

A policy's module says it in `HOLDS`, a dictionary of any of these:

    promises       True: no job that it promised its deadline (job.promised) misses it, where profiles are exact
    conserving     True: no core is idle beside a job that waits and wants no more cores than are idle
    behind_ns      core time by which a job may be behind its weighted share of the cores at most, ns
    waits_ns       how long a job may be without a core at a stretch, for each job that is there at that time, ns
    floor          True: no job has less of a resource, for each core, than it demands or than is its loop's part for a
                   core, whichever is less (memory apart, which is not shared)
    settings       those with which it holds that, where they are not its defaults

Costs are zero and declared work is true, as these are promises about decisions.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from . import loads, policy
from . import table as t
from .watch import BEHIND_NS, IDLE_NS, SHORT, WAITED_NS
from .world import Machine, Ran, World

KINDS = ("promises", "conserving", "behind_ns", "waits_ns", "floor")
SETTINGS = "settings"
JOBS = 24
MEAN_NS = 10_000.0
ROUNDING = 1e-9
TICK_NS = 1_000  # between ticks, of policies that are called at intervals only


@dataclass(frozen=True)
class Violation:
    """What did not hold, on the load of which seed."""

    policy: str
    seed: int
    what: str


def holds(name: str) -> Mapping[str, Any]:
    """What the policy of that name says that it holds; nothing if it does not say."""
    module = importlib.import_module(f"{__package__}.policies.{name}")
    found: Mapping[str, Any] = getattr(module, "HOLDS", {})
    if unknown := found.keys() - {*KINDS, SETTINGS}:
        raise ValueError(f"{name} says in HOLDS what there is not: {', '.join(sorted(unknown))}")
    return found


@lru_cache(maxsize=10_000)  # each policy is put through the same ones
def small(seed: int) -> tuple[loads.Load, Machine]:
    """A load of some jobs on 1 to 8 cores, with gangs, elastic jobs, weights, and deadlines of all tightness."""
    rng = np.random.default_rng(seed)
    cores = int(rng.integers(1, 9))
    kinds = []
    for _ in range(4):
        least = int(rng.integers(1, max(cores // 2, 1) + 1)) if rng.random() < 0.3 else 1
        most = min(least * int(2 ** rng.integers(0, 3)), cores)
        kinds.append(loads.Kind(cls=int(rng.integers(0, 2)), min_cores=least, max_cores=max(least, most)))
    work = np.maximum(rng.lognormal(np.log(MEAN_NS), 1.0, JOBS), 100.0)
    at = np.cumsum(rng.exponential(float(work.mean()) / cores / rng.uniform(0.4, 1.5), JOBS)).astype(np.int64)
    kind = rng.integers(0, len(kinds), JOBS)
    least_cores = np.array([k.min_cores for k in kinds])[kind]
    deadline = np.where(rng.random(JOBS) < 0.7, work / least_cores * rng.uniform(1.0, 6.0, JOBS) + 10, 0)
    weight = rng.choice([1.0, 2.0, 4.0], JOBS)
    return loads.Load(tuple(kinds), loads.jobs(at, work, kind, deadline.astype(np.int64), weight, work)), Machine(cores)


def broken(ran: Ran, said: Mapping[str, Any]) -> list[str]:
    """What of that did not hold in a run that was watched."""
    out = []
    if said.get("promises"):
        due = ran.load.jobs["deadline_ns"]
        late = (ran.jobs["promised"] == t.PROMISED) & (due > 0) & ~(ran.completion_ns <= due)
        out += [f"job {i} was promised {due[i]} ns and took {ran.completion_ns[i]:g}" for i in np.flatnonzero(late)]
    if said.get("conserving") and ran.watched[IDLE_NS] > 0:
        out.append(f"a core was idle for {ran.watched[IDLE_NS]:.0f} ns beside a job that it would have sufficed for")
    if "behind_ns" in said and ran.watched[BEHIND_NS] > said["behind_ns"]:
        out.append(f"a job was {ran.watched[BEHIND_NS]:.0f} ns behind its share, and {said['behind_ns']:g} are said")
    if "waits_ns" in said and ran.watched[WAITED_NS] > said["waits_ns"] * len(ran.load):
        bound = said["waits_ns"] * len(ran.load)
        out.append(f"a job was without a core for {ran.watched[WAITED_NS]:.0f} ns, and {bound:g} are said")
    if said.get("floor") and ran.watched[SHORT] > ROUNDING:
        out.append(f"a job lacked {100 * ran.watched[SHORT]:.3g} % of its floor of a resource")
    return out


def demanding(seed: int) -> tuple[loads.Load, Machine]:
    """The load of `small` in two phases, whose jobs demand up to three times a core's part of resources that are
    bounded, on one loop or two."""
    load, machine = small(seed)
    rng = np.random.default_rng([seed, 1])
    kinds = tuple(replace(kind, phases=(_phase(rng), _phase(rng))) for kind in load.kinds)
    loops = 2 if machine.cores % 2 == 0 else 1
    return replace(load, kinds=kinds), replace(machine, loops=loops, capacity=(1.0,) * t.N_RESOURCES)


def _phase(rng: np.random.Generator) -> loads.Phase:
    receive, transmit, budget = rng.uniform(0.1, 3.0, 3) * (rng.random(3) < 0.7)
    return loads.Phase(part=0.5, demand=(float(receive), float(transmit), 0.0, float(budget)))


def check(name: str, seeds: Sequence[int], settings: Mapping[str, float] | None = None) -> list[Violation]:
    """Put a policy through the loads of these seeds. A job that is never over counts as a violation of each."""
    said = holds(name)
    chosen = policy.load(name, settings or said.get(SETTINGS))
    found = []
    for seed in seeds:
        load, machine = demanding(seed) if said.get("floor") else small(seed)
        interval = TICK_NS if chosen.ticks else 0
        ran = World(load, machine, interval_ns=interval, buckets=1, seed=seed, watched=True).run(chosen)
        left = int((ran.jobs["outcome"] == t.NOT_OVER).sum())
        what = broken(ran, said) + ([f"{left} jobs are never over"] if left else [])
        found += [Violation(name, seed, text) for text in what]
    return found
