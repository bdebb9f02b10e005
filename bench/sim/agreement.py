"""How far the simulator is from the machine: figures over all loads, of the scheduler alone and of an iokernel.

A figure is the largest error of all rows in which the machine can tell. Two things keep a row from that:

    itself    under an iokernel the machine had each load twice, and its second replays were farther from its first ones
              than the goal: no model of it can be held to the goal
    gaps      the machine's own gaps, which the canary saw (or on the scheduler alone the kthreads), moved the value by
              more than the goal: by how much the simulator is apart with them and without them. Of worker cores it is
              not known where they fell, only how often and how long they were

Neither looks at how far the simulator is from the machine. The largest of all rows stands beside the figure.
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
SIDES = {"p50": "{}_p50_us", "p99": "{}_p99_us", "share": "{}_batch_share"}
TELL_LEAST = 0.25  # of an iokernel's rows, for a figure

Row = dict[str, Any]


def judge(session: Session, scheduler: Sequence[Row], iokernel: Sequence[Row]) -> None:
    """Set the figures; beside each the largest of all rows, the medians, with and without the machine's gaps, and how
    far the machine is from itself."""
    for what, name in FIGURES.items():
        rows = [*scheduler, *iokernel] if what != "share" else list(iokernel)
        if not _errors(rows, COLUMNS[what]):
            continue  # the arms that were skipped are the reason
        goal = GOALS[name].goal
        assert goal is not None
        calm, of_iokernel = (
            [row for row in some if moved_by_gaps(row, what) <= goal]
            for some in (scheduler if what != "share" else (), iokernel)
        )
        loud = len(rows) - len(calm) - len(of_iokernel)
        of_iokernel = [row for row in of_iokernel if _is_near_itself(row, what, goal)]
        gaps = statistics.median(moved_by_gaps(row, what) for row in rows)
        beside = _beside(what, scheduler, iokernel) | {
            "rows of an iokernel that tell": float(len(of_iokernel)),
            "what the machine's gaps moved, the median": gaps,
        }
        counted = _errors([*calm, *of_iokernel], COLUMNS[what])
        if not counted or (iokernel and len(of_iokernel) < TELL_LEAST * len(iokernel)):
            why = (
                f"{len(of_iokernel)} of {len(iokernel)} rows of an iokernel can tell: in {loud} of all {len(rows)} the "
                f"machine's gaps moved the value by more than {goal:g} (by {gaps:.2g} in the median), in others the "
                f"machine was not within {goal:g} of itself on the same requests"
            )
            session.figure(name, None, reason=why, beside=beside)
            continue
        session.figure(name, max(counted), runs=counted, beside=beside)


def moved_by_gaps(row: Row, what: str) -> float:
    """How far the simulator's value with the machine's gaps is from that without them: relative, of a share the
    difference."""
    with_gaps, without = (SIDES[what].format(side) for side in ("model", "plain"))
    if what == "share":
        return abs(number(row[with_gaps]) - number(row[without]))
    return _apart(row, without, with_gaps)


def _is_near_itself(row: Row, what: str, goal: float) -> bool:
    """Whether the machine is as near to itself as the goal wants the simulator to be."""
    own = row.get(ITSELF[what])
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
