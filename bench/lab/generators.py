"""Loads made from a seed. `cluster` has the shapes of a characterisation of production clusters; the others are plain.

    load = make("cluster", {"jobs": 20000, "load": 0.7}, cores=64, seed=3)

`cluster` is after the shapes that Weng et al. describe ("MLaaS in the Wild", NSDI 2022): durations with a heavy tail,
tasks that recur and few of which make most of the jobs, demands of parts of a core beside gangs, several resources, a
rate that changes by the time of day. Times are scaled down: what are minutes there are tens of us here. The shapes are
those of TARGETS, which a test holds the generator to; they are of that order, and no fit of a trace. Cores of unequal
speed are the machine's (`SPEEDS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ...runtime.errors import ConfigError
from .loads import Kind, Load, Phase, jobs

# What `cluster` makes. recurring: of the jobs, those of tasks that recur; busiest: of these jobs, those of the busiest
# 5 % of the tasks; fraction, one, gang: of the jobs, those that want less than a core, one, 8 or more.
TARGETS = {
    "p50_us": 230.0,
    "p90_over_p50": 11.7,
    "p99_over_p50": 87.0,
    "recurring": 0.65,
    "busiest": 0.55,
    "fraction": 0.45,
    "one": 0.35,
    "gang": 0.06,
}
SPEEDS = (1.0, 1.0, 0.6, 0.6, 0.4, 1.0, 0.6, 1.0)  # of cores, in turns
CAPACITY = (1.0, 1.0, 1.0, 1.0)  # for each core of a loop, in the units of demands
_SIGMA = math.log(TARGETS["p90_over_p50"]) / NormalDist().inv_cdf(0.9)
_WITHIN = 0.3  # sigma of the logarithm among the jobs of one task that recurs
_TASKS, _ONCE = 240, 60
_ZIPF = 1.05
# Cores wanted, least and most, and a job's use of each; by the part of the jobs that want so.
_DEMANDS = (
    (0.15, 1, 1, 0.1),
    (0.15, 1, 1, 0.25),
    (0.15, 1, 1, 0.5),
    (0.35, 1, 1, 1.0),
    (0.08, 2, 4, 1.0),
    (0.06, 4, 8, 1.0),
    (0.04, 8, 16, 1.0),
    (0.02, 16, 16, 1.0),
)


@dataclass(frozen=True)
class Setting:
    """A number that a generator takes."""

    default: float
    about: str


def _stratified(mass: Any, order: Any) -> Any:
    """For tasks with these parts of the jobs: where in the distribution of jobs each stands, in a random order. So the
    distribution of jobs does not hang on which few tasks make most of them."""
    at = np.empty(len(mass))
    ends = np.cumsum(mass[order])
    at[order] = ends - mass[order] / 2
    return np.clip(at, 1e-6, 1 - 1e-6)


def _tasks(rng: Any) -> tuple[Any, list[Kind], Any, Any]:
    """Parts of the jobs, kinds, and mean and sigma of the logarithm of their durations."""
    ranks = np.arange(1, _TASKS + 1) ** -_ZIPF
    recurring = TARGETS["recurring"] * ranks / ranks.sum()
    mass = np.concatenate([recurring, np.full(_ONCE, (1 - TARGETS["recurring"]) / _ONCE)])
    normal = NormalDist()
    sigma = np.concatenate([np.full(_TASKS, _WITHIN), np.full(_ONCE, _WITHIN)])
    between = math.sqrt(_SIGMA**2 - _WITHIN**2)
    place = _stratified(mass, rng.permutation(len(mass)))
    middle = math.log(TARGETS["p50_us"] * 1e3) + between * np.array([normal.inv_cdf(p) for p in place])
    ends = np.cumsum([part for part, *_ in _DEMANDS])
    wants = np.minimum(np.searchsorted(ends, _stratified(mass, rng.permutation(len(mass)))), len(_DEMANDS) - 1)
    kinds = []
    for i, want in enumerate(wants):
        _, least, most, use = _DEMANDS[want]
        receive, transmit, memory, budget = (float(x) for x in rng.lognormal(-2.2, 0.8, 4))
        first = Phase(0.2, use, (min(2 * receive, 0.9), min(transmit, 0.9), min(memory, 0.9), min(budget, 0.9)))
        rest = Phase(0.8, use, (min(receive, 0.9), min(transmit, 0.9), min(memory, 0.9), min(budget, 0.9)))
        serial, sync = (float(rng.uniform(0, 0.1)), float(rng.uniform(0, 0.01))) if most > 1 else (0.0, 0.0)
        recurs = i < _TASKS
        kinds.append(
            Kind(
                cls=0 if recurs else 1,
                min_cores=least,
                max_cores=most,
                guaranteed=bool(rng.random() < 0.6),
                switch_ns=int(rng.integers(500, 5000)),
                memory_floor=0.5,
                spread=0.05 if most > 1 else 0.0,
                phases=(first, rest),
                recurs=recurs,
                serial=serial,
                sync=sync,
            )
        )
    return mass, kinds, middle, sigma


def _daily(rng: Any, count: int, span_ns: float, swing: float, days: int = 4) -> Any:
    """Arrivals of a Poisson process, given their number, whose rate goes up and down by a sine."""
    grid = np.linspace(0.0, 1.0, 4097)
    rate = 1.0 + swing * np.sin(2 * np.pi * days * grid)
    mass = np.concatenate([[0.0], np.cumsum((rate[1:] + rate[:-1]) / 2)])
    return np.sort(np.interp(rng.random(count), mass / mass[-1], grid) * span_ns).astype(np.int64)


def cluster(rng: Any, cores: int, settings: Mapping[str, float]) -> tuple[tuple[Kind, ...], Any]:
    """The mix of a production cluster; see the module."""
    count = int(settings["jobs"])
    mass, kinds, middle, sigma = _tasks(rng)
    kind = rng.choice(len(kinds), count, p=mass / mass.sum())
    lasts = np.exp(middle[kind] + sigma[kind] * rng.standard_normal(count))
    most = np.array([k.max_cores for k in kinds])[kind]
    least = np.minimum(most, np.array([k.min_cores for k in kinds])[kind])
    work = np.maximum(lasts * least, 1.0)  # a job lasts as long as it does on its least cores
    use = np.array([k.phases[0].use for k in kinds])[kind]
    span = float((work * use).sum()) / (settings["load"] * cores * float(np.mean(SPEEDS)))
    at = _daily(rng, count, span, settings["swing"])
    deadline = np.where(rng.random(count) < settings["deadlines"], lasts * settings["slack"], 0.0)
    noise = np.exp(settings["error"] * rng.standard_normal(count))
    weight = rng.choice([1.0, 2.0, 4.0], count, p=[0.7, 0.2, 0.1])
    fits = tuple(_fitted(k, cores) for k in kinds)
    return fits, jobs(at, work, kind, deadline.astype(np.int64), weight, work * noise)


def _fitted(kind: Kind, cores: int) -> Kind:
    """On few cores a gang wants half of them at most."""
    from dataclasses import replace

    most = max(cores // 2, 1)
    return replace(kind, min_cores=min(kind.min_cores, most), max_cores=min(kind.max_cores, most))


def poisson(rng: Any, cores: int, settings: Mapping[str, float]) -> tuple[tuple[Kind, ...], Any]:
    """Jobs of one core: Poisson arrivals, log-normal work of a mean and a sigma (0: constant)."""
    count, mean, sigma = int(settings["jobs"]), settings["mean_us"] * 1e3, settings["sigma"]
    at = np.cumsum(rng.exponential(mean / (settings["load"] * cores), count)).astype(np.int64)
    work = np.maximum(mean * np.exp(sigma * rng.standard_normal(count) - sigma**2 / 2), 1.0)
    deadline = (work * settings["slack"]).astype(np.int64) if settings["slack"] else 0
    return (Kind(),), jobs(at, work, 0, deadline, 1.0, work)


def exponential(rng: Any, cores: int, settings: Mapping[str, float]) -> tuple[tuple[Kind, ...], Any]:
    """Jobs of one core: Poisson arrivals, exponential work."""
    count, mean = int(settings["jobs"]), settings["mean_us"] * 1e3
    at = np.cumsum(rng.exponential(mean / (settings["load"] * cores), count)).astype(np.int64)
    return (Kind(),), jobs(at, np.maximum(rng.exponential(mean, count), 1.0))


def bimodal(rng: Any, cores: int, settings: Mapping[str, float]) -> tuple[tuple[Kind, ...], Any]:
    """Requests of two classes, short and long, as in Shinjuku's load generator (NSDI 2019)."""
    count, share = int(settings["jobs"]), settings["long_share"]
    long = rng.random(count) < share
    work = np.where(long, settings["long_us"], settings["short_us"]) * 1e3
    mean = (share * settings["long_us"] + (1 - share) * settings["short_us"]) * 1e3
    at = np.cumsum(rng.exponential(mean / (settings["load"] * cores), count)).astype(np.int64)
    return (Kind(cls=0), Kind(cls=1)), jobs(at, work, long.astype(np.int64), 0, 1.0, work)


