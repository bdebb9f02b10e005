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
full ones the second.

Each flood has a silent one of its own, which takes as much time (`Both`).

An arm has turns in pairs with the silent one that it is compared with, until it is known on which side of the goal
the ratio lies (harness/pairs). The figure is the largest ratio.

Beside each figure stands what bounds it: how much the victim carries beside that flood, and what the machine's pauses
make of a p99 where so much less is left to work off what queued up in them (share.py). The same ratio at a quarter of
the capacity, where there is room, stands beside the first. So does that of the silent neighbour to itself: it has two
turns in a round, and no figure is known better than that ratio, in the same run, is known to be 1.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...iokernel import AppConfig
from ..harness import rig, usage
from ..harness.openloop import Point
from ..harness.pairs import SHOWN, SURE, Compared, Rounds, Turn, judge, said, sentence, take
from ..harness.plot import Canvas
from ..harness.session import Session
from . import share
from .flooder import Flooder
from .victim import ALONE, STEP, bars, half_load, place, record

SUMMARY = "an application's p99 at half load beside a neighbour that floods, over one that is as busy and sends nothing"
FIGURES = ("isolation.flood_over_silent", "isolation.two_over_silent", "isolation.limited_over_silent")
OVER_ALONE = "victim_p99_ratio"  # flood over alone: a value beside the figure, without a goal

SLICE_S, WINDOW_S = 0.1, 0.0025  # the host's gaps are milliseconds long, some ten a second: most windows have none
FRAMES_PER_S, BYTES_PER_S = 50_000, 10_000_000  # of the limited one
NEIGHBOURS = {
    "flooder": AppConfig(ip="10.77.0.3"),
    "second": AppConfig(ip="10.77.0.4"),
    "limited": AppConfig(ip="10.77.0.5", rate_frames_per_s=FRAMES_PER_S, rate_bytes_per_s=BYTES_PER_S),
}
SLOTS = {"flooder": 65536, "second": 65536, "limited": 512}  # of rings; what waits is sent at the end of a slice
SMALL, TWO = "beside small frames", "beside small frames of two"
LIMITED, LIMITED_FULL = "beside limited small frames", "beside limited full frames"
SILENT, QUARTER, AGAIN = ", silent", ", a quarter of the capacity", ", again"  # behind an arm's name
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
FIGURE_OF = {TWO: FIGURES[1], LIMITED: FIGURES[2], LIMITED_FULL: FIGURES[2]}  # else the first
ITSELF = "the silent one again over itself"
BUSY = "a silent one's core time over its flood's, at most"
ALSO = dict.fromkeys(FLOODS, (ALONE,)) | {  # have turns as long as that flood has
    SMALL: (ALONE, SMALL + SILENT + AGAIN, SMALL + QUARTER, SMALL + QUARTER + SILENT),
}
CALIBRATES, SILENT_MOST = 4, 65536


def run(session: Session) -> None:
    """Find the victim's load, then measure the arms in turns."""
    end = time.monotonic() + session.seconds
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
        beside_one = {
            name: Both(partial(beside, made, [flooders[one] for one in WHO.get(name, ONE)]), kind, size)
            for name, (kind, size) in FLOODS.items()
        }
        slices: dict[str, share.Slice] = {ALONE: lambda rps: made.load.measure(rps, SLICE_S, WINDOW_S)}
        for name, both in beside_one.items():
            slices |= {name: both.flood, name + SILENT: both.silent}
        less = Both(beside_one[SMALL].beside, *FLOODS[SMALL])
        for both, rps in (*((one, rate) for one in beside_one.values()), (less, rate / 2)):
            for _ in range(CALIBRATES):
                both.flood(rps)
                both.silent(rps)
        shares = share.measure(session, slices, STEP * session.settings["victim_capacity_rps"])
        done = take(
            session, bodies_of(slices, less, rate), comparisons(), end - time.monotonic(), ALSO, there_and_back=True
        )
    add_rows(session, done)
    judge_all(session, done, shares)


class Both:
    """A flood, and a silent neighbour that takes as much time of its core. That one writes more frames: a flood's cost
    it more each, since the loop has had their lines. After each of its slices it is set how many, by what it was off
    by, and by twice as many at most: CPU time grows no faster than frames do, so it does not swing."""

    def __init__(self, beside: Callable[[str, int, int, float], Point], kind: str, size: int) -> None:
        """beside: a slice beside frames of a kind and a size, so many at a fill if they are silent; at a rate."""
        self.beside = beside
        self._kind, self._size = kind, size
        self.frames = 0  # not known before the first flood
        self._wanted = 0.0

    def flood(self, rate: float) -> Point:
        point = self.beside(self._kind, self._size, 1, rate)
        self._wanted = point.extra["neighbour_core_share"]
        self.frames = self.frames or max(1, round(point.extra["neighbour_fill"]))
        return point

    def silent(self, rate: float) -> Point:
        point = self.beside("silent", self._size, self.frames, rate)
        has = point.extra["neighbour_core_share"]
        if has > 0:
            by = min(max(self._wanted / has, 0.5), 2.0)
            self.frames = min(max(1, round(self.frames * by)), SILENT_MOST)
        return point


