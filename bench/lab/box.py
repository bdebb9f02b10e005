"""The same load under the same policy, simulated and on this machine's cores (boxloop.py), and how far apart they are.

What a job costs beyond its work (the lock, the decision, the switch) is measured beforehand with jobs that come back to
back on the same cores, and told the simulator as its `switch_ns`. When a core did not do what the tables say, as the
machine had stopped it or it served others, is noted by the box; the simulator's cores stand still at the same times,
whoever has them then: a job that comes meanwhile waits, however urgent it is. Without that is `plain`.

The box spins for work: it says how decisions, switches and the machine's gaps add up, and nothing of caches or of what
the iokernel's own moves of cores cost (corelane bench sim has those).
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from ..harness.session import Session
from . import boxloop, generators, loads, policy
from .world import Costs, Machine, Ran, World

LOADS = (0.3, 0.6, 0.8)
POLICIES: tuple[tuple[str, dict[str, float]], ...] = (("fifo", {}), ("priority", {"preempt": 1}))
MEAN_US = 100.0
ROUNDS = 5
LOST_MOST = 0.1  # of the cores' time, by the machine, in a round that counts
GAPS_PER_JOB, GAPS_MORE = 32, 100_000  # for which a run has room, for each core
PERCENTILES = (50, 99)
TRAIN, TRAINS = 300, 5
TRAIN_NS = 5_000
TICK_NS = 1_000_000  # between ticks, for policies that want no other calls
AHEAD_NS = 2_000_000  # until the first instant of a run


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


def on_the_box(load: loads.Load, chosen: policy.Policy, cores: Sequence[int], room: int = 4096) -> Boxed:
    """Run a load on threads pinned to `cores`, which spin. Jobs of one core and one resource only."""
    for kind in load.kinds:
        if kind.max_cores > 1 and kind.min_cores > 1:
            raise CorelaneError("run on the box", "a kind wants several cores at once", "the simulator has gangs")
        if any(phase.use < 1 or any(phase.demand) for phase in kind.phases):
            raise CorelaneError("run on the box", "a kind wants parts of a core, or other resources", "simulate it")
    world = World(load, Machine(len(cores)), interval_ns=TICK_NS if chosen.ticks else 0, room=room)
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
    for one in threads:
        one.join()
    del keep
    if failed:
        raise CorelaneError("run on the box", f"its cores are not allowed: {failed[0].strerror}", "choose others")
    ran = world.result(chosen, state)
    end = max(int(ran.jobs["finish_ns"].max()), 1)
    stops = _stops(gaps, lines[:, boxloop.GAPS], end)
    lost = float(stops[:, 2].sum() / (end * n))
    return Boxed(load, ran.completion_ns, stops, lost, int(lines[:, boxloop.MISSED].sum()))


def _stops(gaps: Any, counts: Any, end: int) -> Any:
    """Of all cores, ascending; those before the first instant count from there on, those after the end do not."""
    parts = [(row[:n, 0], np.full(n, c), row[:n, 1]) for c, (row, n) in enumerate(zip(gaps, counts, strict=True))]
    rows = np.concatenate([np.column_stack(part) for part in parts])
    early = np.minimum(rows[:, 0], 0)
    rows[:, 0] -= early
    rows[:, 2] += early
    rows = rows[(rows[:, 2] > 0) & (rows[:, 0] < end)]
    rows[:, 2] = np.minimum(rows[:, 2], end - rows[:, 0])
    return rows[np.argsort(rows[:, 0], kind="stable")]


def simulated(load: loads.Load, chosen: policy.Policy, cores: int, costs: Costs, stops: Any = ()) -> Ran:
    """The simulator's run of the same jobs, with cores that stand still when those of the box did."""
    interval = TICK_NS if chosen.ticks else 0
    return World(load, Machine(cores, costs=costs), interval_ns=interval, stops=stops).run(chosen)


def costs_of(cores: Sequence[int]) -> Costs:
    """What the box takes for a job besides its work: median of jobs that come back to back on these cores, the least of
    TRAINS such medians, since the machine only adds to it."""
    return Costs(switch_ns=min(_cost_of_a_train(cores) for _ in range(TRAINS)))


