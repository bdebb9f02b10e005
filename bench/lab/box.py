"""The same load under the same policy, simulated and on this machine's cores (boxloop.py), and how far apart they are.

What a job costs beyond its work (the lock, the decision, the switch) is measured beforehand with jobs that come back to
back on the same cores, and told the simulator as its `switch_ns`. When a core did not do what the tables say, as the
machine had stopped it, it served others, or the policy thought for longer than that, is noted by the box; the
simulator's cores stand still at the same times, whoever has them then: a job that comes meanwhile waits, however urgent
it is. Without that is `plain`. A quantum begins on the box when it does in the simulator, after `switch_ns`.

On the box no two quanta are of one length. The simulator is told by how much they differ (`late_ns`): were its quanta
exact, jobs would have held equal core time, to the ns, and the older would go first, where on the box now one does and
now the other. So who goes first is drawn in both, a round is simulated DRAWS times, and how far these are apart is said
beside the error: nearer to the box no simulation can be.

The box spins for work: it says how decisions, switches and the machine's gaps add up, and nothing of caches or of what
the iokernel's own moves of cores cost (corelane bench sim has those).
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from . import boxloop, loads, policy
from .runs import Wanted
from .world import CALL_MOST_S, Costs, Machine, Ran, World, lost_in_a_call

DRAWS = 5  # simulations of a round
GAPS_PER_JOB, GAPS_MORE = 32, 100_000  # for which a run has room, for each core
PERCENTILES = (50, 99)
TRAIN, TRAINS = 300, 5
TRAIN_NS = 5_000
TICK_NS = 1_000_000  # between ticks, for policies that want no other calls
AHEAD_NS = 2_000_000  # until the first instant of a run
PATIENCE, LEAST_S = 5, 5.0  # times what a run takes at least; and beyond, for a machine that others use too
_lost: list[object] = []  # tables of policies that do not come back


@dataclass(frozen=True)
class Boxed:
    """What became of a load on the box. completion_ns: of each job; inf: it did not end. stops: rows of (ns, core, ns),
    ascending: when a core did not do what the tables say, and for how long; stopped: part of the cores' time that this
    is; missed: such times for which there was no room."""

    load: loads.Load
    completion_ns: Any
    stops: Any
    stopped: float
    missed: int = 0


@dataclass(frozen=True)
class Both:
    """One load on the box, and simulated: with its stops, as often as is drawn, and without."""

    box: Boxed
    drawn: Sequence[Ran]
    plain: Ran


def on_the_box(load: loads.Load, chosen: policy.Policy, cores: Sequence[int], costs: Costs) -> Boxed:
    """Run a load on threads pinned to `cores`, which spin. Jobs of one core and one resource only. costs: what the
    simulator is told, as what a job may take at its start before that counts as a stop. The clock is late by itself."""
    for kind in load.kinds:
        if kind.max_cores > 1 and kind.min_cores > 1:
            raise CorelaneError("run on the box", "a kind wants several cores at once", "the simulator has gangs")
        if any(phase.use < 1 or any(phase.demand) for phase in kind.phases):
            raise CorelaneError("run on the box", "a kind wants parts of a core, or other resources", "simulate it")
    machine = Machine(len(cores), costs=replace(costs, late_ns=0))
    world = World(load, machine, interval_ns=TICK_NS if chosen.ticks else 0)
    state, tables, keep = world.prepared(chosen)
    n = len(cores)
    words, lines = np.zeros(boxloop.N_WORDS, np.int64), np.zeros((n, boxloop.LINE), np.int64)
    lines[:, boxloop.IDENT] = -1
    shown, rooms = np.full(n, -2, np.int64), np.zeros((n, 16), np.int64)
    gaps = np.zeros((n, GAPS_PER_JOB * len(load) + GAPS_MORE, 2), np.int64)
    address, flat = np.uint64(chosen.address), lines.reshape(-1)
    given = [(me, words, flat, shown, gaps, rooms[me], np.uint64(rooms[me].ctypes.data)) for me in range(n)]
    stop = words.copy()
    stop[[boxloop.GO, boxloop.OVER]] = 1
    boxloop.work(0, stop, *given[0][2:], address, tables, state)  # compiles it
    failed: list[OSError] = []

    def thread(me: int) -> None:
        try:
            os.sched_setaffinity(0, {cores[me]})  # of this thread
        except OSError as error:
            failed.append(error)
            words[boxloop.OVER] = 1
        boxloop.work(*given[me], address, tables, state)

    threads = [threading.Thread(target=thread, args=(me,), daemon=True) for me in range(n)]
    for one in threads:
        one.start()
    while words[boxloop.READY] < n:
        time.sleep(0.001)
    words[boxloop.ORIGIN] = time.monotonic_ns() + AHEAD_NS
    words[boxloop.GO] = 1
    most_s = _most_s(load, n)
    ends_by = time.monotonic() + most_s
    for one in threads:
        one.join(max(ends_by - time.monotonic(), 0))
    slow = any(one.is_alive() for one in threads)
    words[boxloop.OVER] = 1
    ends_by = time.monotonic() + CALL_MOST_S
    for one in threads:
        one.join(max(ends_by - time.monotonic(), 0))
    if any(one.is_alive() for one in threads):
        _lost.append(keep)  # the thread goes on with it
        raise lost_in_a_call(chosen)
    del keep
    if failed:
        raise CorelaneError("run on the box", f"its cores are not allowed: {failed[0].strerror}", "choose others")
    ran = world.result(chosen, state)
    if slow:
        why = f"{int((~ran.over).sum())} of {len(load)} jobs were not over after {most_s:.1f} s: it decides too slowly"
        why += ", or others have the cores"
        raise CorelaneError(f"run {chosen} on the box", why, "give it longer jobs, or longer quanta")
    end = max(int(ran.jobs["finish_ns"].max()), 1)
    stops = _stops(gaps, lines[:, boxloop.GAPS], end)
    lost = float(stops[:, 2].sum() / (end * n))
    return Boxed(load, ran.completion_ns, stops, lost, int(lines[:, boxloop.MISSED].sum()))


def _most_s(load: loads.Load, cores: int) -> float:
    """Seconds after which a run is given up: many times what it takes where decisions take no time."""
    whole_ns = float(load.jobs["at_ns"][-1]) + float(load.jobs["work_ns"].sum()) / cores
    return PATIENCE * whole_ns / 1e9 + LEAST_S


def _stops(gaps: Any, counts: Any, end: int) -> Any:
    """Of all cores, ascending; those after the end do not count."""
    parts = [(row[:n, 0], np.full(n, c), row[:n, 1]) for c, (row, n) in enumerate(zip(gaps, counts, strict=True))]
    rows = np.concatenate([np.column_stack(part) for part in parts])
    rows = rows[rows[:, 0] < end]
    rows[:, 2] = np.minimum(rows[:, 2], end - rows[:, 0])
    return rows[np.argsort(rows[:, 0], kind="stable")]


def simulated(load: loads.Load, chosen: policy.Policy, cores: int, costs: Costs, stops: Any = (), seed: int = 1) -> Ran:
    """The simulator's run of the same jobs, with cores that stand still when those of the box did. seed: of what is
    drawn."""
    interval = TICK_NS if chosen.ticks else 0
    return World(load, Machine(cores, costs=costs), interval_ns=interval, stops=stops, seed=seed).run(chosen)


def costs_of(cores: Sequence[int]) -> Costs:
    """What the box takes for a job besides its work: median of jobs that come back to back on these cores, the least of
    TRAINS such medians, since the machine only adds to it. And by how much that differs: the middle half of what is
    drawn evenly is half as wide as all of it. 1 ns at least, or no two jobs of one length would ever change places."""
    cost, half = min(_cost_of_a_train(cores) for _ in range(TRAINS))
    return Costs(switch_ns=cost, late_ns=max(2 * half, 1))


def _cost_of_a_train(cores: Sequence[int]) -> tuple[int, int]:
    """The median, and the width of the middle half."""
    n = len(cores)
    at = np.arange(TRAIN * n, dtype=np.int64) + TICK_NS
    load = loads.Load((loads.Kind(),), loads.jobs(at, np.full(TRAIN * n, float(TRAIN_NS))))
    boxed = on_the_box(load, policy.load("fifo"), cores, Costs())
    ends = np.sort(boxed.completion_ns + at)[TRAIN * n // 3 :]
    each = ends[n:] - ends[:-n] - TRAIN_NS  # of equal jobs, the n-th before was the last one of the same core
    low, middle, high = np.percentile(each, (25, 50, 75))
    return max(round(float(middle)), 0), round(float(high - low))


def both(load: loads.Load, chosen: policy.Policy, cores: Sequence[int], costs: Costs) -> Both:
    """One load on the box, simulated with the times at which its cores stood still, DRAWS times, and without."""
    boxed = on_the_box(load, chosen, cores, costs)
    drawn = [simulated(load, chosen, len(cores), costs, boxed.stops, 1 + i) for i in range(DRAWS)]
    return Both(boxed, drawn, simulated(load, chosen, len(cores), costs))


def rounds(
    spec: str, settings: Mapping[str, float], load: Wanted, cores: Sequence[int], seeds: Sequence[int]
) -> dict[str, Any]:
    """A policy and a load through both, a round a seed: what `row_of` gives, and what a job costs besides its work."""
    chosen, costs = policy.load(spec, settings), costs_of(cores)
    pairs = [both(load.made(len(cores), seed), chosen, cores, costs) for seed in seeds]
    row = {"policy": str(chosen), "cores": list(cores), "rounds": len(pairs), "switch_ns": costs.switch_ns}
    return row | {"late_ns": costs.late_ns} | row_of(pairs)


def row_of(pairs: Sequence[Both]) -> dict[str, Any]:
    """Medians over rounds, of a round's simulations the median; of the ratios of each round less 1 the median, least
    and most; and the median of the most over the least of a round's simulations less 1 (`apart`)."""
    row: dict[str, Any] = {"n": sum(len(pair.box.load) for pair in pairs)}
    row["stopped"] = statistics.median(pair.box.stopped for pair in pairs)
    for p in PERCENTILES:
        box = [float(np.percentile(pair.box.completion_ns, p)) for pair in pairs]
        drawn = [sorted(float(np.percentile(m.completion_ns, p)) for m in pair.drawn) for pair in pairs]
        model = [statistics.median(values) for values in drawn]
        without = [float(np.percentile(pair.plain.completion_ns, p)) for pair in pairs]
        row |= {f"box_p{p}_us": statistics.median(box) / 1e3, f"model_p{p}_us": statistics.median(model) / 1e3}
        errors = [m / b - 1 for m, b in zip(model, box, strict=True)]
        row |= {f"p{p}_error": statistics.median(errors), f"p{p}_from": min(errors), f"p{p}_to": max(errors)}
        row[f"p{p}_apart"] = statistics.median(values[-1] / values[0] for values in drawn) - 1
        row[f"plain_p{p}_error"] = statistics.median(m / b for m, b in zip(without, box, strict=True)) - 1
    return row
