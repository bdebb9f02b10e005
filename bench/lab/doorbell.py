"""From need to core: an application that rings the doorbell of its call for help, against the loop's scan.

On two cores: the loop, and one worker core that a batch job has. The needs are another runtime's of the same process
(needs.h), which stamps them. Each arm has an iokernel of its own, since how it learns of needs is a setting. Under
`shenango` what waits without a core gets one at first sight, however young it is: no policy's patience is measured.

Each need is broken down by the stamps of who takes part, which the log of moves has. What bounds the doorbell stands
beside the figure: the way of a line to the loop, and the kernel's own hand-over of a core by a flag and sched_yield,
between two processes, in the same run. A note says part by part how much more ours takes. No doorbell makes the
hand-over shorter, so a second bound has ours: heard after the way of a line, and then all as it was.

Messages are what the two ways cost: decisions, in each of which the loop reads the applications' words, and rings that
it heeds. A scan as often as the loop can stands beside them, and a doorbell with a scan that is ten times rarer.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import itertools
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...iokernel import Iokernel
from ...iokernel.control.moves import LEAVES, SEEN, SWITCH, entries, parts_of, whole
from ...iokernel.control.settings import Allocation
from ...runtime.clock import default_clock
from ...runtime.errors import CorelaneError, check
from .._native import ffi, lib
from ..harness.child import Child
from ..harness.numbers import PERCENTILES, percentile

if TYPE_CHECKING:
    from ..harness.session import Session

BELL, SCAN = "doorbell, scan each 5 us", "scan each 5 us"
RAW = "flag, sched_yield, between two processes"
HEARD, BEGINS = "need until the decision", "new owner runs until its uthread does"
PARTS = (HEARD, SEEN, LEAVES, SWITCH, BEGINS)
GONE = "decision until the old owner yields"  # SEEN and LEAVES, which the kernel's own way does not tell apart
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
    """Needs of one round. ns: of each, from need to core; parts: of those whose steps are known, in their order; the
    others a second, while they were measured."""

    ns: list[float]
    decisions_per_s: float
    rings_per_s: float
    parts: Mapping[str, list[float]] = field(default_factory=dict)

    def us(self, q: float) -> float:
        return percentile(sorted(self.ns), q) / 1e3


def compare(session: Session, seconds: float) -> None:
    """The figure `lab.doorbell`: all arms by turns."""
    slot = seconds / ROUNDS / (len(ARMS) + 1)
    arms = {name: partial(_round, session, name, chosen, slot) for name, chosen in ARMS.items()}
    arms[RAW] = partial(_raw, session.two_cores, slot)
    got = session.interleave(arms, ROUNDS)
    for name, rounds in got.items():
        session.arm(name, **row_of(rounds))
    for name, part in [*itertools.product((BELL, SCAN), PARTS), (RAW, GONE), (RAW, SWITCH)]:
        ns = sorted(value for met in got[name] for value in met.parts.get(part, ()))
        if ns:
            session.arm(f"{name}: {part}", n=len(ns), **{f"{q}_us": percentile(ns, p) / 1e3 for q, p in PERCENTILES})
    if any(len(met.ns) < LEAST for rounds in got.values() for met in rounds):
        session.figure("lab.doorbell", None, reason=f"in some round fewer than {LEAST} needs were met")
        return
    bell, scan = got[BELL], got[SCAN]
    beside = {
        f"p{q}": statistics.median(b.us(q / 100) / s.us(q / 100) for b, s in zip(bell, scan, strict=True))
        for q in (90, 99)
    }
    line_us = statistics.median(session.cacheline_ns) / 2e3
    session.note(f"p50 of the parts of {BELL}, us: {told(bell, got[RAW], line_us)}")
    floors = [line_us + raw.us(0.5) for raw in got[RAW]]
    beside["bound: a line and the raw hand-over, over the scan"] = statistics.median(
        floor / s.us(0.5) for floor, s in zip(floors, scan, strict=True)
    )
    beside["p50 over that bound"] = statistics.median(b.us(0.5) / f for b, f in zip(bell, floors, strict=True))
    heard = [sorted(b.parts[HEARD]) for b in bell]
    if all(heard):
        least = statistics.median(
            (b.us(0.5) - percentile(h, 0.5) / 1e3 + line_us) / s.us(0.5)
            for b, h, s in zip(bell, heard, scan, strict=True)
        )
        beside["bound: a line and our hand-over, over the scan"] = least
        session.note(bounded(least, beside["bound: a line and the raw hand-over, over the scan"]))
    session.ratio_figure("lab.doorbell", [b.us(0.5) for b in bell], [s.us(0.5) for s in scan], beside=beside)


def _round(session: Session, name: str, chosen: Mapping[str, Any], seconds: float) -> Met:
    """A need that nobody meets ends the round, which then has none that count."""
    try:
        return measure(session.two_cores, chosen, seconds)
    except CorelaneError as error:
        session.note(f"{name}: {error}")
        return Met([], math.nan, math.nan)


def _raw(cores: tuple[int, int], seconds: float) -> Met:
    """The kernel's own way, from the decision to the new owner's first instruction."""
    n = max(int(seconds * 1e9 / (2 * GAP_NS)), 2 * LEAST)
    times, out = ffi.new("struct cl_handoff_times[]", n), ffi.new("struct cl_handoff_result *")
    fields = {"way": lib.CL_HANDOFF_YIELD, "decider_cpu": cores[0], "worker_cpu": cores[1]}
    fields |= {"settle_ns": GAP_NS, "rounds": n, "limit_ns": int(WAIT_S * 1e9)}
    err = ffi.new("char[256]")
    check(lib.cl_handoff_run(ffi.new("struct cl_handoff_config *", fields), times, out, err), "hand a core over", err)
    began, seen = ([getattr(one, name) for one in times[0 : out.rounds]] for name in ("began", "seen"))
    parts = {GONE: seen, SWITCH: [b - s for b, s in zip(began, seen, strict=True)]}
    return Met(began, math.nan, math.nan, parts)


def told(bell: Sequence[Met], raw: Sequence[Met], line_us: float) -> str:
    """Part by part the median of our way, and what the bound has in its place: the way of a line, and the kernel's own
    hand-over. line_us: that way."""

    def median_us(rounds: Sequence[Met], *parts: str) -> float:
        each = [[value for met in rounds for value in met.parts[part]] for part in parts]
        return percentile(sorted(sum(values) for values in zip(*each, strict=True)), 0.5) / 1e3

    rows = (
        (HEARD, median_us(bell, HEARD), line_us),
        (GONE, median_us(bell, SEEN, LEAVES), median_us(raw, GONE)),
        (SWITCH, median_us(bell, SWITCH), median_us(raw, SWITCH)),
        (BEGINS, median_us(bell, BEGINS), 0.0),
    )
    return ", ".join(f"{name} {ours:.3g} (bound {bound:.3g})" for name, ours, bound in rows)


def bounded(ours: float, raw: float) -> str:
    """What no doorbell can better. ours, raw: the figure, were a need heard after the way of a line alone, and then our
    hand-over followed, or the kernel's own."""
    return (
        f"lab.doorbell has a bound: a ring and a scan are followed by the same hand-over. It would be "
        f"{ours:.3g} here, were a need heard after the way of a cache line alone, and {raw:.3g} with the kernel's own "
        "hand-over after that"
    )


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
        answer = child.answer(2 * WAIT_S)
        took, after = time.monotonic() - since, counted(kernel)
        parts = broken_down(answer["needed"], answer["ticks"], kernel)
    decisions, rings = ((b - a) / took for a, b in zip(before, after, strict=True))
    return Met([ns_of(one) for one in answer["ticks"]], decisions, rings, parts)


