"""Quieter rounds are waited for: `corelane bench NAME --patient SECONDS`.

A round is loud if the canary lost more than LOST_MOST of a core in the slices just before and just after it. Nothing
else decides: no result of an arm is looked at.

    before a round   loud slices are taken again until one is quiet
    a loud round     is measured again, all arms of it, so that value i of an arm still pairs with value i of another
    what stays loud  when the time is over is left out, all arms of it; if fewer than half of the rounds are quiet, all
                     are kept, and the canary of the whole run says that nothing is judged (`Canary.loud`)

The time bounds what is added to the run: waiting and discarded rounds. Nothing is begun that would not end in time,
were it as long as the last one of its kind; what has begun is finished. Each discarded round is in the document.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from .jitter import LOST_MOST, Canary, Gaps, together, worst

T = TypeVar("T")
Slice = Sequence[Gaps]  # one look of the canary, by core
LOOK_S = 0.05  # at least: one pause of a millisecond or two, which is normal, does not make a round loud
PAUSE_S = 0.5  # between two looks while it waits: the canary uses the cores that it waits for


@dataclass
class _Round(Generic[T]):
    """What a round gave, and the slices on both sides of it."""

    number: int
    value: T
    before: int
    after: int
    around: Gaps

    @property
    def loud(self) -> bool:
        return self.around.lost_fraction > LOST_MOST


@dataclass
class Patience:
    """The time that a run may add for quieter rounds, and what became of it."""

    seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    spent_s: float = 0.0
    rounds: int = 0
    repeated: int = 0
    left_out: int = 0
    loud_kept: int = 0
    discarded: list[dict[str, Any]] = field(default_factory=list)
    _parts: int = 0
    _look_s: float = 0.0  # what the last look took: much more than it was asked for, where others have the cores

    def __bool__(self) -> bool:
        return self.seconds > 0

    @property
    def left_s(self) -> float:
        return self.seconds - self.spent_s

    def take(self, count: int, measure: Callable[[int], T], look: Callable[[], Slice], canary: Canary) -> list[T]:
        """`count` rounds, or those of them that are quiet, in order. measure: a round, by its number from 0.

        look: a slice that `canary` has not counted. The slices around the rounds returned are counted then; the others
        are left out of it.
        """
        self._parts += 1
        slices = [self._timed(look)]
        rounds: list[_Round[T]] = []
        for number in range(count):
            while True:
                self._wait(slices, look)
                began, before = self.clock(), len(slices) - 1
                value = measure(number)
                slices.append(self._timed(look))
                took = self.clock() - began
                got = _Round(number, value, before, before + 1, worst(together(slices[before:])))
                if not got.loud or took > self.left_s:
                    break
                self.spent_s += took
                self.repeated += 1
                self._discard(got, "measured again")
            rounds.append(got)
        kept = self._kept(rounds)
        around = {index for one in kept for index in (one.before, one.after)}
        for index, gaps in enumerate(slices):
            canary.count(gaps, left_out=index not in around)
        return [one.value for one in kept]

    def _wait(self, slices: list[Slice], look: Callable[[], Slice]) -> None:
        """Look again until the last slice is quiet, or no time is left for one more."""
        while worst(slices[-1]).lost_fraction > LOST_MOST and self.left_s > PAUSE_S + self._look_s:
            began = self.clock()
            self.sleep(PAUSE_S)
            slices.append(self._timed(look))
            self.spent_s += self.clock() - began

    def _timed(self, look: Callable[[], Slice]) -> Slice:
        began = self.clock()
        seen = look()
        self._look_s = self.clock() - began
        return seen

    def _kept(self, rounds: list[_Round[T]]) -> list[_Round[T]]:
        loud = [one for one in rounds if one.loud]
        self.rounds += len(rounds)
        if 2 * len(loud) > len(rounds):
            self.loud_kept += len(loud)
            return rounds
        self.left_out += len(loud)
        for one in loud:
            self._discard(one, "left out")
        return [one for one in rounds if not one.loud]

    def _discard(self, one: _Round[T], what: str) -> None:
        found = {"cpu": one.around.cpu, "lost_fraction": one.around.lost_fraction}
        self.discarded.append({"part": self._parts, "round": one.number + 1, "what": what, **found})

    def __str__(self) -> str:
        said = (
            f"--patient {self.seconds:g}: {self.repeated} rounds measured again and {self.left_out} of {self.rounds} "
            f"left out of judgement, since the canary lost more than {100 * LOST_MOST:g} % of a core around them; "
            f"{self.spent_s:.3g} s were added"
        )
        few = f"; {self.loud_kept} more are as loud and kept, for they are more than half of their part of the run"
        return said + few if self.loud_kept else said

    def document(self) -> dict[str, Any]:
        """The member "patient" of the settings in the JSON document. part: which call of `take`, from 1."""
        names = ("seconds", "spent_s", "rounds", "repeated", "left_out", "loud_kept", "discarded")
        return {name: getattr(self, name) for name in names}
