"""The key-value store over TCP: GETs of 16-byte keys with values of 64 bytes, Zipf 0.99, on 1 000 connections with one
request under way on each.

Ours on the memory NIC: its peak in an open loop, near and far; by turns with what bounds it, an echo over the same TCP
and a reflector of segments, which is no TCP. Then one client over AF_XDP on a veth pair for all
servers, ours over AF_XDP, memcached with one thread and redis-server on Linux' TCP: what they carry in a closed loop,
with and without pipelines; and latency at half of what memcached carries. At last memory per item. Between them other
loads of ours, and of all servers on that link, also by a client on kernel sockets: kinds.py.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from ...drivers.linux import netns
from ..baseline import memcached, redis
from ..harness import rest, tails
from ..harness.distance import FAR, NEAR, ByDistance
from ..harness.load import Load
from ..harness.numbers import number, pairwise
from ..harness.openloop import Point, middle
from ..harness.peaks import find_peaks
from ..harness.plot import Canvas
from ..harness.session import Session
from ..tcp import links
from . import items, kinds, servers
from .scripts import Script, Space

SUMMARY = "key-value store over TCP: GETs through one core and latency, beside memcached and redis-server"
FIGURES = (
    "kv-tcp.rps_per_core",
    "kv-tcp.over_memcached",
    "kv-tcp.over_redis",
    "kv-tcp.p99_gain",
    "kv-tcp.bytes_per_item",
)

GOALS = {NEAR: 3e6, FAR: 1.8e6}  # GETs/s through one core on the memory NIC
KEYS = 100_000
CONNECTIONS = 1000
PIPELINES = (1, 16)
ROUNDS = 7
ITEM_MIB, ITEM_KEYS = 64, 1_000_000  # more keys than fit
FRACTIONS = (0.02, 0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1)  # of the peak, in the curve
HALF = 0.5  # of what memcached carries, at which latency is measured
# Of a turn there, in slots. A server and 1 000 connections are ready after nearly half a second. And a stall of 4 ms in
# such a turn is less than the hundredth part that a p99 tells of.
TURN_S = 0.5
PEAK, KINDS, LINK, TAILS, ROWS = 0.25, 0.05, 0.15, 0.45, 0.1  # parts of the time
OURS, MEMCACHED, REDIS = "ours", "memcached", "redis-server"
PORTS = {OURS: servers.OURS_PORT, MEMCACHED: servers.MEMCACHED_PORT, REDIS: servers.REDIS_PORT}
MEMORY = "ours, memory"
ECHO, FLOOR = "bound: an echo over this TCP", "bound: a reflector of segments"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--keys", type=int, default=KEYS, help="keys, all of them preloaded (%(default)s)")
    parser.add_argument("--tails", action="store_true", help="only latency at half of memcached's rate")


def run(session: Session) -> None:
    """All parts."""
    space = Space(int(getattr(session.options, "keys", KEYS)))
    session.settings |= {
        "message": "one GET of a 16-byte key and its 64-byte value",
        "keys": space.keys,
        "zipf": space.zipf,
        "connections": CONNECTIONS,
        "links": {
            MEMORY: "memory link: client and server in one process",
            ECHO: f"as {MEMORY}; {links.REQUEST_BYTES} bytes and the same back",
            FLOOR: f"as {ECHO}",
            "all others": "the client over AF_XDP on a veth pair; ours over AF_XDP, the others on Linux' TCP",
        },
    }
    seconds = session.seconds
    if getattr(session.options, "tails", False):
        on_one_link(session, space, lambda pair: tails_alone(session, pair, space, seconds))
        return
    alone, bounds = peak(session, space, PEAK * seconds)
    kinds.measure(session, space, KINDS * seconds)
    on_one_link(session, space, lambda pair: beside_others(session, pair, space, alone, bounds))
    memory_per_item(session)


def peak(session: Session, space: Space, seconds: float) -> tuple[list[float], dict[str, float]]:
    """What one core carries over the memory NIC: the peaks of the rounds, and the bounds by their names."""
    by_distance = ByDistance(session, GOALS)
    with (
        servers.on_memory(session.two_cores, space, CONNECTIONS) as client,
        client(space.memcached(), CONNECTIONS) as load,
        links.memory(session.two_cores) as plain,
        plain.client("ask", connections=CONNECTIONS) as echo,
        links.floor(session.two_cores, "ask", connections=CONNECTIONS) as floor,
    ):
        arms = {MEMORY: load.measure, ECHO: Load(echo).measure, FLOOR: floor.measure}
        searched = find_peaks(session, arms, seconds=0.7 * seconds, by_distance=by_distance, across=tuple(arms))
        found = {name: [curve.peak_rps for curve in curves] for name, curves in searched.items()}
        peaks = found[MEMORY]
        session.curves(
            {MEMORY: load.measure},
            {MEMORY: statistics.median(peaks)},
            seconds=0.3 * seconds,
            fractions=FRACTIONS,
            explain={MEMORY: load.explain},
        )
    by_distance.report()
    bounds = {name: statistics.median(found[name]) for name in (ECHO, FLOOR)}
    beside = by_distance.beside(MEMORY) | bounds
    session.figure("kv-tcp.rps_per_core", statistics.median(peaks), runs=peaks, beside=beside)
    return peaks, bounds


def why_not(session: Session) -> str:
    """Why the others cannot be measured here; "" if they can."""
    if not session.baseline:
        return "--no-baseline was given"
    return netns.missing() or memcached.missing() or redis.missing() or ""


def on_one_link(session: Session, space: Space, measure: Callable[[servers.Pair], None]) -> None:
    """What is measured of ours and the others on one link, if they can be."""
    if why := why_not(session):
        for server in PORTS:
            session.skip(server, why)
        return
    with contextlib.ExitStack() as stack:
        measure(servers.Pair(stack, session.two_cores, space, kinds.MANY))


def beside_others(
    session: Session, pair: servers.Pair, space: Space, alone: list[float], bounds: dict[str, float]
) -> None:
    """Closed loops, latency at half of memcached's rate, the rows of kinds.py; alone, bounds: as of `peak`."""
    rates = closed_loops(session, pair, space, LINK * session.seconds)
    compare(session, rates, alone, bounds)
    at_half(session, pair, space, statistics.median(rates[MEMCACHED]), TAILS * session.seconds)
    kinds.beside(session, pair, PORTS, space, ROWS * session.seconds)


