"""How far apart the two measured cores lie, and peaks sorted by it.

A host may put the two cores of a virtual machine near to each other or far apart, and move them while we measure. What
crosses between them depends on that more than on anything that we do. So a search for a peak is told apart by the
round trip of a cache line before and after it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial

from .openloop import Curve
from .session import Session

LINE_S = 0.01  # a look
FAR_NS = 160.0  # of a line's round trip: within one third-level cache it takes half as long, between two twice as long
NEAR, FAR, MOVED = "near", "far", "moved"


def distance(*lines_ns: float) -> str:
    """NEAR or FAR, if all round trips say so; else MOVED."""
    said = {FAR if ns >= FAR_NS else NEAR for ns in lines_ns}
    return said.pop() if len(said) == 1 else MOVED


class ByDistance:
    """Peaks of arms, by the distance of the cores while they were searched for. goals: what was promised of a figure's
    arm at each distance, of which the figure itself has the lower one."""

    def __init__(self, session: Session, goals: Mapping[str, float] | None = None) -> None:
        self._session = session
        self._goals = goals or {}
        self._searches: dict[str, Callable[[], Curve]] = {}
        self._lines_ns: dict[str, list[float]] = {NEAR: [], FAR: [], MOVED: []}
        self._peaks_rps: dict[str, dict[str, list[float]]] = {NEAR: {}, FAR: {}, MOVED: {}}

    def watched(self, name: str, search: Callable[[], Curve]) -> Callable[[], Curve]:
        """The search of an arm, which is sorted in."""
        self._searches[name] = search
        return partial(self._search, name)

    def _search(self, name: str) -> Curve:
        before = self._session.measure_cacheline(LINE_S)
        curve = self._searches[name]()
        self.add(name, curve.peak_rps, before, self._session.measure_cacheline(LINE_S))
        return curve

    def add(self, name: str, peak_rps: float, *lines_ns: float) -> None:
        """Sort one peak in."""
        where = distance(*lines_ns)
        self._lines_ns[where] += lines_ns
        self._peaks_rps[where].setdefault(name, []).append(peak_rps)

    def complete(self) -> None:
        """If the cores now lie at a distance at which an arm has no peak yet: search for it."""
        for name in self._searches:
            now = distance(self._session.measure_cacheline(LINE_S))
            if name not in self._peaks_rps[now]:
                self._session.say(f"the cores are {now} now, for the first time: {name}")
                self._search(name)

    def medians(self, name: str) -> dict[str, float]:
        """The median of an arm's peaks at each distance that there was."""
        found = {where: self._peaks_rps[where].get(name, []) for where in (NEAR, FAR)}
        return {where: statistics.median(rates) for where, rates in found.items() if rates}

    def beside(self, name: str) -> dict[str, float]:
        """For the figure of an arm: its medians, and what they are of the goals there."""
        found = self.medians(name)
        return found | {f"{at} / {goal:,.0f}": found[at] / goal for at, goal in self._goals.items() if at in found}

    def report(self) -> None:
        """Settings and a note that name the distance, and what each arm carried at it."""
        self._session.settings["by_distance"] = {
            where: {"line_ns": lines, "peaks_rps": self._peaks_rps[where]} if lines else None
            for where, lines in self._lines_ns.items()
        }
        for where in (NEAR, FAR):
            if lines := self._lines_ns[where]:
                rates = (f"{name} {of[where]:,.0f}/s" for name in self._searches if where in (of := self.medians(name)))
                trip = f"a cache line's round trip of {min(lines):.0f} to {max(lines):.0f} ns"
                self._session.note(f"cores {where} ({trip}): {', '.join(rates)}")
            else:
                self._session.note(f"cores {where}: the host never had them so while peaks were searched for")
