"""How fast simulated Raft clusters run, all checks on, and 10 000 seeds of 5 nodes.

Two kinds of nodes: `node`, the real node and log on block devices that fail, and `core`, the raw core on modelled
storage. A step is the same for both (apps/raft/sim/world.h), and the figure is the slower one's, with 5 nodes. All of
CI's seeds run with both, and those count that ran with both.

The rate is of one thread on one core: steps by CPU time, over seeds of their own for each round, so that no round is
easier for having been run before. Seeds differ in length and work by what they draw; hundreds are in each round.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

from ..apps.raft.sim.world import run_many
from ..runtime.errors import CorelaneError
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "simulated Raft clusters: steps a second with all checks, and CI's seeds"
FIGURES = ("raft-sim.steps_per_s", "raft-sim.seeds")

NODES = (3, 5, 7)
MODES = ("node", "core")
ROUNDS = 5
SEEDS = 10_000  # of 5 nodes, of each kind: as many as tests/apps/raft/sim/test_world.py runs, and the same
WHOLE_S = 10.0  # a shorter run has no time for them
BATCH = 50


def _round(first: int, nodes: int, mode: str, seconds: float) -> dict[str, float]:
    """Seeds from `first` on for so long, on this thread."""
    steps = seeds = 0
    began, cpu = time.monotonic(), time.process_time()
    while seeds == 0 or time.monotonic() - began < seconds:
        result = run_many(first + seeds, BATCH, nodes, mode=mode)
        if result.failed:
            raise CorelaneError(f"raft_sim: {result.reason}")
        steps, seeds = steps + result.steps, seeds + BATCH
    return {"steps_per_s": steps / (time.process_time() - cpu), "steps": steps, "seeds": seeds}


def _slice(firsts: Iterator[int], nodes: int, mode: str, seconds: float) -> dict[str, float]:
    return _round(next(firsts), nodes, mode, seconds)


def run(session: Session) -> None:
    """Half of session.seconds for the rates; then the seeds, for as long as they take."""
    os.sched_setaffinity(0, {session.cores[-1]})
    slice_s = session.seconds / 2 / ROUNDS / len(NODES) / len(MODES)
    firsts = iter(range(1_000_000, 10**9, 1_000_000))
    arms = {f"{n} nodes, {m}": functools.partial(_slice, firsts, n, m, slice_s) for m in MODES for n in NODES}
    took = session.interleave(arms, ROUNDS)
    for name, rounds in took.items():
        rates = [r["steps_per_s"] for r in rounds]
        session.arm(
            name,
            steps_per_s=statistics.median(rates),
            steps_per_s_min=min(rates),
            steps_per_s_max=max(rates),
            n=int(sum(r["steps"] for r in rounds)),
            seeds=int(sum(r["seeds"] for r in rounds)),
        )
    each = [[r["steps_per_s"] for r in took[f"5 nodes, {m}"]] for m in MODES]
    slower = min(each, key=statistics.median)
    session.figure("raft-sim.steps_per_s", statistics.median(slower), runs=slower)
    session.settings["message"] = "one step of a simulated cluster, with its checks"
    if session.seconds < WHOLE_S:
        session.figure("raft-sim.seeds", None, reason=f"{SEEDS} seeds take longer: give --seconds {WHOLE_S:.0f}")
        return
    os.sched_setaffinity(0, set(session.cores))
    session.figure("raft-sim.seeds", min(_all_seeds(session, mode) for mode in MODES))


def _all_seeds(session: Session, mode: str) -> int:
    """CI's seeds of that kind of node, none of which may fail; how many they are."""
    session.say(f"{SEEDS} seeds of 5 nodes, {mode}, on {len(session.cores)} cores")
    began = time.monotonic()
    result = run_many(1, SEEDS, 5, mode=mode, threads=len(session.cores))
    if result.failed:
        raise CorelaneError(f"raft_sim: {result.reason}")
    session.settings[f"seeds_s, {mode}"] = time.monotonic() - began
    session.settings[f"sums, {mode}"] = {k: v for k, v in result.counts.items() if k != "hash"}
    return result.runs


def plot(document: dict[str, Any]) -> Canvas:
    """Steps a second by size of the cluster and kind of node."""
    rows = document["arms"]
    canvas = Canvas(
        "raft_sim: simulated clusters", message=document["settings"]["message"], n=sum(row["n"] for row in rows)
    )
    canvas.bars([row["name"] for row in rows], [row["steps_per_s"] for row in rows], ylabel="steps (1/s)")
    canvas.caption(f"Median of {ROUNDS} interleaved rounds, one thread, CPU time. Every step is checked.")
    return canvas
