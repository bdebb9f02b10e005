"""What a client that behaves well sees while somebody on its link attacks the server: its p99, over that without.

The attackers know who talks to whom, and see nothing of it (drivers/nic/tcpload/attack.c). The client's thread sends
their segments, too: the time that this takes is charged to the client beside them.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from functools import partial
from typing import Any

from ...drivers.nic.tcpload.tcpload import ATTACKS
from ..harness.load import Load
from ..harness.openloop import Point, middle
from ..harness.session import Session
from . import links

FIGURE = "tcp.attack_p99"
FIGURES = (FIGURE,)
RATE = 100_000.0  # of the victim
ATTACK_RPS = 200_000.0
CONNECTIONS = 100
ROUNDS = 5
ALONE = "client, not attacked"


def _arm(kind: str) -> str:
    return f"client beside {kind}" if kind else ALONE


def measure(session: Session, seconds: float) -> None:
    """All attacks by turns, and none."""
    session.settings["attack"] = {"victim_rps": RATE, "attack_rps": ATTACK_RPS, "connections": CONNECTIONS}
    kinds = ("", *ATTACKS)
    slot = seconds / (ROUNDS * len(kinds))
    with links.memory(session.two_cores) as link, link.client("ask", connections=CONNECTIONS) as load:
        found = session.interleave({_arm(kind): partial(_beside, load, kind, slot) for kind in kinds}, ROUNDS)
    for name, points in found.items():
        session.point(name, middle(points))
    alone = [p.p99_us for p in found[ALONE]]
    if not all(math.isfinite(p99) and p99 > 0 for p99 in alone):
        session.figure(FIGURE, None, reason="requests stayed unanswered without any attack: is the machine this busy?")
        return
    ratios = {kind: [p.p99_us / a for p, a in zip(found[_arm(kind)], alone, strict=True)] for kind in ATTACKS}
    medians = {kind: statistics.median(values) for kind, values in ratios.items()}
    worst = max(medians, key=lambda kind: medians[kind])
    session.figure(FIGURE, medians[worst], runs=ratios[worst], beside=medians)
    session.note(f"{FIGURE} is that of {worst}; attacks by connections of their own (slow readers) are not among them")


def _beside(load: Any, kind: str, seconds: float) -> Point:
    before = load.other()
    load.attack(kind, ATTACK_RPS)
    with contextlib.ExitStack() as stack:
        stack.callback(load.attack, "")
        point = Load(load).measure(RATE, seconds)
    gained = {name: count - before[name] for name, count in load.other().items()}
    point.extra |= {name: gained[name] for name in ("attacks", "resets", "resent") if gained[name]}
    return point