def _cost_of_a_train(cores: Sequence[int]) -> int:
    n = len(cores)
    at = np.arange(TRAIN * n, dtype=np.int64) + TICK_NS
    load = loads.Load((loads.Kind(),), loads.jobs(at, np.full(TRAIN * n, float(TRAIN_NS))))
    boxed = on_the_box(load, policy.load("fifo"), cores)
    ends = np.sort(boxed.completion_ns + at)[TRAIN * n // 3 :]
    each = ends[n:] - ends[:-n] - TRAIN_NS  # of equal jobs, the n-th before was the last one of the same core
    return max(round(float(np.median(each))), 0)


def compare(session: Session, seconds: float) -> dict[str, Any]:
    """Rows for one and two cores, each policy and load; sets the figure lab.box_error."""
    counts = [n for n in (1, 2) if n <= len(session.cores)]
    part = seconds / (len(counts) * len(LOADS) * len(POLICIES) * ROUNDS)
    costs = {n: costs_of(session.cores[:n]) for n in counts}
    session.settings["box_costs_ns"] = [costs[n].switch_ns for n in counts]
    errors: dict[str, float] = {}
    plain: list[float] = []
    for servers in counts:
        for (name, settings), load in ((p, at) for p in POLICIES for at in LOADS):
            session.say(f"the box and the simulator: {name}, {servers} cores at load {load}")
            count = max(int(part * 1e6 * load * servers / MEAN_US), 200)
            cores = session.cores[:servers]
            pairs = [_round(cores, name, settings, load, count, costs[servers], 100 + i) for i in range(ROUNDS)]
            kept = [pair for pair in pairs if pair[0].stopped <= LOST_MOST and not pair[0].missed]
            arm = f"box and simulator, {name}, {servers} cores, load {load:g}"
            if not kept:
                session.skip(arm, f"the machine took over {100 * LOST_MOST:g} % of the cores' time in each round")
                continue
            if len(kept) < len(pairs):
                left = len(pairs) - len(kept)
                session.note(f"{arm}: {left} of {ROUNDS} rounds are left out, in which the machine was too loud")
            row = row_of(kept)
            session.arm(arm, policy=name, cores=servers, load=load, rounds_left_out=len(pairs) - len(kept), **row)
            errors |= {f"{arm}, p{p}": row[f"p{p}_error"] for p in PERCENTILES}
            plain += [abs(row[f"plain_p{p}_error"]) for p in PERCENTILES]
    if not errors:
        session.figure("lab.box_error", None, reason="the machine was too loud in every round")
        return {}
    beside = {"largest without what the machine took from jobs": max(plain)}
    values = [abs(error) for error in errors.values()]
    session.figure("lab.box_error", max(values), runs=values, beside=beside)
    return errors


def _round(
    cores: Sequence[int], name: str, settings: Mapping[str, float], at: float, count: int, costs: Costs, seed: int
) -> tuple[Boxed, Ran, Ran]:
    """A load of the comparison through both."""
    return both(_load(at, len(cores), count, seed), policy.load(name, settings), cores, costs)


def both(load: loads.Load, chosen: policy.Policy, cores: Sequence[int], costs: Costs) -> tuple[Boxed, Ran, Ran]:
    """One load on the box, simulated with the times at which its cores stood still, and without."""
    boxed = on_the_box(load, chosen, cores)
    with_losses = simulated(load, chosen, len(cores), costs, boxed.stops)
    return boxed, with_losses, simulated(load, chosen, len(cores), costs)


def _load(at: float, cores: int, count: int, seed: int) -> loads.Load:
    """Log-normal jobs of two classes, of which one job in five is of the first."""
    made = generators.make("poisson", {"jobs": count, "load": at, "mean_us": MEAN_US, "sigma": 0.8}, cores, seed)
    rows = made.jobs.copy()
    rows["kind"] = np.random.default_rng(seed).random(count) >= 0.2
    return loads.Load((loads.Kind(cls=0), loads.Kind(cls=1)), rows, made.said)


def row_of(pairs: Sequence[tuple[Boxed, Ran, Ran]]) -> dict[str, Any]:
    """Medians over rounds, and the medians of the ratios of each round less 1."""
    row: dict[str, Any] = {"n": sum(len(b.load) for b, *_ in pairs)}
    row["stopped"] = statistics.median(b.stopped for b, *_ in pairs)
    for p in PERCENTILES:
        box = [float(np.percentile(b.completion_ns, p)) for b, *_ in pairs]
        model = [float(np.percentile(m.completion_ns, p)) for _, m, _ in pairs]
        without = [float(np.percentile(m.completion_ns, p)) for *_, m in pairs]
        row |= {f"box_p{p}_us": statistics.median(box) / 1e3, f"model_p{p}_us": statistics.median(model) / 1e3}
        row[f"p{p}_error"] = statistics.median(m / b for m, b in zip(model, box, strict=True)) - 1
        row[f"plain_p{p}_error"] = statistics.median(m / b for m, b in zip(without, box, strict=True)) - 1
    return row
