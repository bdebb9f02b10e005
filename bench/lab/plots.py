"""The plot of the laboratory: how long jobs take, what cores do meanwhile, and what becomes of both on more cores."""

from __future__ import annotations

import math
from typing import Any

from ..harness.plot import Canvas
from .measures import PARTS

PERCENTILES, SIDES = (50, 99), ("box", "model")


def draw(document: dict[str, Any]) -> Canvas:
    """From the left, above: completion times on the most cores, and cores at work and jobs waiting over time there;
    below, against cores: the mean completion, its tail over what jobs take alone, fairness or deadlines kept."""
    rows = [row for row in document["arms"] if "quantiles_us" in row]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    most = max(int(row["cores"]) for row in rows)
    asked = any(row.get("deadlines_kept") is not None for row in rows)
    several = len({row["cores"] for row in rows}) > 1
    canvas = Canvas(
        "lab: policies for jobs, simulated",
        message=document["settings"]["message"],
        n=int(sum(row["jobs"] * row["seeds"] for row in rows)),
        panels=6 if several else 3,
        rows=2 if several else 1,
        size=(20.0, 13.0) if several else (20.0, 7.5),
    )
    for i, name in enumerate(policies):
        mine = sorted((row for row in rows if row["policy"] == name), key=lambda row: int(row["cores"]))
        last = [row for row in mine if row["cores"] == most]
        for row in last:
            canvas.curve(row["quantiles_us"], [100 * p for p in PARTS], label=name, colour=i, marker="")
            at = [(k + 0.5) * row["bucket_us"][0] / 1e3 for k in range(len(row["at_work"]))]
            canvas.curve(at, [100 * part for part in row["at_work"]], label=name, colour=i, marker="", panel=1)
            canvas.curve(at, row["waiting"], label=name, colour=i, marker="", panel=2)
        if several:
            _against_cores(canvas, mine, "mean_completion_us", name, i, 3)
            _against_cores(canvas, mine, "p99_slowdown", name, i, 4)
            _against_cores(canvas, mine, "deadlines_kept" if asked else "jain_kinds", name, i, 5)
    _label(canvas, most, asked, several)
    for name, why in document["settings"]["stops"].items():
        canvas.caption(f"{name}: {why}.")
    canvas.caption("Curves end at the most cores that were tried, and over time when the last job is over.")
    seeds, build = ", ".join(map(str, document["settings"]["lab_seeds"])), document["settings"]["build"]
    canvas.caption(f"Simulated. Means over the seeds {seeds}; bars: 95 % interval of the mean. Build {build}.")
    return canvas


def checks(document: dict[str, Any]) -> Canvas:
    """The plot of `corelane bench lab`: errors against formulas, and p50 and p99 of the box and the simulator."""
    formulas = [row for row in document["arms"] if row.get("against") == "formula"]
    boxes = [row for row in document["arms"] if "box_p50_us" in row]
    canvas = Canvas(
        "lab: the engine against formulas and against this machine",
        message=document["settings"]["message"],
        n=int(sum(row["n"] for row in [*formulas, *boxes])),
        panels=1 + len(PERCENTILES) * bool(boxes),
        size=(22.0 if boxes else 11.0, 10.0),
    )
    errors = [100 * abs(float(row["error"])) for row in formulas]
    canvas.bars([row["name"] for row in formulas], errors, ylabel="error of the mean time (%)")
    for panel, p in enumerate(PERCENTILES if boxes else (), 1):
        labels = [f"{row['policy']}, {row['cores']}, {row['load']:g}, {side}" for row in boxes for side in SIDES]
        values = [float(row[f"{side}_p{p}_us"]) for row in boxes for side in SIDES]
        colours = [i for _ in boxes for i in range(len(SIDES))]
        canvas.bars(labels, values, ylabel=f"p{p} of completion (us)", panel=panel, colours=colours, log=True)
    canvas.caption("Errors: mean of several seeds, corrected by control variates, against the formula's.")
    canvas.caption("The others: policy, cores, load, and side: the box or the simulator (model), on the same jobs.")
    return canvas


def _against_cores(canvas: Canvas, rows: list[dict[str, Any]], key: str, name: str, colour: int, panel: int) -> None:
    kept = [row for row in rows if row.get(key) is not None and math.isfinite(row[key])]
    if not kept:
        return
    x, y = [float(row["cores"]) for row in kept], [float(row[key]) for row in kept]
    canvas.curve(x, y, label=name, colour=colour, panel=panel)
    error = [min(float(row.get(f"{key}_pm") or 0.0), 0.9 * at) for row, at in zip(kept, y, strict=True)]
    canvas.error_bars(x, y, error, [True] * len(x), colour=colour, panel=panel)


def _label(canvas: Canvas, most: int, asked: bool, several: bool) -> None:
    axes = canvas.axes
    axes[0].set_xscale("log")
    axes[0].set_xlabel(f"completion time on {most} cores (us)")
    axes[0].set_ylabel("jobs that take at most so long (%)")
    axes[1].set_xlabel("time (ms)")
    axes[1].set_ylabel(f"of {most} cores, at work (%)")
    axes[2].set_xlabel("time (ms)")
    axes[2].set_ylabel("jobs that wait without a core (jobs)")
    if not several:
        return
    for panel in (3, 4, 5):
        axes[panel].set_xscale("log")
        axes[panel].set_xlabel("cores (cores)")
    axes[3].set_yscale("log")
    axes[3].set_ylabel("mean completion time (us)")
    axes[4].set_yscale("log")
    axes[4].set_ylabel("p99 of completion over the time alone (times)")
    axes[5].set_ylabel("deadlines kept (part)" if asked else "Jain's index of the kinds' progress (index)")
