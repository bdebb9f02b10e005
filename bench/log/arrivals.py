"""When a flush goes, on what there is: Poisson arrivals on a disk and on tmpfs, p50 and p99 at each load.

The log runs on one core with its arrivals, each of which is a uthread. An append counts from when it was due until it
was durable. Loads are fractions of what the log makes durable a second with 256 writers in a closed loop, which is
measured first. Each setting goes on until a load is not carried, and the counters say why that was
(bench/harness/stops.py). The kthread makes the arrivals, too: where they begin late, it is the one that is busy.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from .._native import ffi
from ..harness.numbers import number
from ..harness.openloop import Measure, Point
from ..harness.session import Session
from ..harness.stops import Evidence
from .names import ADAPTIVE, FIXED

FRACTIONS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
SETTINGS = ("no wait, 1 in flight", "no wait, 4 in flight", "16 or 50 us", "64 or 100 us")  # of FIXED
RULES = {"adaptive": ADAPTIVE, **{name: FIXED[name] for name in SETTINGS}}
LEAST, MOST = 50, 50_000  # arrivals of a load
FEW_WRITES_S = 3e-4  # what is durable so long after the last one was due is not behind
WRITERS, CAPACITY_S = 256, 0.1  # that say what can be carried
SEED = 7

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
    """Where the log is: how arrivals append to it, its folder, and appends a second that it can carry."""

    append: Append
    folder: Path
    capacity: float


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


def point(append: Append, disk: DiskClock, setting: tuple[int, int, int], per_s: float, seconds: float) -> Point:
    """One load under one setting."""
    arrivals = Arrivals(per_s, int(min(max(per_s * seconds, LEAST), MOST)), SEED)
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


def run(session: Session, places: Mapping[str, Place], seconds: float) -> None:
    """All settings in turns at each load, place by place."""
    for name, place in places.items():
        disk = DiskClock(place.folder)
        arms: dict[str, Measure] = {
            f"{name}, Poisson: {rule}": partial(point, place.append, disk, setting) for rule, setting in RULES.items()
        }
        session.settings[f"capacity_per_s, {name}"] = place.capacity
        peaks = dict.fromkeys(arms, place.capacity)
        session.curves(arms, peaks, seconds=seconds / len(places), fractions=FRACTIONS, explain=arms)
        compare(session, name)


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
