"""Arms by turns, until it is known of each ratio on which side of the goal it lies, or the time is over.

A turn is a slot, or several in succession where an arm does something at intervals. A round is a turn of each arm that
is not decided and of each that one is compared with: A B, then B A. After LOOKS rounds each ratio is looked at. One
that lies on one side of the goal for certain is decided, and has no turns any more, so that the time goes to those of
which it is not known. What is certain:

    met      the error is of one ratio, ERROR, over all looks together: to take the worst of many for one that is
             within the goal is to be wrong about that one.
    missed   the error is that of any of them: one of many may seem to miss it by chance.

Both by the p99 of all requests. It is that of a few slots where some gaps are not told by anybody, and the few turns
that have one say too little of how many there could be. So the middle slots must say the same, by an interval of their
own; or, of an arm that misses the goal, more of its turns must have a stall than of the other's, by an exact test.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ....runtime.hist import Hist
from ..goals import GOALS
from ..numbers import plain as in_json
from ..openloop import Point, middle
from ..session import Session
from .host import Host
from .pooled import Pooled, middles, more_often, pooled
from .waits import Waits

LOOKS = (8, 16, 32, 64, 128)  # rounds; the last look is when the time is over
ERROR = 0.025  # on either side
SHOWN = 0.025  # beside the ratio, likewise
LOOKED_S = 10.0  # a run that is no shorter has the first look, however long its rounds are
LOST_MOST = 0.01  # of a slot: as much as its p99 tells of
LEFT_MOST, APART_MOST = 0.5, 0.2  # parts of the slots of an arm that are left out, and by which two arms differ
SLOT_S, SHORTEST_S = 0.02, 0.005  # of an arm; shorter where fewer than SLOTS would find room
SLOTS = 20
STALL = 3.0  # a slot whose p99 is so many times that of the middle one
SURE = f"{100 * (1 - 2 * SHOWN):g} %"
MET, MISSED, OPEN = "met", "missed", ""


@dataclass
class Slot:
    """A slot of an arm. host_s: what the host took meanwhile of the CPU of which it took most; None: not known.
    others_s: how long others had the CPU of the arm's thread that lost most to them (waits.py)."""

    point: Point
    host_s: float | None
    others_s: float = 0.0

    @property
    def disturbed(self) -> bool:
        """Whether so much was taken that the p99 may be that of it."""
        return self.lost_s > LOST_MOST * self.point.seconds

    @property
    def lost_s(self) -> float:
        """What was taken by one of the two."""
        return max(self.host_s or 0.0, self.others_s)


Turn = Sequence[Slot]
Pair = tuple[Turn, Turn]


