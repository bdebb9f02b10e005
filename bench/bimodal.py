"""Bimodal: 99.5 % of the requests take 1 us, 0.5 % take 500 us, on one worker core, with and without preemption, types.

Without preemption a short request that comes behind a long one waits for what is left of it. With a quantum the long
one lets others go first at a probe (libos/probe.h), after Shinjuku (NSDI 2019, section 5) and Concord (SOSP 2023). With
types the two kinds wait in queues of their own (libos/net/typed.h), so that a short one does not wait for the first
quantum of long ones before it, either. The generator decides beforehand which request is long and says so in it, and
keeps the two kinds' latencies apart. Load is the time that the requests ask for over the time that there is; what the
stack takes comes on top.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..drivers.loadgen import Echo, Result
from .harness import rig, shared
from .harness.load import WARM_FRACTION, WARM_MOST_S, point_of
from .harness.numbers import PERCENTILES, plain
from .harness.openloop import Point, middle
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "short requests behind long ones, with and without preemption and queues by type"
FIGURES = ("bimodal.p99_gain",)

SHORT_US, LONG_US, LONG_FRACTION = 1.0, 500.0, 0.005
MEAN_US = (1 - LONG_FRACTION) * SHORT_US + LONG_FRACTION * LONG_US
LOAD = 0.6
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
QUANTUM_US = 5
TARGETS_US = (10, 1000)  # of the short and of the long: how long they should wait at most
ARMS = {  # quantum in us (0: none), and whether requests wait by type
    "run to completion": (0, False),
    "quantum": (QUANTUM_US, False),
    "typed": (0, True),
    "typed, quantum": (QUANTUM_US, True),
}
COMPARED = ("run to completion", "quantum")
ROUNDS = 3
PORT = 9001

Measure = Callable[[float, float], Point]  # (load as a part of the core, seconds)


def run(session: Session) -> None:
    """The load of the figure, all arms in turns; then the others once."""
    cores = session.two_cores
    session.settings |= {
        "message": f"one request of 22 bytes that takes {SHORT_US:g} us ({100 * LONG_FRACTION:g} %: {LONG_US:g} us)",
        "load": LOAD,
        "loads": LOADS,
        "quantum_us": QUANTUM_US,
        "targets_us": TARGETS_US,
        "checksums": rig.CHECKSUMS,
    }
    slot = session.seconds / (ROUNDS + 0.5 * len(LOADS)) / len(ARMS)
    with contextlib.ExitStack() as stack:
        arms = {name: stack.enter_context(server(cores, *how)) for name, how in ARMS.items()}
        got = session.interleave({name: partial(arm, LOAD, slot) for name, arm in arms.items()}, ROUNDS)
        for name, points in got.items():
            add_row(session, name, LOAD, points)
        for load in LOADS:
            session.take_canary()
            for name, arm in arms.items():
                session.say(f"load {load:g}: {name}")
                add_row(session, name, load, [arm(load, 0.5 * slot)])
    without, with_it = (got[name] for name in COMPARED)
    session.ratio_figure(
        FIGURES[0], [p.extra["short_p99_us"] for p in without], [p.extra["short_p99_us"] for p in with_it]
    )


@contextlib.contextmanager
def server(cores: tuple[int, int], quantum_us: int, typed: bool) -> Any:
    """The spin application behind an iokernel that tells its uthreads when their quantum is over."""
    apps = {"spin": shared.latency(quantum_us=quantum_us)}
    traffic = Echo(service_us=SHORT_US, long_us=LONG_US, long_fraction=LONG_FRACTION)
    with shared.shared(cores, apps=apps, traffic=traffic, port=PORT) as made:
        options = {"distribution": "request"}
        if typed:
            options |= {
                "short_most_us": f"{SHORT_US:g}",
                "short_target_us": f"{TARGETS_US[0]}",
                "long_target_us": f"{TARGETS_US[1]}",
            }
        words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
        made.run(["spin", *words], "spin")
        yield partial(measure, made)


def measure(made: shared.Shared, load: float, seconds: float) -> Point:
    """A point whose extra values tell short and long requests apart."""
    warm_s = min(WARM_FRACTION * seconds, WARM_MOST_S)
    result = made.generator.run(load / MEAN_US * 1e6, seconds - warm_s, warmup_s=warm_s)
    point = point_of(result)
    point.extra |= by_kind(result)
    return point


def by_kind(result: Result) -> dict[str, Any]:
    """Counts and percentiles of the short and of the long requests; percentiles may be infinite."""
    out: dict[str, Any] = {}
    for kind, latency in (("short", result.short), ("long", result.long)):
        assert latency is not None  # the traffic has long requests
        out[f"{kind}_requests"] = latency.count
        out |= {f"{kind}_{name}_us": latency.percentile_us(100 * q) for name, q in PERCENTILES}
    return out


def add_row(session: Session, name: str, load: float, points: list[Point]) -> None:
    """An arm at a load. Percentiles by kind are the medians of the rounds."""
    row = session.point(name, middle(points))
    row["load"] = load
    for key in points[0].extra:
        values = sorted(float(p.extra[key]) for p in points)
        row[key] = sum(values) if key.endswith("_requests") else plain(values[len(values) // 2])


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
        for i, name in enumerate(ARMS):
            rows = sorted((a for a in arms if a["name"] == name), key=lambda a: float(a["load"]))
            values = [_finite(a[f"{kind}_p99_us"]) for a in rows]
            if not any(map(math.isfinite, values)):
                canvas.caption(f"{name}: every p99 of the {kind} requests is infinite.")
                continue
            canvas.curve([100 * float(a["load"]) for a in rows], values, label=name, colour=i, panel=panel)
        axis = canvas.axes[panel]
        axis.set_yscale("log")
        axis.set_xlabel("load: time that requests ask for, of one core (%)")
        axis.set_ylabel(f"p99 of {kind} requests (us)")
    canvas.caption(f"Curves stop at {100 * max(LOADS):g} %, the last load asked for; infinite values are not drawn.")
    return canvas


def _finite(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
