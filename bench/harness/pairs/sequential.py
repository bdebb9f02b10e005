"""Turns of arms and of what each is compared with, until it is known of each on which side of its figure's goal it is,
or the time is over.

A round is a turn of each arm that is not decided, and of what each is compared with. After the rounds of LOOKS each is
looked at, and once more when the time is over: one whose ratio lies on one side of the goal for certain is decided, and
has no turns any more, so that the time goes to those of which it is not known. What is certain:

    within   that the goal is met takes all arms of the figure to be within it, and to take one that harms for one that
             does not is wrong however many others do none. So the error is of one arm, ERROR, over all looks together.
    above    that the goal is missed takes one arm, and each of many may seem to harm by chance. So the error is that
             of any of them, ERROR, over all arms and all looks together.

The look at the end has the place of the first one that was not reached: what an arm gave does not say when that is.

A turn's p99 is the geometric mean of the middle half of its windows'. The machine's pauses are in few windows, so they
are not in it. It is no median: of neighbours that disturb about half of the windows a median is now that of the calm
ones and now that of the others, 40 times as much. What an arm does in few windows is not in it either. So an arm is
above the goal, too, if the p99 of whole turns is so for certain; and that ratio stands beside.

The machine is looked at before a round and after it, by the canary alone. A round around which it lost more of a core
than a run may lose does not count and is taken again; what any arm gave does not matter to that.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ..goals import GOALS
from ..openloop import Point, middle
from ..session import Session
from .paired import Paired, paired

LOOKS = (8, 16, 32, 64)  # turns of each
ERROR = 0.025  # on either side
BAD = 2.0
SHOWN = 0.025  # beside each ratio: what 95 % of such intervals hold, of one arm at one look
WITHIN, ABOVE, OPEN = "within", "above", ""


@dataclass
class Turn:
    """A slice of an arm."""

    point: Point

    @property
    def p99_us(self) -> float:
        """Of its windows, the geometric mean of the middle half."""
        windows = sorted(self.point.window_p99_us)
        if not windows:
            return self.point.p99_us
        left_out = math.ceil(len(windows) / 4) if len(windows) > 2 else 0
        return statistics.geometric_mean(windows[left_out : len(windows) - left_out])


T = TypeVar("T", bound=Turn)
Pair = tuple[Turn, Turn]


@dataclass
class Compared:
    """An arm and what it is compared with, turn by turn, for a figure that is the largest of `of` ratios.

    lost: pairs left out, since the other one lost requests: the machine stood still. verdict: WITHIN the goal, ABOVE
    it, or OPEN. ratio: of the turns' middle windows; whole: of their p99 over all requests.
    """

    name: str
    other: str
    figure: str
    of: int = 1
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
        the other. An arm that harms in few turns is in the first and not in the second."""
        limit_us = BAD * statistics.median(other.point.p99_us for _, other in self.pairs)
        each = [[turn.point.p99_us > limit_us for turn in arm] for arm in zip(*self.pairs, strict=True)]
        return statistics.fmean(each[0]), statistics.fmean(each[1])

    def look(self) -> None:
        """Decide, if the turns tell."""
        ratio, whole, goal = self.measure(), self.whole, GOALS[self.figure]
        if ratio is None or whole is None:
            return
        never = ERROR / len(LOOKS) / self.of / 2  # of two ratios
        if not goal.met(ratio.low(never)) or not goal.met(whole.low(never)):
            self.verdict = ABOVE
        elif goal.met(ratio.high(ERROR / len(LOOKS))):
            self.verdict = WITHIN


@dataclass
class Rounds(Generic[T]):
    """What was measured: turns of each arm that count, an arm's nth of the nth round that counts; and what came of each
    that is compared."""

    turns: dict[str, list[T]] = field(default_factory=dict)
    compared: dict[str, Compared] = field(default_factory=dict)
    rounds: int = 0
    loud: int = 0

    @property
    def undecided(self) -> list[str]:
        return [name for name, one in self.compared.items() if one.verdict == OPEN]

    def between(self, name: str, other: str) -> Paired | None:
        """The ratio of two arms that nobody judges, in the rounds that have both; None if there is none."""
        both = zip(self.turns.get(name, ()), self.turns.get(other, ()), strict=False)
        kept = [(a.p99_us, b.p99_us) for a, b in both if math.isfinite(b.point.p99_us)]
        return paired([a for a, _ in kept], [b for _, b in kept]) if kept else None


def take(
    session: Session,
    arms: Mapping[str, Callable[[], T]],
    compared: Sequence[Compared],
    seconds: float,
    also: Mapping[str, Collection[str]] | None = None,
    *,
    there_and_back: bool = False,
) -> Rounds[T]:
    """Take rounds. A first one is taken, however long it is, and then as many as there is time for.

    arms: in the order of their turns. also: by the name of one that is compared, arms that have turns as long as it is
    not decided. there_and_back: every other round has the opposite order, so that none is always the first of a pair.
    """
    done: Rounds[T] = Rounds({name: [] for name in arms}, {one.name: one for one in compared})
    end, longest = time.monotonic() + seconds, 0.0
    while done.undecided and (not done.rounds or time.monotonic() + longest < end):
        wanted = {*done.undecided, *(done.compared[name].other for name in done.undecided)}
        wanted.update(*((also or {}).get(name, ()) for name in done.undecided))
        few = {name: arm for name, arm in arms.items() if name in wanted}
        if there_and_back and done.rounds % 2:
            few = dict(reversed(few.items()))
        begun = time.monotonic()
        got, quiet = session.watched(lambda few=few: _round(session, few, done.rounds + 1))  # type: ignore[misc]
        longest = time.monotonic() - begun
        if quiet or (not done.rounds and time.monotonic() + longest >= end):  # the only one
            done.rounds += 1
            _add(done, got)
        else:
            done.loud += 1
    for name in done.undecided:
        if done.rounds not in LOOKS and done.rounds < LOOKS[-1]:
            done.compared[name].look()
    for one in done.compared.values():
        one.measure()
    return done


def _round(session: Session, arms: Mapping[str, Callable[[], T]], number: int) -> dict[str, T]:
    found = {}
    for name, arm in arms.items():
        session.say(f"round {number}: {name}")
        found[name] = arm()
    return found


def _add(done: Rounds[T], got: Mapping[str, T]) -> None:
    for name, turn in got.items():
        done.turns[name].append(turn)
    for name in done.undecided:
        one = done.compared[name]
        one.add(got[name], got[one.other])
        if done.rounds in LOOKS:
            one.look()