@dataclass
class Compared:
    """An arm and the one that its p99 is compared with, turn by turn. less: what is taken off the ratio before it is
    compared with the goal: 1, where that is of a part that is added. verdict: MET, MISSED or OPEN."""

    figure: str
    name: str
    other: str
    less: float = 0.0
    pairs: list[Pair] = field(default_factory=list)
    verdict: str = OPEN
    ratio: Pooled | None = None
    middle: Pooled | None = None

    @property
    def slots(self) -> dict[str, list[Slot]]:
        """Of each of the two arms."""
        sides = zip(*self.pairs, strict=True) if self.pairs else ((), ())
        return {name: [slot for turn in side for slot in turn] for name, side in zip(self._both, sides, strict=True)}

    @property
    def _both(self) -> tuple[str, str]:
        return self.name, self.other

    @property
    def left_out(self) -> dict[str, int]:
        """Slots in which the host, or others, took a CPU, by arm."""
        return {name: sum(slot.disturbed for slot in slots) for name, slots in self.slots.items()}

    @property
    def shares(self) -> dict[str, float]:
        """The part of its slots that is left out, by arm."""
        return {name: n / len(self.slots[name]) for name, n in self.left_out.items() if self.slots[name]}

    @property
    def doubtful(self) -> str:
        """Why what is left of the arms is not compared with the goal; "" if it is."""
        shares = self.shares.values()
        said = " and ".join(f"{100 * share:.0f} % of {name}'s" for name, share in self.shares.items())
        if max(shares, default=0.0) > LEFT_MOST:
            return f"of the slots {said} are left out, which is too many: repeat it on a quieter machine"
        if shares and max(shares) - min(shares) > APART_MOST:
            return f"of the slots {said} are left out: too far apart to compare what is left"
        return ""

    @property
    def counted(self) -> int:
        """Turns of which something counts, of the arm that has fewer."""
        return min(sum(not all(slot.disturbed for slot in pair[side]) for pair in self.pairs) for side in (0, 1))

    @property
    def value(self) -> float:
        """What is compared with the goal; nan: nothing is known."""
        return self.ratio.value - self.less if self.ratio else math.nan

    @property
    def plain(self) -> Pooled | None:
        """The ratio of all slots, those in which a CPU was taken among them."""
        return _of(self.pairs, every=True)

    @property
    def of_middle_slots(self) -> float:
        """What it would be of the middle slot of each arm, of those that count; nan: an arm has none."""
        return self.middle.value - self.less if self.middle else math.nan

    def ends(self, error: float) -> tuple[float, float]:
        """Beyond each of these `value` should be with that probability at most."""
        return self._ends(self.ratio, error)

    def _ends(self, ratio: Pooled | None, error: float) -> tuple[float, float]:
        return (ratio.low(error) - self.less, ratio.high(error) - self.less) if ratio else (-math.inf, math.inf)

    def measure(self) -> None:
        """The ratios of the pairs so far."""
        self.ratio = _of(self.pairs)
        kept = [[[slot.point.p99_us for slot in pair[i] if not slot.disturbed] for pair in self.pairs] for i in (0, 1)]
        self.middle = middles(*kept) if all(map(any, kept)) else None

    def _stalls(self, side: int) -> float:
        """How likely it is chance that an arm has more turns with a slot of STALL times its middle one's p99 than the
        other arm has, of the turns of which something counts."""
        found = []
        for i in (side, 1 - side):
            turns = [[slot.point.p99_us for slot in pair[i] if not slot.disturbed] for pair in self.pairs]
            worst = [max(turn) for turn in turns if turn]
            middle_us = statistics.median(value for turn in turns for value in turn) if worst else math.inf
            found += [sum(value > STALL * middle_us for value in worst), len(worst)]
        return more_often(*found)

    def look(self, of: int = 1) -> None:
        """Decide, if the slots tell. of: as many are compared."""
        self.measure()
        if self.doubtful:
            return
        goal, looks = GOALS[self.figure], len(LOOKS) + 1
        worse = 0 if goal.sense == "at most" else 1  # the end that misses the goal only if all else does
        one, any_one = ERROR / looks, ERROR / looks / of
        often = not goal.met(self._ends(self.middle, any_one)[worse]) or self._stalls(worse) <= any_one
        if not goal.met(self.ends(any_one)[worse]) and often:
            self.verdict = MISSED
        elif all(goal.met(self._ends(ratio, one)[1 - worse]) for ratio in (self.ratio, self.middle)):
            self.verdict = MET


def _of(pairs: Sequence[Pair], *, every: bool = False) -> Pooled | None:
    """None: an arm has no slot that counts."""
    above, below = ([_hist(pair[side], every=every) for pair in pairs] for side in (0, 1))
    return pooled(above, below) if any(above) and any(below) else None


def _hist(turn: Turn, *, every: bool) -> Hist | None:
    """Of the slots of a turn that count; None: none does."""
    found = [slot.point.hist for slot in turn if slot.point.hist and (every or not slot.disturbed)]
    if len(found) < 2:
        return found[0] if found else None
    whole = found[0].snapshot()
    for hist in found[1:]:
        whole.merge(hist)
    return whole


@dataclass
class Taken:
    """Turns of each arm, what came of the comparisons by arm, and why the host is not known; "" if it is."""

    turns: dict[str, list[Turn]]
    compared: dict[str, Compared]
    host: str = ""
    rounds: int = 0

    @property
    def undecided(self) -> list[str]:
        return [name for name, one in self.compared.items() if one.verdict == OPEN]


