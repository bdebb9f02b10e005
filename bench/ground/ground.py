"""What streams stand on: the cost of a deadline that moves, of a burst of answers over AF_XDP, and of virtual time.

Each part is a module of this room: its FIGURES, `measure(session, seconds)`, and `draw(canvas, document, panel)`.
"""

from __future__ import annotations

from typing import Any

from ..harness.plot import Canvas
from ..harness.session import Session
from . import burst, rearm, virtual

SUMMARY = "what streams stand on: moving one of 100 000 armed deadlines, bursts of answers over AF_XDP, virtual time"
FIGURES = ("ground.rearm_ns", "ground.afxdp_burst", "ground.virtual_speed")

PARTS = (rearm, burst, virtual)


def run(session: Session) -> None:
    """All parts, one after another."""
    for part in PARTS:
        part.measure(session, session.seconds / len(PARTS))


def plot(document: dict[str, Any]) -> Canvas:
    """A panel a part."""
    n = sum(int(row.get("n", row.get("sent", 0))) for row in document["arms"])
    message = "a move of a deadline, or a UDP echo"
    canvas = Canvas("ground: what streams stand on", message=message, n=n, panels=len(PARTS), size=(18, 5))
    for panel, part in enumerate(PARTS):
        part.draw(canvas, document, panel)
    return canvas
