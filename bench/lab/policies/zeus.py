"""Cost of time and energy by a bandit: for tasks that recur, which batch and how many cores cost least, by trying; a
batch beyond one that cost more than a smaller one is not tried."""

from __future__ import annotations

from typing import Any

from ..acts import waits_longest, wake_at
from ..mechanisms import bandit
from ..mechanisms.ranking import begin
from ..mechanisms.tool import tool
from ..table import DONE

SOURCE = "Zeus, NSDI 2023: Thompson sampling over recurrences of a job, pruned; core time stands for joules"
SWEEP: dict[str, tuple[float, ...]] = {"energy": (0.0, 0.5, 1.0)}
BATCHES, COUNTS = 4, 3  # arms: batches from 1 to the greatest, and the least number of cores, twice, four times that
WORDS = (0, 0, 0, BATCHES * COUNTS * bandit.WORDS)
_ARM, _CORES = 0, 1  # words of jobs[j].memory: 1 + the arm that was chosen; the cores that it means


@tool
def _counts(view: Any, kind: Any) -> Any:
    """How many numbers of cores there are to choose from."""
    n, k = 1, kind.min_cores
    while n < COUNTS and 2 * k <= min(kind.max_cores, view.n_cores) and kind.stages == 0:
        n, k = n + 1, 2 * k
    return n


@tool
def _choose(view: Any, jobs: Any, kinds: Any, memory: Any, j: Any) -> None:
    """An arm for a job."""
    kind = kinds[jobs[j].kind]
    batches, counts = BATCHES if kind.max_batch > 1.0 else 1, _counts(view, kind)
    at = BATCHES * COUNTS * bandit.WORDS * jobs[j].kind
    arm = bandit.choose(view, memory, at, batches * counts, batches) if kind.recurs else 0
    jobs[j].memory[_ARM], jobs[j].memory[_CORES] = 1 + arm, kind.min_cores << (arm // batches)
    if batches > 1:
        jobs[j].batch = kind.max_batch ** (float(arm % batches) / (batches - 1))


def zeus(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, energy: Any = 0.5) -> None:
    """Cost of a job, for each ns of its work: energy times its core time, and the rest times its time, at the power of
    the most cores that its kind may have. First come, first served."""
    if view.event == DONE and jobs[view.job].memory[_ARM] > 0.0 and jobs[view.job].cores == 0:
        row = jobs[view.job]
        most = min(kinds[row.kind].max_cores, view.n_cores)
        time = row.attained_ns / row.memory[_CORES]
        cost = (energy * row.attained_ns + (1.0 - energy) * most * time) / max(row.progress_ns, 1.0)
        at = BATCHES * COUNTS * bandit.WORDS * row.kind
        bandit.learn(memory, at, int(row.memory[_ARM]) - 1, cost)
    j = waits_longest(view, jobs)
    if j < 0:
        return
    if jobs[j].memory[_ARM] == 0.0:
        _choose(view, jobs, kinds, memory, j)
    if begin(view, jobs, cores, j, int(jobs[j].memory[_CORES]), 0):
        wake_at(view, view.now_ns)
