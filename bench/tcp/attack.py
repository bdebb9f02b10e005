"""What a client that behaves well sees while somebody on its link attacks the server: its p99, over that without.

The first attackers know who talks to whom, and see nothing of it (drivers/nic/tcpload/attack.c); the others have
connections of their own (attackers.c). The client's thread sends their segments, too: the time that this takes is
charged to the client beside them. Each arm has a server of its own, since what an attacker leaves behind would be the
next one's. What the process has more of memory than before says what the server keeps for him.

An attack is measured twice, one time after the other. The figure is that of the second. During the first one the server
gets what it keeps for the attacker from the kernel, which it does once in its life: its p99 stands beside, `AT_FIRST`.

Whoever sends as often on the same link and to the same core makes the client wait, whatever he says. So beside stands
what the client sees next to a neighbour who asks as often as attackers send, and the worst attack over that.
"""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import Any

from ...drivers.nic.tcpload.tcpload import ATTACKS, CONNECTED, NEIGHBOUR
from ..harness import usage
from ..harness.load import Load
from ..harness.numbers import number, plain
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from . import links

FIGURE = "tcp.attack_p99"
FIGURES = (FIGURE,)
RATE = 100_000.0  # of the victim
ATTACK_RPS = 200_000.0
CONNECTIONS = 100
ATTACKERS = {"all ports": 100_000}  # connections of an attacker, ...
ATTACKERS_ELSE = 1000  # ... and of others that have some
ROUNDS = 3
LEAST_S = 0.25  # of an arm in a round
ALONE = "client, not attacked"
AT_FIRST = "p99_us_at_first"  # a column of the arms


def _arm(kind: str) -> str:
    return f"client beside {kind}" if kind else ALONE


def measure(session: Session, seconds: float) -> None:
    """All attacks by turns, and none."""
    kinds = ("", NEIGHBOUR, *ATTACKS)
    session.settings["attack"] = {
        "victim_rps": RATE,
        "attack_rps": ATTACK_RPS,
        "connections": CONNECTIONS,
        "attackers_connections": {kind: ATTACKERS.get(kind, ATTACKERS_ELSE) for kind in CONNECTED},
    }
    slot = max(seconds / (ROUNDS * len(kinds)), LEAST_S)
    arms = {_arm(kind): partial(_beside, session.two_cores, kind, slot) for kind in kinds}
    found = session.interleave(arms, ROUNDS)
    for name, points in found.items():
        point = middle(points)
        point.extra |= {key: max(p.extra[key] for p in points) for key in ("server_mib", "server_connections")}
        point.extra[AT_FIRST] = plain(statistics.median(p.extra[AT_FIRST] for p in points))
        session.point(name, point)
    alone = [p.p99_us for p in found[ALONE]]
    if not all(math.isfinite(p99) and p99 > 0 for p99 in alone):
        session.figure(FIGURE, None, reason="requests stayed unanswered without any attack: is the machine this busy?")
        return
    ratios = {kind: [p.p99_us / a for p, a in zip(found[_arm(kind)], alone, strict=True)] for kind in ATTACKS}
    medians = {kind: statistics.median(values) for kind, values in ratios.items()}
    worst = max(medians, key=lambda kind: medians[kind])
    beside = medians | _at_first(found) | _of_a_neighbour(found)
    finite = {name: ratio for name, ratio in beside.items() if math.isfinite(ratio)}
    session.figure(FIGURE, medians[worst], runs=ratios[worst], beside=finite)
    session.note(f"{FIGURE} is that of {worst}")


def _of_a_neighbour(found: dict[str, list[Point]]) -> dict[str, float]:
    """What a neighbour costs who does no harm, over alone; and the worst attack over that, pair by pair."""
    alone, busy = ([p.p99_us for p in found[arm]] for arm in (ALONE, _arm(NEIGHBOUR)))
    if not all(map(math.isfinite, busy)):
        return {}
    over = {
        kind: statistics.median(p.p99_us / b for p, b in zip(found[_arm(kind)], busy, strict=True)) for kind in ATTACKS
    }
    worst = max(over, key=lambda kind: over[kind])
    return {
        f"bound: {NEIGHBOUR}": statistics.median(b / a for a, b in zip(alone, busy, strict=True)),
        f"the worst over {NEIGHBOUR} ({worst})": over[worst],
    }


def _at_first(found: dict[str, list[Point]]) -> dict[str, float]:
    """Of each attack while the server gets memory for it: the p99 over that of a client alone, of a server as new."""
    alone = [p.extra[AT_FIRST] for p in found[ALONE]]
    if not all(map(math.isfinite, alone)):
        return {}
    of = {kind: [p.extra[AT_FIRST] / a for p, a in zip(found[_arm(kind)], alone, strict=True)] for kind in ATTACKS}
    return {f"{kind}, at first": statistics.median(ratios) for kind, ratios in of.items()}


def _beside(cores: tuple[int, int], kind: str, seconds: float) -> Point:
    with links.memory(cores) as link, link.client("ask", connections=CONNECTIONS) as load:
        load.attack(kind, ATTACK_RPS, ATTACKERS.get(kind, ATTACKERS_ELSE))
        before, had = load.other(), usage.own_memory()
        at_first = Load(load).measure(RATE, seconds)
        point = Load(load).measure(RATE, seconds)
        grown, stack = usage.own_memory() - had, link.servers.stack()
        gained = {name: count - before[name] for name, count in load.other().items()}
    point.extra |= {"server_mib": grown / 2**20, "server_connections": stack["begun"] - stack["over"]}
    point.extra[AT_FIRST] = at_first.p99_us
    point.extra |= {name: gained[name] for name in ("attacks", "attackers", "resets", "resent") if gained[name]}
    return point


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """The client's p99 beside each attacker."""
    rows = {str(row["name"]): row for row in document["arms"]}
    names = [kind for kind in ("", NEIGHBOUR, *ATTACKS) if _arm(kind) in rows]
    if not names:
        canvas.caption("Attacks: not measured here.")
        return
    values = [number(rows[_arm(kind)]["p99_us"]) for kind in names]
    labels = [kind or "none" for kind in names]
    colours = [0 if kind in ("", NEIGHBOUR) else 6 if kind in CONNECTED else 5 for kind in names]
    canvas.bars(labels, values, ylabel="p99 of a client beside an attacker (us)", panel=panel, colours=colours)
    canvas.caption(
        f"Attacks: the client asks {RATE:,.0f} times a second on {CONNECTIONS} connections, an attacker sends "
        f"{ATTACK_RPS:,.0f} segments a second, blindly (grey) or on connections of its own (the last ones); {ROUNDS} "
        "rounds of each."
    )
