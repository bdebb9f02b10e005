"""Bimodal: 99.5 % of the requests take 1 us, 0.5 % take 500 us, on one worker core, with and without preemption, types.

Without preemption a short request that comes behind a long one waits for what is left of it. With a quantum the long
one lets others go first at a probe (corelane/libos/probe.h), after Shinjuku (NSDI 2019) and Concord (SOSP 2023).
With types the two kinds wait in queues of their own (libos/net/typed.h), so that a short one does not wait for the
first quantum of long ones before it, either. The generator decides beforehand which request is long and says so in
it, and keeps the two kinds' latencies apart. Load is the time that the requests ask for over the time that there is;
what the stack takes comes on top.

A turn of an arm is measured in windows of 20 ms, some 3400 requests and 17 long ones at the load of the figure. A p99
is the median of the windows', of one turn for the figure's pairs and of all turns for the rows and the plot: a pause of
the machine, which takes a core for milliseconds some times a second, spoils the windows that it falls in. None is left
out, and a window in which requests stayed unanswered may be infinite. The rows have the percentiles of all requests,
too.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..drivers.nic.loadgen.loadgen import Echo, Result
from .harness import rig
from .harness.load import WARM_FRACTION, WARM_MOST_S, point_of
from .harness.numbers import PERCENTILES, pairwise, plain
from .harness.numbers import percentile as percentile_of
from .harness.openloop import Point, middle, why_it_stops
from .harness.plot import Canvas
from .harness.session import Session
from .tenant import shared

SUMMARY = "short requests behind long ones, with and without preemption and queues by type"
FIGURES = ("bimodal.p99_gain",)

SHORT_US, LONG_US, LONG_FRACTION = 1.0, 500.0, 0.005
MEAN_US = (1 - LONG_FRACTION) * SHORT_US + LONG_FRACTION * LONG_US
LOAD = 0.6
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1)  # what is asked for, so that no server carries the last one
QUANTUM_US = 5
TARGETS_US = (10, 1000)  # of the short and of the long: how long they should wait at most
ARMS = {  # quantum in us (0: none), and whether requests wait by type
    "run to completion": (0, False),
    "quantum": (QUANTUM_US, False),
    "typed": (0, True),
    "typed, quantum": (QUANTUM_US, True),
}
COMPARED = ("run to completion", "quantum")
WINDOW_S = 0.02
ROUNDS, ROUNDS_OF_OTHERS = 7, 3
FIGURES_PART = 0.5  # of the time: for the load of the figure
PORT = 9001

Measure = Callable[[float, float], Point]  # (load as a part of the core, seconds)


def run(session: Session) -> None:
    """The load of the figure, all arms in turns; then the others."""
    cores = session.two_cores
    session.settings |= {
        "message": f"one request of 22 bytes that takes {SHORT_US:g} us ({100 * LONG_FRACTION:g} %: {LONG_US:g} us)",
        "load": LOAD,
        "loads": LOADS,
        "quantum_us": QUANTUM_US,
        "targets_us": TARGETS_US,
        "checksums": rig.CHECKSUMS,
    }
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(server(cores, *how)) for name, how in ARMS.items()}
        arms = {name: it.measure for name, it in servers.items()}
        slot = FIGURES_PART * session.seconds / ROUNDS / len(arms)
        got = session.interleave({name: partial(arm, LOAD, slot) for name, arm in arms.items()}, ROUNDS)
        slot = (1 - FIGURES_PART) * session.seconds / ROUNDS_OF_OTHERS / len(arms) / len(LOADS)
        at = {(name, load): partial(arm, load, slot) for load in LOADS for name, arm in arms.items()}
        others = session.interleave(
            {f"{name} at {load:g}": body for (name, load), body in at.items()}, ROUNDS_OF_OTHERS
        )
        for name, it in servers.items():
            say_stop(session, name, it, [middle(others[f"{name} at {load:g}"]) for load in LOADS], slot)
    for name, it in servers.items():
        say_drops(session, name, it)
    for name, points in got.items():
        add_row(session, name, LOAD, points)
    for name, load in at:
        add_row(session, name, load, others[f"{name} at {load:g}"])
    without, with_it = ([middle_us(p.extra["short_p99_windows_us"]) for p in got[name]] for name in COMPARED)
    whole = pairwise(*([p.extra["short_p99_us"] for p in got[name]] for name in COMPARED))
    session.ratio_figure(FIGURES[0], without, with_it, beside={"over all requests of a turn": whole.median})


@dataclass
class Server:
    """An arm. unanswered: requests of all points, without warm-up; dropped: packets by reason, of its iokernel and its
    application, known once that has ended, with warm-up."""

    made: shared.Shared
    unanswered: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def explain(self, rate_rps: float, seconds: float) -> Point:
        """A load, with the counters read meanwhile (harness/stops.py)."""
        self.made.load.counts = partial(self.made.counts_of, "spin")
        return self.made.load.explain(rate_rps, seconds)

    def measure(self, load: float, seconds: float) -> Point:
        """A point whose extra values tell short and long requests apart."""
        warm_s = min(WARM_FRACTION * seconds, WARM_MOST_S)
        windows = max(1, round((seconds - warm_s) / WINDOW_S))
        result = self.made.generator.run(load / MEAN_US * 1e6, seconds - warm_s, warmup_s=warm_s, windows=windows)
        point = point_of(result)
        point.extra |= by_kind(result)
        self.unanswered += point.sent - point.answered
        return point


@contextlib.contextmanager
def server(cores: tuple[int, int], quantum_us: int, typed: bool) -> Iterator[Server]:
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
        app = made.run(["spin", *words], "spin")
        arm = Server(made)
        yield arm
        arm.dropped = made.drops()  # before it is closed: what was for it goes with it
        app.close()
        arm.dropped += Counter(app.ended.get("dropped", {}))


def say_stop(session: Session, name: str, arm: Server, points: Sequence[Point], slot_s: float) -> None:
    """Where an arm's curve stops, and the resource that is used up there. points: one for each load, ascending."""
    first = next((i for i, point in enumerate(points) if not point.carried), len(points))
    failed = points[first:]
    if not failed:
        session.stop(name, f"the last load asked for, {points[-1].offered_rps:,.0f} requests/s, was carried")
        return
    because = why_it_stops([failed[0], failed[-1]], arm.explain, slot_s)
    session.stop(name, failed[0].why_not(), because)


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


