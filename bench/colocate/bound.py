"""How near the line a core that moves can get: what the moves that a policy cannot avoid take, if each takes no more
than a raw hand-over.

The argument, made before any arm is measured. Arrivals have no memory. When the server gives the core up, either
something waits, and waits on for `held` at most, or nothing does. Then the next request comes 1 / load later on
average, and may wait for `held`. So in a turn batch work has the core for 1 / load + held at most. Then the core
moves to the server and back, which takes a pair of hand-overs. Serving takes load / peak of the core, whoever
decides. So batch work gets at most this part of what the load leaves:

    (1 / load + held) / (1 / load + held + pair)

held: of a policy with a target, the target; of one that lets requests wait longer to save moves, the longest that it
lets them wait. pair: what a raw hand-over there and back takes of batch work, in the same run (raw.py): for requests
that take the server no time, so that no service time is in it, and none of it comes from an arm held against the bound.

It is no bound on serving: out of a longer queue a server may take less for a request than at its peak.
"""

from __future__ import annotations

from collections.abc import Sequence

from .arms import Beside

PAIRS_RPS = 100_000.0  # raw hand-overs a second, about: a third of the core
LEFT_LEAST = 0.02  # of the core, by the load: of less no ratio is taken


def bound(load_rps: float, held_us: float, pair_us: float) -> float:
    """Batch work over what a load leaves, at most. pair_us: of a hand-over there and one back."""
    batch_us = 1e6 / load_rps + held_us
    return batch_us / (batch_us + pair_us)


def pair_us(slot: Beside, alone: Beside) -> float | None:
    """What a pair of raw hand-overs takes, us. slot: of Raw.pairs; alone: the same job with the core to itself.

    None if the slot has too few, or the job did no less than alone."""
    pairs_per_s = float(slot.point.extra["moves_per_s"]) / 2
    if pairs_per_s <= 0 or not 0 < slot.work < alone.work:
        return None
    return 1e6 * (1 - slot.work / alone.work) / pairs_per_s


def line(turns: Sequence[tuple[float, float]]) -> float | None:
    """Batch work over what the load left, of several turns: of each the job's work over alone, and 1 - load / peak.

    The sums' ratio, since near the peak a turn's own quotient is that of two small numbers. None if hardly anything was
    left: the load was what the server could answer in those turns.
    """
    left = sum(one for _, one in turns)
    return sum(work for work, _ in turns) / left if turns and left >= LEFT_LEAST * len(turns) else None
