"""Cores reserved for classes by their part of the demand: short ones may also use what is reserved for longer ones, not
the other way round, so some cores idle on purpose."""

from __future__ import annotations

from typing import Any

from ..acts import wake_at
from ..mechanisms.ranking import BARRED, begin
from ..mechanisms.tool import tool
from ..table import DONE, MAX_CLASSES

SOURCE = "Persephone, SOSP 2021: dynamic application-aware reserved cores (DARC)"
SWEEP: dict[str, tuple[float, ...]] = {"window": (200, 2000, 20000)}
WORDS = (2 * MAX_CLASSES + 1, 0, 0, 0)
_COUNT, _TIME, _ENDED = 0, MAX_CLASSES, 2 * MAX_CLASSES  # of each class, jobs ended and their core time; of all, ended
_OWNER = 0  # word of cores[c].memory: 1 + the class that a core is reserved for; 0: none yet


@tool
def _next_class(view: Any, memory: Any, after: Any) -> Any:
    """The class with the next longer mean service than class `after` (-1: the shortest of all); -1: none."""
    best = -1
    mine = memory[_TIME + after] / memory[_COUNT + after] if after >= 0 else -1.0
    for cls in range(view.n_classes):
        if memory[_COUNT + cls] > 0.0:
            mean = memory[_TIME + cls] / memory[_COUNT + cls]
            beyond = mean > mine or (mean == mine and cls > after)
            if beyond and (best < 0 or mean < memory[_TIME + best] / memory[_COUNT + best]):
                best = cls
    return best


@tool
def _reserve(view: Any, cores: Any, memory: Any) -> None:
    """Cores to classes, the shortest first, by their part of the core time, rounded up. The
    last core is left to all that have none."""
    total = 0.0
    for cls in range(view.n_classes):
        total += memory[_TIME + cls]
    first, cls = 0, _next_class(view, memory, -1)
    while cls >= 0:
        after = _next_class(view, memory, cls)
        want = int(memory[_TIME + cls] / total * view.n_cores) + 1
        last = view.n_cores if after < 0 else min(first + want, view.n_cores - 1)
        for c in range(first, last):
            cores[c].memory[_OWNER] = 1 + cls
        first, cls = last, after
    for cls in range(view.n_classes):
        memory[_COUNT + cls] *= 0.5
        memory[_TIME + cls] *= 0.5


@tool
def _may(view: Any, cores: Any, memory: Any, cls: Any, c: Any) -> Any:
    """Whether a class may use a core: one of its own, of a longer class, or of none; or the last one, if it has none
    that is its own."""
    owner = int(cores[c].memory[_OWNER]) - 1
    if owner < 0 or owner == cls or memory[_COUNT + cls] == 0.0:
        return owner < 0 or owner == cls or c == view.n_cores - 1
    return memory[_TIME + cls] / memory[_COUNT + cls] <= memory[_TIME + owner] / memory[_COUNT + owner]


@tool
def _bar(view: Any, cores: Any, memory: Any, cls: Any) -> None:
    """Of the idle cores, leave to `begin` those that a class may use."""
    c = view.idle
    while c >= 0:
        cores[c].memory[BARRED] = 0.0 if _may(view, cores, memory, cls, c) else 1.0
        c = cores[c].next_idle


def darc(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, window: Any = 2000) -> None:
    """Service is profiled by class, over windows of so many jobs. First come, first served before the first."""
    if view.event == DONE:
        row = jobs[view.job]
        memory[_COUNT + row.cls] += 1.0
        memory[_TIME + row.cls] += row.attained_ns
        memory[_ENDED] += 1.0
        if memory[_ENDED] >= window:
            memory[_ENDED] = 0.0
            _reserve(view, cores, memory)
    cls = _next_class(view, memory, -1)
    for turn in range(2 * view.n_classes):
        here = cls if turn < view.n_classes else turn - view.n_classes
        j = view.waiting[here] if here >= 0 and (turn < view.n_classes or memory[_COUNT + here] == 0.0) else -1
        if j >= 0:
            _bar(view, cores, memory, here)
            if begin(view, jobs, cores, j, kinds[jobs[j].kind].min_cores, 0):
                wake_at(view, view.now_ns)
                return
        if turn < view.n_classes and cls >= 0:
            cls = _next_class(view, memory, cls)
