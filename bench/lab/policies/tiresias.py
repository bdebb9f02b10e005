"""Least attained service in levels: who has held little core time comes first, and within a level who came first."""

from __future__ import annotations

from typing import Any

from ..acts import attained_ns
from ..mechanisms.attained import level
from ..mechanisms.ranking import KEY, enact, grant
from ..table import WAITING

SOURCE = "Tiresias, NSDI 2019: discretised two-dimensional least attained service (cores times time), with promotion"
SWEEP: dict[str, tuple[float, ...]] = {"first_us": (100, 1000, 10000), "levels": (2, 4), "promote": (0, 8)}
HOLDS = {"conserving": True}
WORDS = (0, 1, 0, 0)
_FROM, _WHEN = 0, 1  # words of jobs[j].memory: what it had attained when it was promoted, and when that was


def tiresias(
    view: Any,
    jobs: Any,
    cores: Any,
    kinds: Any,
    memory: Any,
    first_us: Any = 1000.0,
    ratio: Any = 10.0,
    levels: Any = 2,
    promote: Any = 8.0,
    quantum_us: Any = 100.0,
) -> None:
    """A job that has waited `promote` times the core time that it has held is taken for a new one (0: never)."""
    j = view.first
    while j >= 0:
        row = jobs[j]
        held = attained_ns(view, jobs, j)
        served = held - row.memory[_FROM]
        if promote > 0.0 and row.state == WAITING and served > 0.0:
            since = max(float(row.arrived_ns), row.memory[_WHEN])
            waited = view.now_ns - since - served / kinds[row.kind].min_cores
            if waited > promote * served:
                row.memory[_FROM], row.memory[_WHEN] = held, float(view.now_ns)
        jobs[j].memory[KEY] = level(held - jobs[j].memory[_FROM], first_us * 1000.0, ratio, levels)
        j = jobs[j].next
    grant(view, jobs, kinds, memory, 0)
    enact(view, jobs, cores, kinds, int(quantum_us * 1000.0))
