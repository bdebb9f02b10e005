"""What the papers of the policies claim, run again in a setting like theirs: ours beside the paper's.

    for row, own in every(seeds=range(1, 6)): print(row)

A claim is a ratio of a policy and what it is held against, above 1 if the paper is right. Each is run on cores of one
speed, as published, and on unequal ones. The verdict says how ours compares: `agrees` is the paper's range or up to
twice off it, `direction` is above 1 and further off, `not seen` is not above 1 with its interval.

The policy has the settings of the claim, or its defaults. What it is held against has the best ones of a sweep, by what
the claim measures, on loads of other seeds (TUNED_ON). So has `strongest`, the best of all baselines on the same
machine, seats included: what the policy gains over that is beside what it gains over what its paper compares with.

Baselines have their own models: who is held against Optimus runs `optimus`, not a part of itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..lab import generators, loads, measures, policy, runs
from ..lab import table as t
from ..lab.world import Machine, Ran, World
from . import serving
from .claim_loads import LOADS, SESSIONS

CORES = 16
EQUAL, UNEQUAL = (1.0,), generators.SPEEDS
BASELINES = ("fifo", "priority", "round_robin", "edf", "fair", "static")
TUNED_ON = (1001, 1002)


def mean_completion(ran: Ran) -> float:
    return float(ran.completion_ns[ran.over].mean())


def weighted_completion(ran: Ran) -> float:
    weight = ran.load.jobs["weight"][ran.over]
    return float((ran.completion_ns[ran.over] * weight).sum() / weight.sum())


def makespan(ran: Ran) -> float:
    return float(ran.jobs["finish_ns"].max())


def missed_inverse(ran: Ran) -> float:
    """1 over the deadlines that were met: less is better, as with all of these."""
    due = ran.load.jobs["deadline_ns"]
    return 1.0 / max(float(((due > 0) & (ran.completion_ns <= due)).sum()), 1.0)


def core_time(ran: Ran) -> float:
    return float(ran.jobs["attained_ns"].sum())


def energy_and_time(ran: Ran) -> float:
    """Zeus's cost, half and half: core time, and time at the power of the most cores that a job may have."""
    most = np.array([kind.max_cores for kind in ran.load.kinds])[ran.load.jobs["kind"]]
    took = ran.jobs["finish_ns"] - ran.jobs["start_ns"]
    return float((0.5 * ran.jobs["attained_ns"] + 0.5 * most * took).sum())


def work_time(ran: Ran) -> float:
    """Time of cores at work: paced ones count for the part in which they are."""
    return float(ran.series[:, 1].sum())


def late_inverse(ran: Ran) -> float:
    """1 over the requests that were answered within the limits of their kinds."""
    limit = np.array([kind.limit_ns for kind in ran.load.kinds])[ran.load.jobs["kind"]]
    return 1.0 / max(float((ran.completion_ns <= limit).sum()), 1.0)


