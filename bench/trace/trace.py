"""Tracing: what it costs a server that its requests are written down, all of them or a sample, beside one that writes
nothing.

One echo server, embedded, on one core; one client. Its mode changes between the arms, which come by turns: the process,
its memory and its code are the same in all. Throughput is what it answers when more is offered than it carries; latency
is taken at half of what it carries without tracing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ...apps import echo as app
from ...libos import Runtime
from ..harness import rig
from ..harness.openloop import Measure, Point, guess_peak, middle, search_peak
from ..harness.plot import Canvas
from ..harness.session import Session
from . import right

SUMMARY = "tracing: what it costs an echo server to write down all requests, or a sample; whether blame is right"
FIGURES = ("trace.throughput_cost", "trace.p99_cost", "trace.sampled_cost", "trace.blame_right")

MODES = ("off", "sampled", "full")
ROUNDS = 9
OVER = 1.25  # of what it carries, offered
HALF = 0.5
PEAK, TURNS = 0.2, 0.7  # of the time
PORT = 9000
SETTLES_S = 0.005  # a mode holds from the next millisecond on


def run(session: Session) -> None:
    """The peak without tracing, then all arms by turns; and whether blame is right."""
    session.settings |= {
        "message": "one request of 22 bytes and its reply",
        "handler": "C",
        "checksums": rig.CHECKSUMS,
        "sampled": "1 of 1024, and about the 4 slowest of each millisecond",
        "throughput": f"answered when {OVER} of what is carried without tracing is offered",
    }
    right.measure(session)
    with rig.embedded(lambda runtime: runtime.bind(app.handler("c", PORT)), session.two_cores) as made:
        assert made.runtime is not None
        peak = _peak(session, made.runtime, made.load.measure, PEAK * session.seconds)
        if not peak:
            session.skip("echo", "nothing was answered while the peak was measured: give more --seconds")
            return
        session.settings["peak_rps"] = round(peak)
        slot = TURNS * session.seconds / ROUNDS / len(MODES) / 2
        arms: dict[str, Callable[[], Point]] = {
            f"{mode}, {name}": partial(_in_mode, made.runtime, mode, made.load.measure, part * peak, slot)
            for mode in MODES
            for name, part in (("overload", OVER), ("half load", HALF))
        }
        points = session.interleave(arms, ROUNDS, back_and_forth=True)
    for name, taken in points.items():
        session.point(name, middle(taken))
    _figures(session, points)


def _peak(session: Session, runtime: Runtime, measure: Measure, seconds: float) -> float:
    """What it carries without tracing, requests/s; 0: nothing was answered."""
    session.say("peak without tracing")
    runtime.trace = "off"
    time.sleep(SETTLES_S)
    guessed = guess_peak(measure, seconds=0.3 * seconds)
    found = search_peak(measure, start_rps=0.8 * guessed, step=1.1, seconds=0.7 * seconds)
    return found.peak_rps or max((point.achieved_rps for point in found.points), default=0.0)


def _in_mode(runtime: Runtime, mode: str, measure: Measure, rate: float, seconds: float) -> Point:
    runtime.trace = mode
    time.sleep(SETTLES_S)
    return measure(rate, seconds)


def _figures(session: Session, points: dict[str, list[Point]]) -> None:
    """What is lost of the throughput, and added to p99, pair by pair."""

    def values(mode: str, load: str, key: str) -> list[float]:
        return [float(getattr(point, key)) for point in points[f"{mode}, {load}"]]

    without = values("off", "overload", "achieved_rps")
    for figure, mode in (("trace.throughput_cost", "full"), ("trace.sampled_cost", "sampled")):
        traced = values(mode, "overload", "achieved_rps")
        lost = [1 - with_it / off for with_it, off in zip(traced, without, strict=True)]
        session.figure(figure, statistics.median(lost), runs=lost)
    before = values("off", "half load", "p99_us")
    for mode in ("full", "sampled"):
        more = [with_it / off - 1 for with_it, off in zip(values(mode, "half load", "p99_us"), before, strict=True)]
        if mode == "full":
            session.figure("trace.p99_cost", statistics.median(more), runs=more)
        else:
            session.note(f"p99 at half load, sampled: {statistics.median(more):+.1%}")


def plot(document: dict[str, Any]) -> Canvas:
    """What each mode answers, when more is offered than it carries."""
    rows = [row for row in document["arms"] if row["name"].endswith("overload")]
    canvas = Canvas(
        "tracing an echo server: answers a second when more is offered than it carries",
        message=document["settings"]["message"],
        n=sum(int(row["sent"]) for row in rows),
        size=(9, 5),
    )
    canvas.bars(
        [row["name"] for row in rows], [float(row["achieved_rps"]) for row in rows], ylabel="answers (requests/s)"
    )
    return canvas
