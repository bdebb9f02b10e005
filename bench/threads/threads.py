"""User-level threads against pthreads: yield, spawn and join, mutex, condition variable, semaphore ping-pong.

Each row is a closed loop on pinned cores, both kinds in turn within a round. Everything but the last row runs on one
core, where a hand-over is a switch and nothing else; on two cores a hand-over is a cache line or a wake-up. What a row
measures is its `measures`; `switches_per_operation` says whether a yield switched at all (the kernel may decline).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.numbers import Ratio, pairwise
from ..harness.plot import Canvas
from ..harness.session import Session

SUMMARY = "uthread yield, spawn+join, mutex, condvar, ping-pong; pthreads in the same run"
FIGURES = (
    "threads.yield_ns",
    "threads.spawn_join_ns",
    "threads.mutex_ns",
    "threads.condvar_ns",
    "threads.pthread_over_ours",
)

ROUNDS = 7
PROBE = 500  # operations of the run that finds out how many fit into the first slice


@dataclass(frozen=True)
class Loop:
    """A row: its name, the C loop's number, cores used, figure and what one operation is."""

    name: str
    what: int
    cores: int
    figure: str | None
    in_ratio: bool
    measures: str


LOOPS = (
    Loop("yield", lib.CL_BENCH_THREADS_YIELD, 1, "threads.yield_ns", True, "a yield of two threads that alternate"),
    Loop(
        "spawn+join",
        lib.CL_BENCH_THREADS_SPAWN,
        1,
        "threads.spawn_join_ns",
        True,
        "start, run and join an empty thread",
    ),
    Loop("mutex", lib.CL_BENCH_THREADS_MUTEX, 1, "threads.mutex_ns", False, "lock and unlock, nobody else there"),
    Loop(
        "condvar",
        lib.CL_BENCH_THREADS_CONDVAR,
        1,
        "threads.condvar_ns",
        True,
        "a turn handed over: lock, signal, wait (unlock, switch, lock), unlock",
    ),
    Loop("semaphore", lib.CL_BENCH_THREADS_SEMAPHORE, 1, None, False, "a post and the wait it ends, one core"),
    Loop(
        "semaphore, two cores",
        lib.CL_BENCH_THREADS_SEMAPHORE,
        2,
        None,
        False,
        "a post and the wait it ends on the other core; uthreads spin there, pthreads sleep",
    ),
)


@dataclass(frozen=True)
class Sample:
    """One slice of one arm."""

    ns: float  # an operation
    operations: int
    switches: float  # an operation


def take(loop: Loop, ours: bool, cores: tuple[int, ...], n: int) -> Sample:
    """Run n operations of a loop; CorelaneError if its threads cannot be started."""
    out = ffi.new("struct cl_bench_threads_result *")
    err = ffi.new("char[256]")
    other = cores[1] if loop.cores == 2 else -1
    if lib.cl_bench_threads(loop.what, ours, cores[0], other, n, out, err):
        raise CorelaneError(f"threads: {loop.name}: {ffi.string(err).decode()}")
    return Sample(out.ns / out.operations, out.operations, out.switches / out.operations)


def _arm(loop: Loop, ours: bool, cores: tuple[int, ...], slice_s: float) -> Callable[[], Sample]:
    """A body for Session.interleave: about slice_s seconds of the loop, by what its last slice took an operation."""
    last = take(loop, ours, cores, PROBE)

    def body() -> Sample:
        nonlocal last
        last = take(loop, ours, cores, max(2, int(slice_s * 1e9 / max(last.ns, 1.0))))
        return last

    return body


def _label(loop: Loop, ours: bool) -> str:
    return f"{loop.name}, {'corelane' if ours else 'pthread'}"


def run(session: Session) -> None:
    """Interleave all loops, uthreads and pthreads, for about session.seconds in all."""
    loops = [loop for loop in LOOPS if loop.cores <= len(session.cores)]
    kinds = (True, False) if session.baseline else (True,)
    slice_s = session.seconds / (ROUNDS * len(loops) * len(kinds))
    arms = {_label(loop, ours): _arm(loop, ours, session.cores, slice_s) for loop in loops for ours in kinds}
    samples = session.interleave(arms, ROUNDS)
    ratios: dict[str, Ratio] = {}
    for loop in loops:
        for ours in kinds:
            took = samples[_label(loop, ours)]
            session.arm(
                _label(loop, ours),
                ns=statistics.median(s.ns for s in took),
                ns_min=min(s.ns for s in took),
                ns_max=max(s.ns for s in took),
                n=sum(s.operations for s in took),
                switches_per_operation=statistics.median(s.switches for s in took),
                measures=loop.measures,
            )
        mine = [s.ns for s in samples[_label(loop, True)]]
        if loop.figure:
            session.figure(loop.figure, statistics.median(mine), runs=mine)
        if session.baseline:
            ratios[loop.name] = pairwise([s.ns for s in samples[_label(loop, False)]], mine)
    session.settings["message"] = "one operation as the row's `measures` says"
    session.settings["pthread_over_ours"] = {name: ratio.median for name, ratio in ratios.items()}
    for loop in LOOPS:
        if loop.cores > len(session.cores):
            session.skip(loop.name, "this process may use one core only: allow it a second one")
    _set_ratio(session, loops, ratios)


def _set_ratio(session: Session, loops: list[Loop], ratios: dict[str, Ratio]) -> None:
    """The figure that takes the smallest of the ratios."""
    if not ratios:
        session.figure("threads.pthread_over_ours", None, reason="run without baselines")
        return
    least = min((loop.name for loop in loops if loop.in_ratio), key=lambda name: ratios[name].median)
    session.figure("threads.pthread_over_ours", ratios[least].median, runs=ratios[least].pairs)
    session.note(f"pthread_over_ours is that of {least}, the smallest of yield, spawn+join and condvar")


def plot(document: dict[str, Any]) -> Canvas:
    """Every row of both kinds on a logarithmic axis."""
    rows = document["arms"]
    canvas = Canvas(
        "threads: uthreads and pthreads", message=document["settings"]["message"], n=sum(row["n"] for row in rows)
    )
    canvas.bars(
        [row["name"] for row in rows],
        [row["ns"] for row in rows],
        ylabel="time of an operation (ns)",
        colours=[int(row["name"].endswith("pthread")) for row in rows],
        log=True,
    )
    canvas.caption(f"Median of {ROUNDS} interleaved rounds. Closed loops on pinned cores; no load is left out.")
    return canvas
