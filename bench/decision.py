"""What one decision takes the iokernel's loop, with many applications registered.

One of them serves a load, one is a batch job, and all others are in one process. They are idle: the loop passes over
those whose last look found nothing; or each has a batch job of its own: a decision reads the signals of each, and fills
the policy's table. Then it calls that. The loop itself times one decision in sixteen.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime.hist import Hist
from .harness import shared

LOAD_RPS = 50_000.0
ROUNDS = 5


@dataclass(frozen=True)
class Decision:
    """Times in ns of n decisions; runs_ns: medians of the rounds."""

    n: int
    mean_ns: float
    p50_ns: float
    p99_ns: float
    runs_ns: tuple[float, ...]


def measure(cores: tuple[int, int], applications: int, seconds: float, active: bool = False) -> Decision:
    """Decisions over so many applications (3 at least) on one worker core, while one is asked and one computes. active:
    all others compute, too."""
    apps = {"witness": shared.latency(), "batch": shared.batch()}
    others = applications - len(apps)
    if active:
        apps |= {name: shared.batch() for name in ("crowd", *(f"crowd-{i}" for i in range(1, others)))}
    with shared.shared(cores, apps=apps, policy="delay") as made:
        made.tenant("witness", "witness")
        made.tenant("batch", "batch")
        made.tenant("jobs" if active else "crowd", "crowd", crowd=others)
        made.load.measure(LOAD_RPS, 0.05)
        rounds: list[Hist] = []
        for _ in range(ROUNDS):
            before = made.decision_time()
            made.load.measure(LOAD_RPS, seconds / ROUNDS)
            rounds.append(made.decision_time().since(before))
    every = Hist(rounds[0].digits, rounds[0].limit)
    for one in rounds:
        every.merge(one)
    medians = tuple(one.percentile(50) for one in rounds)
    return Decision(every.count, every.mean, every.percentile(50), every.percentile(99), medians)
