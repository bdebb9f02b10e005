"""The plot of `corelane bench log`."""

from __future__ import annotations

import math
from typing import Any

from ..harness.numbers import number
from ..harness.plot import Canvas
from .names import RAW

MODELLED, BATCHING, POISSON = "modelled ", "batching: ", ", Poisson: "
ADAPTIVE = ": adaptive"


def plot(document: dict[str, Any]) -> Canvas:
    """Medians of one append at a time; appends a second against writers; p99 against load, on modelled disks."""
    rows = document["arms"]
    single = [a for a in rows if isinstance(a.get("p50_us"), int | float) and a.get("writers") == 1]
    single = [a for a in single if not a.get("modelled")]
    swept = [a for a in rows if a["name"].startswith(BATCHING)]
    modelled = [a for a in rows if a.get("modelled") and "offered_rps" in a and a["name"].endswith(ADAPTIVE)]
    arrivals = [a for a in rows if POISSON in a["name"]]
    settings = document["settings"]
    title = f"log: durable appends on {settings['device']} ({settings['file_system']})"
    n = sum(int(a["n"]) for a in [*single, *swept, *modelled, *arrivals])
    panels = 1 + 2 * bool(single) + bool(arrivals)
    rows_of_panels = 1 if panels < 4 else 2
    size = (6.5 * math.ceil(panels / rows_of_panels), 10 if rows_of_panels == 1 else 15)
    canvas = Canvas(title, message=settings["message"], n=n, panels=panels, rows=rows_of_panels, size=size)
    _modelled(canvas, document, modelled, panels - 1)
    if arrivals:
        _arrivals(canvas, document, arrivals, panels - 2)
    if single:
        _single(canvas, single)
        _swept(canvas, swept)
    canvas.caption("Curves end at the last number of writers, or the last load, that was asked for.")
    if because := settings.get("stops_because", {}):
        named = sorted({one["resource"] for one in because.values()})
        canvas.caption(f"Used up there, by the disk's own account: {', '.join(named)}.")
    return canvas


def _single(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    names = [a["name"] for a in rows]
    colours = [0 if name == "log" else 6 if name in RAW else 1 for name in names]
    canvas.bars(names, [float(a["p50_us"]) for a in rows], ylabel="one at a time, p50 (us)", colours=colours)
    canvas.caption("Blue: our log. Teal: raw writes of one block. Red: other stores.")


def _swept(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    for i, name in enumerate(dict.fromkeys(a["name"] for a in rows)):
        points = [a for a in rows if a["name"] == name]
        label = name.removeprefix(BATCHING)
        x, y = [float(a["writers"]) for a in points], [float(a["per_s"]) for a in points]
        canvas.curve(x, y, label=label, colour=i, style="-" if label == "adaptive" else "--", panel=1)
    axis = canvas.axes[1]
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xlabel("writers (number)")
    axis.set_ylabel("durable appends (1/s)")


def _arrivals(canvas: Canvas, document: dict[str, Any], rows: list[dict[str, Any]], panel: int) -> None:
    """p99 of Poisson arrivals by place: of adaptive batching, and the lowest of the fixed settings at each load."""
    for i, place in enumerate(dict.fromkeys(a["name"].partition(POISSON)[0] for a in rows)):
        name = f"{place}{POISSON}adaptive"
        ours = {float(a["offered_rps"]): number(a["p99_us"]) for a in rows if a["name"] == name}
        fixed: dict[float, float] = {}
        for a in rows:
            if a["name"].startswith(f"{place}{POISSON}") and a["name"] != name:
                load = float(a["offered_rps"])
                fixed[load] = min(fixed.get(load, number(a["p99_us"])), number(a["p99_us"]))
        for label, points, style in ((f"{place}: adaptive", ours, "-"), (f"{place}: best fixed", fixed, "--")):
            loads = sorted(points)
            canvas.curve(loads, [points[x] for x in loads], label=label, colour=i, style=style, panel=panel, arm=name)
        canvas.caption(f"{name} stops: {document['settings']['stops'][name]}.")
    _loads(canvas, panel)


def _loads(canvas: Canvas, panel: int) -> None:
    axis = canvas.axes[panel]
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("Poisson arrivals (1/s)")
    axis.set_ylabel("durable after, p99 (us)")


def _modelled(canvas: Canvas, document: dict[str, Any], rows: list[dict[str, Any]], panel: int) -> None:
    """p99 of adaptive batching, and of the fixed setting that is best in it at each load."""
    for i, name in enumerate(dict.fromkeys(a["name"] for a in rows)):
        points = [a for a in rows if a["name"] == name]
        x = [float(a["offered_rps"]) for a in points]
        label = name.removeprefix(MODELLED)
        canvas.curve(x, [number(a["p99_us"]) for a in points], label=label, colour=i, panel=panel, arm=name)
        best = [number(a["best_p99_us"]) for a in points]
        canvas.curve(
            x, best, label=f"{label.removesuffix(ADAPTIVE)}: best fixed", colour=i, style="--", panel=panel, arm=name
        )
        canvas.caption(f"{name} stops: {document['settings']['stops'][name]}.")
    _loads(canvas, panel)
