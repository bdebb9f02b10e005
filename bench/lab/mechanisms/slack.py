"""Slack of a pipeline's stages: all go on at the rate of the critical one, so the others may work for a part of the
time."""

from __future__ import annotations

from typing import Any

from .tool import tool


@tool
def critical(jobs: Any, cores: Any, kinds: Any, j: Any) -> Any:
    """The rate of a pipeline's slowest stage at full pace; 0: it has no stages or no cores."""
    kind = kinds[jobs[j].kind]
    bound = 1e300
    c = jobs[j].first_core
    while c >= 0:
        if kind.stage[cores[c].stage] > 0.0:
            bound = min(bound, cores[c].speed / kind.stage[cores[c].stage])
        c = cores[c].next
    return bound if kind.stages > 0 and bound < 1e300 else 0.0


@tool
def pace(cores: Any, kinds: Any, kind: Any, c: Any, rate: Any, margin: Any) -> Any:
    """The least pace of core c with which its stage keeps that rate; margin: part added to it."""
    need = rate * kinds[kind].stage[cores[c].stage] / cores[c].speed
    return min(max(need * (1.0 + margin), 0.01), 1.0)
