"""Isolation: an application's latency at half load, beside a neighbour that sends as fast as it can, and beside one
that is as busy and sends nothing.

The victim is the echo application on the worker core, loaded through the iokernel's uplink at half of its capacity
(victim.py). The neighbour keeps its transmit ring full all the time, with small frames and with full ones out of the
uplink, and with frames to itself, which it never reads, so that they end in drops. It is attached in every arm; alone
means that it is silent.

The neighbour sleeps, and fills its ring every half millisecond. With a third core it runs there. With two it shares the
victim's core, and any neighbour takes time from the victim there. So the figure compares the flood with a neighbour
that takes as much time and sends nothing: what is left is what sending does. The flood over alone, victim_p99_ratio, is
printed beside it and has no goal.

Beside that one neighbour there are two that flood at once, over two that are as busy and silent; and one whose frames
and bytes a second the iokernel limits (`rate_frames_per_s`, `rate_bytes_per_s`): small frames meet the first limit,
full ones the second. Its silent counterpart writes as many frames as the limits let through.

Beside each figure stands what bounds it: how much the victim carries beside that flood, and what the machine's pauses
make of a p99 where so much less is left to work off what queued up in them (share.py). The same ratio at a quarter of
the capacity, where there is room, stands beside the first.

Each silent neighbour has two turns in a round. Its second over its first is what the same ratio is of what is the same
(an A/A test): no figure is known better than that one, in the same run, is known to be 1.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ...iokernel import AppConfig
from ..harness import rig, usage
from ..harness.goals import GOALS
from ..harness.numbers import Ratio, median_interval
from ..harness.openloop import Point
from ..harness.plot import Canvas
from ..harness.session import Session
from . import share
from .flooder import Flooder
from .victim import ALONE, CANARY_S, STEP, bars, compare, half_load, place, record

SUMMARY = "an application's p99 at half load beside a neighbour that floods, over one that is as busy and sends nothing"
FIGURES = ("isolation.flood_over_silent", "isolation.two_over_silent", "isolation.limited_over_silent")
OVER_ALONE = "victim_p99_ratio"  # flood over alone: a value beside the figure, without a goal

SLICE_S = 0.03  # the host's gaps are milliseconds long, some ten a second: most slices have none
ROUNDS_LEAST = 3
SLICE_COSTS_S = 0.06  # with what starting and ending it take
FRAMES_PER_S, BYTES_PER_S = 50_000, 10_000_000  # of the limited one
NEIGHBOURS = {
    "flooder": AppConfig(ip="10.77.0.3"),
    "second": AppConfig(ip="10.77.0.4"),
    "limited": AppConfig(ip="10.77.0.5", rate_frames_per_s=FRAMES_PER_S, rate_bytes_per_s=BYTES_PER_S),
}
SLOTS = {"flooder": 65536, "second": 65536, "limited": 512}  # of rings; what waits is sent at the end of a slice
SMALL, SILENT = "beside small frames", "beside a busy silent one"
QUARTER = ", a quarter of the capacity"
TWO, TWO_SILENT = "beside small frames of two", "beside two busy silent ones"
LIMITED, LIMITED_FULL = "beside limited small frames", "beside limited full frames"
LIMITED_SILENT = "beside a silent one as busy as the limited"
FLOODS = {  # arm: destination, bytes of a frame
    SMALL: ("uplink", 60),
    "beside full frames": ("uplink", 1514),
    "beside dropped frames": ("self", 60),
    TWO: ("uplink", 60),
    LIMITED: ("uplink", 60),
    LIMITED_FULL: ("uplink", 1514),
}
WHO = {TWO: ("flooder", "second"), LIMITED: ("limited",), LIMITED_FULL: ("limited",)}  # else ONE
ONE = ("flooder",)
OVER = {TWO: TWO_SILENT, LIMITED: LIMITED_SILENT, LIMITED_FULL: LIMITED_SILENT}  # else SILENT
FIGURE_OF = dict(zip((SILENT, TWO_SILENT, LIMITED_SILENT), FIGURES, strict=True))
AS_BUSY_AS = {SILENT: SMALL, TWO_SILENT: TWO, LIMITED_SILENT: LIMITED}
AGAIN = ", again"
ITSELF = "the silent one again over itself"


def run(session: Session) -> None:
    """Find the victim's load, then measure the arms in turns."""
    cores, apart = place(session, "neighbour", SLICE_S)
    session.settings |= {"limited_frames_per_s": FRAMES_PER_S, "limited_bytes_per_s": BYTES_PER_S}
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(rig.iokernel(["echo"], cores, apps=NEIGHBOURS))
        assert made.iokernel is not None  # rig.iokernel gives one
        path = made.iokernel.socket_path
        flooders = {name: Flooder(path, name, apart, slots) for name, slots in SLOTS.items()}
        for flooder in flooders.values():
            stack.callback(flooder.close)
        rate, why = half_load(session, made.load.measure, seconds=0.25 * session.seconds, explain=made.load.explain)
        if why:
            for figure in FIGURES:
                session.figure(figure, None, reason=why)
            session.skip("alone, and beside floods", why)
            return
        slices: dict[str, share.Slice] = {ALONE: lambda rps: made.load.measure(rps, SLICE_S)}
        for name, (kind, size) in FLOODS.items():
            who = [flooders[one] for one in WHO.get(name, ONE)]
            slices[name] = partial(beside, made, who, kind, size, 1)
        for silent, flood in AS_BUSY_AS.items():
            fill = round(slices[flood](rate).extra["neighbour_fill"])
            who = [flooders[one] for one in WHO.get(flood, ONE)]
            slices[silent] = partial(beside, made, who, "silent", 60, fill)
        shares = share.measure(session, slices, STEP * session.settings["victim_capacity_rps"])
        bodies = {name: partial(one, rate) for name, one in slices.items()}
        bodies |= {name + QUARTER: partial(slices[name], rate / 2) for name in (SMALL, SILENT)}
        bodies |= {silent + AGAIN: bodies[silent] for silent in FIGURE_OF}
        rounds = max(ROUNDS_LEAST, int(0.7 * session.seconds / (SLICE_COSTS_S * len(bodies) + CANARY_S)))
        got = session.interleave(bodies, rounds, canary_s=CANARY_S)
    for name, points in got.items():
        record(session, name, points)
    judge(session, got, shares)


