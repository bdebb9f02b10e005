"""How far the simulator is from the machine: figures over all loads, of the scheduler alone and of an iokernel.

A figure is the largest error of all rows in which the machine can tell: under an iokernel it had each load twice, and
where its second replays are farther from its first ones than the goal, no model of it can be held to the goal. That
choice knows nothing of the simulator. The largest of all rows stands beside the figure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..harness.goals import GOALS
from ..harness.numbers import number
from ..harness.session import Session

FIGURES = {"p50": "sim.box_p50_error", "p99": "sim.box_p99_error", "share": "sim.box_share_error"}
COLUMNS = {"p50": "p50_error", "p99": "p99_error", "share": "batch_apart"}
ITSELF = {"p50": "p50_again_error", "p99": "p99_again_error", "share": "batch_again_apart"}
TELL_LEAST = 0.25  # of an iokernel's rows, for a figure

Row = dict[str, Any]


def judge(session: Session, scheduler: Sequence[Row], iokernel: Sequence[Row]) -> None:
    """Set the figures; beside each the largest of all rows, the medians, with and without the machine's gaps, and how
    far the machine is from itself."""
    for what, name in FIGURES.items():
        rows = [*scheduler, *iokernel] if what != "share" else list(iokernel)
        if not _errors(rows, COLUMNS[what]):
            continue  # the arms that were skipped are the reason
        told = [row for row in iokernel if _tells(row, what, name)]
        beside = _beside(what, scheduler, iokernel) | {"rows of an iokernel that tell": float(len(told))}
        counted = _errors([*(scheduler if what != "share" else ()), *told], COLUMNS[what])
        if iokernel and len(told) < TELL_LEAST * len(iokernel):
            why = (
                f"the machine was within {GOALS[name].goal:g} of itself, on the same requests, in {len(told)} of "
                f"{len(iokernel)} rows"
            )
            session.figure(name, None, reason=why, beside=beside)
            continue
        session.figure(name, max(counted), runs=counted, beside=beside)


def _tells(row: Row, what: str, name: str) -> bool:
    """Whether the machine is as near to itself as the goal wants the simulator to be."""
    own, goal = row.get(ITSELF[what]), GOALS[name].goal
    assert goal is not None
    return own is not None and abs(number(own)) <= goal


def _beside(what: str, scheduler: Sequence[Row], iokernel: Sequence[Row]) -> dict[str, float]:
    rows = [*scheduler, *iokernel] if what != "share" else list(iokernel)
    errors = _errors(rows, COLUMNS[what])
    beside = {"the largest of all rows": max(errors), "the median of all rows": statistics.median(errors)}
    if own := _errors(iokernel, ITSELF[what]):
        beside |= {"the machine from itself, the largest": max(own)}
        beside |= {"the machine from itself, the median": statistics.median(own)}
    if what != "share":
        plain = [_apart(row, f"plain_{what}_us", f"box_{what}_us") for row in rows]
        beside["the median without the machine's gaps"] = statistics.median(plain)
        for side, mine in (("the scheduler", scheduler), ("an iokernel", iokernel)):
            if found := _errors(mine, COLUMNS[what]):
                beside[f"the largest of {side}"] = max(found)
    return beside


def _errors(rows: Sequence[Row], column: str) -> list[float]:
    values = [abs(number(row[column])) for row in rows if row.get(column) is not None]
    return [value for value in values if math.isfinite(value)]


def _apart(row: Row, ours: str, theirs: str) -> float:
    return abs(number(row[ours]) / max(number(row[theirs]), 1e-9) - 1)
