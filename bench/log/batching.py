"""When a flush goes, on modelled disks: the log's own rule beside fixed settings, closed loops and Poisson arrivals.

Nothing of it is measured: it is the same on every machine. On each disk three rules get the same loads:

    adaptive             the log's own, which begins without knowing the disk
    the disk is known    the same, with as many flushes from the first on as the disk does at once
    a fixed setting      of FIXED, all of them: at each load the best one counts, which no single setting is

What a rule reaches of the best fixed setting: in a closed loop its appends a second over the other's; with Poisson
arrivals the other's mean time from when an append was due until it was durable, over its own. From the capacity on,
where that time grows for as long as the load lasts, it is appends a second again. Of p50 and p99, at each load, the
other's over its own, each against the setting that is best in that. What not knowing the disk has to do with it:
unknown.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..harness.openloop import Curve, Point, carried_to_the_end
from ..harness.session import Session
from ..harness.stops import Evidence, stop_of
from .modelled import ADAPTIVE, DISKS, FIXED, Disk, Outcome, Setting, closed_loop, open_loop
from .unknown import MEASURES, Part, best_of_all, once_learnt, whole_load

WRITERS = (1, 2, 4, 8, 16, 32, 64)
FRACTIONS = (0.001, 0.05, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.56)  # of what the best setting can carry
OPEN_FIXED = tuple(s for s in FIXED if s.records in (1, 4, 16, 64) and s.in_flight in (1, 2, 4, 16))
STEADY = (0.05, 0.8)  # loads between these have an end to what is found out, and no queue that grows
LAST_WRITES = 100  # a load lasts as long as so many lone writes, ..
LEAST_ARRIVALS, MOST_ARRIVALS = 2000, 6000  # .. of appends no fewer and no more than these
AT_ONCE = 2000  # appends that say what can be carried
NEAR = 0.9  # of what the best one can carry: settings below that have no part in a load that they cannot carry
SHORT_DISKS, SHORT_WRITERS, SHORT_FRACTIONS = ("flash",), (1, 64), (0.05, 1.2)
FEW_WRITES = 3
KNOWN = "the disk is known"
WITHOUT = "of the best rule that does not know the disk either"
UNKNOWN = "Rules that do not know on which disk they are: the least of mean time, p50 and p99, of all modelled disks"
Metric = Callable[[Outcome], float]


@dataclass
class Reached:
    """What one rule reached of the best fixed setting at each load, by the load's name."""

    part: dict[str, float] = field(default_factory=dict)

    @property
    def worst(self) -> str:
        return min(self.part, key=lambda load: self.part[load])

    def __str__(self) -> str:
        return f"{self.part[self.worst]:.3g} ({self.worst})"


def _rate(got: Outcome) -> float:
    return got.per_s


def _quickness(got: Outcome) -> float:
    return 1 / got.mean_us


def rules(disk: Disk) -> dict[str, Setting]:
    """The log's own rule, and the one that knows the disk."""
    return {"adaptive": ADAPTIVE, KNOWN: Setting(0, 0, min(disk.lanes, 16))}


def part_of_best(ours: Outcome, fixed: Mapping[Setting, Outcome], speed: Metric) -> tuple[float, Setting]:
    """Our speed over that of the setting that is best in it; and that setting."""
    best = max(fixed, key=lambda setting: speed(fixed[setting]))
    return speed(ours) / speed(fixed[best]), best


def number_of(disk: Disk, per_s: float) -> int:
    """Arrivals of a load."""
    return int(min(max(per_s * LAST_WRITES * disk.write_us / 1e6, LEAST_ARRIVALS), MOST_ARRIVALS))


def capacities(disk: Disk) -> dict[Setting, float]:
    """Appends a second that each fixed setting makes durable when all are due at once."""
    return {setting: open_loop(disk, setting, 1e12, AT_ONCE).per_s for setting in OPEN_FIXED}


