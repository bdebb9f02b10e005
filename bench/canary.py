"""How long this machine keeps a spinning thread from running: the canary by itself, on every core measured."""

from __future__ import annotations

from typing import Any

from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "the machine's own jitter: gaps seen by a spinning thread on each core"
FIGURES = ()


def run(session: Session) -> None:
    """Watch the cores for session.seconds, in ten slices; one arm a core."""
    slices = 10
    for i in range(slices):
        session.say(f"slice {i + 1} of {slices}")
        session.take_canary(session.seconds / slices)
    for gaps in session.canary.by_cpu.values():
        long_gaps = sum(n for start, (n, _) in gaps.buckets.items() if start >= 1000)
        session.arm(
            f"core {gaps.cpu}",
            n=gaps.polls,
            lost_percent=100 * gaps.lost_fraction,
            gaps_over_1us=long_gaps,
            gaps_over_1us_per_s=long_gaps / gaps.seconds,
            longest_us=gaps.max_ns / 1e3,
        )
    session.settings["message"] = "one reading of the time stamp counter"


def plot(document: dict[str, Any]) -> Canvas:
    """How often gaps at least so long happen, a line a core."""
    canary = document["canary"]
    canvas = Canvas(
        "canary: gaps of a spinning thread",
        message=document["settings"]["message"],
        n=sum(c["polls"] for c in canary["cores"]),
    )
    canvas.canary_curves(document)
    return canvas
