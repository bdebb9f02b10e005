"""When a flush goes, on what there is: Poisson arrivals on a disk and on tmpfs, p50 and p99 at each load.

The log runs on one core with its arrivals, each of which is a uthread. An append counts from when it was due until it
was durable. Loads are fractions of what the log makes durable a second when all is due at once, which is measured
first. Each setting goes on until a load is not carried, and the counters say why that was (bench/harness/stops.py).
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
LEAST, MOST, AT_ONCE = 50, 50_000, 5000  # arrivals of a load; and those that say what can be carried
SEED = 7

Append = Callable[["Arrivals", tuple[int, int, int]], "Arrived"]


class Arrivals:
    """When each append is due, ns from the beginning on. per_s inf: all at once."""

    def __init__(self, per_s: float, n: int, seed: int) -> None:
        gaps = np.random.default_rng(seed).exponential(1e9 / per_s, n) if np.isfinite(per_s) else np.zeros(n)
        self.due_ns = np.cumsum(gaps).astype(np.uint64)
        self.n = n

    @property
    def seconds(self) -> float:
        return float(self.due_ns[-1]) / 1e9

    def pointer(self) -> object:
        return ffi.from_buffer("uint64_t[]", self.due_ns)


class Arrived:
    """What became of them. ns: of each until it was durable."""

    def __init__(self, ns: list[int], first_s: float, seconds: float, late: int, looks: int, found: int) -> None:
        self.us = np.sort(np.asarray(ns, dtype=np.float64)) / 1e3
        self.first_s, self.seconds, self.late = first_s, seconds, late
        self.worker = found / looks if looks else None

    def us_at(self, q: float) -> float:
        return float(self.us[min(int(np.ceil(q * len(self.us))) - 1, len(self.us) - 1)])


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
    return Point(
        per_s,
        (n - 1) / max(got.seconds - got.first_s, 1e-9),
        arrivals.n,
        n,
        late=got.late,
        p50_us=got.us_at(0.5),
        p90_us=got.us_at(0.9),
        p99_us=got.us_at(0.99),
        p999_us=got.us_at(0.999),
        max_us=float(got.us[-1]),
        seconds=arrivals.seconds,
        extra={"n": n},
        evidence=Evidence(worker=got.worker, disk=busy),
    )


def run(session: Session, places: dict[str, tuple[Append, Path]], seconds: float) -> None:
    """All settings in turns at each load, place by place. places: how to append there, and where that is."""
    for place, (append, folder) in places.items():
        all_at_once = append(Arrivals(float("inf"), AT_ONCE, SEED), ADAPTIVE)
        capacity = AT_ONCE / all_at_once.seconds
        disk = DiskClock(folder)
        arms: dict[str, Measure] = {}
        for name, setting in RULES.items():

            def measure(
                per_s: float,
                slot_s: float,
                setting: tuple[int, int, int] = setting,
                append: Append = append,
                disk: DiskClock = disk,
            ) -> Point:
                return point(append, disk, setting, per_s, slot_s)

            arms[f"{place}, Poisson: {name}"] = measure
        session.settings[f"capacity_per_s, {place}"] = capacity
        session.curves(
            arms, dict.fromkeys(arms, capacity), seconds=seconds / len(places), fractions=FRACTIONS, explain=arms
        )
        compare(session, place)


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