def judge(session: Session, got: Mapping[str, Sequence[Point]], shares: Mapping[str, float] | None = None) -> None:
    """The figures: each the median of neighbouring slices' ratios, from the flood that is worst for the victim.

    shares: what the victim carries in each arm, requests/s, if that was measured.
    """
    over_alone: dict[str, float] = {}
    over_silent: dict[str, dict[str, Ratio]] = {silent: {} for silent in FIGURE_OF}
    for name in FLOODS:
        silent = OVER.get(name, SILENT)
        if name not in got:
            continue
        if (ratio := compare(session, got, name, ALONE)) is not None:
            over_alone[name] = ratio.median
        if silent in got and (ratio := compare(session, got, name, silent)) is not None:
            over_silent[silent][name] = ratio
    for silent in FIGURE_OF:
        if silent in got:
            compare(session, got, silent, ALONE)
    for silent, figure in FIGURE_OF.items():
        if silent not in got:
            continue
        floods = [name for name in over_alone if OVER.get(name, SILENT) == silent]
        aside = {OVER_ALONE: max(over_alone[name] for name in floods)} if floods else {}
        if silent == SILENT and SMALL + QUARTER in got:
            quarter = compare(session, got, SMALL + QUARTER, SILENT + QUARTER)
            aside |= {QUARTER.strip(", "): quarter.median} if quarter else {}
        if silent + AGAIN in got and (itself := compare(session, got, silent + AGAIN, silent)) is not None:
            aside[ITSELF] = itself.median
            if interval := median_interval(itself.pairs):
                aside |= zip((f"{ITSELF}, 95 % from", f"{ITSELF}, 95 % to"), interval, strict=True)
        found = over_silent[silent]
        if not found:
            why = f"{silent}, more than half of the slices lost requests: the machine stood still"
            session.figure(figure, None, reason=why, beside=aside)
            continue
        worst = max(found, key=lambda name: found[name].median)
        session.settings.setdefault("figures_from", {})[figure] = worst
        aside |= _bounds(session, got, shares or {}, worst, silent)
        session.figure(
            figure, found[worst].median, runs=found[worst].pairs, undecided=_doubt(figure, found), beside=aside
        )


