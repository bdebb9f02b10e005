"""Moving one of 100 000 armed deadlines: a timer of the heap, an alarm later, an alarm sooner; and what bounds that.

A deadline lies in a cache line of an object that is far away: 100 000 of them are in no cache but the last. A store
alone waits for no line. Whoever has to look whether the deadline is later than where the wheel will look, waits.

See rearm.h for what is moved where. `called` are callbacks that ran meanwhile, whose time is a part of it: alarms that
the wheel found, as a rule only to see that they have moved.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.plot import Canvas
from ..harness.session import Session

ROUNDS = 5
ARMED = 100_000
PROBE = 100_000  # moves of the run that finds out how many fit into a slice
ARMS = {
    "timer, later": lib.CL_BENCH_REARM_TIMER,
    "alarm, later": lib.CL_BENCH_REARM_ALARM,
    "alarm, sooner": lib.CL_BENCH_REARM_SOONER,
    "a look and a store": lib.CL_BENCH_REARM_LOOK,
    "a store": lib.CL_BENCH_REARM_STORE,
}
BOUNDS = ("a look and a store", "a store")
LATER = "alarm, later"


def take(what: int, cpu: int, moves: int) -> tuple[float, int, int]:
    """ns a move, moves, and callbacks of about `moves` of them on core `cpu`; CorelaneError if it cannot be run."""
    out, err = ffi.new("struct cl_bench_rearm_result *"), ffi.new("char[256]")
    if lib.cl_bench_rearm(what, cpu, ARMED, moves, out, err):
        raise CorelaneError(f"ground: {ffi.string(err).decode()}")
    return out.ns / out.moves, out.moves, out.called


def _arm(what: int, cpu: int, slice_s: float) -> Callable[[], tuple[float, int, int]]:
    ns, _, _ = take(what, cpu, PROBE)
    moves = max(PROBE, int(slice_s * 1e9 / max(ns, 1.0)))
    return lambda: take(what, cpu, moves)


def measure(session: Session, seconds: float) -> None:
    """The arms in turn, for about `seconds` in all; sets ground.rearm_ns."""
    slice_s = seconds / (ROUNDS * len(ARMS))
    arms = {name: _arm(what, session.cores[0], slice_s) for name, what in ARMS.items()}
    samples = session.interleave(arms, ROUNDS)
    for name, took in samples.items():
        session.arm(
            name,
            ns=statistics.median(ns for ns, _, _ in took),
            ns_min=min(ns for ns, _, _ in took),
            ns_max=max(ns for ns, _, _ in took),
            n=sum(moves for _, moves, _ in took),
            called=sum(called for _, _, called in took),
            armed=ARMED,
        )
    mine = [ns for ns, _, _ in samples[LATER]]
    bounds = {name: statistics.median(ns for ns, _, _ in samples[name]) for name in BOUNDS}
    session.figure("ground.rearm_ns", statistics.median(mine), runs=mine, beside=bounds)


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """Time of a move by arm."""
    rows = [row for row in document["arms"] if row["name"] in ARMS]
    canvas.bars([row["name"] for row in rows], [row["ns"] for row in rows], ylabel="time of a move (ns)", panel=panel)
    canvas.caption(f"First: one of {ARMED} deadlines, median of {ROUNDS} rounds, the callbacks that came due included.")