def ns_of(ticks: int) -> float:
    """Of this machine's clock."""
    return float(default_clock().ticks_to_ns(ticks))


def broken_down(needed: Sequence[int], ticks: Sequence[int], kernel: Iokernel) -> dict[str, list[float]]:
    """The parts of needs, ns, of those whose moves are in the log still and have all stamps."""
    out = ffi.new("struct cl_io_move[]", lib.CL_IO_MOVES_LOG)
    n = int(lib.cl_io_moves(kernel.ptr, 0, ffi.new("uint64_t *"), out, lib.CL_IO_MOVES_LOG, ffi.new("uint64_t *")))
    found: dict[str, list[float]] = {part: [] for part in PARTS}
    for wanted, done in itertools.pairwise(entries(ffi.buffer(out), n)):
        ended = wanted.what == lib.CL_IO_LOG_WANTED and done.what == lib.CL_IO_LOG_DONE
        parts = parts_of(wanted, done) if ended and done.step == lib.CL_IO_STEP_REQUEST else None
        decided, back = (whole(stamp, done.tsc) for stamp in (done.decided, done.back))
        at = bisect.bisect_right(needed, decided) - 1
        if parts is None or at < 0 or not decided < back < needed[at] + ticks[at]:
            continue
        values = (decided - needed[at], *(parts[part] for part in PARTS[1:-1]), needed[at] + ticks[at] - back)
        for part, value in zip(PARTS, values, strict=True):
            found[part].append(ns_of(value))
    return found


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


def _needs(job: Any, needy: Any, n: int, limit_ns: int, seed: int) -> dict[str, list[int]]:
    needed, ticks = ffi.new("uint64_t[]", n), ffi.new("uint64_t[]", n)
    met = check(lib.cl_lab_needs(job.ptr, needy.ptr, seed, GAP_NS, needed, ticks, n, limit_ns), "measure needs")
    return {"needed": list(needed[0:met]), "ticks": list(ticks[0:met])}


def main(arguments: Sequence[str] | None = None) -> None:
    """For each line "N LIMIT_NS" of stdin: measure, and print {"needed": [...], "ticks": [...]}."""
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
                answer: dict[str, Any] = _needs(job, needy, n, limit_ns, seed)
            except CorelaneError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
