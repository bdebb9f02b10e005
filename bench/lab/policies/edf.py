"""Earliest deadline first, at once; jobs without a deadline come last, by arrival."""

from __future__ import annotations

from typing import Any

from ..mechanisms.ranking import KEY, enact, grant

SOURCE = "a baseline: earliest deadline first (Liu and Layland, 1973)"
SWEEP: dict[str, tuple[float, ...]] = {}
HOLDS = {"conserving": True}
WORDS = (0, 1, 0, 0)


def edf(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any) -> None:
    """All jobs by their deadline, each with its least cores, until the cores are out."""
    j = view.first
    while j >= 0:
        jobs[j].memory[KEY] = jobs[j].deadline_ns if jobs[j].deadline_ns > 0 else 1e300
        j = jobs[j].next
    grant(view, jobs, kinds, memory, 0)
    enact(view, jobs, cores, kinds, 0)
