"""Echo: the least that a server can do, so that what it costs is what corelane costs.

Four parts in one session: the unloaded round trip over the cache line's, the peak of one worker core, latency against
load, and system calls and context switches a request in each polling mode, embedded, through an iokernel, on AF_XDP and
on a tap. Arms: embedded (a runtime on a software
link), iokernel (the loop on one core, the application's process on the other), and as root Linux UDP servers over
AF_XDP on a veth pair.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from ...apps import echo as app
from ...drivers.linux import netns
from ..baseline.sockets import LinuxUdp
from ..harness import rig
from ..harness.numbers import pairwise
from ..harness.openloop import Measure, Point, middle
from ..harness.peaks import find_peaks
from ..harness.plot import Canvas, searched_curves
from ..harness.session import Session
from .modes import LINKS, MODES, missing

SUMMARY = "UDP echo: unloaded latency, peak of a core, latency against load, system calls in each polling mode"
FIGURES = ("echo.p50_over_cacheline", "echo.rps_per_core")

UNLOADED_RPS = 20_000.0
MODE_RPS = 20_000.0
PORT = 9000
OVER_LINE = ("embedded", "iokernel")
PIECES = 4
ROUNDS = 5  # of the unloaded arms
LINE_S = 0.01
Piece = tuple[Point, float]  # a short measurement, and the cache-line round trip around it in ns
LINUX = {  # arm: mode of the server, datagrams a system call
    "Linux UDP, spinning": ("spin", 1),
    "Linux UDP, spinning, recvmmsg": ("spin", 32),
    "Linux UDP, blocking": ("block", 1),
}


def run(session: Session) -> None:
    """Measure all four parts."""
    cores = session.two_cores
    session.settings |= {
        "message": "one request of 22 bytes (a frame of one cache line) and its reply",
        "unloaded_rps": UNLOADED_RPS,
        "handler": "C",
        "checksums": rig.CHECKSUMS,
        "links": "embedded: memory link in one process; iokernel: generator as uplink; Linux: AF_XDP on a veth pair",
    }
    with contextlib.ExitStack() as stack:
        embedded = stack.enter_context(rig.embedded(lambda rt: rt.bind(app.handler("c", PORT)), cores))
        attached = stack.enter_context(rig.iokernel(["echo"], cores))
        arms: dict[str, Measure] = {"embedded": embedded.load.measure, "iokernel": attached.load.measure}
        explain: dict[str, Measure] = {"embedded": embedded.load.explain, "iokernel": attached.load.explain}
        arms |= linux_arms(session, stack, cores, explain)
        unloaded(session, arms)
        session.curves(arms, peaks(session, arms), seconds=0.3 * session.seconds, explain=explain)
    modes(session, cores)


def linux_arms(
    session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], explain: dict[str, Measure]
) -> dict[str, Measure]:
    """The Linux baselines, or why there are none. explain: gets what says why their curves stop."""
    why = None if session.baseline else "--no-baseline was given"
    why = why or netns.missing()
    if why:
        for name in LINUX:
            session.skip(name, why)
        return {}
    link = rig.LinuxLink(stack, cores, port=PORT)

    def arm(name: str, poll: str, batch: int) -> Measure:
        def serve(far: netns.Interface, port: int) -> contextlib.AbstractContextManager[Any]:
            where = {"address": far.address, "port": port, "netns": far.namespace.name}
            return contextlib.closing(LinuxUdp(poll=poll, batch=batch, cpu=cores[1], **where))  # type: ignore[arg-type]

        def measure(rate: float, seconds: float) -> Point:
            point, counted = link.measure(serve, rate, seconds)
            if rate == UNLOADED_RPS:  # a spinning server's depend on the load; one row says it
                point.extra["syscalls_per_request"] = counted["syscalls"] / max(counted["received"], 1)
            return point

        explain[name] = partial(link.explain, serve)
        return measure

    return {name: arm(name, *form) for name, form in LINUX.items()}


def unloaded(session: Session, arms: dict[str, Measure]) -> None:
    """p50 at a load so low that requests do not meet; of the arms between these two cores, over the cache line's way.

    That way may be four times as long from one second to the next. So an arm that is set against it is measured in
    PIECES short pieces a round, each with a look at the line just before and just after it, and each piece gives a
    ratio.
    """
    slot = 0.2 * session.seconds / ROUNDS / len(arms)
    bodies: dict[str, Callable[[], list[Piece]]] = {}
    for name, measure in arms.items():
        pieces = PIECES if name in OVER_LINE else 1
        bodies[name] = partial(beside_line, session, measure, slot / pieces, pieces)
    got = {name: list(itertools.chain(*found)) for name, found in session.interleave(bodies, ROUNDS).items()}
    for name in arms:
        session.point(f"{name}, unloaded", middle([point for point, _ in got[name]]))
    if all(ns > 0 for name in OVER_LINE for _, ns in got[name]):
        p50_ns = {name: [point.p50_us * 1e3 for point, _ in got[name]] for name in OVER_LINE}
        line_ns = {name: [ns for _, ns in got[name]] for name in OVER_LINE}
        session.ratio_figure("echo.p50_over_cacheline", p50_ns["embedded"], line_ns["embedded"])
        session.settings["cacheline_pairs"] = {
            name: [[round(p), round(ns)] for p, ns in zip(p50_ns[name], line_ns[name], strict=True)]
            for name in OVER_LINE
        }
        over = pairwise(p50_ns["iokernel"], line_ns["iokernel"])
        session.note(f"through an iokernel in another process: {over} cache-line round trips")


def beside_line(session: Session, measure: Measure, seconds: float, pieces: int) -> list[Piece]:
    """Points of an unloaded arm, each with the mean of the cache-line round trips before and after it, in ns."""
    found = []
    before = session.measure_cacheline(LINE_S)
    for _ in range(pieces):
        point = measure(UNLOADED_RPS, seconds)
        after = session.measure_cacheline(LINE_S)
        found.append((point, (before + after) / 2))
        before = after
    return found


def peaks(session: Session, arms: dict[str, Measure]) -> dict[str, float]:
    """The highest load that each arm carries: medians."""
    found = {
        name: [curve.peak_rps for curve in searched]
        for name, searched in find_peaks(session, arms, seconds=0.35 * session.seconds).items()
    }
    carried = {name: statistics.median(rates) for name, rates in found.items()}
    session.figure("echo.rps_per_core", carried["embedded"], runs=found["embedded"])
    session.note(f"through an iokernel: {carried['iokernel']:,.0f} requests/s through the application's core")
    return carried


def modes(session: Session, cores: tuple[int, int]) -> None:
    """System calls and context switches a request when the server polls, adapts or blocks, on each kind of link."""
    links = dict(LINKS)
    for name in LINKS:
        if why := missing(name):
            session.skip(f"modes, {name}", why)
            del links[name]
    slot = 0.15 * session.seconds / len(MODES) / len(links)
    for name, link in links.items():
        for poll in MODES:
            arm = f"mode {poll}, {name}" if name else f"mode {poll}"
            session.say(f"{MODE_RPS:,.0f} requests/s: {arm}")
            with link(poll, cores, PORT) as made:
                point, cost = made.measure(MODE_RPS, slot)
            session.point(arm, point).update(cost.row())


def plot(document: dict[str, Any]) -> Canvas:
    """The curves; unloaded and peak points are on them, modes in the table."""
    return searched_curves(document, "UDP echo: latency against load")
