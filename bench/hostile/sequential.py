"""Turns of the victim under attacks and beside what each is compared with, until it is known of each attack on which
side of the goal it is, or the time is over.

A round is a turn of each attack that is not decided, and then one of what each is compared with. After the rounds of
LOOKS each is looked at: one whose ratio lies on one side of the goal for certain is decided, and has no turns any more,
so that the time goes to those of which it is not known. What is certain:

    within   that the goal is met takes all attacks to be within it, and to take one that harms for one that does not
             is wrong however many others do none. So the error is of one attack, ERROR, over all looks together.
    above    that the goal is missed takes one attack, and each of many may seem to harm by chance. So the error is that
             of any of them, ERROR, over all attacks and all looks together.

A turn's p99 is the geometric mean of the middle half of its windows'. The machine's pauses are in few windows, so they
are not in it. It is no median: of neighbours that disturb about half of the windows a median is now that of the calm
ones and now that of the others, 40 times as much. What an attack does in few windows is not in it either. So an attack
is above the goal, too, if the p99 of whole turns is so for certain; and that ratio stands beside.

The machine is looked at before a round and after it, by the canary alone. A round around which it lost more of a core
than a run may lose does not count and is taken again; what any arm gave does not matter to that.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..harness.goals import GOALS
from ..harness.openloop import Point, middle
from ..harness.session import Session
from ..isolation.victim import ALONE
from .paired import Paired, paired

P99 = "hostile.p99_ratio"
LOOKS = (8, 16, 32, 64)  # turns of each
ERROR = 0.025  # on either side
BAD = 2.0
SHOWN = 0.025  # beside each ratio: what 95 % of such intervals hold, of one attack at one look
WITHIN, ABOVE, OPEN = "within", "above", ""


@dataclass
class Turn:
    """A slice of an arm. attach_ms: how long each took that attached after it; inf: it was refused, for `refused`."""

    point: Point
    attach_ms: list[float] = field(default_factory=list)
    refused: str = ""

    @property
    def p99_us(self) -> float:
        """Of its windows, the geometric mean of the middle half."""
        windows = sorted(self.point.window_p99_us)
        if not windows:
            return self.point.p99_us
        left_out = math.ceil(len(windows) / 4) if len(windows) > 2 else 0
        return statistics.geometric_mean(windows[left_out : len(windows) - left_out])


Arms = Mapping[str, Callable[[], Turn]]
Pair = tuple[Turn, Turn]


@dataclass
class Compared:
    """An attack and what it is compared with, turn by turn. lost: pairs left out, since the other one lost requests
    beside no attack: the machine stood still. verdict: WITHIN the goal, ABOVE it, or OPEN. ratio: of the turns' middle
    windows; whole: of their p99 over all requests."""

    name: str
    other: str
    pairs: list[Pair] = field(default_factory=list)
    lost: int = 0
    verdict: str = OPEN
    ratio: Paired | None = None
    whole: Paired | None = None

    def add(self, turn: Turn, other: Turn) -> None:
        if math.isfinite(other.point.p99_us):
            self.pairs.append((turn, other))
        else:
            self.lost += 1

    def measure(self) -> Paired | None:
        """The ratio of all pairs so far; None if there is none."""
        if self.pairs:
            self.ratio = paired([a.p99_us for a, _ in self.pairs], [b.p99_us for _, b in self.pairs])
            self.whole = paired([a.point.p99_us for a, _ in self.pairs], [b.point.p99_us for _, b in self.pairs])
        return self.ratio

    @property
    def of_all(self) -> float:
        """The same of all requests of all pairs; a few pauses of the machine may decide it."""
        return middle([a.point for a, _ in self.pairs]).p99_us / middle([b.point for _, b in self.pairs]).p99_us

    @property
    def bad(self) -> tuple[float, float]:
        """Which part of the turns had a p99 of more than BAD times the middle one of the other arm: of this arm and of
        the other. An attack that harms in few turns is in the first and not in the second."""
        limit_us = BAD * statistics.median(other.point.p99_us for _, other in self.pairs)
        each = [[turn.point.p99_us > limit_us for turn in arm] for arm in zip(*self.pairs, strict=True)]
        return statistics.fmean(each[0]), statistics.fmean(each[1])

    def look(self, of: int) -> None:
        """Decide, if the turns tell. of: as many attacks are compared."""
        ratio, whole, goal = self.measure(), self.whole, GOALS[P99]
        if ratio is None or whole is None:
            return
        never = ERROR / len(LOOKS) / of / 2  # of two ratios
        if not goal.met(ratio.low(never)) or not goal.met(whole.low(never)):
            self.verdict = ABOVE
        elif goal.met(ratio.high(ERROR / len(LOOKS))):
            self.verdict = WITHIN


@dataclass
class Rounds:
    """What was measured: turns of each arm that count; and of each attack what came of it."""

    turns: dict[str, list[Turn]] = field(default_factory=dict)
    compared: dict[str, Compared] = field(default_factory=dict)
    rounds: int = 0
    loud: int = 0

    @property
    def undecided(self) -> list[str]:
        return [name for name, one in self.compared.items() if one.verdict == OPEN]


def take(session: Session, arms: Arms, over: Mapping[str, str], seconds: float, of: int) -> Rounds:
    """Take rounds. arms: attacks first; over: of each attack, the arm that it is compared with; of: attacks compared in
    all, here and elsewhere. A first round is taken, however long it is, and then as many as there is time for."""
    done = Rounds({name: [] for name in arms}, {name: Compared(name, other) for name, other in over.items()})
    end, longest = time.monotonic() + seconds, 0.0
    while done.undecided and (not done.rounds or time.monotonic() + longest < end):
        wanted = {*done.undecided, *(over[name] for name in done.undecided), ALONE}
        few = {name: arm for name, arm in arms.items() if name in wanted}
        begun = time.monotonic()
        got, quiet = session.watched(lambda few=few: _round(session, few, done.rounds + 1))  # type: ignore[misc]
        longest = time.monotonic() - begun
        if quiet or (not done.rounds and time.monotonic() + longest >= end):  # the only one
            done.rounds += 1
            _add(done, got, of)
        else:
            done.loud += 1
    for one in done.compared.values():
        one.measure()
    return done


def _round(session: Session, arms: Arms, number: int) -> dict[str, Turn]:
    found = {}
    for name, arm in arms.items():
        session.say(f"round {number}: {name}")
        found[name] = arm()
    return found


def _add(done: Rounds, got: Mapping[str, Turn], of: int) -> None:
    for name, turn in got.items():
        done.turns[name].append(turn)
    for name in done.undecided:
        one = done.compared[name]
        one.add(got[name], got[one.other])
        if done.rounds in LOOKS:
            one.look(of)
