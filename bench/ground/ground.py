"""What streams stand on: a deadline that moves, a burst of answers over AF_XDP, an adopted kthread, virtual time.

Each part is a module of this room: `measure(session, seconds)`, and `draw(canvas, document, panel)`. Beside them
`before` compares with an older tree, if it is given one.
"""

from __future__ import annotations

import argparse
from typing import Any

from ..harness.plot import Canvas
from ..harness.session import Session
from . import before, burst, rearm, turn, virtual

SUMMARY = "what streams stand on: deadlines that move, bursts of answers over AF_XDP, adopted kthreads, virtual time"
FIGURES = (
    "ground.udp_before",
    "ground.rearm_ns",
    "ground.afxdp_burst",
    "ground.turn_ns",
    "ground.turn_echo",
    "ground.wake_over_own",
    "ground.idle",
    "ground.virtual_speed",
)

PARTS = (rearm, burst, turn, virtual)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Its own options."""
    before.add_arguments(parser)


def run(session: Session) -> None:
    """All parts, one after another."""
    before.measure(session)  # first: others pin this process, whose children it runs
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