def tails_alone(session: Session, pair: servers.Pair, space: Space, seconds: float) -> None:
    """Latency at half of memcached's rate, and what tells that rate."""
    points = [_closed(pair, MEMCACHED, space.memcached(), 0.1 * seconds / ROUNDS) for _ in range(ROUNDS)]
    session.point(MEMCACHED, middle(points))
    at_half(session, pair, space, statistics.median(p.achieved_rps for p in points), 0.9 * seconds)


def _closed(pair: servers.Pair, server: str, script: Script, slot: float) -> Point:
    """What a server carries in a closed loop."""
    rest.demand("a server on a veth pair")
    with (
        pair.ours() if server == OURS else contextlib.nullcontext(),
        pair.client(PORTS[server], script, CONNECTIONS, arrivals="closed") as load,
    ):
        return Load(load).measure(0.0, slot)


def closed_loops(session: Session, pair: servers.Pair, space: Space, seconds: float) -> dict[str, list[float]]:
    """All servers by turns, with and without pipelines. Rates of the rounds without, by server."""
    arms: dict[str, Callable[[], Point]] = {}
    slot = seconds / ROUNDS / len(PORTS) / len(PIPELINES)
    for pipeline in PIPELINES:
        gets, resp = space.memcached(pipeline), space.redis(pipeline)
        for server in PORTS:
            arms[_arm(server, pipeline)] = partial(_closed, pair, server, resp if server == REDIS else gets, slot)
    found = session.interleave(arms, ROUNDS)
    for name, points in found.items():
        session.point(name, middle(points))
    return {server: [p.achieved_rps for p in found[_arm(server, 1)]] for server in PORTS}


