"""How far the simulator is from this machine's cores (box.py): the figure lab.box_error.

Policies run on loads that are generated, and on loads that an application was recorded with while it served
(served.py), on one core and on two. A round in which the machine was too loud is left out, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.errors import CorelaneError
from ..harness.session import Session
from . import generators, loads, policy, served
from .box import PERCENTILES, both, costs_of, row_of

MEAN_US = 100.0
SHORT_US, LONG_US, LONG_SHARE = 20.0, 500.0, 0.15  # of requests of two lengths
SLACK = 5.0  # deadline over work
ROUNDS = 5
LEAST_JOBS = 200  # of a round
TRIES = 3  # of a recording
LOST_MOST = 0.1  # of the cores' time, by the machine, in a round that counts


@dataclass(frozen=True)
class Case:
    """A policy of the comparison. least: cores from which on it is another policy than FIFO. lengths: its load has
    requests of two lengths, not one log-normal one; longer: these are so many times longer, as its quanta are."""

    policy: str
    settings: Mapping[str, float]
    loads: tuple[float, ...]
    least: int = 1
    lengths: bool = True
    longer: float = 1.0


# The first two at all loads, to see how far the box is right. Those that look at each job whenever they decide have
# longer requests and quanta: beside quanta of 50 us a queue which a gap of the machine has left would grow on.
CASES = (
    Case("fifo", {}, (0.3, 0.6, 0.8), lengths=False),
    Case("priority", {"preempt": 1}, (0.3, 0.6, 0.8), lengths=False),
    Case("round_robin", {"quantum_us": 50}, (0.7,)),
    Case("shinjuku", {"quantum_us": 50}, (0.7,)),
    Case("edf", {}, (0.7,)),
    Case("antman", {}, (0.7,)),
    Case("caladan", {}, (0.7,), least=2),
    Case("gandiva", {"quantum_us": 200}, (0.7,), longer=4),
    Case("fair", {"quantum_us": 200}, (0.7,), longer=4),
    Case("hare", {"quantum_us": 200}, (0.7,), longer=4),
    Case("tiresias", {"quantum_us": 200}, (0.7,), longer=4),
    Case("gittins", {"quantum_us": 200}, (0.7,), longer=4),
)
# On requests that an application was recorded with: those that need neither several types nor what nobody declares.
RECORDED = (
    Case("fifo", {}, (0.7,)),
    Case("round_robin", {"quantum_us": 50}, (0.7,)),
    Case("shinjuku", {"quantum_us": 50}, (0.7,)),
    Case("gandiva", {"quantum_us": 200}, (0.7,), longer=4),
    Case("fair", {"quantum_us": 200}, (0.7,), longer=4),
    Case("tiresias", {"quantum_us": 200}, (0.7,), longer=4),
    Case("gittins", {"quantum_us": 200}, (0.7,), longer=4),
)


@dataclass(frozen=True)
class Arm:
    """A row of the comparison: so many cores, under a policy, at a load; recorded: of an application."""

    cores: int
    case: Case
    at: float
    recorded: bool

    def __str__(self) -> str:
        load = f"load {self.at:g}" + (", recorded" if self.recorded else "")
        return f"box and simulator, {self.case.policy}, {self.cores} cores, {load}"


def compare(session: Session, seconds: float) -> dict[str, float]:
    """Rows for one and two cores, each case and load; sets the figure lab.box_error."""
    counts = [n for n in (1, 2) if n <= len(session.cores)]
    arms = [Arm(n, case, at, False) for n in counts for case in CASES if n >= case.least for at in case.loads]
    if len(session.cores) > 1:  # the loop of an iokernel has one
        arms += [Arm(n, case, at, True) for n in counts for case in RECORDED for at in case.loads]
    else:
        session.skip("box and simulator, recorded loads", "an iokernel and an application need two cores")
    part = seconds / (sum(arm.case.longer for arm in arms) * ROUNDS)
    seen = _recordings(session, arms, part)
    arms = [arm for arm in arms if not arm.recorded or (arm.at, arm.case.longer) in seen]
    costs = {n: costs_of(session.cores[:n]) for n in counts}
    session.settings["box_costs_ns"] = [costs[n].switch_ns for n in counts]
    session.settings["box_late_ns"] = [costs[n].late_ns for n in counts]
    errors: dict[str, float] = {}
    recorded: set[str] = set()
    plain: dict[str, float] = {}
    apart: dict[str, float] = {}
    for arm in arms:
        session.say(str(arm))
        cores, chosen = session.cores[: arm.cores], policy.load(arm.case.policy, arm.case.settings)
        try:
            made = [_load_of(arm, seen, part, i) for i in range(ROUNDS)]
            pairs = [both(load, chosen, cores, costs[arm.cores]) for load in made]
        except CorelaneError as error:  # it cannot keep up
            session.skip(str(arm), str(error))
            continue
        kept = [pair for pair in pairs if pair.box.stopped <= LOST_MOST and not pair.box.missed]
        if not kept:
            session.skip(str(arm), f"the machine took over {100 * LOST_MOST:g} % of the cores' time in each round")
            continue
        if len(kept) < len(pairs):
            left = len(pairs) - len(kept)
            session.note(f"{arm}: {left} of {ROUNDS} rounds are left out, in which the machine was too loud")
        row = row_of(kept)
        about = {"policy": arm.case.policy, "cores": arm.cores, "load": arm.at, "recorded": arm.recorded}
        session.arm(str(arm), **about, rounds_left_out=len(pairs) - len(kept), **row)
        errors |= {f"{arm}, p{p}": abs(row[f"p{p}_error"]) for p in PERCENTILES}
        recorded |= {f"{arm}, p{p}" for p in PERCENTILES if arm.recorded}
        apart |= {f"{arm}, p{p}": row[f"p{p}_apart"] for p in PERCENTILES}
        plain |= {f"{arm}, p{p}": abs(row[f"plain_p{p}_error"]) for p in PERCENTILES}
    made_up = errors.keys() - recorded
    if made_up:
        farthest = max(made_up, key=lambda name: errors[name])
        session.note(f"the largest error on a generated load is {errors[farthest]:.3g}, of {farthest}")
    if not recorded:
        session.figure("lab.box_error", None, reason="no recorded load was served, or the machine was too loud for it")
        return errors
    worst = max(recorded, key=lambda name: errors[name])
    session.note(f"lab.box_error is that of {worst}")
    beside = {
        "largest without what the machine took from jobs": max(plain[name] for name in recorded),
        "simulations of that row apart": apart[worst],
        "largest of simulations apart": max(apart[name] for name in recorded),
    }
    if made_up:
        beside["largest on generated loads"] = errors[farthest]
    session.figure("lab.box_error", errors[worst], runs=[errors[name] for name in sorted(recorded)], beside=beside)
    return errors


def _recordings(session: Session, arms: Sequence[Arm], part: float) -> dict[tuple[float, float], loads.Load]:
    """What an application got, by the load asked of it and how much longer its requests are: enough for the most cores
    and all rounds."""
    seen: dict[tuple[float, float], loads.Load] = {}
    for at, longer in dict.fromkeys((arm.at, arm.case.longer) for arm in arms if arm.recorded):
        session.say(f"an application is recorded while it serves, load {at:g}")
        most = max(arm.cores for arm in arms)
        lengths = (longer * SHORT_US, longer * LONG_US, LONG_SHARE)
        seconds = (most * ROUNDS + 1) * _stretch_s(at, longer, part)
        try:
            made = _recording(session, at, lengths, seconds)
        except CorelaneError as error:
            session.skip(f"box and simulator, load {at:g}, recorded, requests of {lengths[0]:g} us", str(error))
            continue
        about = {"requests": len(made), "requests_us": lengths[:2], "seconds": made.said["seconds"]}
        session.settings.setdefault("recorded", []).append({"load": at, **about})
        seen[at, longer] = made
    return seen


def _recording(
    session: Session, at: float, lengths: tuple[float, float, float], seconds: float, tries: int = TRIES
) -> loads.Load:
    """The first of so many tries in which the application got what was sent."""
    try:
        return served.recorded(session.two_cores, at, *lengths, seconds)
    except CorelaneError:
        if tries == 1:
            raise
        return _recording(session, at, lengths, seconds, tries - 1)


def _stretch_s(at: float, longer: float, part: float) -> float:
    """Of a recorded load, what a core serves in a round."""
    mean_us = longer * ((1 - LONG_SHARE) * SHORT_US + LONG_SHARE * LONG_US)
    return max(part * longer, LEAST_JOBS * mean_us / at / 1e6)


def _load_of(arm: Arm, seen: Mapping[tuple[float, float], loads.Load], part: float, number: int) -> loads.Load:
    """A round's load."""
    case = arm.case
    if arm.recorded:
        length_s = _stretch_s(arm.at, case.longer, part)
        return served.stretches(seen[arm.at, case.longer], arm.cores, number, int(length_s * 1e9))
    count = max(int(part * 1e6 * arm.at * arm.cores / MEAN_US), LEAST_JOBS)  # and of those that are longer as many
    if case.lengths:
        return two_lengths(arm.at, arm.cores, count, 100 + number, case.longer)
    return _log_normal(arm.at, arm.cores, count, 100 + number)


