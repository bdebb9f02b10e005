"""When a flush goes, on what there is: Poisson arrivals on a disk and on tmpfs, p50 and p99 at each load.

The log runs on one core with its arrivals, each of which is a uthread. An append counts from when it was due until it
was durable. Loads are fractions of the highest one that the log carries under its own rule, which is searched for
first, from what 256 writers append in a closed loop. Each setting goes on until a load is not carried, and the
counters say why that was (bench/harness/stops.py). The kthread makes the arrivals, too: where they begin late, it is
the one that is busy.

Then all settings have short turns at the loads below the capacity, for the figures: what a fixed setting's p50, and
p99, is over the log's own, at the load and against the setting where that is least (heldout.py).
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from .._native import ffi
from ..harness.numbers import number
from ..harness.openloop import Measure, Point, search_peak
from ..harness.session import Session
from ..harness.stops import Evidence
from .heldout import worst_held_out
from .names import ADAPTIVE, FIXED

FRACTIONS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
SETTINGS = ("no wait, 1 in flight", "no wait, 4 in flight", "16 or 50 us", "64 or 100 us")  # of FIXED
RULES = {"adaptive": ADAPTIVE, **{name: FIXED[name] for name in SETTINGS}}
LEAST, MOST = 50, 50_000  # arrivals of a load
FEW_WRITES_S = 3e-4  # what is durable so long after the last one was due is not behind
WRITERS, GUESS_S, FIRST_OF_GUESS = 256, 0.1, 0.1  # that say from where on to search for what is carried
SEARCH, SEARCH_LEAST = 0.05, 1000  # of a run's time for arrivals; arrivals of a try
SEED = 7
JUDGED, ROUNDS = (0.05, 0.2, 0.5, 0.8), 4  # fractions and turns for the figures; turns: a multiple of 4
JUDGED_LEAST = 200  # arrivals of a turn
FIGURES = {"p50_us": "log.poisson_p50", "p99_us": "log.poisson_p99"}

Append = Callable[["Arrivals", tuple[int, int, int]], "Arrived"]


class Arrivals:
    """When each append is due, ns from the beginning on."""

    def __init__(self, per_s: float, n: int, seed: int) -> None:
        gaps = np.random.default_rng(seed).exponential(1e9 / per_s, n)
        self.due_ns = np.cumsum(gaps).astype(np.uint64)
        self.n = n

    @property
    def seconds(self) -> float:
        return float(self.due_ns[-1]) / 1e9

    def pointer(self) -> object:
        return ffi.from_buffer("uint64_t[]", self.due_ns)


class Arrived:
    """What became of them. ns: of each until it was durable. late: those that began late."""

    def __init__(self, ns: list[int], seconds: float, late: int) -> None:
        self.us = np.sort(np.asarray(ns, dtype=np.float64)) / 1e3
        self.seconds, self.late = seconds, late

    @property
    def worker(self) -> float:
        """The part of them for which the kthread had no time when they were due: it makes them, too."""
        return self.late / len(self.us)

    def us_at(self, q: float) -> float:
        return float(self.us[min(int(np.ceil(q * len(self.us))) - 1, len(self.us) - 1)])


@dataclass
class Place:
    """Where the log is: how arrivals append to it, its folder, and what writers in a closed loop append a second."""

    append: Append
    folder: Path
    closed_per_s: float


class DiskClock:
    """How long the device of a folder has had requests in flight, by the kernel; None where there is no such count."""

    def __init__(self, folder: Path) -> None:
        device = os.stat(folder).st_dev
        self._path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")

    def seconds(self) -> float | None:
        try:
            return int(self._path.read_text().split()[9]) / 1e3
        except (OSError, IndexError, ValueError):
            return None


def point(
    append: Append,
    disk: DiskClock,
    setting: tuple[int, int, int],
    per_s: float,
    seconds: float,
    least: int = LEAST,
    seed: int = SEED,
) -> Point:
    """One load under one setting, of `least` arrivals or more."""
    arrivals = Arrivals(per_s, int(min(max(per_s * seconds, least), MOST)), seed)
    before = disk.seconds()
    got = append(arrivals, setting)
    after = disk.seconds()
    busy = None if before is None or after is None else min((after - before) / got.seconds, 1.0)
    n = len(got.us)
    behind_s = max(got.seconds - arrivals.seconds - FEW_WRITES_S, 0.0)
    return Point(
        per_s,
        n / (arrivals.seconds + behind_s),
        arrivals.n,
        n,
        p50_us=got.us_at(0.5),
        p90_us=got.us_at(0.9),
        p99_us=got.us_at(0.99),
        p999_us=got.us_at(0.999),
        max_us=float(got.us[-1]),
        seconds=arrivals.seconds,
        extra={"n": n},
        evidence=Evidence(worker=got.worker, disk=busy),
    )


def run(session: Session, places: Mapping[str, Place], seconds: float, judged_s: float) -> None:
    """All settings in turns at each load, place by place; then the turns of the figures, of judged_s."""
    capacity = {}
    for name, place in places.items():
        disk = DiskClock(place.folder)
        capacity[name] = capacity_of(place, disk, SEARCH * seconds)
        arms: dict[str, Measure] = {
            f"{name}, Poisson: {rule}": partial(point, place.append, disk, setting) for rule, setting in RULES.items()
        }
        session.settings[f"capacity_per_s, {name}"] = capacity[name]
        peaks = dict.fromkeys(arms, capacity[name])
        session.curves(arms, peaks, seconds=seconds / len(places), fractions=FRACTIONS, explain=arms)
        compare(session, name)
    if places:
        judge(session, places, capacity, judged_s)


def capacity_of(place: Place, disk: DiskClock, seconds: float) -> float:
    """The highest load that the log carries under its own rule, appends/s; if it carried none, what was asked first."""
    measure = partial(point, place.append, disk, ADAPTIVE, least=SEARCH_LEAST)
    first = FIRST_OF_GUESS * place.closed_per_s
    return search_peak(measure, start_rps=first, step=1.5, seconds=seconds).peak_rps or first


def judge(session: Session, places: Mapping[str, Place], capacity: Mapping[str, float], seconds: float) -> None:
    """The figures: all settings in turns at loads below the capacity, the same arrivals for all of a round."""
    slot_s = seconds / (len(places) * len(JUDGED) * len(RULES) * ROUNDS)
    session.say("Poisson arrivals, in turns")
    rates: dict[str, dict[str, dict[str, list[float]]]] = {key: {} for key in FIGURES}
    for name, place in places.items():
        disk = DiskClock(place.folder)
        for fraction in JUDGED:
            got = _turns(place, disk, fraction * capacity[name], slot_s)
            for key, of in rates.items():
                of[f"{name}, {fraction:g} of capacity"] = {
                    rule: [1 / number(getattr(p, key)) for p in points] for rule, points in got.items()
                }
    for key, figure in FIGURES.items():
        ours = {load: of["adaptive"] for load, of in rates[key].items()}
        others = {load: {rule: of[rule] for rule in of if rule != "adaptive"} for load, of in rates[key].items()}
        halves = worst_held_out(ours, others)
        single = {
            rule: worst_held_out(ours, {load: {rule: of[rule]} for load, of in others.items()})
            for rule in RULES
            if rule != "adaptive"
        }
        beside = {f"of {rule} alone": statistics.mean(h.ratio for h in found) for rule, found in single.items()}
        session.figure(figure, statistics.mean(h.ratio for h in halves), runs=[h.ratio for h in halves], beside=beside)
        session.note(f"{figure}: {'; '.join(map(str, halves))}")
        by_load = {load: worst_held_out({load: ours[load]}, {load: others[load]}) for load in ours}
        told = (f"{load} {statistics.mean(h.ratio for h in found):.3g}" for load, found in by_load.items())
        session.note(f"{figure} by load: {', '.join(told)}")


def _turns(place: Place, disk: DiskClock, per_s: float, slot_s: float) -> dict[str, list[Point]]:
    """All settings at one load, forwards and backwards."""
    found: dict[str, list[Point]] = {rule: [] for rule in RULES}
    for turn in range(ROUNDS):
        for rule in list(RULES)[:: 1 if turn % 2 == 0 else -1]:
            of = (place.append, disk, RULES[rule], per_s, slot_s, JUDGED_LEAST, SEED + 1 + turn)
            found[rule].append(point(*of))
    return found


def compare(session: Session, place: str) -> None:
    """At each load that adaptive batching carried, its p50 and p99, and the best of the fixed settings'."""
    rows = [a for a in session.arms if a["name"].startswith(f"{place}, Poisson: ")]
    ours = [a for a in rows if a["name"].endswith(": adaptive")]
    told = []
    for row in ours:
        others = [a for a in rows if a["offered_rps"] == row["offered_rps"] and a is not row]
        if not others:
            continue
        parts = []
        for key in ("p50_us", "p99_us"):
            best = min(others, key=lambda a: number(a[key]))
            parts.append(
                f"{number(row[key]):.4g} us, best fixed {number(best[key]):.4g} ({best['name'].partition(': ')[2]})"
            )
        told.append(f"{row['offered_rps']:,.0f}/s: p50 {parts[0]}, p99 {parts[1]}")
    session.note(
        f"Poisson arrivals, {place}, adaptive beside the best of {len(SETTINGS)} fixed settings: {'; '.join(told)}"
    )
