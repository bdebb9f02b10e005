"""What one decision takes the iokernel's loop, with many applications registered.

One of them serves a load and one is a batch job. Of the others some rest, all in one process: the loop passes over
those whose last look found nothing. Each of the rest, in another process, has a batch job of its own: a decision looks
whether what its last look found still stands, and fills the policy's table. Then it calls that. The loop itself times
one decision in sixteen, and reading the lines alone before another one in sixteen: a decision cannot take less.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.hist import Hist
from .tenant import shared

LOAD_RPS = 50_000.0
ROUNDS = 5
ALWAYS = 2  # the one that is asked, and the one that computes


@dataclass(frozen=True)
class Times:
    """In ns, of n; runs_ns: medians of the rounds."""

    n: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    runs_ns: tuple[float, ...]


@dataclass(frozen=True)
class Decision:
    """Of decisions, and of reading what they read, alone (iokernel/cores/lines.c)."""

    decision: Times
    reading: Times


def measure(cores: tuple[int, int], applications: int, seconds: float, active: int = ALWAYS) -> Decision:
    """Decisions over so many applications on one worker core, while one is asked and one computes. active: as many want
    a core, those two included; the others rest."""
    jobs, resting = active - ALWAYS, applications - active
    names = [f"jobs-{i}" if i else "jobs" for i in range(jobs)]
    apps = {"witness": shared.latency(), **{name: shared.batch() for name in ("batch", *names)}}
    with shared.shared(cores, apps=apps, policy="delay") as made:
        made.tenant("witness", "witness")
        made.tenant("batch", "batch")
        for role, n in (("jobs", jobs), ("crowd", resting)):
            if n:
                made.tenant(role, role, crowd=n)
        made.load.measure(LOAD_RPS, 0.05)
        decisions: list[Hist] = []
        readings: list[Hist] = []
        for _ in range(ROUNDS):
            decided, read = made.decision_time(), made.reading_time()
            made.load.measure(LOAD_RPS, seconds / ROUNDS)
            decisions.append(made.decision_time().since(decided))
            readings.append(made.reading_time().since(read))
    return Decision(_times(decisions), _times(readings))


def _times(rounds: list[Hist]) -> Times:
    every = Hist(rounds[0].digits, rounds[0].limit)
    for one in rounds:
        every.merge(one)
    medians = tuple(one.percentile(50) for one in rounds)
    return Times(every.count, every.mean, every.percentile(50), every.percentile(99), medians)
