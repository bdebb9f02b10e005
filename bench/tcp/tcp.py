"""TCP: requests and answers, bulk, set-up, idle connections, over the memory NIC and over a veth pair, beside UDP and
beside Linux.

Each part is a module of this room: FIGURES, `measure(session, seconds)`, and for some `draw`. Our server is in event
form but where it is said otherwise, embedded; attached to an iokernel is printed beside, where it was measured. The
client of a ratio is the same for both of its arms: drivers/nic/tcpload, which compares every byte that it gets.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ..harness.plot import Canvas
from ..harness.session import Session
from . import attack, bulk, churn, idle, lwip, requests, veth, wire

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
    requests: 0.3,
    veth: 0.2,
    bulk: 0.1,
    churn: 0.1,
    idle: 0.05,
    wire: 0.15,
    attack: 0.05,
    lwip: 0.05,
}  # of the time


def run(session: Session) -> None:
    """All parts, one after another."""
    for part, share in PARTS.items():
        part.measure(session, share * session.seconds)


def plot(document: dict[str, Any]) -> Canvas:
    """Requests, the veth pair, bulk. Of the rest the figures say all."""
    n = sum(int(row.get("n", row.get("sent", 0))) for row in document["arms"])
    message = "a request with its answer"
    canvas = Canvas("tcp: what a connection costs", message=message, n=n, panels=4, size=(26, 11), widths=(5, 4, 3, 3))
    requests.draw(canvas, document, 0)
    veth.draw(canvas, document, 2)
    bulk.draw(canvas, document, 3)
    return canvas
