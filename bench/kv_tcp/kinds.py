"""Other loads of our server on the memory NIC, each in a closed loop: GETs with SETs between, many connections, long
values. They are rows of the table, not figures."""

from __future__ import annotations

from ..harness.session import Session
from . import servers
from .scripts import Space

CONNECTIONS, MANY = 1000, 10_000
SIZES = (1024, 16 << 10, 128 << 10, (1 << 20) - 100)  # of values, in bytes: the last is about the largest there may be
LONG_KEYS, LONG_CONNECTIONS = 16, 16
SCRIPT_BYTES = 16 << 20  # of a script of long values
SETS = 0.1  # of the requests, beside GETs


def measure(session: Session, space: Space, seconds: float) -> None:
    """One row each."""
    slot = seconds / (3 + len(SIZES))
    _row(session, "ours, memory, closed loop", space, CONNECTIONS, slot)
    _row(session, f"ours, memory, {SETS:.0%} SETs", space, CONNECTIONS, slot, sets=SETS)
    _row(session, f"ours, memory, {MANY:,} connections", space, MANY, slot)
    for size in SIZES:
        _row(session, f"ours, memory, values of {size:,} B", Space(LONG_KEYS, size), LONG_CONNECTIONS, slot)


def _row(session: Session, name: str, space: Space, connections: int, seconds: float, sets: float = 0.0) -> None:
    session.say(name)
    lines = max(SCRIPT_BYTES // space.value_bytes, LONG_KEYS) if space.value_bytes >= SIZES[0] else 0
    script = space.memcached(lines=lines, sets=sets)
    with (
        servers.on_memory(session.two_cores, space, connections) as client,
        client(script, connections, arrivals="closed") as load,
    ):
        point = load.measure(1.0, seconds)
    point.extra |= {"connections": connections, "value_bytes": space.value_bytes}
    point.extra["gbps"] = point.achieved_rps * space.value_bytes * 8 / 1e9
    session.point(name, point)