@dataclass(frozen=True)
class Arm:
    """slot(meanwhile): measures one, and keeps the histogram; `meanwhile` is entered while requests are under way.
    turn_s: of so much time is a turn, in slots; 0: it is one slot. within: around a turn.

    threads: that ask and answer, of any process; if somebody else has their CPU, the slot is left out. own: others that
    are a part of what the arm does; nothing is left out for these. Both are asked for at each slot."""

    slot: Callable[[AbstractContextManager[object]], Point]
    turn_s: float = 0.0
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    threads: Callable[[], Collection[int]] = tuple
    own: Callable[[], Collection[int]] = tuple


Arms = Mapping[str, Arm]


def compare(
    session: Session, figure: str, arms: Arms, over: Mapping[str, str], seconds: float, *, less: float = 0.0
) -> Taken:
    """Take turns. over: of each arm that is compared, the other one.

    A first round is taken, however long it is, and then as many as there is time for; in a run of LOOKED_S so many as
    the first look needs. less: see `Compared`."""
    done = Taken({name: [] for name in arms}, {a: Compared(figure, a, b, less) for a, b in over.items()})
    session.take_canary()
    least = LOOKS[0] if session.seconds >= LOOKED_S else 1
    end, longest = time.monotonic() + seconds, 0.0
    with Host(session.cores) as host:
        done.host = host.why_not
        while done.undecided and (_few(done, least) or time.monotonic() + longest < end):
            begun = time.monotonic()
            _round(session, host, arms, over, done)
            longest = max(longest, time.monotonic() - begun)
            if done.rounds in LOOKS:
                _look(done, len(over))
    _look(done, len(over))
    session.take_canary()
    return done


def _few(done: Taken, least: int) -> bool:
    """Whether there are fewer turns than are taken in any case: those that the host took are made up for, up to as many
    again."""
    counted = min(done.compared[name].counted for name in done.undecided)
    return counted < least and done.rounds < (2 * least if least > 1 else 1)


def slot_s(seconds: float) -> float:
    """How long a slot of one of two arms is, in so much time."""
    return max(min(SLOT_S, seconds / SLOTS), SHORTEST_S)


def _round(session: Session, host: Host, arms: Arms, over: Mapping[str, str], done: Taken) -> None:
    undecided = done.undecided
    wanted = {*undecided, *(over[name] for name in undecided)}
    wanted |= arms.keys() - over.keys() - set(over.values())  # what is shown beside
    names = [name for name in arms if name in wanted]
    done.rounds += 1
    got: dict[str, Turn] = {}
    for name in names if done.rounds % 2 else reversed(names):
        session.say(f"turn {done.rounds}: {name}")
        got[name] = _turn(host, arms[name])
        done.turns[name].append(got[name])
    for name in undecided:
        done.compared[name].pairs.append((got[name], got[over[name]]))


def _turn(host: Host, arm: Arm) -> Turn:
    with arm.within():
        begun = time.monotonic()
        slots = [_slot(host, arm)]
        while time.monotonic() - begun < arm.turn_s:
            slots.append(_slot(host, arm))
    return slots


def _slot(host: Host, arm: Arm) -> Slot:
    with Waits(arm.threads(), arm.own()) as waits:
        before = host.taken_s()
        point = arm.slot(waits.watching())
        after = host.taken_s()
    return Slot(point, _most(before, after), waits.others_s)


def _most(before: Mapping[int, float] | None, after: Mapping[int, float] | None) -> float | None:
    """What the host took between two looks of the CPU of which it took most, s; None: not known."""
    return None if before is None or after is None else max(after[cpu] - before[cpu] for cpu in after)


def _look(done: Taken, of: int) -> None:
    for name in done.undecided:
        done.compared[name].look(of)


def rows(session: Session, done: Taken, named: Callable[[str], str] = str) -> dict[str, dict[str, Any]]:
    """A row for each arm, of the slots in which nobody took a CPU, if there are any; by arm. named: its name in it."""
    found = {}
    for arm, turns in done.turns.items():
        slots = [slot for turn in turns for slot in turn]
        kept = [slot for slot in slots if not slot.disturbed]
        row = session.point(named(arm), middle([slot.point for slot in kept or slots]))
        took = [slot.host_s for slot in slots if slot.host_s is not None]
        found[arm] = row
        row |= {"slots": len(slots), "left_out": len(slots) - len(kept), "host_ms": 1e3 * sum(took) if took else None}
    return found


