"""Rows of the document of `corelane bench colocate`: an arm at a load, from its turns."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..harness.numbers import plain
from ..harness.openloop import middle
from ..harness.session import Session
from .arms import Beside
from .judge import middle_p99_us
from .stalls import Stalls

STALLED_US = 1000.0  # a note says what the iokernel saw where the p99 of all requests is as long


def add_row(session: Session, name: str, rate: float, slots: Sequence[Beside]) -> dict[str, Any]:
    """An arm: all requests of its turns, the median of the work and of the windows' p99."""
    works = [slot.work for slot in slots if math.isfinite(slot.work)]
    values: dict[str, Any] = {"work_per_s": statistics.median(works)} if works else {}
    if all(slot.point.sent for slot in slots):
        point = middle([slot.point for slot in slots])
        for key in ("kv_core_share", "moves_per_s", "move_ns", "service_ns"):
            if each := [float(slot.point.extra[key]) for slot in slots if key in slot.point.extra]:
                values[key] = statistics.median(each)
        if "drops" in point.extra:
            drops = sum((slot.point.extra["drops"] for slot in slots), Counter[str]())
            values["drops"] = dict(drops)
            if drops:
                reasons = ", ".join(f"{reason} {n:,}" for reason, n in drops.items())
                lost = [slot for slot in slots if slot.point.loss > 0]
                text = f"{name}: {point.sent - point.answered:,} unanswered, in {len(lost)} of {len(slots)} slots"
                text += f"; the iokernel dropped {reasons}, with warm-up"
                if seen := [slot.stalls for slot in lost if slot.stalls]:
                    text += f"; in those slots {sum(seen, Stalls()).sentence()}"
                session.note(text)
        point.extra |= values | {"p99_window_us": plain(middle_p99_us(slots))}
        point.extra["windows"] = sum(len(slot.point.window_p99_us) for slot in slots)
        if seen := [slot.stalls for slot in slots if slot.stalls]:
            stalls = sum(seen, Stalls())
            point.extra |= stalls.row()
            if point.p99_us >= STALLED_US:
                session.note(
                    f"{name} at {rate:,.0f}/s: p99 over all requests {point.p99_us:,.0f} us; {stalls.sentence()}"
                )
        row = session.point(name, point)
        row["load_rps"] = rate
        return row
    return session.arm(name, load_rps=0.0, **values)
