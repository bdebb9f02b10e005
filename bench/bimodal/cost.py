"""What preemption costs the core, from loads of the same mix that use it up, one run to completion and one preempted.

A core that has always something to do spends its time on three things: what requests ask for (service), what the stack
takes for each request, and what each preemption takes: the probe that is answered or the signal, two switches, the poll
of the network in between, caches. The load that runs to completion has no preemptions, and so tells what a request
takes. The rest of the other one's time is that of its preemptions.

The time is the kthread's CPU time, so that what others took of the core is left out. The capacity that is lost is told
by the service that gets done in a second of it: the mix is the same, since all
that was taken in is worked off before the counters are read. What is answered during a load beyond the peak would tell
something else: the one that is preempted answers the short ones first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..harness.numbers import pairwise
from ..harness.openloop import Point
from ..harness.session import Session
from .server import LONG_FRACTION


@dataclass(frozen=True)
class Used:
    """Of one load: CPU time of the kthread, the part of it that requests asked for, requests, and preemptions. What
    other processes and the host took of the core is in none of them."""

    cpu_s: float
    service_s: float
    handled: float
    preempted: float

    @property
    def useful(self) -> float:
        """Service in a second of CPU time."""
        return self.service_s / self.cpu_s


def used(point: Point) -> Used | None:
    """None: what the load left was not worked off in time."""
    found = [point.extra.get(name) for name in ("cpu_s", "service_s", "handled", "preempted")]
    if any(value is None for value in found) or not found[0] or not found[2]:
        return None
    return Used(*(float(value) for value in found if value is not None))


def preemption_ns(without: Used, with_it: Used) -> float:
    """Core time of one preemption; nan: there was none."""
    if not with_it.preempted:
        return math.nan
    request_s = (without.cpu_s - without.service_s) / without.handled
    return 1e9 * (with_it.cpu_s - with_it.service_s - request_s * with_it.handled) / with_it.preempted


def throughput_loss(without: Used, with_it: Used) -> float:
    """Part of the capacity that is lost."""
    return 1 - with_it.useful / without.useful


def set_figures(session: Session, names: tuple[str, str], without: Sequence[Point], with_it: Sequence[Point]) -> None:
    """The figures (preemption, loss) of one way to preempt, from rounds of both."""
    pairs = [(used(one), used(other)) for one, other in zip(without, with_it, strict=True)]
    whole = [(one, other) for one, other in pairs if one and other]
    each = [other.preempted / (LONG_FRACTION * other.handled) for _, other in whole]
    answered = pairwise([p.achieved_rps for p in with_it], [p.achieved_rps for p in without]).median
    _set(session, names[0], whole, preemption_ns, {"preemptions a long request": statistics.median(each or [math.nan])})
    _set(session, names[1], whole, throughput_loss, {"answered a second, with / without": answered})


def _set(
    session: Session,
    name: str,
    rounds: Sequence[tuple[Used, Used]],
    of: Callable[[Used, Used], float],
    beside: dict[str, float],
) -> None:
    values = [value for value in (of(*both) for both in rounds) if math.isfinite(value)]
    if not values:
        why = "no request was preempted" if rounds else "what the load left was not worked off in time"
        session.figure(name, None, reason=f"{why}: measure for longer (--seconds)")
        return
    shown = {key: value for key, value in beside.items() if math.isfinite(value)}
    session.figure(name, statistics.median(values), runs=values, beside=shown)
