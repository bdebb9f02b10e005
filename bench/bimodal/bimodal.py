"""Bimodal: 99.5 % of the requests take 1 us, 0.5 % take 500 us, on one worker core, with and without preemption, types.

Without preemption a short request that comes behind a long one waits for what is left of it. With a quantum the long
one lets others go first: at a probe (corelane/libos/probe.h), after Concord (SOSP 2023), or, where its code has none,
by a signal, after Shinjuku (NSDI 2019) on an ordinary kernel (libos/sched/interrupt.c). With types the two kinds wait
in queues of their own (libos/net/typed.h), so that a short one does not wait for the first quantum of long ones before
it, either. The generator decides beforehand which request is long and says so in it, and keeps the two kinds'
latencies apart. Load is the time that the requests ask for over the time that there is; what the stack takes comes on
top.

A turn of an arm is measured in windows of 20 ms, some 3400 requests and 17 long ones at the load of the figure. A p99
is the median of the windows', of one turn for the figure's pairs and of all turns for the rows and the plot: a pause of
the machine, which takes a core for milliseconds some times a second, spoils the windows that it falls in. None is left
out, and a window in which requests stayed unanswered may be infinite. The rows have the percentiles of all requests,
too.

Preemption is paid for twice: by the core, for which cost.py says what one takes, at a load beyond the peak; and by the
long requests, whose latency with it is set against that without (`long_slowdown`).
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Sequence
from functools import partial
from typing import Any

from ..harness import rig
from ..harness.numbers import PERCENTILES, pairwise, plain
from ..harness.numbers import percentile as percentile_of
from ..harness.openloop import Point, carried_to_the_end, middle, why_it_stops
from ..harness.plot import Canvas
from ..harness.session import Session
from . import cost
from .server import LONG_FRACTION, LONG_US, SHORT_US, TARGETS_US, WINDOW_S, How, Server, server

SUMMARY = "short requests behind long ones: with and without preemption, by probe and by signal, and queues by type"
FIGURES = (
    "bimodal.p99_gain",
    "bimodal.preemption_ns",
    "bimodal.signal_preemption_ns",
    "bimodal.throughput_loss",
    "bimodal.signal_throughput_loss",
)

LOAD = 0.6
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1)  # what is asked for, so that no server carries the last one
BEYOND = 1.2  # the core is never idle
QUANTUM_US = 5
PLAIN, PROBE, SIGNAL = "run to completion", "quantum", "quantum by signal"
ARMS = {
    PLAIN: How(),
    PROBE: How(QUANTUM_US),
    SIGNAL: How(QUANTUM_US, signal=True),
    "typed": How(typed=True),
    "typed, quantum": How(QUANTUM_US, typed=True),
}
COMPARED = (PLAIN, PROBE)
COSTS = {  # figures by the way to preempt
    PROBE: ("bimodal.preemption_ns", "bimodal.throughput_loss"),
    SIGNAL: ("bimodal.signal_preemption_ns", "bimodal.signal_throughput_loss"),
}
ROUNDS, ROUNDS_OF_OTHERS = 7, 3
FIGURES_PART, COSTS_PART = 0.4, 0.2  # of the time: for the load of the figure, and for what preemption costs


def run(session: Session) -> None:
    """The load of the figure, all arms in turns; what preemption costs, beyond the peak; then the other loads."""
    session.settings |= {
        "message": f"one request of 22 bytes that takes {SHORT_US:g} us ({100 * LONG_FRACTION:g} %: {LONG_US:g} us)",
        "load": LOAD,
        "loads": LOADS,
        "load_of_costs": BEYOND,
        "quantum_us": QUANTUM_US,
        "targets_us": TARGETS_US,
        "checksums": rig.CHECKSUMS,
    }
    with contextlib.ExitStack() as stack:
        arms = {name: stack.enter_context(server(session.two_cores, how)) for name, how in ARMS.items()}
        got = at_one_load(session, arms, LOAD, FIGURES_PART)
        beyond = at_one_load(session, {name: arms[name] for name in (PLAIN, *COSTS)}, BEYOND, COSTS_PART)
        others_s = (1 - FIGURES_PART - COSTS_PART) * session.seconds
        others = at_other_loads(session, arms, others_s / ROUNDS_OF_OTHERS / len(arms) / len(LOADS))
    for name, arm in arms.items():
        say_drops(session, name, arm)
    for load, found in ((LOAD, got), *others.items(), (BEYOND, beyond)):
        for name, points in found.items():
            add_row(session, name, load, points)
    without, with_it = ([middle_us(p.extra["short_p99_windows_us"]) for p in got[name]] for name in COMPARED)
    whole = pairwise(*([p.extra["short_p99_us"] for p in got[name]] for name in COMPARED))
    session.ratio_figure(FIGURES[0], without, with_it, beside={"over all requests of a turn": whole.median})
    for name, figures in COSTS.items():
        cost.set_figures(session, figures, beyond[PLAIN], beyond[name])
    say_who_pays(session, got)


def at_one_load(session: Session, arms: dict[str, Server], load: float, part: float) -> dict[str, list[Point]]:
    """Points of a load by arm, in turns; part: of the time."""
    slot_s = part * session.seconds / ROUNDS / len(arms)
    return session.interleave({name: partial(arm.measure, load, slot_s) for name, arm in arms.items()}, ROUNDS)


def at_other_loads(session: Session, arms: dict[str, Server], slot_s: float) -> dict[float, dict[str, list[Point]]]:
    """Points by load and arm, in turns, and where the curves stop."""
    bodies = {f"{name} at {load:g}": partial(arm.measure, load, slot_s) for load in LOADS for name, arm in arms.items()}
    got = session.interleave(bodies, ROUNDS_OF_OTHERS)
    for name, arm in arms.items():
        say_stop(session, name, arm, [middle(got[f"{name} at {load:g}"]) for load in LOADS], slot_s)
    return {load: {name: got[f"{name} at {load:g}"] for name in arms} for load in LOADS}


def say_stop(session: Session, name: str, arm: Server, points: Sequence[Point], slot_s: float) -> None:
    """Where an arm's curve stops, and the resource that is used up there. points: one for each load, ascending."""
    first = next((i for i, point in enumerate(points) if not point.carried), len(points))
    failed = points[first:]
    because = why_it_stops([failed[0], failed[-1]] if failed else [], points[-1], arm.explain, slot_s)
    session.stop(name, failed[0].why_not() if failed else carried_to_the_end(points[-1]), because)


