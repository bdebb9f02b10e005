"""Requests that are served in batches on a few cores, each within a limit: what Nexus does, and others.

    plan = planned(sessions, cores)
    served = serve(sessions, at_ns, session, cores, plan, early=True)

It stands beside the engine, whose policies say how many jobs a batch takes, but have no plan of sessions and cycles. A
session is a model that is asked for at some rate: a batch of b takes fixed + item * b. Nexus, SOSP 2019: squishy bin
packing of sessions into cores, early drop. Times are ns.

Does not deal with: queries of several models, shared prefixes of models, rates that change while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from ..lab.mechanisms import packing
from ..sim.kept import kept

FAR = 1 << 62


@dataclass(frozen=True)
class Session:
    """rate: requests a second. limit_ns: from arrival to answer. most: the greatest batch."""

    rate: float
    fixed_ns: float
    item_ns: float
    limit_ns: float
    most: int = 64

    def __post_init__(self) -> None:
        if min(self.rate, self.item_ns) <= 0 or self.fixed_ns < 0 or self.most < 1:
            raise CorelaneError("serve", f"{self}", "a rate and a time for an item above 0, batches of 1 or more")
        if self.limit_ns < self.fixed_ns + self.item_ns:
            raise CorelaneError("serve", f"a limit of {self.limit_ns:g} ns", "at least what one request takes")


@dataclass(frozen=True)
class Plan:
    """rows: of each core, the sessions that it serves in turns (bool, cores x sessions). batch: of each, how many it
    waits for in a turn. wait_ns: of each session, for how long it waits for a full batch; 0: not at all."""

    rows: Any
    batch: Any
    wait_ns: Any


def fixed(sessions: Sequence[Session], cores: int, batch: int, wait_part: float = 0.5) -> Plan:
    """Every core serves all sessions, oldest request first, in batches of `batch`, or fewer when one has waited for
    that part of its limit. batch 1: one at a time."""
    rows = np.ones((cores, len(sessions)), np.bool_)
    sizes = np.minimum([s.most for s in sessions], batch) * np.ones((cores, 1), np.int64)
    waits = [0 if batch == 1 else int(s.limit_ns * wait_part) for s in sessions]
    return Plan(rows, sizes.astype(np.int64), np.array(waits, np.int64))


def planned(sessions: Sequence[Session], cores: int) -> Plan:
    """Nexus's plan: whole cores for sessions that fill them, the rest packed. Where it takes more cores than there are,
    it is made for that part of the rates for which there are enough; cores that are left repeat it."""
    low, high = 0.0, 1.0
    found = _needed(sessions, 1.0)
    if len(found) > cores:
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if len(_needed(sessions, middle)) <= cores else (low, middle)
        found = _needed(sessions, low)
    if not found:
        return fixed(sessions, cores, 1)
    rows = np.zeros((cores, len(sessions)), np.bool_)
    batch = np.ones((cores, len(sessions)), np.int64)
    for c in range(cores):
        for i, size in found[c % len(found)].items():
            rows[c, i], batch[c, i] = True, size
    return Plan(rows, batch, np.zeros(len(sessions), np.int64))


def _needed(sessions: Sequence[Session], part: float) -> list[dict[int, int]]:
    """Of each core that such a part of the rates needs, the batches of its sessions."""
    out: list[dict[int, int]] = []
    rest = []
    for i, s in enumerate(sessions):
        row = as_row(s, s.rate * part)
        size = int(packing.saturating(row, 0))
        left = s.rate * part / 1e9
        if size >= 1:
            each = size / (s.fixed_ns + s.item_ns * size)
            whole = int(left / each)
            out += [{i: size}] * whole
            left -= whole * each
        if left * 1e9 > 1e-6:
            rest.append((i, left * 1e9))
    memory = np.concatenate([as_row(sessions[i], rate) for i, rate in rest]) if rest else np.zeros(packing.ROW)
    bins = packing.squishy(memory, 0, len(rest)) if rest else 0
    if bins < 0:  # one that no cycle serves: a core for it
        return [*out, *({i: 1} for i, _ in rest)]
    for b in range(bins):
        mine = [(n, i) for n, (i, _) in enumerate(rest) if memory[packing.ROW * n + packing.BIN] == b]
        rows = {i: memory[packing.ROW * n : packing.ROW * (n + 1)] for n, i in mine}
        out.append({i: max(int(np.ceil(r[packing.RATE] * r[packing.CYCLE] - 1e-9)), 1) for i, r in rows.items()})
    return out


def as_row(session: Session, rate: float) -> Any:
    """A row of packing.py."""
    row = np.zeros(packing.ROW)
    row[:5] = rate / 1e9, session.fixed_ns, session.item_ns, session.limit_ns, session.most
    return row


@dataclass(frozen=True)
class Served:
    """finish_ns: of each request, -1: dropped. good: part that was answered within its limit. busy: part of the cores'
    time. batch: mean size."""

    finish_ns: Any
    good: float
    busy: float
    batch: float


def serve(
    sessions: Sequence[Session], at_ns: Any, session: Any, cores: int, plan: Plan, *, early: bool = False
) -> Served:
    """Serve requests that come at `at_ns` (ascending). early: those at the head that could not be answered in time in a
    batch of the planned size are dropped, so that those behind them can; else none is."""
    profile = np.array([[s.fixed_ns, s.item_ns, s.limit_ns] for s in sessions])
    order = np.argsort(session, kind="stable")
    starts = np.searchsorted(session[order], np.arange(len(sessions) + 1))
    finish = np.full(len(at_ns), -1, np.int64)
    counts = np.zeros(2, np.int64)
    _run(at_ns, order, session, starts, profile, plan.rows, plan.batch, plan.wait_ns, early, finish, counts)
    limit = profile[session, 2]
    good = (finish >= 0) & (finish - at_ns <= limit)
    span = max(int(max(finish.max(), at_ns[-1])) - int(at_ns[0]), 1)
    batches = max(int(counts[1]), 1)
    return Served(finish, float(good.mean()), float(counts[0]) / span / cores, float((finish >= 0).sum()) / batches)


@kept(also=Path(__file__).parent, error_model="numpy")
def _run(
    at: Any,
    order: Any,
    session: Any,
    starts: Any,
    profile: Any,
    rows: Any,
    batch: Any,
    wait: Any,
    early: Any,
    finish: Any,
    counts: Any,
) -> None:
    """order: requests by session, in the order of their arrival; heads and tails point into it."""
    n_cores, n = rows.shape
    head, tail = starts[:-1].copy(), starts[:-1].copy()
    free = np.zeros(n_cores, np.int64)
    turn = np.zeros(n_cores, np.int64)
    now, come = 0, 0
    while True:
        soonest = at[come] if come < len(at) else FAR
        for c in range(n_cores):
            if free[c] > now:
                soonest = min(soonest, free[c])
        for s in range(n):
            if head[s] < tail[s] and wait[s] > 0:
                until = at[order[head[s]]] + wait[s]
                if until > now:
                    soonest = min(soonest, until)
        if soonest == FAR:
            return
        now = soonest
        while come < len(at) and at[come] == now:
            tail[session[come]] += 1
            come += 1
        for c in range(n_cores):
            if free[c] > now:
                continue
            best, oldest = -1, FAR
            for i in range(n):
                s = (turn[c] + i) % n
                if not rows[c, s]:
                    continue
                if early:
                    size = min(batch[c, s], tail[s] - head[s])
                    while size > 0:
                        took = profile[s, 0] + profile[s, 1] * size
                        if now + took <= at[order[head[s]]] + profile[s, 2]:
                            break
                        head[s] += 1
                        size = min(batch[c, s], tail[s] - head[s])
                if head[s] == tail[s]:
                    continue
                first = at[order[head[s]]]
                if wait[s] > 0 and tail[s] - head[s] < batch[c, s] and first + wait[s] > now:
                    continue
                if early:  # in turns
                    best = s
                    break
                if first < oldest:
                    best, oldest = s, first
            if best < 0:
                continue
            size = min(batch[c, best], tail[best] - head[best])
            took = int(profile[best, 0] + profile[best, 1] * size)
            for i in range(size):
                finish[order[head[best] + i]] = now + took
            head[best] += size
            free[c] = now + took
            turn[c] = best + 1
            counts[0] += took
            counts[1] += 1
