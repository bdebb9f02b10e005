"""How long a point is simulated: until its p99.9 is known.

A tail at high load is made by few long queues, so a number of events that suffices at half load says next to nothing
at 0.98. A run is divided into batches, each with a p99.9 of its own: how these spread says how far off the whole one's
is (batch means), and if batches are too short to hold a long queue, theirs is less than the whole one's by more than
that. A run goes on until both are at most GOAL of it, in batches of enough requests to have a p99.9, or until its
events are spent; then the point is marked as not known. These are events, not seconds: the same arguments give the same
document on any machine.

Of 32 runs of four points at 90 to 98 % load, of up to 24 million events, 21 ended as known. Their p99.9 was between
12 % below and 19 % above that of runs of 24 million requests, 8 % in the root mean square: a run that has too few or
too many of the rarest queues takes its error for smaller than it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..harness.openloop import LOSS_LIMIT, RATE_SLACK
from .model import Result, Simulation, bucket_middle_ns

GOAL = 0.1  # of the p99.9: its standard error
P = 99.9
BATCHES = 10  # of the error, when it is taken; twice as many are the most that are kept
FIRST_EVENTS = 5000  # between two counts, at first: at low load most of them are decisions
LEAST_REQUESTS = 2000  # of each batch: with fewer its p99.9 is its slowest request
# A run lasts so many memories (see `memory_ns`) and so long: who has not yet seen a rare long queue takes its tail for
# known. In runs of a hundred memories one point in three was called known and was 20 to 30 % below that of a run a
# hundred times as long.
LEAST_MEMORIES = 1000
LEAST_NS = 10_000_000
LOST_MEMORIES = 20  # of one whose requests are not carried
WARM_UP_MEMORIES = 3
WARM_UP_NS = 2_000_000  # in which 256 cores find their owners, who begin without any
LEAST_IDLE = 0.02


@dataclass(frozen=True)
class Sampled:
    """How well a point's p99.9 is known. error: one standard error over the value, infinite where nothing can be said;
    known: it is at most GOAL, and the run long enough to tell; simulated_ms: after the warm-up."""

    error: float
    simulated_ms: float
    known: bool


def memory_ns(load: float, cores: int, service_ns: float) -> float:
    """Time in which a queue of M/M/n forgets what it was: service / (n (1 - sqrt(load))^2) (P. M. Morse, Stochastic
    properties of waiting lines, 1955); at most that of a load of 0.98."""
    busy = min(load, 1 - LEAST_IDLE)
    return service_ns / (cores * (1 - math.sqrt(busy)) ** 2)


def carried(result: Result) -> bool:
    """As of a load on the machine (harness/openloop.py)."""
    return result.dropped < LOSS_LIMIT * result.arrived and result.done >= (1 - RATE_SLACK) * result.arrived


def latencies(result: Result) -> Any:
    """The histogram, and what was dropped behind it."""
    return np.append(result.histogram, result.dropped)


def slowdowns(result: Result) -> Any:
    """The same of slowdowns."""
    return np.append(result.slowdowns, result.dropped)


def sample(
    world: Simulation,
    result: Callable[[], Result],
    events: float,
    memory_ns: float,
    least_ns: int = 0,
    counts: Callable[[Result], Any] = latencies,
) -> tuple[Result, Sampled]:
    """Warm up, forget that, and run `world` until the p99.9 of counts(result()) is known, its requests are clearly not
    carried, or the next look, at twice as many events, would be beyond `events`, the warm-up included; in any case for
    2 * BATCHES * FIRST_EVENTS and for least_ns of simulated time. It is known if it was so at two looks, each batch of
    LEAST_REQUESTS, and the run has been long enough.
    """
    first = world.events
    world.run(until_ns=world.now_ns + round(max(WARM_UP_MEMORIES * memory_ns, WARM_UP_NS, least_ns / 10)))
    world.reset()
    begin_ns, size = world.now_ns, FIRST_EVENTS
    batches = [counts(result())]  # cumulated, from the start on
    before = math.inf
    lost_before = False
    while True:
        for _ in range(2 * BATCHES + 1 - len(batches)):
            world.run(events=size)
            batches.append(counts(result()))
        seen = result()
        error, lost = _error(batches), not carried(seen)
        lasted_ns = world.now_ns - begin_ns
        enough = lasted_ns >= max(least_ns, LEAST_NS, LEAST_MEMORIES * memory_ns)
        known = enough and max(error, before) <= GOAL
        given_up = lost and lost_before and lasted_ns >= LOST_MEMORIES * memory_ns
        spent = lasted_ns >= least_ns and 2 * (world.events - first) > events
        if known or given_up or spent:
            return seen, Sampled(error, lasted_ns / 1e6, known)
        before, lost_before = error, lost
        batches = batches[::2]
        size *= 2


def _error(batches: Sequence[Any]) -> float:
    """Of the p99.9 over it, from the cumulated counts at the edges of batches: the larger one of the standard
    error by the spread of BATCHES equal batches, and of how far their mean is from it. Infinite if one of them has
    fewer than LEAST_REQUESTS."""
    whole = _percentile(batches[-1])
    counts = [after - before for before, after in pairwise(batches[:: (len(batches) - 1) // BATCHES])]
    each = [_percentile(count) for count in counts]
    few = min(int(count.sum()) for count in counts) < LEAST_REQUESTS
    if few or not math.isfinite(whole) or not all(map(math.isfinite, each)):
        return math.inf
    spread = statistics.stdev(each) / len(each) ** 0.5
    return float(max(spread, abs(statistics.fmean(each) - whole)) / whole)


def _percentile(counts: Any) -> float:
    """p99.9 of what `latencies` or `slowdowns` gave, in the unit of its buckets; nan without requests."""
    n = int(counts.sum())
    if not n:
        return math.nan
    at = int(np.searchsorted(np.cumsum(counts), math.ceil(n * P / 100)))
    return math.inf if at == len(counts) - 1 else bucket_middle_ns(at)
