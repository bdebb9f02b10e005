"""A load from what an iokernel did: each stretch for which an application had a core is a job.

It comes when the iokernel decided so, and its work is the time that it had. A class is an application, by the core time
that it had in all; neither names nor addresses nor what was computed are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...runtime.errors import CorelaneError
from . import loads
from .table import MAX_CLASSES


@dataclass(frozen=True)
class Stretch:
    """at_ns: when it was decided; length_ns: for how long the core was had; owner: whose, by any word."""

    at_ns: float
    length_ns: float
    owner: str


def load_of(stretches: Sequence[Stretch], seconds: float) -> loads.Load:
    """The load that they are. CorelaneError if there are none."""
    kept = sorted((one for one in stretches if one.length_ns >= 1), key=lambda one: one.at_ns)
    if not kept:
        hint = "record while applications come and go, or share cores"
        raise CorelaneError("record a load", f"no core changed hands in {seconds:g} s", hint)
    time: dict[str, float] = {}
    for one in kept:
        time[one.owner] = time.get(one.owner, 0.0) + one.length_ns
    order = sorted(time, key=lambda owner: (-time[owner], owner))
    place = {owner: min(i, MAX_CLASSES - 1) for i, owner in enumerate(order)}
    kinds = tuple(loads.Kind(cls=i) for i in range(max(place.values()) + 1))
    first = kept[0].at_ns
    at = np.array([one.at_ns - first for one in kept]).astype(np.int64)
    work = np.array([one.length_ns for one in kept])
    rows = loads.jobs(at, work, np.array([place[one.owner] for one in kept]))
    return loads.Load(kinds, rows, {"recorded": "moves of cores", "seconds": seconds, "applications": len(order)})
