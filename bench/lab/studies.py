"""The parts of `corelane bench lab` that need no machine but a core: formulas, invariants, speed."""

from __future__ import annotations

import statistics
import time

from ..harness.goals import GOALS
from ..harness.session import Session
from . import generators, invariants, policy, theory
from .world import Machine, World

COMPLETIONS_PER_S = 1.2e6  # round figure, for how many jobs a run of so many seconds has
LEAST_JOBS, MOST_JOBS = 20_000, 400_000  # of a run
FIRST_RUNS = 2  # of each case, before it is seen which need more
SURE = 1.96  # standard errors
GOAL = GOALS["lab.formula_error"].goal or 0.0
SPEED_CORES, SPEED_LOAD = 64, 0.7
SPEED_JOBS = 400_000
TOLD_MOST = 5  # violations, in the notes
AT_A_TIME = 2500  # seeds, between two words of progress


class _Class:
    """A class of a case, as the runs so far have it. error: mean of the runs' errors; standard: its standard error."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.runs: list[theory.Checked] = []

    @property
    def error(self) -> float:
        return statistics.mean(one.error for one in self.runs)

    @property
    def standard(self) -> float:
        return float(sum(one.standard_error**2 for one in self.runs) ** 0.5 / len(self.runs))

    @property
    def undecided(self) -> float:
        """How far the 95 % interval of the error reaches beyond the goal on its other side; 0: on one side only."""
        return max(SURE * self.standard - abs(abs(self.error) - GOAL), 0.0)


def against_formulas(session: Session, seconds: float) -> None:
    """Every case of theory.py, and the figure lab.formula_error: the largest error of means of several seeds. After two
    runs of each case those go on whose error could still be on either side of the goal, the most doubtful first."""
    cases = theory.cases()
    count = min(max(int(seconds * COMPLETIONS_PER_S / len(cases) / FIRST_RUNS), LEAST_JOBS), MOST_JOBS)
    found = [(case, [_Class(_name(case, cls)) for cls in range(len(case.expected))]) for case in cases]
    runs = dict.fromkeys(range(len(cases)), 0)

    def more(i: int) -> None:
        case, classes = found[i]
        session.say(f"against a formula: {case.name}, run {runs[i] + 1}")
        for one in theory.check(case, count, seed=1000 + runs[i]):
            classes[one.cls].runs.append(one)
        runs[i] += 1

    def doubt(i: int) -> float:
        return max(one.undecided for one in found[i][1])

    begun = time.perf_counter()
    for i in [*runs] * FIRST_RUNS:
        more(i)
    while doubt(worst := max(runs, key=doubt)) and time.perf_counter() - begun < seconds:
        more(worst)
    classes = [one for _, mine in found for one in mine]
    for one in classes:
        n = sum(run.n for run in one.runs)
        doubts = {"standard_error": one.standard, "runs": len(one.runs)}
        session.arm(one.name, against="formula", error=one.error, n=n, modelled=True, **doubts)
    left = [one.name for one in classes if one.undecided]
    undecided = f"{', '.join(left)}: the 95 % interval has the goal in it, give more --seconds" if left else ""
    errors, beside = [abs(one.error) for one in classes], {"largest standard error": max(c.standard for c in classes)}
    session.figure("lab.formula_error", max(errors), runs=errors, beside=beside, undecided=undecided)


def _name(case: theory.Case, cls: int) -> str:
    return case.name + (f", class {cls}" if len(case.expected) > 1 else "")


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
        said = ", ".join(what for what in invariants.holds(name) if what in invariants.KINDS)
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
