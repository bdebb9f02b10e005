"""Isolation: an application's latency at half load, beside a neighbour that sends as fast as it can, and beside one
that is as busy and sends nothing.

The victim is the echo application on the worker core, loaded through the iokernel's uplink at half of its capacity: the
highest load that it carries alone with a p99 within a limit, which is what capacity means to who has to keep latencies.
The neighbour keeps its transmit ring full all the time, with small frames and with full ones out of the uplink, and
with frames to itself, which it never reads, so that they end in drops. It is attached in every arm; alone means that it
is silent.

A virtual machine is stopped for a millisecond some times a second, and what queues meanwhile decides the p99 of the
slice in which it happens. So the slices are short, most of them are not hit, and the figure is the median of the
ratios of neighbouring slices.

The neighbour sleeps, and fills its ring every half millisecond. With a third core it runs there. With two it shares the
victim's core, and any neighbour takes time from the victim there. So the figure compares the flood with a neighbour
that takes as much time and sends nothing: what is left is what sending does. The flood over alone, victim_p99_ratio, is
printed beside it and has no goal.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from functools import partial
from typing import Any

from ...iokernel import AppConfig
from ..harness import rig, usage
from ..harness.numbers import Ratio, pairwise
from ..harness.openloop import Measure, Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from .flooder import Flooder

SUMMARY = "an application's p99 at half load beside a neighbour that floods, over one that is as busy and sends nothing"
FIGURES = ("isolation.flood_over_silent",)
OVER_ALONE = "victim_p99_ratio"  # flood over alone: a value beside the figure, without a goal

SLICE_S = 0.07
SLICE_COSTS_S = 0.1  # with what starting and ending it take
CANARY_S = 0.03
FROM_RPS, STEP, TRIES, FAILURES = 250_000.0, 1.5, 4, 2
P99_LIMIT_US, OVER_UNLOADED, UNLOADED_MOST_US = 50.0, 2.0, 200.0
SMALL = "beside small frames"
FLOODS = {  # arm: destination, bytes of a frame
    SMALL: ("uplink", 60),
    "beside full frames": ("uplink", 1514),
    "beside dropped frames": ("self", 60),
}
SILENT = "beside a busy silent one"


def run(session: Session) -> None:
    """Find the victim's load, then measure the arms in turns."""
    loop, worker = session.two_cores
    apart = session.cores[2] if len(session.cores) > 2 else worker
    session.settings |= {
        "message": "one request of 22 bytes (a frame of one cache line) and its reply",
        "checksums": rig.CHECKSUMS,
        "neighbour_cpu": apart,
        "neighbour_shares_the_victims_core": apart == worker,
        "slice_s": SLICE_S,
    }
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(rig.iokernel(["echo"], (loop, worker), apps={"flooder": AppConfig(ip="10.77.0.3")}))
        assert made.iokernel is not None  # rig.iokernel gives one
        flooder = Flooder(made.iokernel.socket_path, "flooder", apart)
        stack.callback(flooder.close)
        most, limit_us = capacity(made.load.measure, seconds=0.25 * session.seconds)
        if most == 0.0:
            why = f"alone, {FROM_RPS:,.0f} requests/s had no p99 within {limit_us:.3g} us: the cores are not ours"
            session.figure(FIGURES[0], None, reason=why)
            session.skip("alone, and beside floods", why)
            return
        rate = most / 2
        session.settings |= {"victim_capacity_rps": most, "victim_p99_limit_us": limit_us, "victim_rps": rate}
        bodies = {"alone": partial(made.load.measure, rate, SLICE_S)}
        for name, (kind, size) in FLOODS.items():
            bodies[name] = partial(beside, made, flooder, rate, kind, size)
        point = beside(made, flooder, rate, *FLOODS[SMALL])
        bodies[SILENT] = partial(beside, made, flooder, rate, "silent", 60, int(point.extra["neighbour_fill"]))
        rounds = max(3, int(0.7 * session.seconds / (SLICE_COSTS_S * len(bodies) + CANARY_S)))
        got = session.interleave(bodies, rounds, canary_s=CANARY_S)
    for name, points in got.items():
        session.point(name, middle(points))["p99_us_median_of_slices"] = statistics.median(p.p99_us for p in points)
    judge(session, got)


def capacity(measure: Measure, *, seconds: float) -> tuple[float, float]:
    """The highest load carried with a p99 within a limit, and the limit in us; 0 if there is none. Loads rise by STEP.

    The limit is P99_LIMIT_US, or OVER_UNLOADED times what the first and least load shows, if that is more (and that is
    at most UNLOADED_MOST_US, else the machine is busy with other things). A load has TRIES tries, since the machine may
    stop in some; FAILURES loads in a row end the search, and so does the time.
    """
    end = time.monotonic() + seconds
    most, failed, rate, limit_us = 0.0, 0, FROM_RPS, P99_LIMIT_US
    while failed < FAILURES and (most == 0.0 or time.monotonic() < end):
        tries: list[Point] = []
        while len(tries) < TRIES and not any(p.carried and p.p99_us <= limit_us for p in tries):
            tries.append(measure(rate, SLICE_S))
        best_us = min(p.p99_us for p in tries)
        if rate == FROM_RPS and best_us <= UNLOADED_MOST_US:
            limit_us = max(limit_us, OVER_UNLOADED * best_us)
        if any(p.carried and p.p99_us <= limit_us for p in tries):
            most, failed = rate, 0
        else:
            failed += 1
        rate *= STEP
    return most, limit_us


