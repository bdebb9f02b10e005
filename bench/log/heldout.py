"""A rule against the best of many settings at its worst load, without luck in either choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..harness.numbers import pairwise


@dataclass(frozen=True)
class HeldOut:
    """The worst load and the setting that was best there, found on one half of the rounds; the ratio on the other."""

    load: str
    setting: str
    ratio: float
    chosen_at: float

    def __str__(self) -> str:
        return (
            f"{self.load}, against {self.setting!r}: {self.ratio:.3g} in the half of the rounds in which "
            f"they were not chosen, {self.chosen_at:.3g} in the other"
        )


def worst_held_out(
    ours: Mapping[str, Sequence[float]], fixed: Mapping[str, Mapping[str, Sequence[float]]]
) -> tuple[HeldOut, HeldOut]:
    """Rates by load, and by load and setting, one a round: the worst load against its best setting, without luck.

    The best of many noisy settings, at the worst of several loads, is the one that was luckiest in the rounds that
    chose it, so the ratio there is too low though all be equal. So load and setting are chosen by one half of the
    rounds, and the ratio is taken of the other, which had no part in the choice; and the other way round.
    Halves: rounds 0, 3, 4, 7, .. and 1, 2, 5, 6, .., which have as many of each direction (back_and_forth).
    """
    rounds = range(min(len(rates) for rates in ours.values()))
    first = [i for i in rounds if i % 4 in (0, 3)]
    second = [i for i in rounds if i % 4 in (1, 2)]

    def half(chosen_by: Sequence[int], taken_of: Sequence[int]) -> HeldOut:
        def ratio(load: str, name: str, of: Sequence[int]) -> float:
            return pairwise([ours[load][i] for i in of], [fixed[load][name][i] for i in of]).median

        found = {load: min((ratio(load, name, chosen_by), name) for name in fixed[load]) for load in fixed}
        load = min(found, key=lambda load: found[load])
        chosen_at, name = found[load]
        return HeldOut(load, name, ratio(load, name, taken_of), chosen_at)

    return half(first, second), half(second, first)
