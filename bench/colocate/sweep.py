"""Batch work over loads up to 0.9 of the peak, beside the line: what the load leaves of the core.

`linearity` of an arm at a load is the job's work over what it does alone, over 1 - load / peak. Each system has a line
of its own. All arms have a turn at a load, then at the next one; the job alone is first. The peak is what kv, or the
server on Linux, answers alone of more than it can carry, just before a load's arms and just after them: the host may
move the cores at any time, which changes what a core carries by a factor of two. A load is a part of the peak that was
searched for. 1 says that moves cost nothing.

Beside each value stands what a core that moves can reach at most (bound.py).

At the end each arm goes on to loads that it does not carry (wall.py): so the curve has an end, and counters say why.

Of ours there are targets without a bound on what moves may cost (`moves_percent` 100), the same with the default bound,
and the policy as it is by default. Raw hand-overs have the same targets without a bound: what a core that moves does
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
from ..harness.stops import UNKNOWN, Stop
from .arms import COMPARED, LOW_TARGET_US, Arm, Beside, Ours, SweptArm
from .bound import PAIRS_RPS, bound, line, pair_us
from .judge import middle_p99_us
from .plot import BOUNDED, DEDICATED, DEFAULT, SWEPT, SWEPT_RAW, SWEPT_TARGETS
from .raw import Raw
from .rows import add_row
from .wall import Wall, find_wall

LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the peak
DEFAULT_TARGET_US, DEFAULT_PERCENT = 10.0, 10  # of the policy `delay`
HELD_US = 100.0  # for which `delay` lets a request wait at most, to save moves
OVERLOADED = 0.8  # who achieves less of a load is not asked for a higher one in that turn
OVER = 1.2  # of the peak searched for, to see what is answered at most
FIGURE, OF_BOUND = "colocate.linearity", "colocate.linearity_of_bound"
TABLE = "Batch work over 1 - load / peak / the most that a core that moves can have (kv's p99, us), by load / peak"
PAIRS, MOST = "pairs of raw hand-overs", ", more than it carries"  # names in a round
MOVES = "moves a second there"
BY_CLOCK, BY_RAW = "the line less these moves, by the loop's clock", "the line less as many raw ones"
LET = "the line less all that moves may take by the policy"
PERCENT = {BOUNDED: DEFAULT_PERCENT, DEFAULT: DEFAULT_PERCENT}  # of the job's time that moves may take, by arm
LEFT = "left if moves take all they may"
HELD = {name: us for table in (SWEPT_TARGETS, SWEPT_RAW) for us, name in table.items()}
HELD |= {BOUNDED: HELD_US, DEFAULT: HELD_US}  # us, by arm

SweptRound = dict[tuple[str, float], Beside]  # by arm and load; at 0 the job alone, at 1 what follows the last load


def arms_swept(ours: Ours, raw: Raw, linux: Mapping[str, SweptArm]) -> dict[str, SweptArm]:
    """All of the table."""
    found: dict[str, SweptArm] = {DEDICATED: ours.alone}
    found |= {name: partial(ours.beside, us) for us, name in SWEPT_TARGETS.items()}
    found[BOUNDED] = partial(ours.beside, LOW_TARGET_US, moves_percent=DEFAULT_PERCENT)
    found[DEFAULT] = partial(ours.beside, DEFAULT_TARGET_US, moves_percent=DEFAULT_PERCENT)
    found |= {name: partial(raw.beside, us) for us, name in SWEPT_RAW.items()}
    return found | {name: arm for name, arm in linux.items() if name == COMPARED}


class Swept:
    """The arms over loads. alone: of each system, by the name of its arm with nobody else on the core; pairs: of raw
    hand-overs."""

    def __init__(
        self,
        arms: Mapping[str, SweptArm],
        alone: Mapping[str, Arm],
        pairs: Arm,
        linux_peak_rps: float = math.nan,
    ) -> None:
        self.arms = arms
        self._servers, self._pairs = alone, pairs
        self._linux_peak = linux_peak_rps
        self._got: dict[tuple[str, float], list[Beside]] = {}
        # Of each turn: the job's work over alone, and what was left, by load and by kv's core time (nan: not known).
        self._line: dict[tuple[str, float], list[tuple[float, float, float]]] = {}
        self._pair_us: list[float] = []
        self._walls: dict[str, Wall] = {}
        self._ends: dict[str, Stop] = {}  # what is used up beyond the last load, also where the cores moved meanwhile

    @property
    def slots(self) -> int:
        """Of a turn."""
        return len(self.arms) * len(LOADS) + 3 + len(self._servers) * (len(LOADS) + 1)

    def _peak(self, name: str, peak_rps: float) -> float:
        return self._linux_peak if name == COMPARED else peak_rps

    def turn(self, peak_rps: float, seconds: float) -> SweptRound:
        """The job alone, then all arms at a load, then at the next; not who was overloaded by the one before."""
        able, found = dict(self.arms), SweptRound()
        for name in (BOUNDED, COMPARED):
            if name in able:
                found[name, 0.0] = able[name](0.0, seconds)
        found[PAIRS, 0.0] = self._pairs(PAIRS_RPS, seconds)
        for load in LOADS:
            found |= self._most(load, peak_rps, seconds)
            for name, arm in list(able.items()):
                slot = arm(load * self._peak(name, peak_rps), seconds)
                found[name, load] = slot
                if slot.point.achieved_rps < OVERLOADED * slot.point.due_rps:
                    del able[name]
        return found | self._most(1.0, peak_rps, seconds)

    def _most(self, load: float, peak_rps: float, seconds: float) -> SweptRound:
        """What each system answers at most, before the arms at this load."""
        every = self._servers.items()
        return {(name + MOST, load): arm(OVER * self._peak(name, peak_rps), seconds) for name, arm in every}

    def add(self, found: SweptRound) -> None:
        """A turn that counts."""
        alone = found.get((BOUNDED, 0.0))
        pair = pair_us(found[PAIRS, 0.0], alone) if alone else None
        self._pair_us += [pair] if pair else []
        for (name, load), slot in found.items():
            if name not in self.arms:
                continue
            self._got.setdefault((name, load), []).append(slot)
            alone = found.get((COMPARED if name == COMPARED else BOUNDED, 0.0))
            most = answered_at_most(found, name, load) if load else 0.0
            if most > 0 and alone and alone.work > 0 and math.isfinite(slot.work):
                left = 1 - slot.point.offered_rps / most
                core_left = 1 - float(slot.point.extra.get("kv_core_share", math.nan))
                self._line.setdefault((name, load), []).append((slot.work / alone.work, left, core_left))

    def find_walls(self, at_peak: Callable[[Callable[[float], Wall | None]], Wall | None], slot_s: float) -> None:
        """Where each arm ends: from the load on at which it was overloaded, or from the peak. at_peak: calls what it is
        given with the peak, and forgets what comes of it if the cores moved meanwhile: then once more. If they moved
        again its loads are no rows; what the counters said of its end still is."""
        for name, arm in self.arms.items():
            reached = [load for load in LOADS if (name, load) in self._got]
            if not reached:
                continue
            first = reached[-1] if overloaded(self._got[name, reached[-1]]) else 1.0

            def wall(peak: float, arm: SweptArm = arm, first: float = first, name: str = name) -> Wall | None:
                rate = first * self._peak(name, peak)
                if not rate > 0:
                    return None
                found = find_wall(arm, rate, slot_s)
                self._ends[name] = found.curve.because
                return found

            found = at_peak(wall) or at_peak(wall)
            if found:
                self._walls[name] = found

    def linearity(self, name: str) -> dict[float, float]:
        """By load, of all turns; not where the load left nothing. A dedicated core leaves a job nothing."""
        if name == DEDICATED:
            return {load: 0.0 for load in LOADS if (name, load) in self._got}
        every = {load: line([(work, left) for work, left, _ in self._line.get((name, load), ())]) for load in LOADS}
        return {load: value for load, value in every.items() if value is not None}

    def bounds(self, name: str) -> dict[float, float]:
        """By load, what a core that moves can reach at most."""
        if name not in HELD or not self._pair_us:
            return {}
        pair = statistics.median(self._pair_us)
        rates = {load: [slot.point.offered_rps for slot in self._got.get((name, load), ())] for load in LOADS}
        return {load: bound(statistics.median(each), HELD[name], pair) for load, each in rates.items() if each}

    def judge(self, session: Session) -> None:
        """A row an arm and load, why a curve has no more of them, and the figures: the default policy where it is
        farthest from the line, and from what a core that moves can reach."""
        for name in self.arms:
            self._add_rows(session, name)
        table = {name: found for name in self.arms if (found := self.linearity(name))}
        limits = {name: found for name in self.arms if (found := self.bounds(name))}
        session.settings["linearity"] = by_text(table)
        session.settings["linearity_bound"] = by_text(limits)
        session.settings["raw_pair_us"] = [plain(one) for one in self._pair_us]
        session.table(TABLE, ["arm", *(f"{load:g}" for load in LOADS), LEFT], [self._line_of(name) for name in table])
        self._judge_default(session, table, limits.get(DEFAULT, {}))

    def _line_of(self, name: str) -> list[str]:
        """The arm's row of the table: what it has, of at most what, and kv's p99; and what the policy's bound on moves
        leaves of the line if they use it up."""
        values, most = self.linearity(name), self.bounds(name)
        cells = []
        for load in LOADS:
            told = f"{values[load]:.2f}{f' / {most[load]:.2f}' if load in most else ''}" if load in values else "-"
            p99 = f" ({middle_p99_us(self._got[name, load]):.0f})" if (name, load) in self._got else ""
            cells.append(f"{told}{p99}")
        return [name, *cells, f"{1 - PERCENT[name] / 100:.2f}" if name in PERCENT else "-"]

    def _judge_default(
        self, session: Session, table: Mapping[str, dict[float, float]], limits: Mapping[float, float]
    ) -> None:
        ours = table.get(DEFAULT)
        if not ours:
            for figure in (FIGURE, OF_BOUND):
                session.figure(figure, None, reason="kv carried no load, or the cores moved in each turn")
            return
        worst = min(ours, key=lambda load: ours[load])
        beside = {f"{name}, least": min(found.values()) for name, found in table.items() if name != DEFAULT}
        beside |= {"at load": worst, "kv's p99, us, there": middle_p99_us(self._got[DEFAULT, worst])}
        by_core = line([(work, left) for work, _, left in self._line[DEFAULT, worst]])
        if by_core is not None and math.isfinite(by_core):
            beside["batch work there, over what kv's core time left"] = by_core
        beside |= self._moves(worst)
        session.figure(FIGURE, ours[worst], runs=self._turns(worst), beside=beside)
        of = {load: value / limits[load] for load, value in ours.items() if load in limits}
        if not of:
            session.figure(OF_BOUND, None, reason="the raw hand-overs took nothing from the job, so there is no bound")
            return
        worst = min(of, key=lambda load: of[load])
        turns = [one / limits[worst] for one in self._turns(worst)]
        beside = {"at load": worst, "at most": limits[worst], "a raw pair, us": statistics.median(self._pair_us)}
        session.figure(OF_BOUND, of[worst], runs=turns, beside=beside)

    def _moves(self, load: float) -> dict[str, float]:
        """What the default policy's moves at a load leave of the line: by the time that they took by the loop's own
        clock, each until the core had arrived; if each pair took what a raw one does; and if they took all that the
        policy lets them."""
        left = statistics.fmean(left for _, left, _ in self._line[DEFAULT, load])
        extras = [slot.point.extra for slot in self._got[DEFAULT, load]]
        moves = statistics.fmean(float(extra.get("moves_per_s", 0.0)) for extra in extras)
        took = statistics.fmean(float(extra.get("moves_per_s", 0.0) * extra.get("move_ns", 0.0)) for extra in extras)
        found = {MOVES: moves, BY_CLOCK: 1 - 1e-9 * took / left, LET: 1 - DEFAULT_PERCENT / 100}
        if self._pair_us:
            found[BY_RAW] = 1 - moves / 2 * 1e-6 * statistics.median(self._pair_us) / left
        return found

    def _turns(self, load: float) -> list[float]:
        """The default policy's own value in each turn."""
        turns = self._line[DEFAULT, load]
        return [one for work, left, _ in turns if (one := line([(work, left)])) is not None]

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
            if most := self.bounds(name).get(load):
                row["linearity_bound"] = plain(most)
        wall = self._walls.get(name)
        if not wall:
            why = f"{reached[-1]:g} of the peak: the cores moved while higher loads were offered, which are left out"
            session.stop(f"{name}{SWEPT}", why, self._ends.get(name) or Stop(UNKNOWN, "no higher load was offered"))
            return
        for rate, slots in wall.slots.items():
            add_row(session, f"{name}{SWEPT}", rate, slots)
        session.stop(f"{name}{SWEPT}", wall.curve.stop, wall.curve.because)


def overloaded(slots: Sequence[Beside]) -> bool:
    """Whether less than OVERLOADED of a load was achieved in the middle of its turns."""
    point = middle([slot.point for slot in slots])
    return point.achieved_rps < OVERLOADED * point.offered_rps


def answered_at_most(found: SweptRound, name: str, load: float) -> float:
    """By the server of an arm alone, requests/s, just before a load's arms and just after them."""
    server = (COMPARED if name == COMPARED else DEDICATED) + MOST
    after = min((later for later in (*LOADS, 1.0) if later > load), default=load)
    return statistics.fmean(found[server, when].point.achieved_rps for when in (load, after))


def by_text(table: Mapping[str, Mapping[float, float]]) -> dict[str, dict[str, object]]:
    """For the document."""
    return {name: {f"{load:g}": plain(value) for load, value in found.items()} for name, found in table.items()}
