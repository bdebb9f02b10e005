"""What a neighbour leaves of the victim's capacity, and what that alone makes of a tail.

Whoever floods has its turns in the loop, as the switch gives them (docs/switch.md), so the victim carries less beside
it. At half of what it carries alone it may then be near to all that it carries. What queues up while the machine stands
still drains at what is left, so the same pauses make a longer tail:

    a pause of g, a load of r, a share of s:    P(delay > d) = sum over pauses of max(g - d, 0) / (1 - r/s) / T

which is the canary's formula (harness/jitter.py) with a queue behind the pause. The ratio of two such tails is the part
of a figure that no switch can take away: it would have to give the flood nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from ..harness.jitter import Gaps, delay_us
from ..harness.openloop import Point, middle
from ..harness.session import Session
from .victim import CANARY_S

ROUNDS = 3
OVERLOADED = ", overloaded"
SHARE = "of the capacity that is left"
PAUSES = "what pauses and that make of the p99"

Slice = Callable[[float], Point]  # of so many requests a second


def measure(session: Session, arms: Mapping[str, Slice], rate: float) -> dict[str, float]:
    """Answers a second of each arm while `rate` is offered, which is more than the victim carries; with rows."""
    got = session.interleave({name: partial(arm, rate) for name, arm in arms.items()}, ROUNDS, CANARY_S)
    for name, points in got.items():
        session.point(name + OVERLOADED, middle(points))
    shares = {name: statistics.median(point.achieved_rps for point in points) for name, points in got.items()}
    session.settings["shares_rps"] = shares
    return shares


def beside(
    gaps: Iterable[Gaps], shares: Mapping[str, float], rate: float, arm: str, other: str, alone: str, p50_us: float
) -> dict[str, float]:
    """Two values for a figure that compares the p99 of `arm` with that of `other`, at `rate`: SHARE, of that beside
    `alone`, and PAUSES. p50_us: of the victim, what it has without any pause. {}: not measured."""
    if not all(shares.get(name) for name in (arm, other, alone)):
        return {}
    seen = list(gaps)
    ours, theirs = (p50_us + queued_us(seen, 0.99, rate / shares[name]) for name in (arm, other))
    return {SHARE: shares[arm] / shares[alone], PAUSES: ours / theirs if math.isfinite(theirs) else math.nan}


def queued_us(gaps: Sequence[Gaps], q: float, load: float) -> float:
    """As `delay_us`, of a server that works off at `load` (0 to 1, of what it can) what queued up in a gap."""
    return delay_us(gaps, 1 - (1 - q) * (1 - load)) if load < 1 else math.inf