def between(done: Taken, name: str, other: str) -> float:
    """The p99 of an arm over that of another one, which it was not compared with, in the rounds that both had, without
    those in which the host took a CPU; nan: there is none."""
    return compared(done, name, other).value


def compared(done: Taken, name: str, other: str) -> Compared:
    """The same, with its interval. Of two arms that do the same it is what the machine alone makes of a ratio."""
    one = Compared("", name, other, pairs=[*zip(done.turns[name], done.turns[other], strict=False)])
    one.measure()
    return one


def judge(
    session: Session,
    figure: str,
    done: Taken,
    *,
    beside: Mapping[str, float] | None = None,
    alike: Compared | None = None,
) -> None:
    """Set the figure to the worst ratio, with its interval and what it would be of all slots. alike: of two arms that
    do the same; its interval is the bound of what can be told, and stands beside."""
    known = {name: one for name, one in done.compared.items() if one.ratio is not None}
    session.settings.setdefault("tails", {})[figure] = {name: said(one) for name, one in done.compared.items()}
    if done.host:
        session.note(f"{figure}: {done.host}; no slot is left out for it")
    if not known:
        session.figure(
            figure, None, reason="in each slot of an arm the host took a CPU, or others: repeat it on a quieter machine"
        )
        return
    sign = 1 if GOALS[figure].sense == "at most" else -1
    worst = max(known.values(), key=lambda one: math.inf if math.isnan(one.value) else sign * one.value)
    if len(done.compared) > 1:
        session.note(f"{figure} is that of {worst.name}")
    low, high = worst.ends(SHOWN)
    with_it = {f"{SURE} from": low, f"{SURE} to": high, "turns of each": float(worst.counted)}
    if plain := worst.plain:
        with_it["of all slots"] = plain.value - worst.less
    with_it["of the middle slots"] = worst.of_middle_slots
    with_it |= {f"left out, {arm}": float(n) for arm, n in worst.left_out.items()}
    with_it |= {f"of slots, {arm}": float(len(slots)) for arm, slots in worst.slots.items()}
    undecided = doubt(done)
    if alike:
        low, high = alike.ends(SHOWN)
        with_it |= {f"bound: {alike.name}, {SURE} from": low, f"bound: {alike.name}, {SURE} to": high}
        undecided += f"; {alike.name}: {low:.3g} to {high:.3g}" if undecided else ""
    session.figure(figure, worst.value, undecided=undecided, beside=with_it | dict(beside or {}))


def doubt(done: Taken) -> str:
    """Why the figure is not judged, if so."""
    if not done.undecided or any(one.verdict == MISSED for one in done.compared.values()):
        return ""
    if why := {name: one.doubtful for name, one in done.compared.items() if one.verdict == OPEN and one.doubtful}:
        return "; ".join(why.values() if len(done.compared) == 1 else (f"{name}: {text}" for name, text in why.items()))
    ends = {name: done.compared[name].ends(SHOWN) for name in done.undecided}
    spans = [f"{name}: {low:.3g} to {high:.3g} with {SURE}" for name, (low, high) in ends.items()]
    return f"not known on which side of the goal it lies: {', '.join(spans)}; measure for longer (--seconds)"


def said(one: Compared) -> dict[str, Any]:
    """What came of a comparison, for the document."""
    low, high = one.ends(SHOWN)
    plain = one.plain
    return {
        "over": one.other,
        "value": in_json(one.value),
        "from": in_json(low),
        "to": in_json(high),
        "of_all_slots": in_json(plain.value - one.less) if plain else None,
        "of_middle_slots": in_json(one.of_middle_slots),
        "turns": len(one.pairs),
        "slots": {name: len(slots) for name, slots in one.slots.items()},
        "left_out": one.left_out,
        "verdict": one.verdict or "not decided",
        "p99_us_of_slots": {name: [in_json(slot.point.p99_us) for slot in slots] for name, slots in one.slots.items()},
        "host_ms_of_slots": {name: [_ms(slot.host_s) for slot in slots] for name, slots in one.slots.items()},
        "others_ms_of_slots": {name: [_ms(slot.others_s) for slot in slots] for name, slots in one.slots.items()},
    }


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 3)
