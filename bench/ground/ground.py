"""What streams stand on: the cost of a deadline that moves.

Each part is a module of this room with a `measure(session, seconds)`.
"""

from __future__ import annotations

from typing import Any

from ..harness.plot import Canvas
from ..harness.session import Session
from . import rearm

SUMMARY = "what streams stand on: moving one of 100 000 armed deadlines"
FIGURES = ("ground.rearm_ns",)


def run(session: Session) -> None:
    """All parts, one after another."""
    rearm.measure(session, session.seconds)


def plot(document: dict[str, Any]) -> Canvas:
    """Time of a move by arm."""
    rows = [row for row in document["arms"] if "armed" in row]
    canvas = Canvas("ground: moving a deadline", message=f"one of {rows[0]['armed']}", n=sum(row["n"] for row in rows))
    canvas.bars([row["name"] for row in rows], [row["ns"] for row in rows], ylabel="time of a move (ns)")
    canvas.caption("Median of interleaved rounds, one core; the callbacks that came due are a part of it.")
    return canvas
