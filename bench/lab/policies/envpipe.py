"""Slack of pipeline stages: a stage that is not the critical one polls and works for so much of the time that it keeps
up and no more; its core idles for the rest."""

from __future__ import annotations

from typing import Any

from ..acts import give, waits_longest, wake_at
from ..mechanisms.ranking import begin
from ..mechanisms.slack import critical, pace

SOURCE = "EnvPipe, ATC 2023: slack of non-critical pipeline stages; time at work stands for energy; in turn"
SWEEP: dict[str, tuple[float, ...]] = {"margin": (0.0, 0.02, 0.1)}
_FOR = 0  # word of jobs[j].memory: the rate to which its stages are paced


def envpipe(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, margin: Any = 0.02) -> None:
    """margin: by how much each stage is faster than it need be. The critical stage goes at full pace."""
    j = view.first
    while j >= 0:
        rate = critical(jobs, cores, kinds, j) if jobs[j].cores == kinds[jobs[j].kind].stages else 0.0
        if rate > 0.0 and jobs[j].memory[_FOR] != rate:
            jobs[j].memory[_FOR] = rate
            c = jobs[j].first_core
            while c >= 0:
                cores[c].pace = pace(cores, kinds, jobs[j].kind, c, rate, margin)
                give(view, cores, c, j)
                c = cores[c].next
        j = jobs[j].next
    j = waits_longest(view, jobs)
    if j >= 0 and begin(view, jobs, cores, j, kinds[jobs[j].kind].min_cores, 0):
        for c in range(view.n_cores):
            if cores[c].changed and cores[c].want == j:
                cores[c].pace = 1.0
        wake_at(view, view.now_ns)
