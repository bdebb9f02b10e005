"""By the Gittins index: who is likeliest to end soon for the service that it would take, given what it has had, as the
jobs that ended before show."""

from __future__ import annotations

from typing import Any

from ..acts import attained_ns
from ..mechanisms.attained import BUCKETS, bucket
from ..mechanisms.attained import gittins as index
from ..mechanisms.ranking import KEY, enact, grant
from ..table import DONE

SOURCE = "Tiresias, NSDI 2019: the two-dimensional Gittins index, with the distribution of the jobs that have ended"
SWEEP: dict[str, tuple[float, ...]] = {"quantum_us": (50, 200, 1000)}
HOLDS = {"conserving": True}
WORDS = (BUCKETS, 1, 0, 0)


def gittins(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, quantum_us: Any = 100.0) -> None:
    """Service is core time: cores times time. Before the first job ends, by arrival."""
    if view.event == DONE:
        memory[bucket(jobs[view.job].attained_ns)] += 1.0
    j = view.first
    while j >= 0:
        jobs[j].memory[KEY] = -index(memory, 0, attained_ns(view, jobs, j))
        j = jobs[j].next
    grant(view, jobs, kinds, memory, BUCKETS)
    enact(view, jobs, cores, kinds, int(quantum_us * 1000.0))