def bodies_of(slices: Mapping[str, share.Slice], less: Both, rate: float) -> dict[str, Callable[[], Turn]]:
    """The arms, each flood next to its silent one. less: of the arms at a quarter of the capacity."""

    def turn(one: share.Slice, rps: float) -> Turn:
        return Turn(one(rps))

    pairs = [name for flood in FLOODS for name in (flood, flood + SILENT)]
    bodies: dict[str, Callable[[], Turn]] = {name: partial(turn, slices[name], rate) for name in (*pairs, ALONE)}
    bodies |= {SMALL + SILENT + AGAIN: bodies[SMALL + SILENT]}
    of_less = {SMALL + QUARTER: less.flood, SMALL + QUARTER + SILENT: less.silent}
    return bodies | {name: partial(turn, one, rate / 2) for name, one in of_less.items()}


def comparisons() -> list[Compared]:
    """Of each flood, for its figure."""
    figures = {name: FIGURE_OF.get(name, FIGURES[0]) for name in FLOODS}
    many = list(figures.values())
    return [Compared(name, name + SILENT, figure, many.count(figure)) for name, figure in figures.items()]


def add_rows(session: Session, done: Rounds[Turn]) -> None:
    """A row for each arm, with what came of its comparison."""
    for name, turns in done.turns.items():
        if turns:
            row = record(session, name, [turn.point for turn in turns])
            if name in done.compared:
                row |= said(done.compared[name])


def judge_all(session: Session, done: Rounds[Turn], shares: Mapping[str, float] | None = None) -> None:
    """The figures. shares: what the victim carries in each arm, requests/s, if that was measured."""
    session.settings["rounds"] = {"counted": done.rounds, "loud": done.loud}
    for figure in FIGURES:
        compared = {name: one for name, one in done.compared.items() if one.figure == figure}
        ratios = {name: one.ratio for name, one in compared.items() if one.ratio is not None}
        aside = beside_figure(done, list(compared))
        if not ratios:
            why = "beside silent ones each of the turns lost requests: the machine stood still"
            session.figure(figure, None, reason=why, beside=aside)
            continue
        for name in ratios:
            session.note(sentence(compared[name]))
        worst = max(ratios, key=lambda name: ratios[name].value)
        aside[BUSY] = max(core_time(done.turns[name + SILENT]) / core_time(done.turns[name]) for name in ratios)
        aside |= _bounds(session, done, shares or {}, worst)
        session.settings.setdefault("figures_from", {})[figure] = judge(session, figure, compared, aside)


def core_time(turns: Sequence[Turn]) -> float:
    """Of a neighbour, on average, of a core."""
    return statistics.fmean(turn.point.extra["neighbour_core_share"] for turn in turns)


def beside_figure(done: Rounds[Turn], floods: Sequence[str]) -> dict[str, float]:
    """Ratios that have no goal."""
    found = {}
    over_alone = [ratio.value for name in floods if (ratio := done.between(name, ALONE))]
    if over_alone:
        found[OVER_ALONE] = max(over_alone)
    for name in floods:
        if quarter := done.between(name + QUARTER, name + QUARTER + SILENT):
            found[QUARTER.strip(", ")] = quarter.value
        if itself := done.between(name + SILENT + AGAIN, name + SILENT):
            found |= {ITSELF: itself.value, f"{ITSELF}, {SURE} from": itself.low(SHOWN)}
            found[f"{ITSELF}, {SURE} to"] = itself.high(SHOWN)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _bounds(session: Session, done: Rounds[Turn], shares: Mapping[str, float], flood: str) -> dict[str, float]:
    """What bounds a figure, to stand beside it."""
    points = [turn.point for turn in done.turns[flood + SILENT]]
    p50_us, rate = statistics.median(point.p50_us for point in points), points[0].offered_rps
    found = share.beside(session.canary.by_cpu.values(), shares, rate, flood, flood + SILENT, ALONE, p50_us)
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
    point = made.load.measure(rate, SLICE_S, WINDOW_S)
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
