"""What a client that behaves well sees while somebody on its link attacks the server: its p99, over that without.

The first attackers know who talks to whom, and see nothing of it (drivers/nic/tcpload/attack.c); the others have
connections of their own (attackers.c). The client's thread sends their segments, too: the time that this takes is
charged to the client beside them. Each arm has a server of its own, since what an attacker leaves behind would be the
next one's. What the process has more of memory than before says what the server keeps for him.

An attack is measured twice, one time after the other. The figure is that of the second. During the first one the server
gets what it keeps for the attacker from the kernel, which it does once in its life: its p99 stands beside, `AT_FIRST`.
The second is a turn of slots. All that an attack does to a request is done by threads of the client and the server, so
a slot in which somebody else had the CPU of one of these is left out (harness/tails).

Whoever sends as often on the same link and to the same core makes the client wait, whatever he says. So beside stands
what the client sees next to a neighbour who asks as often as attackers send, and the worst attack over that.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...drivers.nic.tcpload.tcpload import ATTACKS, CONNECTED, NEIGHBOUR, TcpLoad
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
# Of what is measured at first, and of a turn: so long that a gap of some ms, which nobody tells of, is not its p99. A
# short run's turns are a slot.
FIRST_S, TURN_S = 0.2, 0.5
LONG_S = 240.0  # in a run with turns; what is decided by the first look takes no time after it
SHORT = 20  # a short run has room for so many of what is measured at first
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
    first_s, slot_s = min(FIRST_S, max(seconds / SHORT, 0.005)), tails.slot_s(seconds)
    sides = {_arm(kind): _Beside(session.two_cores, kind, first_s, slot_s) for kind in kinds}
    looked = session.seconds >= tails.LOOKED_S
    turn_s, seconds = (TURN_S, max(seconds, LONG_S)) if looked else (0.0, seconds)
    arms = {name: tails.Arm(side.slot, turn_s, side.turn, side.threads) for name, side in sides.items()}
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
    alone, *under = ([turn[0].point.extra[AT_FIRST] for turn in done.turns[_arm(kind)]] for kind in ("", *ATTACKS))
    return {
        f"{kind}, at first": statistics.median(p99_us / a for p99_us, a in zip(found, alone, strict=False))
        for kind, found in zip(ATTACKS, under, strict=True)
    }


@dataclass
class _Beside:
    """A client beside an attacker; in each turn a server and a client of its own. first_s: of what is measured at
    first."""

    cores: tuple[int, int]
    kind: str
    first_s: float
    slot_s: float
    _tids: frozenset[int] = frozenset()
    _link: links.ServersLink | None = None
    _load: TcpLoad | None = None
    _had: float = 0.0
    _extra: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        before = usage.threads()
        with links.memory(self.cores) as link, link.client("ask", connections=CONNECTIONS) as load:
            self._tids = tails.since(before)
            self._link, self._load = link, load
            load.attack(self.kind, ATTACK_RPS, ATTACKERS.get(self.kind, ATTACKERS_ELSE))
            self._had = usage.own_memory()
            self._extra = {AT_FIRST: Load(load).measure(RATE, self.first_s).p99_us}
            yield
        self._tids, self._link, self._load = frozenset(), None, None

    def threads(self) -> frozenset[int]:
        """Of the client and the server, within a turn."""
        return self._tids

    def slot(self, meanwhile: contextlib.AbstractContextManager[object]) -> Point:
        assert self._load is not None
        assert self._link is not None
        before = self._load.other()
        point = Load(self._load).measure(RATE, self.slot_s, meanwhile=meanwhile)
        grown, stack = usage.own_memory() - self._had, self._link.servers.stack()
        gained = {name: count - before[name] for name, count in self._load.other().items()}
        point.extra |= self._extra | {"server_mib": grown / 2**20, "server_connections": stack["begun"] - stack["over"]}
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
