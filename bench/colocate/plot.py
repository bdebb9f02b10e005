"""The plot of `corelane bench colocate`: what a delay target buys and costs, and tail and work over loads."""

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
OVER_LOADS = (LOWEST, HALF_TARGET, DEDICATED, *LINUX, RAW, DEFAULT, BOUNDED, SWEPT_RAW[HALF_TARGET_US])
P99 = f"kv's p99 from the intended send time,\nmedian of windows of {1e3 * WINDOW_S:g} ms (us)"
WORK = "batch work over the job alone (1)"

Row = dict[str, Any]


def plot(document: dict[str, Any]) -> Canvas:
    """On the left batch work against kv's p99 at the low load, our targets as one curve, Linux' policies and raw
    hand-overs as points; then p99 and work over loads, half of kv's peak among them."""
    arms = document["arms"]
    alone = next(a["work_per_s"] for a in arms if a["name"] == "batch alone") or 1.0  # of a run too short for it: raw
    canvas = Canvas(
        "colocate: a batch job's work against kv's p99, one core for both",
        message=document["settings"]["message"],
        n=sum(int(a.get("sent", 0)) for a in arms),
        panels=3,
        size=(17, 10),
    )
    low = [a for a in arms if a.get("load_rps") == LOW_RPS and not a["name"].endswith(SWEPT)]
    _trade_off(canvas, document, low, alone)
    for panel, (key, label) in enumerate((("p99_window_us", P99), ("work_per_s", WORK)), 1):
        _over_loads(canvas, arms, panel, key, label, alone)
    fewest = min((int(a["windows"]) for a in arms if "windows" in a), default=0)
    canvas.caption(f"Left: {LOW_RPS:,.0f} requests/s, up and to the left is better, the curve ends at the last target.")
    canvas.caption(f"A point is of {fewest} windows or more, of all rounds.")
    stops = {name.removesuffix(SWEPT): why for name, why in document["settings"]["stops"].items()}
    for name in OVER_LOADS:
        if name in stops:
            canvas.caption(f"{name} stops: {stops[name]}.")
    if others := [name for name in stops if name not in OVER_LOADS]:
        canvas.caption(f"Over loads, in the table alone: {', '.join(others)}.")
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
        canvas.curve(x, y, label=a["name"], colour=OVER_LOADS.index(a["name"]), style=" ", marker="s")
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


def _over_loads(canvas: Canvas, arms: Sequence[Row], panel: int, key: str, label: str, alone: float) -> None:
    axis = canvas.axes[panel]
    for colour, name in enumerate(OVER_LOADS):
        rows = [a for a in arms if a["name"] in (name, f"{name}{SWEPT}", f"{name}{HALF}") and "offered_rps" in a]
        rows.sort(key=lambda a: float(a["offered_rps"]))
        kept = _finite(rows, key)
        missing = [a for a in rows if a not in kept and (key != "work_per_s" or a.get(key) is not None)]
        if missing:
            at = ", ".join(f"{float(a['offered_rps']):,.0f}" for a in missing)
            what = f"{'work' if key == 'work_per_s' else 'p99'} is {missing[0][key]}"
            canvas.caption(f"Not drawn: {name} at {at} requests/s: {what}.")
        values = [float(a[key]) / (alone if key == "work_per_s" else 1) for a in kept]
        if kept:
            loads = [float(a["offered_rps"]) for a in kept]
            look = {"style": " ", "marker": "s"} if name == RAW else {}  # two points, of two targets
            canvas.curve(loads, values, label=name, colour=colour, panel=panel, **look)
    axis.set_xscale("log")
    if key != "work_per_s":
        axis.set_yscale("log")
    axis.set_xlabel("offered load (requests/s)")
    axis.set_ylabel(label)
