"""What a run of the laboratory comes to: numbers for a table, distributions and series for plots, and intervals over
seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..sim.formulas import jain
from . import table as t
from .world import Ran

PARTS = (*(i / 100 for i in range(100)), 0.993, 0.997, 0.999, 1.0)  # of a distribution
FULL = 0.97  # of a resource that has run out
# Two-sided 95 % points of Student's t, by degrees of freedom; beyond the last one that of the normal distribution.
_STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131)


def measured(ran: Ran) -> dict[str, float]:
    """Numbers of a run. Times are of jobs that ended; how many did not, and why, is beside them.

    slowdown: completion over what the job takes alone on its least cores at speed 1. utilisation: of all cores' time
    until the end. jain_kinds: of the kinds' mean rates of progress over slowdown 1; jain_cores: of the time that cores
    had jobs, over all cores. gifts: cores given, for each job; gifts_refused: those that could not be.
    """
    over, load = ran.over, ran.load
    done = ran.completion_ns[over]
    least = np.array([k.min_cores for k in load.kinds])[load.jobs["kind"]]
    alone = load.jobs["work_ns"] / least
    slow = done / alone[over]
    span = max(ran.end_ns, 1)
    decides = ran.decided_ns / span
    out = {
        "jobs": float(len(load)),
        "done": float(over.sum()),
        "refused": float((ran.jobs["outcome"] == t.TURNED_AWAY).sum()),
        "not_done": float((~over).sum() - (ran.jobs["outcome"] == t.TURNED_AWAY).sum()),
        "utilisation": float(ran.series[:, 1].sum() / span / ran.machine.cores),
        "makespan_us": span / 1e3,
        "jain_cores": jain([float(x) for x in _of_cores(ran)]),
        "preempted": float(ran.jobs["preempted"].sum() / len(load)),
        "calls": ran.calls / len(load),
        "gifts": ran.gifts / len(load),
        "gifts_refused": float(ran.refused),
        "loop_busy": decides + ran.gifts * ran.machine.costs.actuate_ns / ran.machine.loops / span,
        "loop_decides": decides,
        "busy_core_s": float(ran.series[:, 1].sum() / 1e9),
    }
    if not len(done):
        return out
    for name, values in (("completion", done / 1e3), ("slowdown", slow)):
        unit = "_us" if name == "completion" else ""
        out[f"mean_{name}{unit}"] = float(values.mean())
        for p in (50, 90, 99):
            out[f"p{p}_{name}{unit}"] = float(np.percentile(values, p))
    out["mean_wait_us"] = float(ran.wait_ns[over].mean() / 1e3)
    kinds = load.jobs["kind"][over]
    means = [float((1 / slow[kinds == k]).mean()) for k in np.unique(kinds)]
    out["jain_kinds"] = jain(means)
    asked = load.jobs["deadline_ns"] > 0
    if asked.any():
        kept = over & asked & (ran.completion_ns <= load.jobs["deadline_ns"])
        out["deadlines_kept"] = float(kept.sum() / asked.sum())
        broken = asked & (ran.jobs["promised"] == t.PROMISED) & ~kept
        out["promises_broken"] = float(broken.sum())
    weight = load.jobs["weight"][over]
    out["weighted_completion_us"] = float((weight * done).sum() / weight.sum() / 1e3)
    return out


def _of_cores(ran: Ran) -> Any:
    """For how long each core had jobs, its seats together."""
    return ran.held_ns.reshape(ran.machine.cores, ran.machine.seats).sum(axis=1)


def shape(ran: Ran) -> dict[str, list[float]]:
    """For plots: quantiles of the completion time at PARTS, us; part of the cores at work, and jobs that waited, over
    time."""
    done = ran.completion_ns[ran.over] / 1e3
    width = np.full(len(ran.series), float(ran.bucket_ns))
    width[-1] = max(ran.end_ns - (len(width) - 1) * ran.bucket_ns, 1)  # the last one takes all that is left
    return {
        "quantiles_us": [float(x) for x in np.quantile(done, PARTS)] if len(done) else [],
        "at_work": [float(x) for x in ran.series[:, 1] / width / ran.machine.cores],
        "waiting": [float(x) for x in ran.series[:, 2] / width],
        "bucket_us": [ran.bucket_ns / 1e3],
    }


def interval(values: Sequence[float]) -> float:
    """Half the width of the 95 % interval of the mean over seeds; nan of one."""
    n = len(values)
    if n < 2:
        return math.nan
    point = _STUDENT[n - 2] if n - 2 < len(_STUDENT) else 1.96
    return float(point * np.std(values, ddof=1) / math.sqrt(n))


def over_seeds(rows: Sequence[Mapping[str, float]]) -> dict[str, float | None]:
    """Means of what all seeds have, each with its interval under NAME_pm; None: only one seed."""
    out: dict[str, float | None] = {}
    for name in rows[0]:
        values = [row[name] for row in rows if name in row]
        if len(values) == len(rows):
            half = interval(values)
            out[name], out[f"{name}_pm"] = float(np.mean(values)), None if math.isnan(half) else half
    return out


def loop_told(row: Mapping[str, Any]) -> str:
    """What the first loop does with its time."""
    busy, decides = float(row["loop_busy"]), float(row["loop_decides"])
    return f"decisions take {100 * decides:.0f} % and moves {100 * (busy - decides):.0f} % of its time"


def why_it_stops(row: Mapping[str, Any]) -> str:
    """What has run out in a world, by its account; empty if nothing has."""
    if float(row["loop_busy"]) >= FULL:
        return f"the iokernel's loop is full: {loop_told(row)}"
    if float(row["not_done"]) > 0:
        return f"{row['not_done']:g} jobs are left: the policy gives them no core, or there was no room for them"
    if float(row["utilisation"]) >= FULL:
        return "all cores are at work"
    return ""
