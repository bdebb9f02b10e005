"""Requests that are served in batches, each within a limit: sessions packed into cores, and early drop."""

from __future__ import annotations

import math
from typing import Any

from ..acts import give, refuse, wake_at
from ..mechanisms.packing import BIN, CYCLE, FIXED, ITEM, LIMIT, MOST, RATE, ROW, lasts_ns, saturating, squishy
from ..mechanisms.ranking import begin
from ..mechanisms.tool import tool

SOURCE = "Nexus, SOSP 2019: squishy bin packing of sessions, batches of the planned size, early drop"
SWEEP: dict[str, tuple[float, ...]] = {"window": (200, 2000)}
SESSIONS = 32  # kinds that are packed; those beyond are served by any core
_KIND, _SINCE, _SEEN = SESSIONS * ROW, SESSIONS * ROW + SESSIONS, SESSIONS * ROW + SESSIONS + 1
_OF = _SEEN + 1  # words of each kind follow
# Arrivals in this window; batch on a core of its own (0: none); its bin, plus 1, and its batch there; how many wait.
_COUNT, _WHOLE, _BIN, _SIZE, _WAIT, _WORDS = 0, 1, 2, 3, 4, 5
WORDS = (_OF, 0, 0, _WORDS)
_KNOWN = 0  # word of jobs[j].memory: 1: it is counted
_OWNER, _PACK, _TURN = 0, 1, 2  # words of cores[c].memory: 1 + kind, or 1 + bin, that it serves; the kind that is next


@tool
def _needed(view: Any, cores: Any, kinds: Any, memory: Any, span: Any, part: Any, most: Any) -> Any:
    """Plan for that part of the rates: whole cores for kinds that fill them, the rest packed. Returns how many cores
    that needs; those that belong to a kind come first. -1: there is no plan."""
    n, whole = 0, 0
    for k in range(view.n_kinds):
        at = _OF + _WORDS * k
        rate = part * memory[at + _COUNT] / span
        memory[at + _WHOLE], memory[at + _BIN] = 0.0, 0.0
        if rate <= 0.0 or n == SESSIONS:
            continue
        row = n * ROW
        memory[row + FIXED], memory[row + ITEM] = kinds[k].batch_fixed_ns, kinds[k].batch_item_ns
        memory[row + LIMIT], memory[row + MOST] = kinds[k].limit_ns if kinds[k].limit_ns > 0 else 1e6, most
        size = saturating(memory, row)
        if size >= 1.0:
            each = size / lasts_ns(memory, row, size)
            while rate >= each:
                if whole < view.n_cores:
                    cores[whole].memory[_OWNER], cores[whole].memory[_PACK] = 1.0 + k, 0.0
                whole += 1
                rate -= each
                memory[at + _WHOLE] = size
        if rate * span > 1e-6:
            memory[row + RATE], memory[_KIND + n] = rate, k
            n += 1
    bins = squishy(memory, 0, n)
    if bins < 0:
        return -1
    for i in range(n):
        at = _OF + _WORDS * int(memory[_KIND + i])
        row = i * ROW
        memory[at + _BIN] = 1.0 + memory[row + BIN]
        memory[at + _SIZE] = max(math.ceil(memory[row + RATE] * memory[row + CYCLE] - 1e-9), 1.0)
    for c in range(min(whole, view.n_cores), view.n_cores):
        cores[c].memory[_OWNER], cores[c].memory[_PACK] = 0.0, 1.0 + (c - whole) if c - whole < bins else 0.0
    return whole + bins


