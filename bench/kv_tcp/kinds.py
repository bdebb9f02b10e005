"""Other loads: GETs with SETs between, few and many connections, long values. They are rows of the table, not figures,
each in a closed loop: of our server on the memory NIC, and of all servers on one veth pair. There a client on kernel
sockets asks all of them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ..harness import rest
from ..harness.load import ACCEPT_S, Load
from ..harness.openloop import Point
from ..harness.session import Session
from ..load.measuring import point_of
from . import servers
from .scripts import Script, Space

FEW, CONNECTIONS, MANY = 100, 1000, 10_000
SIZES = (1024, 16 << 10, 128 << 10, (1 << 20) - 100)  # of values, in bytes: the last is about the largest there may be
LONG_KEYS, LONG_CONNECTIONS = 16, 16
QUEUE_BYTES = 384 * 1448  # that wait in a client's queue of AF_XDP: three quarters of the frames that it keeps ready
SCRIPT_BYTES = 16 << 20  # of a script of long values
KERNEL_KEYS = 10_000  # that a client on kernel sockets stores itself
SETS = 0.1  # of the requests, beside GETs
BY_KERNEL = "asked by kernel sockets"


@dataclass(frozen=True)
class Kind:
    """A load. sets: the share of SETs."""

    name: str
    space: Space
    connections: int
    sets: float = 0.0

    @property
    def lines(self) -> int:
        """Of a script; 0: as many as there are usually."""
        size = self.space.value_bytes
        return max(SCRIPT_BYTES // size, LONG_KEYS) if size >= SIZES[0] else 0

    def window(self) -> dict[str, int]:
        """What each connection of a client over AF_XDP offers for long values, so that all together fit into its queue:
        what the queue has no frame for is lost, and comes again when the server's timer says so."""
        most = QUEUE_BYTES // self.connections
        return {"window_bytes": most} if self.lines and self.space.value_bytes >= most else {}

    def script(self, port: int) -> Script:
        """As the server at that port is asked."""
        write = self.space.redis if port == servers.REDIS_PORT else self.space.memcached
        return write(lines=self.lines, sets=self.sets)

    def told(self, point: Point) -> Point:
        """The point with what it was."""
        point.extra |= {"connections": self.connections, "value_bytes": self.space.value_bytes}
        point.extra["gbps"] = point.achieved_rps * self.space.value_bytes * 8 / 1e9
        return point


def kinds(space: Space) -> tuple[Kind, ...]:
    """All of them."""
    sizes = (Kind(f"values of {size:,} B", Space(LONG_KEYS, size, zipf=space.zipf), LONG_CONNECTIONS) for size in SIZES)
    return (
        Kind(f"{SETS:.0%} SETs", space, CONNECTIONS, SETS),
        Kind(f"{FEW:,} connections", space, FEW),
        Kind(f"{MANY:,} connections", space, MANY),
        *sizes,
    )


def measure(session: Session, space: Space, seconds: float) -> None:
    """Ours on the memory NIC, a row each."""
    asked = (Kind("closed loop", space, CONNECTIONS), *kinds(space))
    for kind in asked:
        name = f"ours, memory, {kind.name}"
        session.say(name)
        with (
            servers.on_memory(session.two_cores, kind.space, kind.connections) as client,
            client(kind.script(servers.OURS_PORT), kind.connections, arrivals="closed") as load,
        ):
            session.point(name, kind.told(load.measure(1.0, seconds / len(asked))))


def beside(session: Session, pair: servers.Pair, ports: Mapping[str, int], space: Space, seconds: float) -> None:
    """All servers on one link, a row each: one after the other for each kind of load."""
    asked = kinds(space)
    slot = seconds / (len(asked) + 1) / len(ports)
    for kind in asked:
        if pair.space != kind.space:
            pair.hold(kind.space)
        for server, port in ports.items():
            session.point(f"{server}, {kind.name}", _row(session, pair, kind, server, port, slot))
    own = Kind(BY_KERNEL, Space(KERNEL_KEYS, zipf=space.zipf), CONNECTIONS)
    for server, port in ports.items():
        session.point(f"{server}, {own.name}", _by_kernel(session, pair, own, server, port, slot))


def _entered(pair: servers.Pair, port: int) -> AbstractContextManager[None]:
    """Ours has to come; the others are there."""
    return pair.ours() if port == servers.OURS_PORT else nullcontext()


def _row(session: Session, pair: servers.Pair, kind: Kind, server: str, port: int, seconds: float) -> Point:
    session.say(f"{server}, {kind.name}")
    rest.demand("a server on a veth pair")
    with (
        _entered(pair, port),
        pair.client(port, kind.script(port), kind.connections, arrivals="closed", **kind.window()) as load,
    ):
        return kind.told(Load(load).measure(1.0, seconds, accepted_s=kind.connections * ACCEPT_S))


def _by_kernel(session: Session, pair: servers.Pair, kind: Kind, server: str, port: int, seconds: float) -> Point:
    session.say(f"{server}, {kind.name}")
    rest.demand("a server on a veth pair")
    with _entered(pair, port), pair.kernel_client(port, kind.space, kind.connections) as load:
        return kind.told(point_of(load.run(1.0, seconds, window=kind.connections)))