def carrying(capacity: Mapping[Setting, float], per_s: float) -> list[Setting]:
    """The settings that may be the best at a load."""
    least = min(per_s, NEAR * max(capacity.values()))
    return [setting for setting, most in capacity.items() if most >= least]


def point_of(disk: Disk, per_s: float, got: Outcome) -> Point:
    """A load and what became of it, as a point of a curve. What is durable FEW_WRITES after the last one was due is not
    behind: it is in flight then, or gathers."""
    n = len(got.us)
    behind_s = max(got.seconds - got.last_due_s - FEW_WRITES * disk.write_us / 1e6, 0.0)
    return Point(
        per_s,
        n / (got.last_due_s + behind_s),
        n,
        n,
        p50_us=got.percentile_us(0.5),
        p90_us=got.percentile_us(0.9),
        p99_us=got.percentile_us(0.99),
        p999_us=got.percentile_us(0.999),
        max_us=got.us[-1],
        seconds=got.last_due_s,
        evidence=Evidence(worker=got.worker, disk=got.disk),
    )


def curve_of(points: Sequence[Point]) -> Curve:
    """All of the loads, and why the first one that was not carried was not."""
    missed = [p for p in points if not p.carried]
    if not missed:
        return Curve(list(points), carried_to_the_end(points[-1]), stop_of(points[-1], missed=True))
    return Curve(list(points), missed[0].why_not(), stop_of(missed[0]))