@tool
def _plan(view: Any, cores: Any, kinds: Any, memory: Any, most: Any) -> None:
    """By the rates of the window, or the part of them for which there are cores. Cores that are left repeat it."""
    span = max(view.now_ns - memory[_SINCE], 1.0)
    part, need = 1.0, view.n_cores + 1
    while need > view.n_cores and part > 0.01:
        need = _needed(view, cores, kinds, memory, span, part, most)
        part *= 0.95
    for c in range(view.n_cores):
        if need <= 0 or need > view.n_cores:
            cores[c].memory[_OWNER], cores[c].memory[_PACK] = 0.0, 0.0
        elif c >= need:
            cores[c].memory[_OWNER] = cores[c % need].memory[_OWNER]
            cores[c].memory[_PACK] = cores[c % need].memory[_PACK]
    for k in range(view.n_kinds):
        memory[_OF + _WORDS * k + _COUNT] = 0.0
    memory[_SINCE], memory[_SEEN] = float(view.now_ns), 0.0


@tool
def _batch(cores: Any, memory: Any, c: Any, k: Any, most: Any) -> Any:
    """How many of kind k core c takes at a time; 0: it does not serve them."""
    at = _OF + _WORDS * k
    owner, pack = cores[c].memory[_OWNER], cores[c].memory[_PACK]
    if owner == 1.0 + k:  # it fills this core
        return memory[at + _WHOLE]
    if pack > 0.0 and memory[at + _BIN] == pack:
        return memory[at + _SIZE]
    if (owner == 0.0 and pack == 0.0) or (memory[at + _BIN] == 0.0 and memory[at + _WHOLE] == 0.0):
        return most  # there is no plan, or it has no place in it
    return 0.0


@tool
def _next(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, c: Any, most: Any) -> Any:
    """The first request of the kind whose turn it is on core c; -1: none. Who would be late in a batch is dropped."""
    best, soonest = -1, view.n_kinds
    for cls in range(view.n_classes):
        j = view.waiting[cls]
        while j >= 0:
            k = jobs[j].kind
            at = _OF + _WORDS * k
            size = _batch(cores, memory, c, k, most) if kinds[k].batch_item_ns > 0 else 0.0
            turn = (k - int(cores[c].memory[_TURN]) + view.n_kinds) % view.n_kinds
            if size >= 1.0 and turn < soonest:
                took = kinds[k].batch_fixed_ns + kinds[k].batch_item_ns * min(size, memory[at + _WAIT])
                if kinds[k].limit_ns > 0 and view.now_ns + took > jobs[j].arrived_ns + kinds[k].limit_ns:
                    refuse(view, jobs, j)
                    memory[at + _WAIT] -= 1.0
                else:
                    best, soonest = j, turn
            j = jobs[j].after
    return best


def nexus(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, window: Any = 1000, most: Any = 64) -> None:
    """A kind with batches is a session; rates are those of the last `window` requests. Other jobs go before them."""
    for k in range(view.n_kinds):
        memory[_OF + _WORDS * k + _WAIT] = 0.0
    for cls in range(view.n_classes):
        j = view.waiting[cls]
        while j >= 0:
            memory[_OF + _WORDS * jobs[j].kind + _WAIT] += 1.0
            if kinds[jobs[j].kind].batch_item_ns == 0:
                if begin(view, jobs, cores, j, kinds[jobs[j].kind].min_cores, 0):
                    wake_at(view, view.now_ns)
                return
            if jobs[j].memory[_KNOWN] == 0.0:  # it has come since the last call
                jobs[j].memory[_KNOWN] = 1.0
                memory[_OF + _WORDS * jobs[j].kind + _COUNT] += 1.0
                memory[_SEEN] += 1.0
            j = jobs[j].after
    if memory[_SEEN] >= window:
        _plan(view, cores, kinds, memory, float(most))
    c = view.idle
    while c >= 0:
        j = _next(view, jobs, cores, kinds, memory, c, float(most))
        if view.n_refused > 0:  # they are gone first
            wake_at(view, view.now_ns)
            return
        if j >= 0:
            cores[c].take, cores[c].quantum_ns = int(_batch(cores, memory, c, jobs[j].kind, float(most))), 0
            cores[c].memory[_TURN] = (jobs[j].kind + 1) % view.n_kinds
            give(view, cores, c, j)
            wake_at(view, view.now_ns)
            return
        c = cores[c].next_idle
