"""TCP: requests and answers, bulk, set-up, idle connections, over the memory NIC and over a veth pair, beside UDP and
beside Linux.

Each part is a module of this room: FIGURES, `measure(session, seconds)`, and for some `draw`. Our server is in event
form but where it is said otherwise, embedded; attached to an iokernel is printed beside, where it was measured. The
client of a ratio is the same for both of its arms: drivers/nic/tcpload, which compares every byte that it gets.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..harness import peaks
from ..harness.numbers import number
from ..harness.plot import Canvas
from ..harness.session import Session
from . import attack, bulk, churn, idle, links, lwip, requests, veth, wire

SUMMARY = "TCP: requests, bulk, set-up, idle connections, beside UDP and Linux' TCP"
FIGURES = (
    "tcp.linux_spin_over_ours",
    "tcp.rps_over_linux",
    "tcp.over_udp",
    "tcp.bulk_gbps",
    "tcp.bulk_over_veth",
    "tcp.connections_per_s",
    "tcp.blocking_connections_per_s",
    "tcp.idle_bytes",
    "tcp.idle_round_ns",
    "tcp.loss_goodput",
    "tcp.tiny_rtt",
    "tcp.fairness",
    "tcp.attack_p99",
    "tcp.lwip_over_ours",
    "tcp.lwip_over_ours_1000",
)

PARTS: dict[ModuleType, float] = {
    requests: 0.25,
    veth: 0.2,
    bulk: 0.1,
    churn: 0.1,
    idle: 0.05,
    wire: 0.15,
    attack: 0.1,
    lwip: 0.05,
}  # of the time


def run(session: Session) -> None:
    """All parts, one after another."""
    for part, share in PARTS.items():
        part.measure(session, share * session.seconds)


def plot(document: dict[str, Any]) -> Canvas:
    """Requests, the veth pair, attacks, bulk, peaks. Of the rest the figures say all."""
    n = sum(int(row["sent"]) for row in document["arms"] if "sent" in row)
    message = "a request with its answer"
    canvas = Canvas(
        "tcp: what a connection costs", message=message, n=n, panels=6, rows=2, size=(24, 18), widths=(5, 4, 4)
    )
    requests.draw(canvas, document, 0)
    veth.draw(canvas, document, 2)
    attack.draw(canvas, document, 3)
    bulk.draw(canvas, document, 4)
    _draw_peaks(canvas, document, 5)
    return canvas


def _draw_peaks(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """The most that was carried in an open loop."""
    ends = ", peak"
    rows = [row for row in document["arms"] if str(row["name"]).endswith(ends)]
    if not rows:
        canvas.caption("Peaks: not measured here.")
        return
    names = [str(row["name"]).removesuffix(ends) for row in rows]
    colours = [links.colour_of(name) for name in names]
    canvas.bars(names, [number(row["achieved_rps"]) for row in rows], ylabel="peak (1/s)", panel=panel, colours=colours)
    canvas.caption(
        f"Peaks, open loop, best of {peaks.ROUNDS} rounds: requests of {requests.CONNECTIONS:,} connections with one "
        f"under way on each, UDP of {links.UDP_FLOWS:,} flows; connections that are set up, ask once and are closed."
    )
