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
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from ...iokernel import AppConfig
from ..harness import rig, usage
from ..harness.numbers import Ratio
from ..harness.openloop import Point
from ..harness.plot import Canvas
from ..harness.session import Session
from .flooder import Flooder
from .victim import ALONE, CANARY_S, bars, compare, half_load, place, record

SUMMARY = "an application's p99 at half load beside a neighbour that floods, over one that is as busy and sends nothing"
FIGURES = ("isolation.flood_over_silent",)
OVER_ALONE = "victim_p99_ratio"  # flood over alone: a value beside the figure, without a goal

SLICE_S = 0.07
SLICE_COSTS_S = 0.1  # with what starting and ending it take
SMALL = "beside small frames"
FLOODS = {  # arm: destination, bytes of a frame
    SMALL: ("uplink", 60),
    "beside full frames": ("uplink", 1514),
    "beside dropped frames": ("self", 60),
}
SILENT = "beside a busy silent one"


def run(session: Session) -> None:
    """Find the victim's load, then measure the arms in turns."""
    cores, apart = place(session, "neighbour", SLICE_S)
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(rig.iokernel(["echo"], cores, apps={"flooder": AppConfig(ip="10.77.0.3")}))
        assert made.iokernel is not None  # rig.iokernel gives one
        flooder = Flooder(made.iokernel.socket_path, "flooder", apart)
        stack.callback(flooder.close)
        rate, why = half_load(session, made.load.measure, seconds=0.25 * session.seconds, explain=made.load.explain)
        if why:
            session.figure(FIGURES[0], None, reason=why)
            session.skip("alone, and beside floods", why)
            return
        bodies = {ALONE: partial(made.load.measure, rate, SLICE_S)}
        for name, (kind, size) in FLOODS.items():
            bodies[name] = partial(beside, made, flooder, rate, kind, size)
        point = beside(made, flooder, rate, *FLOODS[SMALL])
        bodies[SILENT] = partial(beside, made, flooder, rate, "silent", 60, int(point.extra["neighbour_fill"]))
        rounds = max(3, int(0.7 * session.seconds / (SLICE_COSTS_S * len(bodies) + CANARY_S)))
        got = session.interleave(bodies, rounds, canary_s=CANARY_S)
    for name, points in got.items():
        record(session, name, points)
    judge(session, got)


def judge(session: Session, got: dict[str, list[Point]]) -> None:
    """The figure: the median of neighbouring slices' ratios, from the flood that is worst for the victim."""
    found: dict[str, dict[str, Ratio]] = {SILENT: {}, ALONE: {}}
    for name in got:
        for other in (ALONE, SILENT):
            if other not in got or name in (ALONE, other):
                continue
            ratio = compare(session, got, name, other)
            if ratio is not None and name in FLOODS:
                found[other][name] = ratio
    over_alone = {OVER_ALONE: max(ratio.median for ratio in found[ALONE].values())} if found[ALONE] else {}
    if not found[SILENT]:
        why = f"{SILENT}, more than half of the slices lost requests: the machine stood still"
        session.figure(FIGURES[0], None, reason=why, beside=over_alone)
        return
    worst = max(found[SILENT], key=lambda name: found[SILENT][name].median)
    session.settings["figure_from"] = worst
    session.figure(FIGURES[0], found[SILENT][worst].median, runs=found[SILENT][worst].pairs, beside=over_alone)


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
    bars(canvas, document["arms"])
    for arm in document["arms"]:
        if "neighbour_fps" in arm:
            share = 100 * float(arm["neighbour_core_share"])
            canvas.caption(
                f"{arm['name']}: {arm['neighbour_fps']:,.0f} frames/s, {share:.2g} % of a core to send them."
            )
    return canvas
