"""Peaks of several arms, found under the same conditions: the same tries, the same resolution, in turns.

An arm's peak is first guessed by short loads that double; every search then starts just below that guess, or below what
an earlier round found if that was more. So a slow arm and a fast one spend their tries alike, on the last few per cent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from .distance import ByDistance
from .openloop import NEAR_STEP, Curve, Measure, guess_peak, search_peak
from .session import Session

GUESS_SHARE = 0.15  # of the time
START_SHARE = 0.8  # of the guess
ROUNDS = 3


def find_peaks(
    session: Session,
    arms: Mapping[str, Measure],
    *,
    seconds: float,
    by_distance: ByDistance | None = None,
    across: Collection[str] = (),
) -> dict[str, list[Curve]]:
    """The searches of each arm, one a round, interleaved; the best point of each as a row, why each ended in settings.

    seconds: for all of it. by_distance: sorts the peaks of the arms `across`, whose frames cross between the cores.
    """
    guesses = {}
    for name, measure in arms.items():
        session.say(f"where to look for the peak: {name}")
        guesses[name] = guess_peak(measure, seconds=GUESS_SHARE * seconds / len(arms))
    slot = (1 - GUESS_SHARE) * seconds / ROUNDS / len(arms)

    def search(name: str) -> Curve:
        found = search_peak(arms[name], start_rps=START_SHARE * guesses[name], step=NEAR_STEP, seconds=slot)
        guesses[name] = max(guesses[name], found.peak_rps)
        return found

    bodies: dict[str, Callable[[], Curve]] = {name: partial(search, name) for name in arms}
    if by_distance:
        bodies |= {name: by_distance.watched(name, bodies[name]) for name in across}
    found = session.interleave(bodies, ROUNDS)
    for name, searched in found.items():
        best = max((curve.peak for curve in searched if curve.peak), key=lambda p: p.achieved_rps, default=None)
        if best:
            session.point(f"{name}, peak", best)
        session.settings.setdefault("peak_stops", {})[name] = [curve.stop for curve in searched]
    return found