def say_drops(session: Session, name: str, arm: Server) -> None:
    """Where the requests went that an arm left unanswered."""
    session.settings.setdefault("dropped", {})[name] = dict(arm.dropped)
    if not arm.unanswered:
        return
    reasons = ", ".join(f"{reason} {n:,}" for reason, n in arm.dropped.most_common())
    session.note(
        f"{name}: {arm.unanswered:,} requests stayed unanswered at all loads together; dropped, with warm-up: "
        f"{reasons or 'none that is counted: they were answered too late'}"
    )


def say_who_pays(session: Session, got: dict[str, list[Point]]) -> None:
    """Latency of the long requests over that without preemption, turn by turn, at the load of the figure."""
    slower: dict[str, dict[str, float | str | None]] = {}
    for name in got:
        if name == PLAIN:
            continue
        slower[name] = {}
        for key in ("p50", "p99"):
            with_it, without = ([p.extra[f"long_{key}_us"] for p in got[arm]] for arm in (name, PLAIN))
            slower[name][key] = plain(middle_us([a / b for a, b in zip(with_it, without, strict=True) if b < math.inf]))
    session.settings["long_slowdown"] = slower
    told = ", ".join(f"{name} {_times(of['p50'])} (p99 {_times(of['p99'])})" for name, of in slower.items())
    session.note(
        f"the long requests pay for it: at {100 * LOAD:g} % load their p50 is, of that of running to completion: {told}"
    )


def _times(ratio: object) -> str:
    return f"{ratio:.3g} times" if isinstance(ratio, int | float) else "unknown"


def middle_us(values: Sequence[float]) -> float:
    """The median; nan of none."""
    return statistics.median(values) if values else math.nan


def add_row(session: Session, name: str, load: float, points: list[Point]) -> None:
    """An arm at a load. Percentiles by kind are the medians of the rounds, and the p99 is that of all windows, too."""
    row = session.point(name, middle(points))
    row["load"] = load
    for key in ("cpu_s", "service_s", "handled", "preempted", "signals_late", "signals_held"):
        if all(key in p.extra for p in points):
            row[key] = sum(p.extra[key] for p in points)
    for kind in ("short", "long"):
        row[f"{kind}_requests"] = sum(p.extra[f"{kind}_requests"] for p in points)
        for percentile, _ in PERCENTILES:
            key = f"{kind}_{percentile}_us"
            row[key] = plain(middle_us([p.extra[key] for p in points]))
        windows = sorted(us for p in points for us in p.extra[f"{kind}_p99_windows_us"])
        row[f"{kind}_windows"] = len(windows)
        row[f"{kind}_p99_window_us"] = plain(middle_us(windows))
        row[f"{kind}_p99_window_lower_us"] = plain(percentile_of(windows, 0.25))
        row[f"{kind}_p99_window_upper_us"] = plain(percentile_of(windows, 0.75))
        del row[f"{kind}_p99_windows_us"]


def plot(document: dict[str, Any]) -> Canvas:
    """Both kinds' p99 against load."""
    arms = document["arms"]
    canvas = Canvas(
        "bimodal: 99.5 % take 1 us, 0.5 % take 500 us, one core",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in arms),
        panels=2,
        size=(13, 6),
    )
    for panel, kind in enumerate(("short", "long")):
        key = f"{kind}_p99_window"
        for i, name in enumerate(ARMS):
            rows = sorted((a for a in arms if a["name"] == name), key=lambda a: float(a["load"]))
            values = [_finite(a[f"{key}_us"]) for a in rows]
            if not any(map(math.isfinite, values)):
                canvas.caption(f"{name}: every p99 of the {kind} requests is infinite.")
                continue
            at = [100 * float(a["load"]) for a in rows]
            canvas.curve(at, values, label=name, colour=i, panel=panel)
            lower, upper = ([a[f"{key}_{side}_us"] for a in rows] for side in ("lower", "upper"))
            canvas.band(at, lower, upper, colour=i, panel=panel)
        axis = canvas.axes[panel]
        axis.set_yscale("log")
        axis.set_xlabel("load: time that requests ask for, of one core (%)")
        axis.set_ylabel(f"p99 of {kind} requests,\nmedian of windows of {1e3 * WINDOW_S:g} ms (us)")
    few = min(int(a["short_windows"]) for a in arms)
    canvas.caption(f"A point is of {few} windows or more; bands are their quartiles.")
    for name, why in document["settings"]["stops"].items():
        canvas.caption(f"{name} stops: {why}.")
    canvas.caption("Loads beyond those show what overload does.")
    return canvas


def _finite(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