def judge(session: Session, got: dict[str, list[Point]]) -> None:
    """The figure: the median of neighbouring slices' ratios, from the flood that is worst for the victim.

    A slice that lost requests has an infinite p99: beside the flood it counts as such. Where the slice below the line
    has one (silent, or alone), the machine stood still, and the pair says nothing.
    """
    found: dict[str, dict[str, Ratio]] = {SILENT: {}, "alone": {}}
    for name in got:
        for other in ("alone", SILENT):
            if name == other or other not in got or name == "alone":
                continue
            pairs = [(p.p99_us, q.p99_us) for p, q in zip(got[name], got[other], strict=True)]
            kept = [(p, q) for p, q in pairs if math.isfinite(q)]
            if 2 * len(kept) < len(pairs):
                why = (
                    f"p99 is infinite (requests unanswered) in {len(pairs) - len(kept)} of {len(pairs)} slices, {other}"
                )
                session.note(f"p99 {name} over {other}: {why}")
                continue
            ratio = pairwise([p for p, _ in kept], [q for _, q in kept])
            left_out = f"; {len(pairs) - len(kept)} of {len(pairs)} pairs left out" if len(kept) < len(pairs) else ""
            session.note(f"p99 {name} over {other}: {quartiles(ratio)}{left_out}")
            session.settings.setdefault("p99_over", {})[f"{name} over {other}"] = ratio.median
            if name in FLOODS:
                found[other][name] = ratio
    over_alone = {OVER_ALONE: max(ratio.median for ratio in found["alone"].values())} if found["alone"] else {}
    if not found[SILENT]:
        why = f"{SILENT}, more than half of the slices lost requests: the machine stood still"
        session.figure(FIGURES[0], None, reason=why, beside=over_alone)
        return
    worst = max(found[SILENT], key=lambda name: found[SILENT][name].median)
    session.settings["figure_from"] = worst
    session.figure(FIGURES[0], found[SILENT][worst].median, runs=found[SILENT][worst].pairs, beside=over_alone)


def quartiles(ratio: Ratio) -> str:
    """Median and quartiles: of many short slices the extremes are the machine's."""
    pairs = sorted(ratio.pairs)
    return f"{ratio.median:.3g} (quartiles {pairs[len(pairs) // 4]:.3g} .. {pairs[3 * len(pairs) // 4]:.3g})"


def beside(made: rig.Rig, flooder: Flooder, rate: float, kind: str, size: int, frames: int = 1) -> Point:
    """One slice of the victim while the neighbour floods, with what the flood was. frames: see Flooder.start."""
    assert made.iokernel is not None
    before, used = _neighbour(made), usage.of_process(flooder.pid)
    flooder.start(kind, size, SLICE_S, made.iokernel.stats()["uplinks"][0]["mac"], frames)
    point = made.load.measure(rate, SLICE_S)
    result = flooder.wait(SLICE_S + 10)
    after, cost = _neighbour(made), usage.of_process(flooder.pid) - used
    point.extra |= {
        "neighbour_fps": (after["tx_taken"] - before["tx_taken"]) / SLICE_S,
        "neighbour_rounds_cut_short": after["backlogged"] - before["backlogged"],
        "neighbour_core_share": cost.busy_s / SLICE_S,
        "neighbour_ring_ran_empty": result["empty"],
        "neighbour_fill": result["sent"] / max(result["fills"], 1),
    }
    return point


def _neighbour(made: rig.Rig) -> dict[str, Any]:
    assert made.iokernel is not None
    return next(a for a in made.iokernel.stats()["apps"] if a["name"] == "flooder")


def plot(document: dict[str, Any]) -> Canvas:
    """The p99 of each arm, or what there is in its place if that is infinite."""
    canvas = Canvas(
        "isolation: a victim at half load beside a flooding neighbour",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in document["arms"]),
    )
    arms = document["arms"]
    finite = [p for p in ("p99_us", "p90_us", "p50_us") if all(isinstance(a[p], int | float) for a in arms)]
    key = finite[0] if finite else "achieved_rps"
    label = f"{key.removesuffix('_us')} (us)" if finite else "answered (requests/s)"
    canvas.bars([str(a["name"]) for a in arms], [float(a[key]) for a in arms], ylabel=label)
    if key != "p99_us":
        canvas.caption("No p99: requests stayed unanswered in some arm.")
    for arm in document["arms"]:
        if "neighbour_fps" in arm:
            share = 100 * float(arm["neighbour_core_share"])
            canvas.caption(
                f"{arm['name']}: {arm['neighbour_fps']:,.0f} frames/s, {share:.2g} % of a core to send them."
            )
    return canvas
