"""A lone durable put in short turns.

What a disk gives changes by the second, so what is compared is measured next to each other: all systems are up, idle
but for their heartbeats, and one of them has its turn.

Ours has every other turn; the others have those between, in an order that differs by round. Each turn of another one is
compared with the mean of ours right before it and right after it.

No turn is left out, unless the session is patient and the canary was loud around a round: then all turns of that round
are.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ..harness.numbers import Ratio, pairwise
from ..log.log import best_names


class Timed(Protocol):
    """What a turn gives."""

    @property
    def p50_us(self) -> float:
        """The median put, in us."""


T = TypeVar("T", bound=Timed)


@dataclass(frozen=True)
class Turns(Generic[T]):
    """ours: all our turns. others: by name. beside: for each of the others' turns, the mean p50 (us) of ours around."""

    ours: Sequence[T]
    others: Mapping[str, Sequence[T]]
    beside: Mapping[str, Sequence[float]]

    def ours_over(self, name: str) -> Ratio:
        """Our p50 over another one's, turn by turn."""
        return pairwise(self.beside[name], [turn.p50_us for turn in self.others[name]])

    def over_ours(self, name: str) -> Ratio:
        """Another one's p50 over ours, turn by turn."""
        return pairwise([turn.p50_us for turn in self.others[name]], self.beside[name])

    def better(self, name: str, ways: Sequence[str]) -> Turns[T]:
        """With the faster one of several ways to do the same in their place, as `name`.

        Which is faster is found for each round by all the other ones: of one round it would be the luckier one.
        """
        p50s = {way: [turn.p50_us for turn in self.others[way]] for way in ways}
        chosen = list(enumerate(best_names(p50s)))
        others = {key: turns for key, turns in self.others.items() if key not in ways}
        beside = {key: values for key, values in self.beside.items() if key not in ways}
        others[name] = [self.others[way][i] for i, way in chosen]
        beside[name] = [self.beside[way][i] for i, way in chosen]
        return Turns(self.ours, others, beside)


def order(names: Sequence[str], number: int) -> list[str]:
    """The others' order in round `number`: forwards, backwards, and then beginning with the next one."""
    first = number // 2 % len(names)
    turned = [*names[first:], *names[:first]]
    return turned[::-1] if number % 2 else turned


def joined(parts: Sequence[Turns[T]]) -> Turns[T]:
    """Rounds that were taken one by one, as one."""
    others = {name: [turn for part in parts for turn in part.others[name]] for name in parts[0].others}
    beside = {name: [value for part in parts for value in part.beside[name]] for name in parts[0].beside}
    return Turns([turn for part in parts for turn in part.ours], others, beside)


def take_turns(
    ours: Callable[[], T],
    others: Mapping[str, Callable[[], T]],
    rounds: Iterable[int],
    before: Callable[[int], None] = lambda number: None,
) -> Turns[T]:
    """Ours, another one, ours, the next one .., and ours at the end.

    rounds: their numbers. before: called with each of them.
    """
    mine = [ours()]
    got: dict[str, list[T]] = {name: [] for name in others}
    beside: dict[str, list[float]] = {name: [] for name in others}
    for number in rounds:
        before(number)
        for name in order(list(others), number):
            got[name].append(others[name]())
            mine.append(ours())
            beside[name].append(statistics.mean(turn.p50_us for turn in mine[-2:]))
    return Turns(mine, got, beside)
