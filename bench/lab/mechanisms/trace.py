"""What jobs of a kind did before: their mean length and how many, and how they scale, by the rates that were seen.

A job on k cores of speed v takes (1 - serial) b / (k v) + serial / v + sync (k - 1) for a step with batch b. That is a
line in serial and sync, which are fitted to what each job showed once with each batch and number of cores, by least
squares of the relative error. Older points count for less and less."""

from __future__ import annotations

from typing import Any

from ..acts import progress_ns
from .tool import tool

WORDS = 7
_MEAN, _COUNT = 0, 1
_XX, _XY, _YY, _XZ, _YZ = 2, 3, 4, 5, 6  # sums of products: x of the serial part, y of sync, z what a step takes
_WEIGHT = 0.2  # of a new length
_KEPT = 0.98  # of what was known of rates, when a point is added
_SHOWN = 5  # word of jobs[j].memory: with which batch and how many cores it has been noted
_LEAST = 1e-3  # of x: a batch and cores which tell so little of the serial part are left out


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
def _note_rate(jobs: Any, cores: Any, memory: Any, base: Any, j: Any) -> None:
    k, batch, noise = jobs[j].cores, jobs[j].batch, jobs[j].noise
    slowest, fastest = 1e300, 0.0
    c = jobs[j].first_core
    while c >= 0:
        slowest = min(slowest, cores[c].speed * cores[c].pace)
        fastest = max(fastest, cores[c].speed * cores[c].pace)
        c = cores[c].next
    counts = (noise + 1.0) / (noise + batch) if noise > 0.0 else 1.0  # how much of a batch is progress
    step = batch * counts / jobs[j].rate
    even = batch / (k * slowest)
    x, y, z = (1.0 / fastest - even) / step, (k - 1) / step, 1.0 - even / step
    if abs(x) < _LEAST:
        return
    at = base + WORDS * jobs[j].kind
    for i in range(_XX, WORDS):
        memory[at + i] *= _KEPT
    memory[at + _XX] += x * x
    memory[at + _XY] += x * y
    memory[at + _YY] += y * y
    memory[at + _XZ] += x * z
    memory[at + _YZ] += y * z


@tool
def note_rates(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, base: Any) -> None:
    """All jobs that run, of kinds that do not declare how they scale: the rate of each with the cores and the batch
    that it has now, once for each of these."""
    j = view.first
    while j >= 0:
        row, kind = jobs[j], kinds[jobs[j].kind]
        shown = 1024.0 * row.cores + row.batch
        runs = row.cores > 0 and row.rate > 0.0 and view.now_ns > row.as_of_ns
        if runs and row.memory[_SHOWN] != shown and kind.stages == 0 and (kind.serial < 0.0 or kind.sync < 0.0):
            row.memory[_SHOWN] = shown
            _note_rate(jobs, cores, memory, base, j)
        j = row.next


@tool
def _fitted(memory: Any, at: Any) -> Any:
    """The serial part, and what each further core costs."""
    xx, xy, yy = memory[at + _XX], memory[at + _XY], memory[at + _YY]
    xz, yz = memory[at + _XZ], memory[at + _YZ]
    apart = xx * yy - xy * xy
    if apart > 1e-6 * xx * yy:
        serial, sync = (xz * yy - yz * xy) / apart, (yz * xx - xz * xy) / apart
        if serial < 0.0:
            return 0.0, max(yz / yy, 0.0)
        if sync >= 0.0:
            return min(serial, 0.99), sync
    return min(max(xz / xx, 0.0), 0.99) if xx > 0.0 else 0.0, 0.0


@tool
def serial(kinds: Any, memory: Any, base: Any, kind: Any) -> Any:
    """The part of a job's work that one core does alone: declared, or fitted."""
    return kinds[kind].serial if kinds[kind].serial >= 0.0 else _fitted(memory, base + WORDS * kind)[0]


@tool
def sync(kinds: Any, memory: Any, base: Any, kind: Any) -> Any:
    """What each further core costs: declared, or fitted."""
    return kinds[kind].sync if kinds[kind].sync >= 0.0 else _fitted(memory, base + WORDS * kind)[1]
