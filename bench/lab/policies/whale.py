"""Uneven split: each core of a job gets a part of it by its speed, less where its loop has not the memory."""

from __future__ import annotations

from typing import Any

from ..acts import waits_longest, wake_at
from ..mechanisms import uneven
from ..mechanisms.ranking import begin
from ..table import MEMORY as AMOUNT
from ..table import N_RESOURCES

SOURCE = "Whale, ATC 2022: hardware-aware load balance, parts by speed under memory caps; first come first served"
SWEEP: dict[str, tuple[float, ...]] = {"even": (0, 1), "grow": (0, 1)}
WORDS = (0, 0, uneven.ROW, 0)


def whale(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, even: Any = 0, grow: Any = 1) -> None:
    """even 1: the parts are equal, as without it. grow 1: a job gets as many idle cores as it can use. It takes its
    stages as they are: it does not choose how a pipeline is cut."""
    j = waits_longest(view, jobs)
    if j < 0:
        return
    kind = kinds[jobs[j].kind]
    need = kind.min_cores
    if grow:
        need = max(need, min(kind.max_cores, view.n_idle))
    if not begin(view, jobs, cores, j, need, 0):
        if need == kind.min_cores or not begin(view, jobs, cores, j, kind.min_cores, 0):
            return
        need = kind.min_cores
    n = 0
    for c in range(view.n_cores):
        if cores[c].changed and cores[c].want == j:
            at = uneven.ROW * n
            memory[at + uneven.SPEED], memory[at + uneven.CAP] = cores[c].speed, 1.0
            demand = jobs[j].demand[AMOUNT] * need  # of the whole job
            if view.capacity[AMOUNT] > 0.0 and demand > 0.0:
                left = view.capacity[AMOUNT] - view.used[cores[c].loop * N_RESOURCES + AMOUNT]
                memory[at + uneven.CAP] = left / demand
            n += 1
    uneven.split(memory, 0, n)
    n = 0
    for c in range(view.n_cores):
        if cores[c].changed and cores[c].want == j:
            cores[c].part = 0.0 if even or kind.stages > 0 else memory[uneven.ROW * n + uneven.PART]
            n += 1
    wake_at(view, view.now_ns)