_JOBS, _LOAD = Setting(5000, "how many"), Setting(0.7, "of the cores' time that is asked for")
_MEAN = Setting(10.0, "mean work")
GENERATORS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Setting]]] = {
    "cluster": (
        cluster,
        {
            "jobs": _JOBS,
            "load": _LOAD,
            "swing": Setting(0.4, "by which the rate goes up and down"),
            "deadlines": Setting(0.5, "of the jobs, those with a deadline"),
            "slack": Setting(4.0, "deadline over the time that a job takes alone"),
            "error": Setting(0.3, "sigma of the logarithm of declared over true work"),
        },
    ),
    "poisson": (
        poisson,
        {
            "jobs": _JOBS,
            "load": _LOAD,
            "mean_us": _MEAN,
            "sigma": Setting(1.0, "of the logarithm of the work"),
            "slack": Setting(0.0, "deadline over the work; 0: none"),
        },
    ),
    "exponential": (exponential, {"jobs": _JOBS, "load": _LOAD, "mean_us": _MEAN}),
    "bimodal": (
        bimodal,
        {
            "jobs": _JOBS,
            "load": _LOAD,
            "short_us": Setting(0.5, "length of the short ones"),
            "long_us": Setting(500.0, "of the long ones"),
            "long_share": Setting(0.005, "of the jobs, the long ones"),
        },
    ),
}


def make(name: str, settings: Mapping[str, float], cores: int, seed: int) -> Load:
    """The load that a generator makes for that many cores. ConfigError for a name or a setting that there is not."""
    if name not in GENERATORS:
        raise ConfigError(f"load {name!r}", "there is no generator of that name", f"one of {', '.join(GENERATORS)}")
    generator, known = GENERATORS[name]
    for key, value in settings.items():
        if key not in known:
            raise ConfigError(f"load {name}.{key}", "this generator has no such setting", f"it has {', '.join(known)}")
        if not math.isfinite(value) or value < 0:
            raise ConfigError(f"load {name}.{key}", f"{value!r} is no setting", "a number, 0 or more")
    all_ = {key: setting.default for key, setting in known.items()} | dict(settings)
    if all_["jobs"] < 1 or not all_["load"] > 0:
        raise ConfigError(f"load {name}", f"{all_['jobs']:g} jobs at load {all_['load']:g}", "more than none of both")
    kinds, rows = generator(np.random.default_rng(seed), cores, all_)
    return Load(kinds, rows, {"generator": name, "settings": all_, "cores": cores, "seed": seed})