def by_kind(result: Result) -> dict[str, Any]:
    """Counts and percentiles of the short and of the long requests, and the p99 of each window that had some;
    percentiles may be infinite."""
    out: dict[str, Any] = {}
    for kind in ("short", "long"):
        latency = getattr(result, kind)
        assert latency is not None  # the traffic has long requests
        parts = [getattr(window, kind) for window in result.windows]
        out[f"{kind}_requests"] = latency.count
        out |= {f"{kind}_{name}_us": latency.percentile_us(100 * q) for name, q in PERCENTILES}
        out[f"{kind}_p99_windows_us"] = [part.percentile_us(99) for part in parts if part.count]
    return out


def middle_us(values: Sequence[float]) -> float:
    """The median; nan of none."""
    return statistics.median(values) if values else math.nan


def add_row(session: Session, name: str, load: float, points: list[Point]) -> None:
    """An arm at a load. Percentiles by kind are the medians of the rounds, and the p99 is that of all windows, too."""
    row = session.point(name, middle(points))
    row["load"] = load
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
        axis.set_ylabel(f"p99 of {kind} requests, median of windows of {1e3 * WINDOW_S:g} ms (us)")
    few = min(int(a["short_windows"]) for a in arms)
    canvas.caption(f"A point is of {few} windows or more; bands are their quartiles. Infinite values are not drawn.")
    for name, why in document["settings"]["stops"].items():
        canvas.caption(f"{name} stops: {why}. Loads beyond that show what overload does.")
    return canvas


def _finite(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
