"""How far the simulator is from the machine: figures over all loads, of the scheduler alone and of an iokernel."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from ..harness.numbers import number
from ..harness.session import Session

FIGURES = {"p50": "sim.box_p50_error", "p99": "sim.box_p99_error", "share": "sim.box_share_error"}
COLUMNS = {"p50": "p50_error", "p99": "p99_error", "share": "batch_apart"}
ITSELF = {"p50": "p50_again_error", "p99": "p99_again_error", "share": "batch_again_apart"}


def judge(session: Session, scheduler: Sequence[dict[str, Any]], iokernel: Sequence[dict[str, Any]]) -> None:
    """Set the figures: each the largest of all rows; beside it the medians, with and without the machine's gaps, and how
    far an iokernel is from itself on the same requests."""
    for what, name in FIGURES.items():
        rows = [*scheduler, *iokernel] if what != "share" else list(iokernel)
        errors = _errors(rows, COLUMNS[what])
        if not errors:
            continue  # the arms that were skipped are the reason
        beside = {"median": statistics.median(errors)}
        if own := _errors(iokernel, ITSELF[what]):
            beside |= {"the machine from itself, the largest": max(own), "and the median": statistics.median(own)}
        if what != "share":
            plain = [_apart(row, f"plain_{what}_us", f"box_{what}_us") for row in rows]
            beside["median without the machine's gaps"] = statistics.median(plain)
            for side, mine in (("the scheduler", scheduler), ("an iokernel", iokernel)):
                if found := _errors(mine, COLUMNS[what]):
                    beside[f"the largest of {side}"] = max(found)
        session.figure(name, max(errors), runs=errors, beside=beside)


def _errors(rows: Sequence[dict[str, Any]], column: str) -> list[float]:
    values = [abs(number(row[column])) for row in rows if row.get(column) is not None]
    return [value for value in values if math.isfinite(value)]


def _apart(row: dict[str, Any], ours: str, theirs: str) -> float:
    return abs(number(row[ours]) / max(number(row[theirs]), 1e-9) - 1)
