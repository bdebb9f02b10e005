"""What TCP and event loops stand on, arm by arm: each is a file of this folder, and is listed in ARMS.

So far: how fast two hosts run on a virtual clock, virtual over real time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..harness.plot import Canvas
from ..harness.session import Session
from . import virtual_speed

SUMMARY = "what TCP and event loops stand on: the speed of two hosts on a virtual clock"
FIGURES = ("ground.virtual_speed",)

ARMS: tuple[Callable[[Session, float], None], ...] = (virtual_speed.measure,)
"""Each takes about the seconds that it is given, adds rows to the session, and sets figures of FIGURES."""


def run(session: Session) -> None:
    """The arms one after the other, for about session.seconds in all."""
    for measure in ARMS:
        measure(session, session.seconds / len(ARMS))


def plot(document: dict[str, Any]) -> Canvas:
    """Virtual over real time of every row that has one."""
    rows = [row for row in document["arms"] if "virtual_over_real" in row]
    canvas = Canvas(
        "ground: virtual over real time",
        message=document["settings"]["message"],
        n=sum(row["exchanges"] for row in rows),
    )
    canvas.bars(
        [row["name"] for row in rows],
        [row["virtual_over_real"] for row in rows],
        ylabel="virtual seconds in a real one",
        colours=list(range(len(rows))),
    )
    canvas.axes[0].set_xscale("log")
    canvas.caption("Two hosts and the link between them on one thread; median of the rounds.")
    return canvas
