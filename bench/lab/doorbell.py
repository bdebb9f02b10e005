"""From need to core: an application that rings the doorbell of its call for help, against the loop's scan.

On two cores: the loop, and one worker core that a batch job has. The needs are another runtime's of the same process
(needs.h), which stamps them. Each arm has an iokernel of its own, since how it learns of needs is a setting. Under
`shenango` what waits without a core gets one at first sight, however young it is: no policy's patience is measured.

Messages are what the two ways cost: decisions, in each of which the loop reads the applications' words, and rings that
it heeds. A scan as often as the loop can stands beside them, and a doorbell with a scan that is ten times rarer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...iokernel import Iokernel
from ...iokernel.control.settings import Allocation
from ...runtime.clock import default_clock
from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib
from ..harness.child import Child
from ..harness.numbers import PERCENTILES, percentile

if TYPE_CHECKING:
    from ..harness.session import Session

BELL, SCAN = "doorbell, scan each 5 us", "scan each 5 us"
ARMS: Mapping[str, Mapping[str, Any]] = {
    SCAN: {"interval_us": 5, "doorbell": False},
    BELL: {"interval_us": 5, "doorbell": True},
    "scan each 1 us": {"interval_us": 1, "doorbell": False},
    "doorbell, scan each 50 us": {"interval_us": 50, "doorbell": True},
}
POLICY = "shenango"
JOB, NEEDY = "job", "needy"
GAP_NS = 40_000
EACH_NS = 100_000  # no need takes so long, gap included, on a machine that lets it
LEAST = 50  # needs of a round
MOST = 1_000_000
ROUNDS = 5
WAIT_S = 30.0


@dataclass(frozen=True)
class Met:
    """Needs of one round. ns: of each, from need to core; the others a second, while they were measured."""

    ns: list[float]
    decisions_per_s: float
    rings_per_s: float

    def us(self, q: float) -> float:
        return percentile(sorted(self.ns), q) / 1e3


def compare(session: Session, seconds: float) -> None:
    """The figure `lab.doorbell`: all arms by turns."""
    slot = seconds / ROUNDS / len(ARMS)
    arms = {name: partial(_round, session, name, chosen, slot) for name, chosen in ARMS.items()}
    got = session.interleave(arms, ROUNDS)
    for name, rounds in got.items():
        session.arm(name, **row_of(rounds))
    if any(len(met.ns) < LEAST for rounds in got.values() for met in rounds):
        session.figure("lab.doorbell", None, reason=f"in some round fewer than {LEAST} needs were met")
        return
    bell, scan = got[BELL], got[SCAN]
    beside = {
        f"p{q}": statistics.median(b.us(q / 100) / s.us(q / 100) for b, s in zip(bell, scan, strict=True))
        for q in (90, 99)
    }
    session.ratio_figure("lab.doorbell", [b.us(0.5) for b in bell], [s.us(0.5) for s in scan], beside=beside)


def _round(session: Session, name: str, chosen: Mapping[str, Any], seconds: float) -> Met:
    """A need that nobody meets ends the round, which then has none that count."""
    try:
        return measure(session.two_cores, chosen, seconds)
    except CorelaneError as error:
        session.note(f"{name}: {error}")
        return Met([], math.nan, math.nan)


def row_of(rounds: Sequence[Met]) -> dict[str, Any]:
    """All needs of all rounds; medians of the rates."""
    ns = sorted(value for met in rounds for value in met.ns)
    values = {f"{name}_us": percentile(ns, q) / 1e3 if ns else math.nan for name, q in PERCENTILES}
    rates = {
        name: statistics.median(getattr(met, name) for met in rounds) for name in ("decisions_per_s", "rings_per_s")
    }
    return {"n": len(ns), "policy": POLICY, **values, **rates}


def measure(cores: tuple[int, int], chosen: Mapping[str, Any], seconds: float) -> Met:
    """One round of an arm: for about `seconds`, and at least LEAST needs, if they are met in WAIT_S."""
    n = min(max(int(seconds * 1e9 / (2 * GAP_NS)), 2 * LEAST), MOST)
    with _ground(cores, chosen) as (kernel, child):
        before, since = counted(kernel), time.monotonic()
        child.tell(f"{n} {int(WAIT_S * 1e9)}")
        ns = child.answer(2 * WAIT_S)["ns"]
        took, after = time.monotonic() - since, counted(kernel)
    decisions, rings = ((b - a) / took for a, b in zip(before, after, strict=True))
    return Met([float(one) for one in ns], decisions, rings)


def counted(kernel: Iokernel) -> tuple[int, int]:
    """Decisions, and rings of the needy application that were heeded."""
    stats = kernel.stats()
    rings = next(app["cores"]["rings"] for app in stats["apps"] if app["name"] == NEEDY)
    return int(stats["cores"]["allocators"][0]["decisions"]), int(rings)


@contextlib.contextmanager
def _ground(cores: tuple[int, int], chosen: Mapping[str, Any]) -> Iterator[tuple[Iokernel, Child]]:
    with tempfile.TemporaryDirectory(prefix="corelane-bench-") as folder:
        path = str(Path(folder) / "io.sock")
        kernel = Iokernel(
            path,
            loop_cpus=[cores[0]],
            worker_cpus=[cores[1]],
            poll="spin",
            policy=POLICY,
            allocation=Allocation(**chosen),
        )
        with kernel, Child("corelane.bench.lab.doorbell", ["--socket", path], timeout_s=WAIT_S) as child:
            yield kernel, child


# The applications' process.


def _needs(job: Any, needy: Any, n: int, limit_ns: int, seed: int) -> list[int]:
    ticks = ffi.new("uint64_t[]", n)
    met = check(lib.cl_lab_needs(job.ptr, needy.ptr, seed, GAP_NS, ticks, n, limit_ns), "measure needs")
    clock = default_clock()
    return [clock.ticks_to_ns(int(one)) for one in ticks[0:met]]


def main(arguments: Sequence[str] | None = None) -> None:
    """For each line "N LIMIT_NS" of stdin: measure, and print {"ns": [...]}."""
    from ...libos import Runtime

    parser = argparse.ArgumentParser(description="two applications of the laboratory, until stdin ends")
    parser.add_argument("--socket", required=True)
    options = parser.parse_args(arguments)
    with (
        Runtime(options.socket, name=NEEDY, kthreads=1) as needy,
        Runtime(options.socket, name=JOB, kind="batch", kthreads=1) as job,
    ):
        needy.start()
        job.start()
        print(json.dumps({"ready": True}), flush=True)
        for seed, line in enumerate(sys.stdin):
            n, limit_ns = (int(word) for word in line.split())
            try:
                answer: dict[str, Any] = {"ns": _needs(job, needy, n, limit_ns, seed)}
            except CorelaneError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
