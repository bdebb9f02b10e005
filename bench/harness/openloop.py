"""Open-loop load: points, the search for the peak, and sweeps that say where they stopped and why.

A *point* is one offered load kept for a while. It is *carried* when less than 0.1 % of its requests stay unanswered and
the achieved rate is within 1 % of the rate that was due. The achieved rate counts from the first answer to the last, so
that a server that works off a backlog after the end is seen. The peak is the highest carried load found.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .numbers import PERCENTILES, number, plain
from .stops import EXPLAIN_S, NOTHING, Evidence, Stop, stop_of

if TYPE_CHECKING:
    from ...runtime.hist import Hist

LOSS_LIMIT = 0.001
RATE_SLACK = 0.01
EXTRA_LOADS, EXTRA_STEP = 6, 1.3
SWEEP_TRIES = 3
GUESS_FROM_RPS, GUESS_FAILURES = 20_000.0, 3
ASCENT = 3
SHORTER_AT_MOST = 30  # times shorter than EXPLAIN_S are loads that are offered once more for so long
NEAR_STEP = 1.25  # of a search that starts near the peak


@dataclass
class Point:
    """One offered load and what became of it. Latencies in microseconds from the intended send time; inf if unanswered.

    late: sent later than intended by more than the generator's slack; sent and charged all the same. dropped: refused
    by the link before the server saw them. busy_core_s: CPU seconds of the server's cores. window_p99_us: of each
    window that it was measured in. extra: the benchmark's own. evidence: what counters gained meanwhile, where they
    were read (stops.py).
    """

    offered_rps: float
    achieved_rps: float
    sent: int
    answered: int
    late: int = 0
    dropped: int = 0
    p50_us: float = math.nan
    p90_us: float = math.nan
    p99_us: float = math.nan
    p999_us: float = math.nan
    max_us: float = math.nan
    busy_core_s: float = math.nan
    seconds: float = 0.0
    extra: dict[str, Any] = field(default_factory=dict)
    hist: Hist | None = field(default=None, repr=False, compare=False)
    window_p99_us: tuple[float, ...] = ()
    evidence: Evidence | None = field(default=None, repr=False, compare=False)

    def set_percentiles(self, hist: Hist) -> None:
        """Take the latencies from a histogram in ns that holds the unanswered requests as infinite."""
        for name, q in PERCENTILES:
            setattr(self, f"{name}_us", hist.percentile(100 * q) / 1e3)
        self.max_us = hist.max / 1e3

    @property
    def due(self) -> int:
        """Requests that the schedule asked for: what was sent and what the link took no more."""
        return self.sent + self.dropped

    @property
    def loss(self) -> float:
        """Fraction of the due requests that nobody answered."""
        return 1.0 - self.answered / self.due if self.due else 1.0

    @property
    def due_rps(self) -> float:
        """The rate that the arrivals drawn really had: it differs from the offered one by chance in a short run."""
        return self.due / self.seconds if self.seconds else self.offered_rps

    @property
    def carried(self) -> bool:
        return self.loss < LOSS_LIMIT and self.achieved_rps >= (1 - RATE_SLACK) * self.due_rps

    def why_not(self) -> str:
        """Why the load was not carried, for a person; empty if it was."""
        if self.loss >= LOSS_LIMIT:
            return f"{100 * self.loss:.3g} % unanswered at {self.offered_rps:,.0f} requests/s offered"
        if not self.carried:
            return f"{self.achieved_rps:,.0f} of {self.due_rps:,.0f} requests/s achieved"
        return ""

    def latencies_us(self) -> dict[str, float]:
        return {name: float(getattr(self, f"{name}_us")) for name, _ in PERCENTILES}

    def row(self, name: str) -> dict[str, Any]:
        """The point as an arm of the JSON document."""
        out: dict[str, Any] = {"name": name}
        for key in ("offered_rps", "achieved_rps", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"):
            out[key] = plain(float(getattr(self, key)))
        for key in ("sent", "answered", "late", "dropped"):
            out[key] = int(getattr(self, key))
        out["busy_core_s"] = plain(self.busy_core_s)
        out["seconds"] = self.seconds
        return out | self.extra


def was_carried(row: Mapping[str, Any]) -> bool:
    """Whether a load was carried that `Point.row` made a row of; of one without its seconds, by what was offered."""
    sent, answered, dropped = (int(row.get(key, 0)) for key in ("sent", "answered", "dropped"))
    offered, achieved = number(row["offered_rps"]), number(row["achieved_rps"])
    return Point(offered, achieved, sent, answered, dropped=dropped, seconds=float(row.get("seconds", 0.0))).carried


def stop_in(rows: Sequence[Mapping[str, Any]]) -> int:
    """The place of the load at which a curve stops: the first of those at its end that were not carried, or the last
    one if that was carried. rows: of one curve, in ascending load; at least one."""
    place = len(rows)
    while place > 0 and not was_carried(rows[place - 1]):
        place -= 1
    return min(place, len(rows) - 1)


def middle(points: Sequence[Point]) -> Point:
    """One point for several runs of the same load: counts and seconds added, rates their medians.

    Percentiles are those of all requests together where the runs kept their histograms, else the runs' medians.
    """
    if not points:
        raise ValueError("no points")

    def median(key: str) -> float:
        return statistics.median(float(getattr(p, key)) for p in points)

    def total(key: str) -> int:
        return sum(int(getattr(p, key)) for p in points)

    out = Point(
        median("offered_rps"),
        median("achieved_rps"),
        total("sent"),
        total("answered"),
        total("late"),
        total("dropped"),
        median("p50_us"),
        median("p90_us"),
        median("p99_us"),
        median("p999_us"),
        max(p.max_us for p in points),
        sum(p.busy_core_s for p in points),
        sum(p.seconds for p in points),
        dict(points[-1].extra) | {"runs": len(points)},
    )
    kept = [p.hist for p in points if p.hist is not None]
    if len(kept) == len(points):
        out.hist = kept[0].snapshot()
        for hist in kept[1:]:
            out.hist.merge(hist)
        out.set_percentiles(out.hist)
    return out


Measure = Callable[[float, float], Point]  # (offered requests a second, seconds) -> what became of it


@dataclass
class Curve:
    """Points in ascending load and the reason why there are no more. because: the resource, by counters; of a curve
    that goes on no further though its last load was carried, what is used up at that."""

    points: list[Point]
    stop: str
    because: Stop

    @property
    def peak(self) -> Point | None:
        """The carried point of the highest rate; None if no load was carried."""
        return max((p for p in self.points if p.carried), key=lambda p: p.achieved_rps, default=None)

    @property
    def peak_rps(self) -> float:
        peak = self.peak
        return peak.achieved_rps if peak else 0.0


def guess_peak(
    measure: Measure, *, seconds: float, start_rps: float = GUESS_FROM_RPS, most_rps: float = 200e6, tries: int = 14
) -> float:
    """Roughly what a server carries, for `search_peak` to start near: the highest rate achieved by loads that double.

    Ends at GUESS_FAILURES loads in a row that are not carried. seconds: for at most `tries` loads, each of which
    gets its share.
    """
    best, failed, rate = 0.0, 0, start_rps
    for _ in range(tries):
        point = measure(rate, seconds / tries)
        best = max(best, point.achieved_rps)
        failed = 0 if point.carried else failed + 1
        rate *= 2
        if failed == GUESS_FAILURES or rate > most_rps:
            break
    return best or start_rps


def search_peak(
    measure: Measure,
    *,
    start_rps: float,
    seconds: float,
    most_rps: float = 200e6,
    tries: int = 14,
    step: float = 2.0,
    explain: Measure | None = None,
) -> Curve:
    """Find the highest carried load: ascend from `start_rps` until two loads in a row are not, then halve the interval.

    seconds: for the whole search; each of the at most `tries` tries gets its share. step: each load over the one
    before, until ASCENT of them were carried: then the start was far off, and steps grow up to 2. One interruption by
    the machine must not end the search: a load fails only at its second try, and an ascent that failed is passed over
    once. explain: says why it ends, as that of a `Sweep`; its time comes on top.
    """
    seen: list[Point] = []

    def carried(rate: float, times: int) -> bool:
        for _ in range(min(times, tries - len(seen))):
            seen.append(measure(rate, seconds / tries))
            if seen[-1].carried:
                return True
        return False

    failed: list[float] = []
    low, rate, ascended = 0.0, start_rps, 0
    while len(failed) < 2 and rate <= most_rps and len(seen) < tries:
        if carried(rate, 2):
            low, failed, ascended = rate, [], ascended + 1
            step = min(step * step, 2.0) if ascended >= ASCENT else step
        else:
            failed.append(rate)
        rate *= step
    high = min(failed, default=math.inf)
    while len(seen) < tries and math.isfinite(high) and high > low * (1 + 2 * RATE_SLACK):
        # What was achieved in overload says where to look: nearer than halving.
        hint = max((p.achieved_rps for p in seen if p.offered_rps == high), default=0.0)
        middle_rate = (low + high) / 2 if low else high / 2
        rate = hint if max(low, middle_rate) < hint < 0.98 * high else middle_rate
        if carried(rate, 2):
            low = rate
        else:
            high = rate
    above = sorted((p for p in seen if not p.carried and p.offered_rps > low), key=lambda p: p.offered_rps)
    stop = above[0].why_not() if above else f"still carried at {low:,.0f} requests/s when the search ended"
    seen.sort(key=lambda p: p.offered_rps)
    because = why_it_stops([above[0], above[-1]] if above else [], seen[-1], explain, seconds / tries)
    return Curve(seen, stop, because)


class Sweep:
    """Latency against load: points at fractions of a known peak, ascending, until two in a row are not carried.

    A load is offered SWEEP_TRIES times before it counts as not carried. The points beyond the wall are kept, they show
    it; the curve's stop is the reason of the first of them. If even the last load is carried (the search for the peak
    was disturbed), up to EXTRA_LOADS higher ones follow. At the end the load at which the curve stops is offered once
    more by `explain`, which reads the server's counters meanwhile (stops.py); the last load, if that is carried now.
    Without `explain` it is told from what the generator saw.
    """

    def __init__(
        self,
        measure: Measure,
        *,
        peak_rps: float,
        seconds: float,
        fractions: Sequence[float] = (),
        explain: Measure | None = None,
    ) -> None:
        self._measure = measure
        self._peak_rps = peak_rps
        self._loads = list(fractions) or [0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25]
        self._most = len(self._loads) + EXTRA_LOADS
        self._slot = seconds / (len(self._loads) + EXTRA_LOADS / 2 + (1 if explain else 0))
        self._points: list[Point] = []
        self._explain = explain
        self._because: Stop | None = None

    def advance(self) -> bool:
        """Measure the next load. False if there is none left: then it is known why the curve stops."""
        points = self._points
        if not self._loads or (len(points) > 1 and not points[-1].carried and not points[-2].carried):
            self._because = self._because or self._why()
            return False
        rate = self._loads.pop(0) * self._peak_rps
        for _ in range(SWEEP_TRIES):
            point = self._measure(rate, self._slot)
            if point.carried:
                break
        points.append(point)
        if not self._loads and point.carried and len(points) < self._most:
            self._loads.append(EXTRA_STEP * rate / self._peak_rps)
        return True

    def _stopping(self) -> list[Point]:
        """The points at the end that were not carried, the first of which is where the curve stops; none or some."""
        found: list[Point] = []
        for point in reversed(self._points):
            if point.carried:
                break
            found.insert(0, point)
        return found[-2:]

    def _why(self) -> Stop:
        return why_it_stops(self._stopping(), self._points[-1], self._explain, self._slot)

    @property
    def curve(self) -> Curve:
        """All that was measured, once there is no next load."""
        points, stopping = self._points, self._stopping()
        because = self._because = self._because or self._why()
        return Curve(points, stopping[0].why_not() if stopping else carried_to_the_end(points[-1]), because)


def carried_to_the_end(last: Point) -> str:
    """Why a curve stops whose last load was carried."""
    return f"the last load asked for, {last.offered_rps:,.0f} requests/s, was carried"


def why_it_stops(stopping: Sequence[Point], last: Point, explain: Measure | None, slot_s: float) -> Stop:
    """The resource at which the first of these loads ended, none of which was carried. Of none: what is used up at the
    last load of all, which was.

    explain: offers a load and reads the counters; each load is tried until one is not carried again. None: only what
    the generator saw of them is known. slot_s: what a load of the curve took; a try takes that, and EXPLAIN_S but in
    runs that are too short for it.
    """
    seconds = max(slot_s, EXPLAIN_S) if slot_s > EXPLAIN_S / SHORTER_AT_MOST else slot_s

    def again(point: Point) -> Point:
        return explain(point.offered_rps, seconds) if explain else point

    if not stopping:
        return stop_of(again(last), missed=True)
    for point in stopping:
        found = stop_of(again(point))
        if found.resource != NOTHING:
            break
    return found


def sweep(
    measure: Measure,
    *,
    peak_rps: float,
    seconds: float,
    fractions: Sequence[float] = (),
    explain: Measure | None = None,
) -> Curve:
    """One arm's `Sweep` to its end."""
    one = Sweep(measure, peak_rps=peak_rps, seconds=seconds, fractions=fractions, explain=explain)
    while one.advance():
        pass
    return one.curve


def sweep_in_turns(
    arms: Mapping[str, Measure],
    peaks_rps: Mapping[str, float],
    *,
    seconds: float,
    fractions: Sequence[float] = (),
    before_load: Callable[[int], object] = lambda number: None,
    explain: Mapping[str, Measure] | None = None,
) -> dict[str, Curve]:
    """A `Sweep` of every arm, interleaved by load: all arms at their first load, then all at their second.

    seconds: for all arms together. before_load: called before each load with its number from 1. explain: of the arms
    whose counters can be read.
    """
    explain = explain or {}
    sweeps = {
        name: Sweep(
            measure,
            peak_rps=peaks_rps[name],
            seconds=seconds / len(arms),
            fractions=fractions,
            explain=explain.get(name),
        )
        for name, measure in arms.items()
    }
    left, number = list(sweeps), 0
    while left:
        number += 1
        before_load(number)
        left = [name for name in left if sweeps[name].advance()]
    return {name: one.curve for name, one in sweeps.items()}
