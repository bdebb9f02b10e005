"""Deadlines: a job is admitted if there is a share of the cores for each admitted one with which it is done in time;
what is left goes where it saves most."""

from __future__ import annotations

from typing import Any

from ..acts import progress_ns, refuse
from ..mechanisms import gain, shares
from ..mechanisms.promised import ENDS, N_ENDS, NEVER, ROOM, SHARE, SPANS, USED, adopt, follow, reaches, table_of
from ..mechanisms.ranking import KEY, TARGET, enact, heap, pop
from ..mechanisms.tool import tool
from ..table import PROMISED, REFUSED

SOURCE = "ElasticFlow, ASPLOS 2023: minimum satisfactory share, admission control, elastic scaling, buddy blocks"
SWEEP: dict[str, tuple[float, ...]] = {"margin": (0.0, 0.1, 0.3), "drop": (0, 1)}
HOLDS = {"promises": True}
WORDS = (ROOM, 1 + shares.ROW, 0, 0)
_OUT = 1  # word of jobs[j].memory: 1: it was not admitted


@tool
def _speed(view: Any, cores: Any) -> Any:
    """Of the slowest core, with its sibling in use."""
    least = 1e300
    for c in range(view.n_cores):
        least = min(least, cores[c].speed * (view.pair_speed if cores[c].pair >= 0 else 1.0))
    return least


@tool
def _row(view: Any, jobs: Any, kinds: Any, memory: Any, row: Any, j: Any, speed: Any, margin: Any) -> None:
    """A job as a row, but for its spans."""
    kind = kinds[jobs[j].kind]
    work = max(jobs[j].declared_ns - progress_ns(view, jobs, j), 1.0) * (1.0 + margin)
    change = view.switch_ns + view.move_ns + kind.switch_ns
    starts = max(jobs[j].as_of_ns - view.now_ns, 0) if jobs[j].cores > 0 else change
    memory[row + shares.WORK] = work / speed + starts + 4.0 * margin * change
    memory[row + shares.SERIAL], memory[row + shares.SYNC] = max(kind.serial, 0.0), max(kind.sync, 0.0)
    memory[row + shares.LEAST] = kind.min_cores
    memory[row + shares.MOST] = min(kind.max_cores, view.n_cores)
    memory[row + shares.SHARE] = jobs[j].memory[SHARE]


@tool
def _plan(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, margin: Any, new: Any) -> Any:
    """Share the cores out among the promised jobs and job `new` (-1: none). Returns how many would be late, NEVER for
    more of them than there are spans."""
    speed, rows = _speed(view, cores), ROOM + view.room
    j = view.first
    while j >= 0:
        jobs[j].memory[KEY] = jobs[j].deadline_ns if jobs[j].memory[SHARE] > 0.0 or j == new else NEVER
        j = jobs[j].next
    left, n, spans = heap(view, jobs, memory, ROOM), 0, 0
    while left > 0:
        j = pop(jobs, memory, ROOM, left)
        left -= 1
        if jobs[j].memory[KEY] == NEVER:
            break
        if n == SPANS:
            return NEVER
        until = float(jobs[j].deadline_ns - view.now_ns)
        if until > 0.0 and (spans == 0 or until > memory[ENDS + spans - 1]):
            memory[ENDS + spans] = until
            spans += 1
        row = rows + shares.ROW * n
        _row(view, jobs, kinds, memory, row, j, speed, margin)
        memory[row + shares.SPANS] = spans if until > 0.0 else 0
        jobs[j].memory[TARGET] = n
        n += 1
    memory[N_ENDS] = spans
    return shares.fill(memory, rows, n, ENDS, USED, spans, float(view.n_cores), table_of(memory, False), SPANS)


@tool
def _left_over(view: Any, jobs: Any, kinds: Any, memory: Any) -> None:
    """What no share needs: to jobs that have none, by arrival, and then where it saves most time. A promised job grows
    only if changes of its cores cost nothing."""
    free = float(view.n_cores)
    j = view.first
    while j >= 0:
        free -= jobs[j].memory[TARGET]
        j = jobs[j].next
    rows, n, have = ROOM, 0, 0.0
    for promised in (True, False):
        j = view.first
        while j >= 0:
            kind, row = kinds[jobs[j].kind], rows + gain.ROW * n
            if jobs[j].promised != REFUSED and (jobs[j].memory[TARGET] > 0.0) == promised:
                grows = kind.stages == 0 and (not promised or kind.switch_ns == 0)
                memory[row + gain.WEIGHT] = max(jobs[j].declared_ns - progress_ns(view, jobs, j), 1.0)
                memory[row + gain.SERIAL], memory[row + gain.SYNC] = max(kind.serial, 0.0), max(kind.sync, 0.0)
                memory[row + gain.LEAST] = jobs[j].memory[TARGET] if promised else kind.min_cores
                memory[row + gain.MOST] = kind.max_cores if grows else memory[row + gain.LEAST]
                memory[row + gain.NOISE], memory[row + gain.BATCH] = 0.0, 1.0
                jobs[j].memory[KEY] = n
                have += memory[row + gain.LEAST] if promised else 0.0
                n += 1
            j = jobs[j].next
    gain.allocate(memory, rows, n, int(have + free))
    j = view.first
    while j >= 0:
        if jobs[j].promised != REFUSED:
            jobs[j].memory[TARGET] = memory[rows + gain.ROW * int(jobs[j].memory[KEY]) + gain.OUT]
        j = jobs[j].next


def elasticflow(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, margin: Any = 0.1, drop: Any = 1) -> None:
    """margin: added to what a job is declared to have left. drop: who is not admitted leaves; else it waits for what is
    left over, as jobs without a deadline or a declared length do."""
    late = _plan(view, jobs, cores, kinds, memory, margin, -1)
    if late > 0.0 and reaches(view, jobs, memory):
        late = 0.0
    else:
        adopt(view, jobs, memory)
    j = view.first
    while j >= 0:
        row, after = jobs[j], jobs[j].next
        if row.deadline_ns > 0 and row.memory[SHARE] + row.memory[_OUT] == 0.0:
            if row.declared_ns > 0.0 and _plan(view, jobs, cores, kinds, memory, margin, j) <= late:
                adopt(view, jobs, memory)
                row.promised = PROMISED
            else:
                row.memory[_OUT] = 1.0
                if drop:
                    refuse(view, jobs, j)
        j = after
    follow(view, jobs, memory)
    _left_over(view, jobs, kinds, memory)
    enact(view, jobs, cores, kinds, 0)
