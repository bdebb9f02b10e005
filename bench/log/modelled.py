"""The log on modelled disks (model.h): when each append of a load is durable. The same on every machine.

disk = DISKS["flash"]
Model(disk).open_loop(Setting(), per_s=1e5)    # adaptive batching, Poisson arrivals
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.numbers import percentile

RECORD_BYTES = 256
SUBMIT_NS = 2000  # what a flush costs its kthread
WARM_WRITES, MEASURED_WRITES = 100, 400  # of a closed loop, as long as so many lone writes
ARRIVALS = 2000  # of an open loop: what it takes to find the disk out is among them
ROOM = 1 << 20


@dataclass(frozen=True)
class Disk:
    """Does `lanes` writes side by side, each in write_us, kib_us a KiB and beside_us for each other one in flight."""

    lanes: int
    write_us: float
    kib_us: float
    beside_us: float = 0.0

    def config(self) -> dict[str, int]:
        """As a struct cl_bench_lanes_config."""
        return {
            "lanes": self.lanes,
            "submit_ns": SUBMIT_NS,
            "write_ns": int(self.write_us * 1000),
            "kib_ns": int(self.kib_us * 1000),
            "beside_ns": int(self.beside_us * 1000),
        }


DISKS: Mapping[str, Disk] = {
    "one lane": Disk(1, 60, 0.1),
    "two lanes": Disk(2, 60, 0.1),
    "four lanes": Disk(4, 60, 0.1),
    "many lanes": Disk(64, 60, 0.1),
    "flash": Disk(16, 12, 0.05),
    "shared": Disk(64, 60, 0.1, beside_us=10),
}


@dataclass(frozen=True)
class Setting:
    """When a flush goes. records 0: the log's own rule, with at most in_flight (0: its default). Else with so many
    records or after wait_us, whichever is first."""

    records: int = 0
    wait_us: int = 0
    in_flight: int = 0

    def __str__(self) -> str:
        if not self.records:
            return f"adaptive, {self.in_flight} in flight at most" if self.in_flight else "adaptive"
        gather = f"{self.records} or {self.wait_us} us" if self.wait_us else "no wait"
        return f"{gather}, {self.in_flight} in flight"


ADAPTIVE = Setting()
FIXED = tuple(
    Setting(records, 50 if records > 1 else 0, in_flight)
    for records in (1, 2, 4, 8, 16, 32, 64)
    for in_flight in (1, 2, 4, 8, 16)
)


@dataclass(frozen=True)
class Outcome:
    """What became of a load. us: ascending, of each append that is judged until it was durable."""

    us: list[float]
    appends: int  # all of the load
    seconds: float
    last_due_s: float  # when the last one was due; nan: closed loop
    worker: float  # busy, 0 to 1
    disk: float  # the mean of its lanes
    flushes: int
    width: int

    @property
    def per_s(self) -> float:
        return self.appends / self.seconds

    @property
    def mean_us(self) -> float:
        return sum(self.us) / len(self.us)

    def percentile_us(self, q: float) -> float:
        return percentile(self.us, q)


@lru_cache(maxsize=64)
def arrivals(per_s: float, number: int, seed: int) -> tuple[int, ...]:
    """When each of a Poisson process is due, ns."""
    rng, at, due = random.Random(seed), 0.0, []
    for _ in range(number):
        at += rng.expovariate(per_s)
        due.append(int(at * 1e9))
    return tuple(due)


def closed_loop(disk: Disk, setting: Setting, writers: int) -> Outcome:
    """So many writers, each with one append at a time. The first ones are not in it: the disk is known by then."""
    write_ns = int(disk.write_us * 1000)
    load = {"writers": writers, "warm_ns": WARM_WRITES * write_ns, "for_ns": MEASURED_WRITES * write_ns}
    return _run(disk, setting, load)


def open_loop(
    disk: Disk, setting: Setting, per_s: float, number: int = ARRIVALS, seed: int = 42, from_append: int = 0
) -> Outcome:
    """Poisson arrivals. Judged from the first one on, what it costs to find out what the disk does is in it; or from a
    later one on, in the order in which they end."""
    due = ffi.new("uint64_t[]", arrivals(per_s, number, seed))
    return _run(disk, setting, {"due_ns": due, "arrivals": number}, from_append)


def _run(disk: Disk, setting: Setting, load: Mapping[str, Any], from_append: int = 0) -> Outcome:
    model = ffi.new(
        "struct cl_bench_log_model *",
        {
            "disk": disk.config(),
            "record_bytes": RECORD_BYTES,
            "in_flight": setting.in_flight,
            "fixed_records": setting.records,
            "fixed_wait_ns": setting.wait_us * 1000,
            **load,
        },
    )
    each, err = ffi.new("uint32_t[]", ROOM), ffi.new("char[256]")
    out = ffi.new("struct cl_bench_log_modelled *", {"each_ns": each, "room": ROOM})
    if lib.cl_bench_log_model(model, out, err):
        raise CorelaneError("model the log", ffi.string(err).decode(errors="replace"))
    us = sorted(ns / 1e3 for ns in ffi.unpack(each, out.appends)[from_append:])
    ran = out.ns + (model.warm_ns if model.writers else 0)
    busy = min(out.worker_ns / ran, 1.0), min(out.disk_ns / ran / disk.lanes, 1.0)
    due = model.due_ns[model.arrivals - 1] / 1e9 if model.arrivals else math.nan
    return Outcome(us, out.appends, out.ns / 1e9, due, *busy, out.flushes, out.width)
