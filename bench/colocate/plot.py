"""The plot of `corelane bench colocate`: what a delay target buys and costs; over loads kv's tail, and how near batch
work comes to the line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..harness.numbers import number
from ..harness.plot import Canvas
from .arms import HALF_TARGET_US, LINUX, LOW_RPS, LOW_TARGET_US, WINDOW_S
from .raw import RAW

CANARY = "the machine alone"
LOWEST = f"delay target {LOW_TARGET_US:g} us"
HALF_TARGET = f"delay target {HALF_TARGET_US:g} us"
SWEPT_TARGETS = {us: f"delay target {us:g} us" for us in (LOW_TARGET_US, 5.0, HALF_TARGET_US)}
SWEPT_RAW = {us: f"{RAW}, target {us:g} us" for us in SWEPT_TARGETS}
BOUNDED = f"{LOWEST}, moves 10 %"
DEFAULT = "the default policy"
DEDICATED = "kv alone"
SWEPT = ", load swept"
HALF = ", half of the peak"
P99 = f"kv's p99 from the intended send time,\nmedian of windows of {1e3 * WINDOW_S:g} ms (us)"
WORK = "batch work over the job alone (1)"
LINEAR = "batch work over 1 - load / peak (1)"
LINUX_IDLE = next(name for name in LINUX if name.endswith("SCHED_IDLE"))
# Of each curve over loads its colour, line and marker: targets by colour, ours solid, raw hand-overs dashed.
LOOKS = {
    **{name: (colour, "-", "o") for name, colour in zip(SWEPT_TARGETS.values(), (0, 2, 4), strict=True)},
    **{name: (colour, "--", "s") for name, colour in zip(SWEPT_RAW.values(), (0, 2, 4), strict=True)},
    BOUNDED: (3, "-", "^"),
    DEFAULT: (7, "-", "D"),
    LINUX_IDLE: (1, "-", "v"),
    DEDICATED: (5, "-", "P"),
}
TAILS = (LOWEST, HALF_TARGET, BOUNDED, DEFAULT, SWEPT_RAW[HALF_TARGET_US], LINUX_IDLE, DEDICATED)  # all are too many
POINTS = {RAW: 6} | dict(zip(LINUX, (3, 1, 5), strict=True))  # on the left, by colour

Row = dict[str, Any]


def plot(document: dict[str, Any]) -> Canvas:
    """On the left batch work against kv's p99 at the low load, our targets as one curve, Linux' policies and raw
    hand-overs as points; then p99 over loads, and batch work over what a load leaves beside what bounds it."""
    arms = document["arms"]
    alone = next(a["work_per_s"] for a in arms if a["name"] == "batch alone") or 1.0  # of a run too short for it: raw
    canvas = Canvas(
        "colocate: a batch job's work against kv's p99, one core for both",
        message=document["settings"]["message"],
        n=sum(int(a.get("sent", 0)) for a in arms),
        panels=3,
        size=(20, 11),
    )
    low = [a for a in arms if a.get("load_rps") == LOW_RPS and not a["name"].endswith(SWEPT)]
    _trade_off(canvas, document, low, alone)
    swept = {name: [a for a in arms if a["name"] == f"{name}{SWEPT}" and "offered_rps" in a] for name in LOOKS}
    _tails(canvas, {name: swept[name] for name in TAILS})
    _linearity(canvas, swept)
    fewest = min((int(a["windows"]) for a in arms if "windows" in a), default=0)
    canvas.caption(f"Left: {LOW_RPS:,.0f} requests/s, up and to the left is better, the curve ends at the last target.")
    canvas.caption(f"A point is of {fewest} windows or more, of all rounds.")
    for name, why in document["settings"]["stops"].items():
        canvas.caption(f"{name.removesuffix(SWEPT)} stops: {why}.")
    return canvas


def _finite(rows: Sequence[Row], key: str = "p99_window_us") -> list[Row]:
    return [a for a in rows if math.isfinite(number(a.get(key)))]


def _trade_off(canvas: Canvas, document: Row, rows: Sequence[Row], alone: float) -> None:
    for a in rows:
        if a["name"] != "kv alone" and a not in _finite(rows):
            canvas.caption(f"Left, not drawn: {a['name']}: p99 of the middle window is {a.get('p99_window_us')}.")
    drawn, axis = [a for a in _finite(rows) if "work_per_s" in a], canvas.axes[0]
    curve = [a for a in drawn if a["name"].startswith("delay target")]
    shares = [float(a["work_per_s"]) / alone for a in curve]
    if curve:
        canvas.curve([float(a["p99_window_us"]) for a in curve], shares, label="corelane, delay target swept")
    for share, a in sorted(zip(shares, curve, strict=True), key=lambda pair: pair[0]):
        canvas.name_point(a["name"].removeprefix("delay "), float(a["p99_window_us"]), share)
    for a in (a for a in drawn if a["name"].startswith("Linux") or a["name"] == RAW):
        x, y = [float(a["p99_window_us"])], [float(a["work_per_s"]) / alone]
        canvas.curve(x, y, label=a["name"], colour=POINTS[a["name"]], style=" ", marker="s")
    for a in _finite(rows):
        if a["name"] == "kv alone":
            at_us = float(a["p99_window_us"])
            axis.axvline(at_us, color="#999999", linestyle="--", linewidth=1.2, label="kv alone")
    floor = document["settings"].get("low_p99_us", {}).get(CANARY)
    if isinstance(floor, int | float) and floor > 0:
        axis.axvline(floor, color="#999999", linestyle=":", linewidth=1.2, label="the machine's gaps alone")
    axis.set_xscale("log")
    axis.set_xlabel(P99.replace("\n", " "))
    axis.set_ylabel(WORK)


def _tails(canvas: Canvas, swept: dict[str, list[Row]]) -> None:
    """p99 over loads, up to the one that is not carried."""
    axis = canvas.axes[1]
    for name, rows in swept.items():
        rows = sorted(rows, key=lambda a: float(a["offered_rps"]))
        kept = _finite(rows)
        if missing := [a for a in rows if a not in kept]:
            at = ", ".join(f"{float(a['offered_rps']):,.0f}" for a in missing)
            canvas.caption(f"Not drawn: {name} at {at} requests/s: p99 is {missing[0]['p99_window_us']}.")
        if kept:
            loads, p99 = ([float(a[key]) for a in kept] for key in ("offered_rps", "p99_window_us"))
            colour, style, marker = LOOKS[name]
            canvas.curve(loads, p99, label=name, colour=colour, style=style, marker=marker, panel=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("offered load (requests/s)")
    axis.set_ylabel(P99)


def _linearity(canvas: Canvas, swept: dict[str, list[Row]]) -> None:
    """Batch work over what each load leaves, and the most that a core that moves can have of it."""
    axis = canvas.axes[2]
    for name, rows in swept.items():
        colour, style, marker = LOOKS[name]
        for key, label, line, dots in (("linearity", name, style, marker), ("linearity_bound", _most(name), ":", "")):
            points = [(float(a["of_peak"]), number(a[key])) for a in rows if label and a.get(key) is not None]
            if points:
                x, y = zip(*points, strict=True)
                canvas.curve(x, y, label=label, colour=colour, style=line, marker=dots, panel=2, arm=name)
    axis.axhline(1, color="#999999", linestyle="--", linewidth=1.2, label="moves cost nothing")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("offered load over the peak (1)")
    axis.set_ylabel(LINEAR)


def _most(name: str) -> str:
    """What the bound of an arm is called; empty where another arm's is the same."""
    if name == DEFAULT:
        return "at most, the default policy"
    target = next((us for us, other in SWEPT_TARGETS.items() if other == name), None)
    return "" if target is None else f"at most, target {target:g} us"
