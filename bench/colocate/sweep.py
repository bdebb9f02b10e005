"""Batch work over loads up to 0.9 of the peak, beside the line that it cannot exceed: what the load leaves of the core.

`linearity` of an arm at a load is the job's work over what it does alone, over 1 - load / peak. Each system has a line
of its own: the peak is kv's through the iokernel at the present distance of the cores, and that of the server on Linux
alone. So 1 says that moves cost nothing. All arms have a turn at a load, then at the next one; the job alone is first.

At the end each arm goes on to loads that it does not carry (wall.py): so the curve has an end, and counters say why.

Of ours there are targets without a bound on what moves may cost (`moves_percent` 100), the same with the default bound,
and the policy as it is by default. Raw hand-overs have the same targets without a bound: what a core that moves can
reach. A dedicated core is kv alone on it: by construction it leaves a job nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ..harness.numbers import plain
from ..harness.openloop import middle
from ..harness.session import Session
from .arms import COMPARED, LOW_TARGET_US, Beside, Ours, SweptArm
from .judge import middle_p99_us
from .plot import BOUNDED, DEDICATED, DEFAULT, SWEPT, SWEPT_RAW, SWEPT_TARGETS
from .raw import Raw
from .rows import add_row
from .wall import Wall, find_wall

LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the peak
DEFAULT_TARGET_US, DEFAULT_PERCENT = 10.0, 10  # of the policy `delay`
OVERLOADED = 0.8  # who achieves less of a load is not asked for a higher one in that turn
FIGURE = "colocate.linearity"

SweptRound = dict[tuple[str, float], Beside]  # by arm and load; at 0 the job alone


def arms_swept(ours: Ours, raw: Raw, linux: Mapping[str, SweptArm]) -> dict[str, SweptArm]:
    """All of the table."""
    found: dict[str, SweptArm] = {DEDICATED: ours.alone}
    found |= {name: partial(ours.beside, us) for us, name in SWEPT_TARGETS.items()}
    found[BOUNDED] = partial(ours.beside, LOW_TARGET_US, moves_percent=DEFAULT_PERCENT)
    found[DEFAULT] = partial(ours.beside, DEFAULT_TARGET_US, moves_percent=DEFAULT_PERCENT)
    found |= {name: partial(raw.beside, us) for us, name in SWEPT_RAW.items()}
    return found | {name: arm for name, arm in linux.items() if name == COMPARED}


class Swept:
    """The arms over loads."""

    def __init__(self, arms: Mapping[str, SweptArm], linux_peak_rps: float = math.nan) -> None:
        self.arms = arms
        self._linux_peak = linux_peak_rps
        self._got: dict[tuple[str, float], list[Beside]] = {}
        self._line: dict[tuple[str, float], list[float]] = {}
        self._walls: dict[str, Wall] = {}

    @property
    def slots(self) -> int:
        """Of a turn."""
        return len(self.arms) * len(LOADS) + 2

    def _alone(self, name: str) -> str:
        return COMPARED if name == COMPARED else BOUNDED

    def turn(self, peak_rps: float, seconds: float) -> SweptRound:
        """The job alone, then all arms at a load, then at the next; not who was overloaded by the one before."""
        able, found = dict(self.arms), SweptRound()
        for name in (BOUNDED, COMPARED):
            if name in able:
                found[name, 0.0] = able[name](0.0, seconds)
        for load in LOADS:
            for name, arm in list(able.items()):
                rate = load * (self._linux_peak if name == COMPARED else peak_rps)
                slot = arm(rate, seconds)
                found[name, load] = slot
                if slot.point.achieved_rps < OVERLOADED * slot.point.due_rps:
                    del able[name]
        return found

    def add(self, found: SweptRound) -> None:
        """A turn that counts."""
        for (name, load), slot in found.items():
            self._got.setdefault((name, load), []).append(slot)
            alone = found.get((self._alone(name), 0.0))
            if load and alone and alone.work > 0 and math.isfinite(slot.work):
                self._line.setdefault((name, load), []).append(slot.work / alone.work / (1 - load))

    def find_walls(self, at_peak: Callable[[Callable[[float], Wall | None]], Wall | None], slot_s: float) -> None:
        """Where each arm ends: from the load on at which it was overloaded, or from the peak. at_peak: calls what it is
        given with the peak, and forgets what comes of it if the cores moved meanwhile: then once more."""
        for name, arm in self.arms.items():
            reached = [load for load in LOADS if (name, load) in self._got]
            if not reached:
                continue
            first = reached[-1] if overloaded(self._got[name, reached[-1]]) else 1.0

            def wall(peak: float, arm: SweptArm = arm, first: float = first, name: str = name) -> Wall | None:
                rate = first * (self._linux_peak if name == COMPARED else peak)
                return find_wall(arm, rate, slot_s) if rate > 0 else None

            found = at_peak(wall) or at_peak(wall)
            if found:
                self._walls[name] = found

    def linearity(self, name: str) -> dict[float, float]:
        """By load: the middle of the turns'. A dedicated core leaves a job nothing."""
        if name == DEDICATED:
            return {load: 0.0 for load in LOADS if (name, load) in self._got}
        return {load: statistics.median(self._line[name, load]) for load in LOADS if (name, load) in self._line}

    def judge(self, session: Session) -> None:
        """A row an arm and load, why a curve has no more of them, and the figure: the default policy where it is
        farthest from the line."""
        for name in self.arms:
            self._add_rows(session, name)
        table = {name: found for name in self.arms if (found := self.linearity(name))}
        session.settings["linearity"] = {
            name: {f"{load:g}": plain(value) for load, value in found.items()} for name, found in table.items()
        }
        for name, found in table.items():
            cells = ", ".join(
                f"{value:.3g} at {load:g} (p99 {middle_p99_us(self._got[name, load]):.3g} us)"
                for load, value in found.items()
            )
            session.note(f"batch work over 1 - load / peak, {name}: {cells}")
        ours = table.get(DEFAULT)
        if not ours:
            session.figure(FIGURE, None, reason="kv carried no load, or the cores moved in each turn")
            return
        worst = min(ours, key=lambda load: ours[load])
        beside = {f"{name}, least": min(found.values()) for name, found in table.items() if name != DEFAULT}
        beside |= {"at load": worst, "kv's p99, us, there": middle_p99_us(self._got[DEFAULT, worst])}
        session.figure(FIGURE, ours[worst], runs=self._line[DEFAULT, worst], beside=beside)

    def _add_rows(self, session: Session, name: str) -> None:
        reached = [load for load in LOADS if (name, load) in self._got]
        if not reached:
            session.skip(f"{name}{SWEPT}", "kv carried no load, or each of its rounds was left out of judgement")
            return
        found = self.linearity(name)
        for load in reached:
            slots = self._got[name, load]
            row = add_row(session, f"{name}{SWEPT}", statistics.median(s.point.offered_rps for s in slots), slots)
            row["of_peak"] = load
            if load in found:
                row["linearity"] = plain(found[load])
        wall = self._walls.get(name)
        if not wall:
            why = f"{reached[-1]:g} of the peak: the cores moved while higher loads were offered"
            session.stop(f"{name}{SWEPT}", why)
            return
        for rate, slots in wall.slots.items():
            add_row(session, f"{name}{SWEPT}", rate, slots)
        session.stop(f"{name}{SWEPT}", wall.curve.stop, wall.curve.because)


def overloaded(slots: Sequence[Beside]) -> bool:
    """Whether less than OVERLOADED of a load was achieved in the middle of its turns."""
    point = middle([slot.point for slot in slots])
    return point.achieved_rps < OVERLOADED * point.offered_rps
