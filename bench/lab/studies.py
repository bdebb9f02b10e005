"""The parts of `corelane bench lab` that need no machine but a core: formulas, invariants, speed."""

from __future__ import annotations

import statistics
import time

from ..harness.session import Session
from . import generators, invariants, policy, theory
from .world import Machine, World

COMPLETIONS_PER_S = 1.2e6  # round figure, for how many jobs a case of so many seconds has
SEEDS = 4  # of each case
SPEED_CORES, SPEED_LOAD = 64, 0.7
SPEED_JOBS = 400_000
DECIDED = 0.004  # standard error up to which the largest error is judged
TOLD_MOST = 5  # violations, in the notes
AT_A_TIME = 2500  # seeds, between two words of progress


def against_formulas(session: Session, seconds: float) -> None:
    """Every case of theory.py, and the figure lab.formula_error: the largest error of means of several seeds."""
    found = theory.cases()
    count = int(seconds * COMPLETIONS_PER_S / len(found) / SEEDS)
    errors, worst = {}, 0.0
    for case in found:
        session.say(f"against a formula: {case.name}")
        by_class: dict[int, list[theory.Checked]] = {}
        for seed in range(SEEDS):
            for one in theory.check(case, max(count, 20_000), seed=1000 + seed):
                by_class.setdefault(one.cls, []).append(one)
        for cls, mine in by_class.items():
            name = case.name + (f", class {cls}" if len(by_class) > 1 else "")
            error = statistics.mean(one.error for one in mine)
            standard = sum(one.standard_error**2 for one in mine) ** 0.5 / len(mine)
            n = sum(one.n for one in mine)
            session.arm(name, against="formula", error=error, standard_error=standard, n=n, modelled=True)
            errors[name], worst = abs(error), max(worst, standard)
    undecided = f"its largest standard error is {worst:.2g}: give more --seconds" if worst > DECIDED else ""
    runs, beside = list(errors.values()), {"largest standard error": worst}
    session.figure("lab.formula_error", max(runs), runs=runs, beside=beside, undecided=undecided)


def check_invariants(session: Session, count: int) -> None:
    """Every policy that says that it holds something, and the figure lab.invariants: violations."""
    names = [name for name in policy.names() if invariants.holds(name)]
    found: list[invariants.Violation] = []
    for name in names:
        mine: list[invariants.Violation] = []
        for first in range(1, count + 1, AT_A_TIME):
            last = min(first + AT_A_TIME - 1, count)
            session.say(f"what {name} says that it holds, seeds {first} to {last} of {count}")
            mine += invariants.check(name, range(first, last + 1))
        said = ", ".join(invariants.holds(name))
        session.arm(f"invariants of {name}", holds=said, seeds=count, violations=len(mine), modelled=True)
        found += mine
    for one in found[:TOLD_MOST]:
        session.note(f"{one.policy}, seed {one.seed}: {one.what}")
    session.figure("lab.invariants", float(len(found)), beside={"seeds of each policy": float(count)})


def speed(session: Session, seconds: float) -> None:
    """Completions a second on one core, of a FIFO queue on 64 simulated cores: rounds of SPEED_JOBS jobs."""
    session.say("speed")
    settings = {"jobs": SPEED_JOBS, "load": SPEED_LOAD}
    load = generators.make("exponential", settings, SPEED_CORES, 1)
    world, chosen = World(load, Machine(SPEED_CORES), buckets=1), policy.load("fifo")
    world.run(chosen, events=1000)  # compiled
    rates: list[float] = []
    started = time.perf_counter()
    while len(rates) < 3 or time.perf_counter() - started < seconds:
        begun = time.perf_counter()
        ran = world.run(chosen)
        rates.append(float(ran.over.sum()) / (time.perf_counter() - begun))
    session.arm("speed", cores=SPEED_CORES, load=SPEED_LOAD, completions_per_s=statistics.median(rates), n=SPEED_JOBS)
    session.figure("lab.speed", statistics.median(rates), runs=rates)
