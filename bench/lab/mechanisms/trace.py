"""What jobs of a kind did before: three words a kind. Their mean length, how many, and the serial part that their
rates show."""

from __future__ import annotations

from typing import Any

from ..acts import progress_ns
from .tool import tool

WORDS = 3
_MEAN, _COUNT, _SERIAL = 0, 1, 2
_WEIGHT = 0.2  # of a new observation


@tool
def note_done(jobs: Any, memory: Any, base: Any, j: Any) -> None:
    """A job is done: how much work it was."""
    at = base + WORDS * jobs[j].kind
    memory[at + _COUNT] += 1.0
    weight = max(_WEIGHT, 1.0 / memory[at + _COUNT])
    memory[at + _MEAN] += weight * (jobs[j].progress_ns - memory[at + _MEAN])


@tool
def expected_ns(view: Any, jobs: Any, memory: Any, base: Any, j: Any) -> Any:
    """How much work a job has left: by its user's word; else by the jobs of its kind, a job that has outlived their
    mean being expected to go on as long as it has; else as long as it has."""
    done = progress_ns(view, jobs, j)
    total = jobs[j].declared_ns
    if total <= 0.0:
        total = memory[base + WORDS * jobs[j].kind + _MEAN]
    return total - done if total > done else max(done, 1000.0)


@tool
def note_rate(jobs: Any, cores: Any, kinds: Any, memory: Any, base: Any, j: Any) -> None:
    """A job goes on with several cores: which serial part its rate shows, with the least batch."""
    k = jobs[j].cores
    if k < 2 or jobs[j].rate <= 0.0 or jobs[j].batch != 1.0 or kinds[jobs[j].kind].serial >= 0.0:
        return
    slowest = 1e300
    c = jobs[j].first_core
    while c >= 0:
        slowest = min(slowest, cores[c].speed * cores[c].pace)
        c = cores[c].next
    seen = (k * slowest / jobs[j].rate - 1.0) / (k - 1)
    at = base + WORDS * jobs[j].kind + _SERIAL
    memory[at] += _WEIGHT * (min(max(seen, 0.0), 0.99) - memory[at])


@tool
def serial(kinds: Any, memory: Any, base: Any, kind: Any) -> Any:
    """The part of a job's work that one core does alone: declared, or seen."""
    return kinds[kind].serial if kinds[kind].serial >= 0.0 else memory[base + WORDS * kind + _SERIAL]


@tool
def sync(kinds: Any, kind: Any) -> Any:
    """What each further core costs: declared, or none."""
    return max(kinds[kind].sync, 0.0)