def _log_normal(at: float, cores: int, count: int, seed: int) -> loads.Load:
    """Log-normal jobs of two classes, of which one job in five is of the first."""
    made = generators.make("poisson", {"jobs": count, "load": at, "mean_us": MEAN_US, "sigma": 0.8}, cores, seed)
    rows = made.jobs.copy()
    rows["kind"] = np.random.default_rng(seed).random(count) >= 0.2
    return loads.Load((loads.Kind(cls=0), loads.Kind(cls=1)), rows, made.said)


def two_lengths(at: float, cores: int, count: int, seed: int, longer: float = 1.0) -> loads.Load:
    """Short and long requests, a class each, with deadlines and weights; the short ones are guaranteed. longer: so many
    times than SHORT_US and LONG_US. Weights are drawn from a range: were they 1, 2 and 4, quanta over weights would be
    equal to the ns in the simulator, where the older job goes first then, and not on the box."""
    short_us, long_us = longer * SHORT_US, longer * LONG_US
    settings = {"jobs": count, "load": at, "short_us": short_us, "long_us": long_us, "long_share": LONG_SHARE}
    made = generators.make("bimodal", settings, cores, seed)
    rows = made.jobs.copy()
    rows["deadline_ns"] = (SLACK * rows["work_ns"]).astype(np.int64)
    rows["weight"] = np.random.default_rng(seed).uniform(1.0, 4.0, count)
    short = loads.Kind(cls=0, limit_ns=int(1e4 * short_us))
    long = loads.Kind(cls=1, limit_ns=int(1e4 * long_us), guaranteed=False)
    return loads.Load((short, long), rows, made.said)
