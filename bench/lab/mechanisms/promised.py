"""Promises: a plan of the promised jobs holds until a better one is found.

A plan that is made anew at each event may fail where the one before was good (shares.py says why). So there are two
tables: of the plan that holds, and of the one that was made last, which is adopted if it is to hold. Its rows lie at
`ROOM` + the heap (a word a job), in the order of deadlines; job j has row TARGET in it, if its KEY is not NEVER."""

from __future__ import annotations

from typing import Any

from ..acts import wake_at
from . import shares
from .ranking import KEY, TARGET
from .tool import tool

SPANS = 128  # cuts of the time until the last deadline: so many jobs are promised at most
# Words of `memory`: ends of spans from now on, how many, and what is used of each; ends of the plan that holds, on the
# clock, and how many; which of the two tables is its own; the tables.
ENDS, USED, N_ENDS = 0, SPANS, 2 * SPANS
_UNTIL, _N_UNTIL, _HOLDS = 2 * SPANS + 1, 3 * SPANS + 1, 3 * SPANS + 2
_TABLES = 3 * SPANS + 3
ROOM = _TABLES + 2 * SPANS * SPANS  # so many words
SHARE, _LINE = 0, 2  # words of jobs[j].memory: its share, once promised; its line in the table that holds
NEVER = 1e300


@tool
def table_of(memory: Any, holds: Any) -> Any:
    """Where the table is of the plan that holds, or of the one that is made."""
    return _TABLES + SPANS * SPANS * (int(memory[_HOLDS]) if holds else 1 - int(memory[_HOLDS]))


@tool
def adopt(view: Any, jobs: Any, memory: Any) -> None:
    """The plan that was made last holds from now on."""
    memory[_HOLDS], memory[_N_UNTIL] = 1.0 - memory[_HOLDS], memory[N_ENDS]
    for s in range(int(memory[_N_UNTIL])):
        memory[_UNTIL + s] = view.now_ns + memory[ENDS + s]
    j = view.first
    while j >= 0:
        if jobs[j].memory[KEY] < NEVER:
            line = jobs[j].memory[TARGET]
            jobs[j].memory[_LINE] = line
            jobs[j].memory[SHARE] = memory[ROOM + view.room + shares.ROW * int(line) + shares.SHARE]
        j = jobs[j].next


@tool
def reaches(view: Any, jobs: Any, memory: Any) -> Any:
    """Whether the plan that holds still serves all that it promised. A plan was made just now: it has the rows."""
    table, spans = table_of(memory, True), int(memory[_N_UNTIL])
    j = view.first
    while j >= 0:
        if jobs[j].memory[SHARE] > 0.0:
            row, line = ROOM + view.room + shares.ROW * int(jobs[j].memory[TARGET]), int(jobs[j].memory[_LINE])
            if not shares.reaches(memory, row, float(view.now_ns), _UNTIL, spans, table + SPANS * line):
                return False
        j = jobs[j].next
    return True


@tool
def follow(view: Any, jobs: Any, memory: Any) -> None:
    """Targets of the promised jobs, as the plan that holds has them now."""
    table, spans, s = table_of(memory, True), int(memory[_N_UNTIL]), 0
    while s < spans and memory[_UNTIL + s] <= view.now_ns:
        s += 1
    j = view.first
    while j >= 0:
        promised = jobs[j].memory[SHARE] > 0.0 and s < spans
        jobs[j].memory[TARGET] = memory[table + SPANS * int(jobs[j].memory[_LINE]) + s] if promised else 0.0
        j = jobs[j].next
    if s < spans:
        wake_at(view, int(memory[_UNTIL + s]))