class Study:
    """Adds up, disk by disk, what was reached."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.speed: dict[str, Reached] = {}
        self.p50, self.p99 = Reached(), Reached()
        self.below = {"p50": Reached(), "p99": Reached()}  # the same below the capacity: above it a queue grows
        self.learnt = {measure: Reached() for measure in MEASURES}
        self.learnt_single = Reached()
        self.whole: dict[float, list[Mapping[Setting, Part]]] = {}  # by load, of each disk

    def _note(self, rule: str, load: str, part: float) -> None:
        self.speed.setdefault(rule, Reached()).part[load] = part

    def closed(self, name: str, disk: Disk, loads: Sequence[int]) -> None:
        """Closed loops of so many writers."""
        for writers in loads:
            fixed = {s: closed_loop(disk, s, writers) for s in FIXED}
            for rule, setting in rules(disk).items():
                got = closed_loop(disk, setting, writers)
                part, best = part_of_best(got, fixed, _rate)
                self._note(rule, f"{name}, {writers} writers", part)
                self.session.arm(
                    f"modelled {name}, closed loop: {rule}",
                    modelled=True,
                    n=len(got.us),
                    writers=writers,
                    per_s=got.per_s,
                    p50_us=got.percentile_us(0.5),
                    p99_us=got.percentile_us(0.99),
                    appends_per_flush=len(got.us) / max(got.flushes, 1),
                    part_of_best=part,
                    best=str(best),
                )

    def open(self, name: str, disk: Disk, loads: Sequence[float]) -> None:
        """Poisson arrivals at these fractions of the capacity."""
        capacity = capacities(disk)
        points: dict[str, list[Point]] = {rule: [] for rule in rules(disk)}
        for fraction in loads:
            per_s = fraction * max(capacity.values())
            n = number_of(disk, per_s)
            fixed = {s: open_loop(disk, s, per_s, n) for s in carrying(capacity, per_s)}
            for rule, setting in rules(disk).items():
                got = open_loop(disk, setting, per_s, n)
                load = f"{name}, {fraction:g} of capacity"
                part, best = part_of_best(got, fixed, _rate if fraction >= 1 else _quickness)
                p50, best_p50 = part_of_best(got, fixed, lambda o: 1 / o.percentile_us(0.5))
                p99, best_p99 = part_of_best(got, fixed, lambda o: 1 / o.percentile_us(0.99))
                self._note(rule, load, part)
                if rule == "adaptive":
                    self.p50.part[load], self.p99.part[load] = p50, p99
                    if fraction < 1:
                        self.below["p50"].part[load], self.below["p99"].part[load] = p50, p99
                point = point_of(disk, per_s, got)
                point.extra = {
                    "modelled": True,
                    "n": n,
                    "fraction": fraction,
                    "mean_us": got.mean_us,
                    "appends_per_flush": n / max(got.flushes, 1),
                    "part_of_best": part,
                    "best": str(best),
                    "best_p50": str(best_p50),
                    "best_p50_us": fixed[best_p50].percentile_us(0.5),
                    "best_p99": str(best_p99),
                    "best_p99_us": fixed[best_p99].percentile_us(0.99),
                }
                if rule == "adaptive" and STEADY[0] <= fraction <= STEADY[1]:
                    known = {**fixed, ADAPTIVE: got}
                    self.whole.setdefault(fraction, []).append(whole_load(disk, per_s, n, OPEN_FIXED, known))
                    point.extra |= self._learnt(disk, load, per_s, list(fixed))
                points[rule].append(point)
        for rule, found in points.items():
            self.session.curve(f"modelled {name}: {rule}", curve_of(found))

    def _learnt(self, disk: Disk, load: str, per_s: float, settings: Sequence[Setting]) -> dict[str, object]:
        """Of the log's own rule once it has found out what the disk does, for the point of this load."""
        ours, single, setting = once_learnt(disk, per_s, settings)
        for measure, part in ours.of.items():
            self.learnt[measure].part[load] = part
        self.learnt_single.part[load] = ours.least / single.least
        found = {f"learnt_{measure}_part": part for measure, part in ours.of.items()}
        return {**found, "learnt_best_single": str(setting), "learnt_best_single_part": single.least}

    def _without_knowing(self) -> Reached:
        """What the log's own rule has of the best one that does not know the disk either, by load; and a table."""
        reached, rows = Reached(), []
        for fraction, by_disk in self.whole.items():
            ours, best, value = best_of_all(by_disk)
            reached.part[f"{fraction:g} of capacity"] = ours / value
            rows.append([f"{fraction:g}", f"{ours:.3f}", f"{value:.3f}", str(best)])
        self.session.table(UNKNOWN, ["load, of capacity", "the log's own", "the best other one", "which is"], rows)
        return reached

    def finish(self) -> None:
        """The figure: the worst of all loads on all disks."""
        adaptive, known, blind = self.speed["adaptive"], self.speed[KNOWN], self._without_knowing()
        learnt = {f"once learnt, {measure}": reached for measure, reached in self.learnt.items()}
        learnt["once learnt, of the best single setting"] = self.learnt_single
        self.session.figure(
            "log.batching_modelled",
            adaptive.part[adaptive.worst],
            runs=list(adaptive.part.values()),
            beside={
                KNOWN: known.part[known.worst],
                "p50": self.p50.part[self.p50.worst],
                "p99": self.p99.part[self.p99.worst],
                **{f"{name}, below the capacity": of.part[of.worst] for name, of in self.below.items()},
                **{name: reached.part[reached.worst] for name, reached in learnt.items()},
                WITHOUT: blind.part[blind.worst],
            },
        )
        self.session.note(
            f"adaptive batching on modelled disks has of the best fixed setting at its worst load {adaptive}; told "
            f"how many writes the disk does at once {known}; of the best p50 {self.p50}, of the best p99 {self.p99}"
        )
        told = "; ".join(f"{name} {reached}" for name, reached in learnt.items())
        self.session.note(f"adaptive batching on modelled disks, {told}; {WITHOUT} {blind}")


def run(session: Session, whole: bool) -> None:
    """All modelled disks and loads, or those of a short run."""
    study = Study(session)
    for name in DISKS if whole else SHORT_DISKS:
        session.say(f"batching on a modelled disk: {name}")
        study.closed(name, DISKS[name], WRITERS if whole else SHORT_WRITERS)
        study.open(name, DISKS[name], FRACTIONS if whole else SHORT_FRACTIONS)
    study.finish()
    if not whole:
        session.note("a short run: batching on one modelled disk, and at few loads")
