"""The plot of the laboratory: how long jobs take, what cores do meanwhile, and what becomes of both on more cores."""

from __future__ import annotations

import math
from typing import Any

from ..harness.figure import COLOURS
from ..harness.plot import Canvas
from .measures import PARTS

PERCENTILES, SIDES = (50, 99), ("box", "model")
ABOVE = (
    ("completion time on {most} cores (us)", "jobs that take at most so long (%)"),
    ("time (ms)", "of {most} cores, at work (%)"),
    ("time (ms)", "jobs that wait without a core (jobs)"),
)
BELOW = {
    "mean_completion_us": "mean completion time (us)",
    "p99_slowdown": "p99 of completion over the time alone (times)",
    "jain_kinds": "Jain's index of the kinds' progress (index)",
    "deadlines_kept": "deadlines kept (part)",
}
LOGARITHMIC = ("mean_completion_us", "p99_slowdown")
ASIDE = 1.02


def draw(document: dict[str, Any]) -> Canvas:
    """On the most cores: completion times, and cores at work and jobs waiting over time. Against cores, or as bars if
    there is one number of them: the mean completion, its tail over what jobs take alone, fairness, deadlines kept."""
    rows = [row for row in document["arms"] if "quantiles_us" in row]
    policies = list(dict.fromkeys(_name(row) for row in rows))
    most = max(int(row["cores"]) for row in rows)
    asked = any(row.get("deadlines_kept") is not None for row in rows)
    several = len({row["cores"] for row in rows}) > 1
    several_kinds = any(abs(row.get("jain_kinds", 1.0) - 1.0) > 1e-9 for row in rows)  # of one it is 1
    left_out = {"deadlines_kept": not asked, "jain_kinds": not several_kinds}
    below = [key for key in BELOW if not left_out.get(key)]
    canvas = Canvas(
        "lab: policies for jobs, simulated",
        message=document["settings"]["message"],
        n=int(sum(row["jobs"] * row["seeds"] for row in rows)),
        panels=len(ABOVE) + len(below),
        rows=2,
        size=(6.5 * (len(ABOVE) + len(below) + 1 >> 1), 13.0),
    )
    for i, name in enumerate(policies):
        mine = sorted((row for row in rows if _name(row) == name), key=lambda row: int(row["cores"]))
        aside = ASIDE ** (i - len(policies) / 2)
        for row in (row for row in mine if row["cores"] == most):
            canvas.curve(row["quantiles_us"], [100 * p for p in PARTS], label=name, colour=i, marker="")
            at = [(k + 0.5) * row["bucket_us"][0] / 1e3 for k in range(len(row["at_work"]))]
            canvas.curve(at, [100 * part for part in row["at_work"]], label=name, colour=i, marker="", panel=1)
            canvas.curve(at, row["waiting"], label=name, colour=i, marker="", panel=2)
        if several:
            for panel, key in enumerate(below, len(ABOVE)):
                _against_cores(canvas, mine, key, i, panel, aside)
    for panel, key in enumerate(below, len(ABOVE)):
        if several:
            _axis_of_cores(canvas.axes[panel], key, sorted({int(row["cores"]) for row in rows}))
        else:
            _bars(canvas, rows, key, panel)
    for axis, (x, y) in zip(canvas.axes, ABOVE, strict=False):
        axis.set_xlabel(x.format(most=most))
        axis.set_ylabel(y.format(most=most))
    canvas.axes[0].set_xscale("log")
    for name, why in document["settings"]["stops"].items():
        canvas.caption(f"{name}: {why}.")
    canvas.caption("Curves end at the most cores that were tried, and over time when the last job is over.")
    seeds, build = ", ".join(map(str, document["settings"]["lab_seeds"])), document["settings"]["build"]
    canvas.caption(f"Simulated. Means over the seeds {seeds}; thin bars: 95 % interval of the mean. Build {build}.")
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
        labels = [f"{_case(row)}, {side}" for row in boxes for side in SIDES]
        values = [float(row[f"{side}_p{p}_us"]) for row in boxes for side in SIDES]
        colours = [i for _ in boxes for i in range(len(SIDES))]
        canvas.bars(labels, values, ylabel=f"p{p} of completion (us)", panel=panel, colours=colours, log=True)
    canvas.caption("Errors: mean of several seeds, corrected by control variates, against the formula's.")
    canvas.caption("The others: policy, cores, load, and side: the box or the simulator (model), on the same jobs.")
    return canvas


def _case(row: dict[str, Any]) -> str:
    """Of a row of the box."""
    return f"{row['policy']}, {row['cores']}, {'recorded' if row['recorded'] else format(row['load'], 'g')}"


def _name(row: dict[str, Any]) -> str:
    return f"{row['policy']} (oracle)" if row["oracle"] else str(row["policy"])


def _limits(values: list[float], rows: list[dict[str, Any]], key: str) -> tuple[list[float], list[float]]:
    """Ends of the 95 % intervals, within what can be."""
    halves = [float(row.get(f"{key}_pm") or 0.0) for row in rows]
    low = [max(at - half, 0.1 * at if key in LOGARITHMIC else 0.0) for at, half in zip(values, halves, strict=True)]
    high = [at + half if key in LOGARITHMIC else min(at + half, 1.0) for at, half in zip(values, halves, strict=True)]
    return low, high


def _against_cores(canvas: Canvas, rows: list[dict[str, Any]], key: str, colour: int, panel: int, aside: float) -> None:
    """A policy's curve. aside: a factor for its cores, so that bars of several do not lie on one another."""
    kept = [row for row in rows if row.get(key) is not None and math.isfinite(row[key])]
    if not kept:
        return
    x, y = [aside * float(row["cores"]) for row in kept], [float(row[key]) for row in kept]
    canvas.curve(x, y, label=_name(kept[0]), colour=colour, panel=panel)
    canvas.axes[panel].vlines(x, *_limits(y, kept, key), color=COLOURS[colour % len(COLOURS)], linewidth=1)


def _axis_of_cores(axis: Any, key: str, cores: list[int]) -> None:
    axis.set_xscale("log")
    axis.set_xticks(cores)
    axis.minorticks_off()
    axis.set_xlabel("simulated cores (number)")
    axis.set_ylabel(BELOW[key])
    if key in LOGARITHMIC:
        axis.set_yscale("log")


def _bars(canvas: Canvas, rows: list[dict[str, Any]], key: str, panel: int) -> None:
    """A policy a bar, and below each its interval."""
    kept = [row for row in rows if row.get(key) is not None and math.isfinite(row[key])]
    labels, values = [_name(row) for row in kept], [float(row[key]) for row in kept]
    names = list(dict.fromkeys(_name(row) for row in rows))
    colours = [names.index(label) for label in labels]
    canvas.bars(labels, values, ylabel=BELOW[key], panel=panel, colours=colours, log=key in LOGARITHMIC)
    axis = canvas.axes[panel]
    low, high = _limits(values, kept, key)
    axis.hlines([place + 0.38 for place in range(len(kept))], low, high, color="#444444", linewidth=1.5)
    least, most = axis.get_xlim()
    axis.set_xlim(min([least, *low]), max([most, *high]))