def _doubt(figure: str, found: Mapping[str, Ratio]) -> str:
    """Why a figure is neither met nor missed, if so. It is missed if the median of one flood is known to be above the
    goal, and met if those of all are known not to be."""
    goal, spans = GOALS[figure].goal, []
    assert goal is not None
    for name, ratio in found.items():
        low, high = median_interval(ratio.pairs) or (0.0, math.inf)
        if low > goal:
            return ""
        if high > goal:
            spans.append(f"{name}: {low:.3g} to {high:.3g} with 95 %")
    told = f"not known on which side of the goal it lies: {', '.join(spans)}; measure for longer (--seconds)"
    return told if spans else ""


def _bounds(
    session: Session, got: Mapping[str, Sequence[Point]], shares: Mapping[str, float], flood: str, silent: str
) -> dict[str, float]:
    """What bounds a figure, to stand beside it."""
    p50_us, rate = statistics.median(p.p50_us for p in got[silent]), got[silent][0].offered_rps
    found = share.beside(session.canary.by_cpu.values(), shares, rate, flood, silent, ALONE, p50_us)
    if found.get(share.PAUSES) == math.inf:
        session.note(f"{flood}: the victim's {rate:,.0f} requests/s are more than it can have, {shares[flood]:,.0f}")
    return {name: value for name, value in found.items() if math.isfinite(value)}


def beside(made: rig.Rig, flooders: Sequence[Flooder], kind: str, size: int, frames: int, rate: float) -> Point:
    """One slice of the victim while the neighbours flood, with what the flood was, all of them together. frames: see
    Flooder.start. rate: of the victim."""
    assert made.iokernel is not None
    before, used = _neighbours(made, flooders), [usage.of_process(flooder.pid) for flooder in flooders]
    uplink = made.iokernel.stats()["uplinks"][0]["mac"]
    for flooder in flooders:
        flooder.start(kind, size, SLICE_S, uplink, frames)
    point = made.load.measure(rate, SLICE_S)
    results = [flooder.wait(SLICE_S + 10) for flooder in flooders]
    after = _neighbours(made, flooders)
    busy_s = sum((usage.of_process(f.pid) - then).busy_s for f, then in zip(flooders, used, strict=True))
    point.extra |= {
        "neighbour_fps": (after["tx_taken"] - before["tx_taken"]) / SLICE_S,
        "neighbour_rounds_cut_short": after["backlogged"] - before["backlogged"],
        "neighbour_core_share": busy_s / SLICE_S,
        "neighbour_ring_ran_empty": sum(result["empty"] for result in results),
        "neighbour_fill": sum(result["sent"] for result in results) / max(sum(r["fills"] for r in results), 1),
    }
    return point


def _neighbours(made: rig.Rig, flooders: Sequence[Flooder]) -> dict[str, int]:
    assert made.iokernel is not None
    names = {flooder.name for flooder in flooders}
    rows = [app for app in made.iokernel.stats()["apps"] if app["name"] in names]
    return {key: sum(int(row[key]) for row in rows) for key in ("tx_taken", "backlogged")}


def plot(document: dict[str, Any]) -> Canvas:
    """The p99 of each arm."""
    canvas = Canvas(
        "isolation: a victim at half load beside a flooding neighbour",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in document["arms"]),
    )
    arms = [arm for arm in document["arms"] if "p99_us_median_of_slices" in arm]
    bars(canvas, arms, [1 if a.get("neighbour_fps") else 0 if a["name"] == ALONE else 5 for a in arms])
    canvas.caption("Red: neighbours that send. Grey: silent ones, which are as busy.")
    for arm in arms:
        if "neighbour_fps" in arm:
            share = 100 * float(arm["neighbour_core_share"])
            canvas.caption(f"{arm['name']}: {arm['neighbour_fps']:,.0f} frames/s, {share:.2g} % of a core.")
    return canvas
