"""Where the curve of a swept arm of `corelane bench colocate` ends, and why.

The loads go on from the peak, or from the load at which the arm was overloaded, until two in a row are not carried. The
first of these is offered once more while counters are read: harness/stops.py names the resource.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..harness.openloop import EXTRA_LOADS, Curve, Point, sweep
from .arms import Beside, SweptArm

BEYOND = (1.0, 1.15, 1.3)  # of the load where it begins


@dataclass
class Wall:
    """slots: by the load offered, ascending; curve: of the same, with why it ends."""

    curve: Curve
    slots: dict[float, list[Beside]] = field(default_factory=dict)


def find_wall(arm: SweptArm, first_rps: float, slot_s: float) -> Wall:
    """Of an arm, by loads from `first_rps` requests/s on, in slots of that length."""
    slots: dict[float, list[Beside]] = {}

    def measure(rate: float, seconds: float) -> Point:
        slots.setdefault(rate, []).append(arm(rate, seconds))
        return slots[rate][-1].point

    def explain(rate: float, seconds: float) -> Point:
        return arm(rate, seconds, counted=True).point

    slots_of_a_sweep = len(BEYOND) + EXTRA_LOADS / 2 + 1
    curve = sweep(measure, peak_rps=first_rps, seconds=slot_s * slots_of_a_sweep, fractions=BEYOND, explain=explain)
    return Wall(curve, slots)
