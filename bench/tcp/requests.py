"""Requests and answers over the memory NIC: the peak of a core beside UDP's, and latency and rate at 1 to 10 000
connections. A request goes onto a connection only when the one before it was answered."""

from __future__ import annotations

import contextlib
import statistics
from typing import Any

from ..harness.load import Load
from ..harness.numbers import number
from ..harness.openloop import Measure
from ..harness.peaks import find_peaks
from ..harness.plot import Canvas
from ..harness.session import Session
from . import links

FIGURE = "tcp.over_udp"
FIGURES = (FIGURE,)
UDP, TCP, ATTACHED = "UDP, memory", "TCP, memory", "TCP, attached"
FLOOR, MINIMAL = "reflector, memory", "minimal TCP, memory"
CONNECTIONS = 1000
NUMBERS = (1, 10, 100, 1000, 10_000)
FRACTIONS = (0.05, 0.25, 0.5, 0.75, 0.9, 1.0)  # of the peak, in the curves
LOAD = 0.5  # of the rate that as many connections reach, in an open loop


def measure(session: Session, seconds: float) -> None:
    """Both parts."""
    cores = session.two_cores
    session.settings["requests"] = {
        "message": f"{links.REQUEST_BYTES} bytes and the same back",
        "connections": CONNECTIONS,
        "udp_flows": links.UDP_FLOWS,
    }
    _beside_udp(session, cores, 0.7 * seconds)
    _by_connections(session, cores, 0.3 * seconds)


def _beside_udp(session: Session, cores: tuple[int, int], seconds: float) -> None:
    """Peaks, and latency up to them; where the curves end is told by the counters of the servers."""
    with contextlib.ExitStack() as stack:
        link = stack.enter_context(links.memory(cores))
        behind, counts = stack.enter_context(links.counted(cores, "ask", connections=CONNECTIONS))
        loads = {
            UDP: stack.enter_context(links.udp(cores)),
            TCP: Load(stack.enter_context(link.client("ask", connections=CONNECTIONS)), link.busy_s, link.counts),
            ATTACHED: Load(behind, counts=counts),
        }
        arms: dict[str, Measure] = {name: load.measure for name, load in loads.items()}
        floors: dict[str, Measure] = {
            name: stack.enter_context(links.floor(cores, "ask", connects=connects, connections=CONNECTIONS)).measure
            for name, connects in ((FLOOR, False), (MINIMAL, True))
        }
        found = find_peaks(session, arms | floors, seconds=0.6 * seconds)
        peaks = {name: [curve.peak_rps for curve in searched] for name, searched in found.items()}
        carried = {name: statistics.median(rates) for name, rates in peaks.items()}
        session.curves(
            arms,
            carried,
            seconds=0.4 * seconds,
            fractions=FRACTIONS,
            explain={name: load.explain for name, load in loads.items()},
        )
    if not all(peaks[UDP]):
        session.figure(FIGURE, None, reason="in a round UDP carried no load: is the machine this busy?")
        return
    beside = {
        "attached": carried[ATTACHED] / carried[UDP],
        "bound: a reflector of segments": carried[FLOOR] / carried[UDP],
        "bound: a minimal TCP": carried[MINIMAL] / carried[UDP],
    }
    session.ratio_figure(FIGURE, peaks[TCP], peaks[UDP], beside=beside)


def _by_connections(session: Session, cores: tuple[int, int], seconds: float) -> None:
    """A closed loop finds what rate so many connections reach; at half of it latency is measured in an open loop."""
    slot = seconds / (2 * len(NUMBERS))
    with links.memory(cores) as link:
        for n in NUMBERS:
            session.say(f"latency and rate at {n:,} connections")
            with link.client("ask", connections=n, arrivals="closed") as load:
                reached = Load(load).measure(1.0, slot).achieved_rps
            with link.client("ask", connections=n) as load:
                point = Load(load, link.busy_s).measure(max(LOAD * reached, 1.0), slot)
                point.extra |= {"connections": n, "most_rps": reached} | _exceptions(load)
            session.point(_arm(n), point)


def _arm(n: int) -> str:
    return f"{n} connections"


def _exceptions(load: Any) -> dict[str, int]:
    """What should not have happened."""
    return {
        name: count for name, count in load.other().items() if count and name in ("again", "gaps", "resent", "resets")
    }


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """Latency against load, and by the number of connections: two panels."""
    canvas.latency_curves(
        document, [name for name in (UDP, TCP, ATTACHED) if name in document["settings"]["stops"]], panel
    )
    rows = {row["name"]: row for row in document["arms"]}
    kept = [(n, rows[_arm(n)]) for n in NUMBERS if _arm(n) in rows]
    axis = canvas.axes[panel + 1]
    if not kept:
        canvas.caption("Requests: not measured here.")
        return
    for key, label, style in (("p50_us", "p50", "-"), ("p99_us", "p99", "--")):
        values = [number(row[key]) for _, row in kept]
        canvas.curve([n for n, _ in kept], values, label=label, style=style, panel=panel + 1, colour=1)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("connections (number)")
    axis.set_ylabel("latency from the intended time (us)")
    canvas.caption(f"By connections: the curves end at {kept[-1][0]:,}, the most that were asked for.")
    canvas.caption(
        f"Requests of {links.REQUEST_BYTES} bytes over the memory NIC, {CONNECTIONS:,} connections; by connections: "
        f"each number at {LOAD:.0%} of what it reaches in a closed loop. A request waits for an idle connection."
    )
