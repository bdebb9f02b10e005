"""The victim of a neighbour: an application at half of its capacity, in slices; and the rows of them.

Capacity is the highest load that it carries alone with a p99 within a limit, which is what capacity means to who has to
keep latencies. A virtual machine is stopped for a millisecond some times a second, and what queues meanwhile decides
the p99 of the slice in which it happens. So an arm has many slices, in turns with what it is compared with
(harness/pairs).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..harness import rig
from ..harness.numbers import number
from ..harness.openloop import Measure, Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from ..harness.stops import EXPLAIN_S, stop_of

ALONE = "alone"
CANARY_S = 0.03
FROM_RPS, STEP, TRIES, FAILURES = 250_000.0, 1.5, 4, 2
P99_LIMIT_US, OVER_UNLOADED, UNLOADED_MOST_US = 50.0, 2.0, 200.0
_TRY_S = 0.07


def place(session: Session, who: str, slice_s: float) -> tuple[tuple[int, int], int]:
    """Loop and worker core, and the one for the neighbour, called `who` in the settings: a third, or the worker's."""
    loop, worker = session.two_cores
    apart = session.cores[2] if len(session.cores) > 2 else worker
    session.settings |= {
        "message": "one request of 22 bytes (a frame of one cache line) and its reply",
        "checksums": rig.CHECKSUMS,
        f"{who}_cpu": apart,
        f"{who}_shares_the_victims_core": apart == worker,
        "slice_s": slice_s,
    }
    return (loop, worker), apart


def half_load(
    session: Session, measure: Measure, *, seconds: float, explain: Measure | None = None
) -> tuple[float, str]:
    """Half of the victim's capacity, found in so many seconds; and why there is none, if so: then half of FROM_RPS.

    explain: as measure, with the counters that say why the capacity ends (harness/stops.py).
    """
    most, limit_us = capacity(measure, seconds=seconds)
    if explain:
        above = most * STEP or FROM_RPS
        point = explain(above, EXPLAIN_S)
        missed = not point.carried or point.p99_us > limit_us
        said = f"a p99 of {limit_us:.3g} us is not kept at {above:,.0f} requests/s"
        session.stop("victim's capacity", said, stop_of(point, missed))
    rate = (most or FROM_RPS) / 2
    session.settings |= {"victim_capacity_rps": most, "victim_p99_limit_us": limit_us, "victim_rps": rate}
    if most:
        return rate, ""
    return rate, f"alone, {FROM_RPS:,.0f} requests/s had no p99 within {limit_us:.3g} us: the cores are not ours"


def capacity(measure: Measure, *, seconds: float) -> tuple[float, float]:
    """The highest load carried with a p99 within a limit, and the limit in us; 0 if there is none. Loads rise by STEP.

    The limit is P99_LIMIT_US, or OVER_UNLOADED times what the first and least load shows, if that is more (and that is
    at most UNLOADED_MOST_US, else the machine is busy with other things). A load has TRIES tries, since the machine may
    stop in some; FAILURES loads in a row end the search, and so does the time.
    """
    end = time.monotonic() + seconds
    most, failed, rate, limit_us = 0.0, 0, FROM_RPS, P99_LIMIT_US
    while failed < FAILURES and (most == 0.0 or time.monotonic() < end):
        tries: list[Point] = []
        while len(tries) < TRIES and not any(p.carried and p.p99_us <= limit_us for p in tries):
            tries.append(measure(rate, _TRY_S))
        best_us = min(p.p99_us for p in tries)
        if rate == FROM_RPS and best_us <= UNLOADED_MOST_US:
            limit_us = max(limit_us, OVER_UNLOADED * best_us)
        if any(p.carried and p.p99_us <= limit_us for p in tries):
            most, failed = rate, 0
        else:
            failed += 1
        rate *= STEP
    return most, limit_us


def record(session: Session, arm: str, points: Sequence[Point]) -> dict[str, Any]:
    """Add a row of an arm, from its slices."""
    row = session.point(arm, middle(points))
    row["p99_us_median_of_slices"] = statistics.median(point.p99_us for point in points)
    return row


def bars(canvas: Canvas, arms: Sequence[Mapping[str, Any]], colours: Sequence[int] | None = None) -> None:
    """The p99 of each arm: the median of its slices."""
    names, values = [str(a["name"]) for a in arms], [number(a["p99_us_median_of_slices"]) for a in arms]
    canvas.bars(names, values, ylabel="p99, median of the turns (us)", colours=colours, log=True)
    infinite = [name for name, value in zip(names, values, strict=True) if not math.isfinite(value)]
    if infinite:
        canvas.caption(f"Infinite, at the left edge: {', '.join(infinite)}: requests stayed unanswered in most turns.")
