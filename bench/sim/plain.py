"""The simulator's mean wait against Erlang-C as it is, without a control variate.

The recursion that takes the sampling error out of `studies.check` runs on the simulator's own draws: a bias of what is
drawn is in both. At a moderate load a mean wait needs no such help: some millions of requests, over several seeds, have
a standard error below GOAL.
"""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass

from ..harness.session import Session
from . import formulas
from .model import App, Exponential, Simulation

LOAD = 0.7
ROUNDS = {1: 12, 2: 16, 4: 26}  # batches of a seed by servers, if the time suffices
ROUNDS_LEAST = 2
SEEDS = 8
BATCH_EVENTS = 100_000  # two a request: a thousand times what a wait remembers at this load
GOAL = 0.005
MEAN_NS = 100_000.0


@dataclass(frozen=True)
class Plain:
    """The mean wait over the theory's, less 1, and its standard error by batch means. n: requests, of all seeds."""

    error: float
    standard_error: float
    n: int


def mean_wait(servers: int, seconds: float = math.inf, drawn_ns: float = MEAN_NS, central: bool = True) -> Plain:
    """M/M/n at LOAD: ROUNDS[servers] batches of each seed, or ROUNDS_LEAST and what fits into the seconds.

    drawn_ns: mean of the service that is drawn, where it is not what the theory is told: an error to be found. central:
    one queue; else one a core, between which stealing costs nothing. The order is another, the mean wait is the same.
    """
    rate = LOAD * servers / MEAN_NS
    app = App("a", rate_rps=rate * 1e9, service=Exponential(drawn_ns), guaranteed=servers, central=central)
    worlds = [Simulation([app], servers, interval_ns=0, seed=1000 * servers + i) for i in range(SEEDS)]
    last = []
    for world in worlds:
        world.run(events=BATCH_EVENTS)
        world.reset()
        last.append(world.progress("a"))  # less those that waited at the reset
    started, count, waits, means = time.perf_counter(), 0, 0, []
    for turn in range(ROUNDS[servers]):
        if turn >= ROUNDS_LEAST and (time.perf_counter() - started) * (turn + 1) / turn > seconds:
            break
        for i, world in enumerate(worlds):
            world.run(events=BATCH_EVENTS)
            now = world.progress("a")
            n, waited = now[0] - last[i][0], now[1] - last[i][1]
            last[i] = now
            count, waits = count + n, waits + waited
            means.append(waited / n)
    expected = formulas.mean_wait_mmn(servers, rate, MEAN_NS)
    return Plain(waits / count / expected - 1, statistics.stdev(means) / len(means) ** 0.5 / expected, count)


def compare(session: Session, seconds: float) -> dict[str, float]:
    """A row for each number of servers; answers the errors, to stand beside the figure."""
    beside: dict[str, float] = {}
    worst = 0.0
    kinds = [(servers, True) for servers in ROUNDS] + [(max(ROUNDS), False)]
    rounds = sum(ROUNDS[servers] for servers, _ in kinds)
    for servers, central in kinds:
        name = f"M/M/{servers}" + ("" if central else " with a queue a core")
        session.say(f"{name} at load {LOAD}, without a control variate")
        seen = mean_wait(servers, seconds * ROUNDS[servers] / rounds, central=central)
        session.arm(f"{name}, plain", cores=servers, load=LOAD, **vars(seen))
        beside[f"plain error of {name} at load {LOAD:g}"] = seen.error
        worst = max(worst, seen.standard_error)
    beside["largest standard error of those"] = worst
    if worst > GOAL:
        session.note(
            f"the plain check against Erlang-C at load {LOAD:g} has a standard error of {100 * worst:.2g} % where "
            f"{100 * GOAL:g} % are wanted: give more --seconds"
        )
    return beside