def at_half(session: Session, pair: servers.Pair, space: Space, carried: float, seconds: float) -> None:
    """p99 of ours and of memcached at half of the rate that memcached carries, and of an echo over our TCP."""
    how: dict[str, Any] = {"rate": HALF * carried, "slot_s": tails.slot_s(seconds), "connections": CONNECTIONS}
    how["turn_s"] = TURN_S
    gets = space.memcached()
    clients = {server: partial(pair.client, port, gets, CONNECTIONS, keep=True) for server, port in PORTS.items()}
    echo = partial(pair.veth.client, "ask", connections=CONNECTIONS, keep=True)
    asked = {
        OURS: tails.Asked(clients[OURS], serving=pair.ours, **how),
        MEMCACHED: tails.Asked(clients[MEMCACHED], pid=pair.pid, **how),
        ECHO: tails.Asked(echo, serving=pair.veth.ours, **how),
    }
    arms = {name: one.arm(session) for name, one in asked.items()}
    taken = tails.compare(session, "kv-tcp.p99_gain", arms, {MEMCACHED: OURS}, seconds)
    tails.rows(session, taken, lambda server: f"{server}, at half of memcached's rate")
    tails.judge(session, "kv-tcp.p99_gain", taken, beside={ECHO: tails.between(taken, MEMCACHED, ECHO)})


def _arm(server: str, pipeline: int) -> str:
    return server if pipeline == 1 else f"{server}, pipelines of {pipeline}"


def compare(session: Session, rates: dict[str, list[float]], alone: list[float], bounds: dict[str, float]) -> None:
    """Our peak on the memory NIC over what the others carry on a veth pair; beside it all on that, and the bounds."""
    ours = statistics.median(alone)
    for server, figure in ((MEMCACHED, "kv-tcp.over_memcached"), (REDIS, "kv-tcp.over_redis")):
        if not ours or not all(rates[server]):
            session.figure(figure, None, reason="an arm carried no load: is the machine this busy?")
            continue
        same = pairwise(rates[OURS], rates[server])
        runs = [ours / rate for rate in rates[server]]
        theirs = statistics.median(rates[server])
        beside = {"all on a veth pair": same.median} | {name: rate / theirs for name, rate in bounds.items()}
        session.figure(figure, statistics.median(runs), runs=runs, beside=beside)


def memory_per_item(session: Session) -> None:
    """Of items of 16 + 64 bytes."""
    figure = "kv-tcp.bytes_per_item"
    space = Space(ITEM_KEYS)
    if why := memcached.missing() or ("" if session.baseline else "--no-baseline was given"):
        session.figure(figure, None, reason=why)
        return
    session.say("memory per item")
    ours, theirs = items.ours(ITEM_MIB, space), items.memcached(ITEM_MIB, space)
    session.arm("items", memory_mib=ITEM_MIB, ours=ours, memcached=theirs)
    session.figure(figure, theirs / ours, runs=[theirs / ours])


def plot(document: dict[str, Any]) -> Canvas:
    """Latency of ours against load, and what each server carries on a veth pair."""
    n = sum(int(row["sent"]) for row in document["arms"] if "sent" in row)
    canvas = Canvas("kv over TCP", message="a GET with its answer", n=n, panels=2, size=(18, 8))
    if MEMORY in document["settings"]["stops"]:
        canvas.latency_curves(document, [MEMORY], 0)
    rows = {str(row["name"]): row for row in document["arms"]}
    names = [_arm(server, p) for p in PIPELINES for server in (OURS, MEMCACHED, REDIS) if _arm(server, p) in rows]
    if not names:
        canvas.caption("On a veth pair: not measured here.")
        return canvas
    gets = [number(rows[name]["achieved_rps"]) * _gets_of(name) for name in names]
    canvas.bars(names, gets, ylabel="GETs on a veth pair (1/s)", panel=1)
    canvas.caption(
        f"Left: memory NIC, {CONNECTIONS:,} connections, open loop. Bars: one client over AF_XDP for all servers, "
        "closed loop; ours over AF_XDP, the others on Linux' TCP."
    )
    return canvas


def _gets_of(name: str) -> int:
    """GETs in a request of an arm."""
    return next((p for p in PIPELINES if p > 1 and name.endswith(f" {p}")), 1)