def short_slowdown(ran: Ran) -> float:
    """The 99.9th percentile of completion over work, of class 0, without the first quarter (profiles)."""
    mine = ran.over & (ran.load.classes == 0)
    mine[: len(mine) // 4] = False
    return float(np.percentile((ran.completion_ns / ran.load.jobs["work_ns"])[mine], 99.9))


def long_slowdown(ran: Ran) -> float:
    """The same of class 1."""
    mine = ran.over & (ran.load.classes == 1)
    return float(np.percentile((ran.completion_ns / ran.load.jobs["work_ns"])[mine], 99.9))


def guaranteed_tail(ran: Ran) -> float:
    mine = ran.over & (ran.load.classes == 0)
    return float(np.percentile(ran.completion_ns[mine], 99))


def others_completion(ran: Ran) -> float:
    """Mean of the jobs that are not guaranteed."""
    return float(ran.completion_ns[ran.over & (ran.load.classes == 1)].mean())


@dataclass(frozen=True)
class Claim:
    """less: what is measured, of which the baseline has more. least, most: the paper's ratio, the same where it
    tells one figure ("up to"); nan: it tells none as such a ratio, or none that was checked. settings, baseline: of the
    policy, and those of what it is held against that are not swept. mine, theirs: what the machine has for each (a
    policy that shares cores needs seats). interval_ns: between ticks, at which jobs report; 0: none. beyond: a load on
    which it is run as well, another one than that of the claim. first: what of the claim was otherwise before its
    results were seen (load, settings): it is run so as well. why: of that change. costs: what it may cost elsewhere, by
    name: less is better, and told is how much more it has than what the paper compares with."""

    policy: str
    against: str
    load: str
    less: Callable[[Ran], float]
    least: float
    most: float
    says: str
    settings: Mapping[str, float] = field(default_factory=dict)
    baseline: Mapping[str, float] = field(default_factory=dict)
    mine: Mapping[str, Any] = field(default_factory=dict)
    theirs: Mapping[str, Any] = field(default_factory=dict)
    interval_ns: int = 0
    beyond: str = ""
    first: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    costs: Mapping[str, Callable[[Ran], float]] = field(default_factory=dict)

    @property
    def unequal(self) -> bool:
        """Whether what it claims is about unequal cores."""
        return self.policy in ("whale", "hare")


NAN = math.nan
_RESOURCES = {"capacity": (1.0, 1.0, 1.0, 1.0), "loops": 2}
REPORTS_NS = 20_000  # between losses that a job reports: a hundredth of what it takes
_SEATS = {"seats": 2, "capacity": (1.0, 1.0, 1.0, 1.0)}

CLAIMS = (
    Claim("tiresias", "fifo", "heavy", mean_completion, 5.5, 5.5, "mean completion up to 5.5 times less than YARN's"),
    Claim("gittins", "fifo", "heavy", mean_completion, NAN, NAN, "near shortest remaining service, lengths unknown"),
    Claim("gandiva", "fifo", "partial", makespan, 1.26, 1.26, "utilisation 26 % higher", mine=_SEATS),
    Claim("antman", "fifo", "partial", makespan, 1.34, 1.34, "use of compute 34 % higher, of memory 42 %", mine=_SEATS),
    Claim("elasticflow", "edf", "deadlines", missed_inverse, 1.46, 7.65, "1.46 to 7.65 times as many deadlines met"),
    Claim(
        "synergy",
        "synergy",
        "resources",
        mean_completion,
        3.4,
        3.4,
        "mean completion up to 3.4 times less than in proportion to GPUs",
        baseline={"tune": 0},
        mine=_RESOURCES,
        theirs=_RESOURCES,
    ),
    Claim(
        "pollux",
        "optimus",
        "training",
        mean_completion,
        1.59,
        2.0,
        "mean completion 37 to 50 % less",
        interval_ns=REPORTS_NS,
        beyond="pressed",
    ),
    Claim(
        "optimus",
        "fair",
        "pressed",
        mean_completion,
        2.39,
        2.39,
        "139 % better completion than fairness (DRF)",
        interval_ns=REPORTS_NS,
        first={"load": "training"},
        why="it gains where jobs wait, and there few did",
    ),
    Claim("liquid", "fifo", "partial", mean_completion, 1.27, 1.27, "mean completion 21 % less", mine={"seats": 4}),
    Claim("hare", "fifo", "weighted", weighted_completion, NAN, NAN, "less weighted completion on unequal GPUs"),
    Claim(
        "whale",
        "whale",
        "gangs",
        mean_completion,
        1.2,
        1.4,
        "1.2 to 1.4 times as fast with parts by speed (on unequal GPUs alone)",
        baseline={"even": 1},
    ),
    Claim(
        "zeus",
        "static",
        "recurring",
        energy_and_time,
        1.18,
        4.1,
        "energy 15.3 to 75.8 % better",
        costs={"core time": core_time, "completion": mean_completion},
    ),
    Claim(
        "envpipe",
        "fifo",
        "pipelines",
        work_time,
        1.34,
        1.4,
        "up to 25.2 % (28.4 %) less energy, under 1 % slower",
        # A stage's memory is held as long as its core.
        costs={"completion": mean_completion, "memory by time": core_time},
    ),
    Claim(
        "shinjuku",
        "fifo",
        "dispersed",
        short_slowdown,
        8.3,
        8.3,
        "tail up to 88 % lower than in systems that run to completion",
        costs={"long requests' tail": long_slowdown},
    ),
    Claim(
        "darc",
        "fifo",
        "dispersed",
        short_slowdown,
        NAN,
        NAN,
        "lower tails at higher utilisation than schedulers that let no core idle while work waits",
        settings={"window": 5000},
        first={"settings": {}},
        why="windows of 2000 jobs hold about ten long requests",
        costs={"long requests' tail": long_slowdown},
    ),
    Claim(
        "caladan",
        "caladan",
        "bursts",
        guaranteed_tail,
        NAN,
        NAN,
        "orders of size lower tails than partitions, when load shifts",
        baseline={"total": 1},
        settings={"total": 0, "reserved": 1.0},
        costs={"completion of the others": others_completion},
    ),
    Claim(
        "nexus",
        "fifo",
        "sessions",
        late_inverse,
        1.8,
        12.7,
        "1.8 to 12.7 times the requests within their limits",
        first={"load": "few_sessions"},
        why="there any larger batch answers all in time",
    ),
)


@dataclass(frozen=True)
class Arm:
    """A policy with its settings, and what the machine has besides."""

    policy: str
    settings: Mapping[str, float]
    machine: Mapping[str, Any]

    def __str__(self) -> str:
        told = str(policy.known(self.policy, self.settings))
        return told + (f", {self.machine['seats']} seats" if "seats" in self.machine else "")


@dataclass(frozen=True)
class Over:
    """What a claim comes to over one baseline. ours: geometric mean of the ratio over seeds; low, high: its 95 %
    interval. against: the baseline, as its sweep found it. costs: of each of the claim's, ours over the baseline's."""

    ours: float
    low: float
    high: float
    against: str
    costs: Mapping[str, float]

    def __str__(self) -> str:
        costs = "".join(f", {name} {times:.3g} times" for name, times in self.costs.items())
        return f"{self.ours:.3g} ({self.low:.3g} to {self.high:.3g}) over {self.against}{costs}"


@dataclass(frozen=True)
class Row:
    """paper: over what the paper compares with; strongest: over the best of all baselines, where that was asked for.
    undone: jobs that never ended; n: all jobs."""

    claim: Claim
    speeds: str
    paper: Over
    strongest: Over | None
    undone: int
    n: int

    @property
    def verdict(self) -> str:
        if self.paper.low <= 1.0:
            return "not seen"
        if math.isnan(self.claim.least):
            return "direction"
        return "agrees" if self.claim.least / 2 <= self.paper.ours <= 2 * self.claim.most else "direction"

    def __str__(self) -> str:
        told = "no ratio" if math.isnan(self.claim.least) else f"{self.claim.least:g} to {self.claim.most:g}"
        beside = f"; {self.strongest}, the best of the baselines" if self.strongest else ""
        return f"{self.claim.policy}, {self.speeds}: {self.paper}; the paper {told} ({self.verdict}){beside}"


def candidates(claim: Claim, load: loads.Load) -> tuple[list[Arm], list[Arm]]:
    """What a claim may be held against: what its paper compares with, and all baselines, each with all settings of its
    sweep that say anything about such a load."""
    dull = {"each", "grow"} if all(kind.max_cores == kind.min_cores for kind in load.kinds) else set()
    if all(kind.max_batch == 1.0 and not kind.batch_item_ns for kind in load.kinds):
        dull |= {"batch"}

    def swept(name: str, fixed: Mapping[str, float], machine: Mapping[str, Any]) -> list[Arm]:
        tried = [{k: v for k, v in one.items() if k not in dull} for one in runs.swept(name)]
        whole = {tuple(sorted({**one, **fixed}.items())): None for one in tried}
        return [Arm(name, dict(one), machine) for one in whole]

    paper = swept(claim.against, claim.baseline, claim.theirs)
    machines = [claim.mine] + ([claim.theirs] if claim.theirs != claim.mine else [])
    # Requests that merge into batches are more than can be served one at a time, as the others would.
    names = ("fifo",) if any(kind.batch_item_ns for kind in load.kinds) else BASELINES
    return paper, paper + [arm for machine in machines for name in names for arm in swept(name, {}, machine)]


def check(
    claim: Claim,
    seeds: Sequence[int],
    speeds: tuple[float, ...] = EQUAL,
    cores: int = CORES,
    strongest: bool = True,
) -> Row:
    """Run a claim with the loads of these seeds. For another load than its own give `replace(claim, load=...)`."""
    undone, n = 0, 0

    def run(arm: Arm, seed: int) -> Ran:
        load = LOADS[claim.load](np.random.default_rng(seed), cores)
        machine = Machine(cores, speeds=speeds, **arm.machine)
        world = World(load, machine, room=8192, seed=seed, interval_ns=claim.interval_ns)
        return world.run(policy.load(arm.policy, arm.settings))

    def tuned(arm: Arm) -> float:
        """How good a baseline is; one that leaves jobs undone is none."""
        found = [run(arm, seed) for seed in TUNED_ON]
        return math.inf if any(map(_undone, found)) else math.prod(map(claim.less, found))

    mine = [run(Arm(claim.policy, claim.settings, claim.mine), seed) for seed in seeds]

    def over(arm: Arm) -> Over:
        nonlocal undone, n
        theirs = [run(arm, seed) for seed in seeds]
        undone, n = undone + sum(map(_undone, theirs)), n + sum(len(ran.load) for ran in theirs)
        logs = [math.log(claim.less(a) / claim.less(b)) for a, b in zip(theirs, mine, strict=True)]
        half, mean = measures.interval(logs), float(np.mean(logs))
        half = 0.0 if math.isnan(half) else half
        costs = {
            name: math.exp(np.mean([math.log(cost(b) / cost(a)) for a, b in zip(theirs, mine, strict=True)]))
            for name, cost in claim.costs.items()
        }
        return Over(math.exp(mean), math.exp(mean - half), math.exp(mean + half), str(arm), costs)

    paper, every_ = candidates(claim, LOADS[claim.load](np.random.default_rng(TUNED_ON[0]), cores))
    told = "equal cores" if speeds == EQUAL else "unequal cores"
    scores = [tuned(arm) for arm in (every_ if strongest else paper)]
    of_paper, of_all = (every_[int(np.argmin(scores[:last]))] for last in (len(paper), len(scores)))
    first, second = over(of_paper), over(of_all) if strongest else None
    undone, n = undone + sum(map(_undone, mine)), n + sum(len(ran.load) for ran in mine)
    return Row(claim, told, first, second, undone, n)


def _undone(ran: Ran) -> int:
    """Jobs that never ended."""
    return int((ran.jobs["outcome"] == t.NOT_OVER).sum())


OWN, SPEEDS, BEYOND, FIRST = "own", "speeds", "beyond", "first"


def settings_of(claim: Claim) -> list[tuple[Claim, tuple[float, ...], str]]:
    """Where a claim is run: claim, speeds, and which setting that is. OWN comes first; then SPEEDS, on the other ones,
    BEYOND, and FIRST, as it was before its results were seen."""
    own, other = (UNEQUAL, EQUAL) if claim.unequal else (EQUAL, UNEQUAL)
    beyond = [(replace(claim, load=claim.beyond), own, BEYOND)] if claim.beyond else []
    first = [(replace(claim, **claim.first), own, FIRST)] if claim.first else []
    return [(claim, own, OWN), (claim, other, SPEEDS), *beyond, *first]


def every(seeds: Sequence[int], say: Callable[[str], None] = lambda text: None) -> Iterator[tuple[Row, str]]:
    """All claims, and the setting of the row; in OWN all baselines are beside it. The rates that Nexus's plan serves
    are `nexus_rates`."""
    for one in CLAIMS:
        say(f"what {one.policy} claims")
        for claim, speeds, where in settings_of(one):
            yield check(claim, seeds, speeds, strongest=where == OWN), where


REQUESTS = 20_000


def nexus_rates(cores: int, seed: int, least_good: float = 0.99) -> dict[str, float]:
    """The greatest rate, requests a second, of which 99 % are served within their limits: by plan and early drop, in
    fixed batches (the best of some), and one at a time."""
    return {
        "planned": _most(lambda s: serving.planned(s, cores), cores, seed, least_good, True),
        "fixed": max(
            _most(lambda s, b=b: serving.fixed(s, cores, b), cores, seed, least_good, False)  # type: ignore[misc]
            for b in (4, 8, 16, 32)
        ),
        "one": _most(lambda s: serving.fixed(s, cores, 1), cores, seed, least_good, False),
    }


def _most(plan: Callable[[Any], serving.Plan], cores: int, seed: int, good: float, early: bool) -> float:
    """By halving. The sessions have equal rates."""
    low, high = 1e3, 2e7 * cores / len(SESSIONS)
    for _ in range(14):
        rate = math.sqrt(low * high)
        sessions = [serving.Session(rate, f * 1e3, i * 1e3, limit * 1e3) for f, i, limit in SESSIONS]
        rng = np.random.default_rng(seed)
        at = np.cumsum(rng.exponential(1e9 / (rate * len(SESSIONS)), REQUESTS)).astype(np.int64)
        served = serving.serve(
            sessions, at, rng.integers(0, len(SESSIONS), REQUESTS), cores, plan(sessions), early=early
        )
        low, high = (rate, high) if served.good >= good else (low, rate)
    return low * len(SESSIONS)
