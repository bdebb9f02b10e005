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

import statistics
from functools import partial
from typing import Any

from ...drivers.nic.tcpload.tcpload import ATTACKS, CONNECTED, NEIGHBOUR
from ..harness import tails, usage
from ..harness.load import Load
from ..harness.numbers import number, plain
from ..harness.openloop import Point
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
AT_FIRST_S = 0.25  # at most
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
    slot = tails.slot_s(seconds)
    arms = {_arm(kind): tails.Arm(partial(_beside, session.two_cores, kind, slot)) for kind in kinds}
    done = tails.compare(session, FIGURE, arms, {_arm(kind): ALONE for kind in ATTACKS}, seconds)
    for name, row in tails.rows(session, done).items():
        extra = [slot.point.extra for turn in done.turns[name] for slot in turn]
        row |= {key: max(one[key] for one in extra) for key in ("server_mib", "server_connections")}
        row[AT_FIRST] = plain(statistics.median(one[AT_FIRST] for one in extra))
    ratios = {kind: done.compared[_arm(kind)].value for kind in ATTACKS}
    tails.judge(session, FIGURE, done, beside=ratios | _at_first(done) | _of_a_neighbour(done))


def _of_a_neighbour(done: tails.Taken) -> dict[str, float]:
    """What a neighbour costs who does no harm, over alone; and the worst attack over that."""
    over = {kind: tails.between(done, _arm(kind), _arm(NEIGHBOUR)) for kind in ATTACKS}
    worst = max(over, key=lambda kind: over[kind])
    return {
        f"bound: {NEIGHBOUR}": tails.between(done, _arm(NEIGHBOUR), ALONE),
        f"the worst over {NEIGHBOUR} ({worst})": over[worst],
    }


def _at_first(done: tails.Taken) -> dict[str, float]:
    """Of each attack while the server gets memory for it: the p99 over that of a client alone, of a server as new; the
    median of the rounds, so that the host's gaps are in it."""
    alone, *under = (
        [slot.point.extra[AT_FIRST] for turn in done.turns[_arm(kind)] for slot in turn] for kind in ("", *ATTACKS)
    )
    return {
        f"{kind}, at first": statistics.median(p99_us / a for p99_us, a in zip(found, alone, strict=False))
        for kind, found in zip(ATTACKS, under, strict=True)
    }


def _beside(cores: tuple[int, int], kind: str, seconds: float) -> Point:
    with links.memory(cores) as link, link.client("ask", connections=CONNECTIONS) as load:
        load.attack(kind, ATTACK_RPS, ATTACKERS.get(kind, ATTACKERS_ELSE))
        before, had = load.other(), usage.own_memory()
        at_first = Load(load).measure(RATE, min(seconds, AT_FIRST_S))
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
        f"{ATTACK_RPS:,.0f} segments a second, blindly (grey) or on connections of its own (the last ones)."
    )
