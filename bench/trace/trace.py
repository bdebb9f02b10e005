"""Tracing: what it costs servers that their requests are written down, all of them or a sample, beside ones that write
nothing; and whether what is written down is true.

An echo server, the key-value store over UDP, and the same over TCP, each embedded on one core, with one client. The
mode changes between the arms, which come by turns: the process, its memory and its code are the same in all.
Throughput is what is answered when more is offered than it carries; latency is taken at half of what it carries
without tracing.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ...apps import echo as app
from ...apps.kv import app as kv_app
from ...drivers.nic.loadgen.loadgen import Memcached
from ...libos import Runtime
from ..harness import rig
from ..harness.load import Load
from ..harness.openloop import Measure, Point, guess_peak, middle, search_peak
from ..harness.plot import Canvas
from ..harness.session import Session
from ..kv_tcp import servers
from ..kv_tcp.scripts import Space
from ..tcp import links
from . import causes, gaps, right, sums

SUMMARY = "tracing: what it costs echo and the key-value store to write down all requests, or a sample; and is it true"
FIGURES = (
    "trace.throughput_cost",
    "trace.kv_throughput_cost",
    "trace.tcp_throughput_cost",
    "trace.p99_cost",
    "trace.kv_p99_cost",
    "trace.tcp_p99_cost",
    "trace.sampled_cost",
    "trace.sum_error",
    "trace.gap_found",
    "trace.blame_right",
    "trace.causes_right",
)

ECHO, KV, TCP = "echo", "kv", "kv over TCP"
MODES = {ECHO: ("off", "sampled", "full"), KV: ("off", "full"), TCP: ("off", "full")}
NAMES = {ECHO: "", KV: "kv_", TCP: "tcp_"}  # in the figures
ROUNDS = 9
OVER = 1.25  # of what it carries, offered
HALF = 0.5
TIME = {ECHO: 0.4, KV: 0.2, TCP: 0.2}  # of the session's
TRUE = 0.1  # of it, each, for sums and for gaps
PEAK = 0.25  # of a server's time
PORT = 9000
KEYS, FEW_KEYS, SHORT_S = 100_000, 10_000, 3.0
CONNECTIONS = 100
MEMORY_BYTES = 256 << 20
SETTLES_S = 0.005  # a mode holds from the next millisecond on


def run(session: Session) -> None:
    """Whether blame is right, in virtual time; what it costs each server; whether sums, gaps and causes are true."""
    keys = FEW_KEYS if session.seconds < SHORT_S else KEYS
    session.settings |= {
        "message": "echo: one request of 22 bytes and its reply; kv: one GET of a 16-byte key and its 64-byte value",
        "handler": "C",
        "checksums": rig.CHECKSUMS,
        "sampled": "1 of 1024, and about the 4 slowest of each millisecond",
        "throughput": f"answered when {OVER} of what is carried without tracing is offered",
        "keys": keys,
        "connections": CONNECTIONS,
    }
    right.measure(session)
    for name, serve in SERVERS.items():
        with serve(session.two_cores, keys) as (runtime, measure):
            _cost(session, name, runtime, measure, TIME[name] * session.seconds)
    sums.measure(session, TRUE * session.seconds)
    gaps.measure(session, TRUE * session.seconds)
    causes.measure(session)


Served = tuple[Runtime, Measure]


@contextlib.contextmanager
def _echo(cores: tuple[int, int], keys: int) -> Iterator[Served]:
    with rig.embedded(lambda runtime: runtime.bind(app.handler("c", PORT)), cores) as made:
        assert made.runtime is not None
        yield made.runtime, made.load.measure


@contextlib.contextmanager
def _kv(cores: tuple[int, int], keys: int) -> Iterator[Served]:
    def bind(runtime: Runtime) -> object:
        return kv_app.setup(runtime, kv_app.Options(port=PORT, memory_bytes=MEMORY_BYTES))

    with rig.embedded(bind, cores, traffic=Memcached(keys=keys, value_bytes=64), port=PORT) as made:
        assert made.runtime is not None
        made.load.measure(1000, 0.05)  # the keys are stored before
        yield made.runtime, made.load.measure


@contextlib.contextmanager
def _tcp(cores: tuple[int, int], keys: int) -> Iterator[Served]:
    space = Space(keys)
    bind = partial(servers.bind, space=space, connections=CONNECTIONS)
    with (
        links.serving(cores, bind, port=servers.OURS_PORT) as link,
        link.client("ask", script=space.memcached(), connections=CONNECTIONS) as client,
    ):
        yield link.runtime, Load(client, link.busy_s, link.counts).measure


SERVERS: dict[str, Callable[[tuple[int, int], int], contextlib.AbstractContextManager[Served]]] = {
    ECHO: _echo,
    KV: _kv,
    TCP: _tcp,
}


def _cost(session: Session, name: str, runtime: Runtime, measure: Measure, seconds: float) -> None:
    """The peak without tracing, then all arms of a server by turns."""
    peak = _peak(session, name, runtime, measure, PEAK * seconds)
    if not peak:
        session.skip(name, "nothing was answered while the peak was measured: give more --seconds")
        return
    session.settings[f"peak_rps, {name}"] = round(peak)
    modes = MODES[name]
    slot = (1 - PEAK) * seconds / ROUNDS / len(modes) / 2
    arms: dict[str, Callable[[], Point]] = {
        f"{name}, {mode}, {load}": partial(_in_mode, runtime, mode, measure, part * peak, slot)
        for mode in modes
        for load, part in (("overload", OVER), ("half load", HALF))
    }
    points = session.interleave(arms, ROUNDS, back_and_forth=True)
    for arm, taken in points.items():
        session.point(arm, middle(taken))
    _figures(session, name, points)


def _peak(session: Session, name: str, runtime: Runtime, measure: Measure, seconds: float) -> float:
    """What it carries without tracing, requests/s; 0: nothing was answered."""
    session.say(f"{name}: peak without tracing")
    runtime.trace = "off"
    time.sleep(SETTLES_S)
    guessed = guess_peak(measure, seconds=0.3 * seconds)
    found = search_peak(measure, start_rps=0.8 * guessed, step=1.1, seconds=0.7 * seconds)
    return found.peak_rps or max((point.achieved_rps for point in found.points), default=0.0)


def _in_mode(runtime: Runtime, mode: str, measure: Measure, rate: float, seconds: float) -> Point:
    runtime.trace = mode
    time.sleep(SETTLES_S)
    return measure(rate, seconds)


def _figures(session: Session, name: str, points: dict[str, list[Point]]) -> None:
    """What is lost of the throughput, and added to p99, pair by pair."""

    def values(mode: str, load: str, key: str) -> Sequence[float]:
        return [float(getattr(point, key)) for point in points[f"{name}, {mode}, {load}"]]

    def ratios(mode: str, load: str, key: str) -> list[float]:
        pairs = zip(values(mode, load, key), values("off", load, key), strict=True)
        return [traced / off for traced, off in pairs if off > 0 and math.isfinite(traced / off)]

    def figure(figure: str, runs: list[float]) -> None:
        value = statistics.median(runs) if runs else None
        session.figure(figure, value, runs=runs, reason=None if runs else "no round of it was answered")

    for mode in MODES[name][1:]:
        lost = [1 - ratio for ratio in ratios(mode, "overload", "achieved_rps")]
        more = [ratio - 1 for ratio in ratios(mode, "half load", "p99_us")]
        figure("trace.sampled_cost" if mode == "sampled" else f"trace.{NAMES[name]}throughput_cost", lost)
        if mode == "full":
            figure(f"trace.{NAMES[name]}p99_cost", more)
        elif more:
            session.note(f"{name}: p99 at half load, sampled: {statistics.median(more):+.1%}")


def plot(document: dict[str, Any]) -> Canvas:
    """What each mode answers, when more is offered than it carries."""
    rows = [row for row in document["arms"] if row["name"].endswith("overload")]
    canvas = Canvas(
        "tracing servers: answers a second when more is offered than they carry",
        message=document["settings"]["message"],
        n=sum(int(row["sent"]) for row in rows),
        size=(14, 5),
    )
    canvas.bars(
        [row["name"] for row in rows], [float(row["achieved_rps"]) for row in rows], ylabel="answers (requests/s)"
    )
    return canvas
