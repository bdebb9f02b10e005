"""Shortest remaining work first, at once: an oracle, for it knows what is left."""

from __future__ import annotations

from typing import Any

from ..acts import progress_ns
from ..mechanisms.ranking import KEY, enact, grant

SOURCE = "a baseline: shortest remaining processing time (Schrage, 1968); for jobs of several cores, the remaining work"
SWEEP: dict[str, tuple[float, ...]] = {}
HOLDS = {"conserving": True}
WORDS = (0, 1, 0, 0)


def srpt(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, future: Any) -> None:
    """All jobs by what is left of them, each with its least cores, until the cores are out."""
    j = view.first
    while j >= 0:
        jobs[j].memory[KEY] = future[j].total_ns - progress_ns(view, jobs, j)
        j = jobs[j].next
    grant(view, jobs, kinds, memory, 0)
    enact(view, jobs, cores, kinds, 0)
