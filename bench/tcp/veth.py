"""Requests over a veth pair: our server over AF_XDP beside Linux' TCP with a spinning and a blocking epoll server.

On a veth the sender's core does the receiver's work in the kernel. So the client decides what can be gained, and there
are two: the one of drivers/nic/tcpload over AF_XDP, which the figures are of, and one on kernel sockets, beside. With
the former a reflector of segments, which has no TCP to speak of (reflector.h), says how much is left to gain.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from ...drivers.linux import netns
from ..harness import rest
from ..harness.load import Load
from ..harness.numbers import number
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from . import links

LATENCY, RATE = "tcp.linux_spin_over_ours", "tcp.rps_over_linux"
FIGURES = (LATENCY, RATE)
SERVERS = ("ours", "linux spin", "linux block", "attached", "reflector")
LINUX = ("linux spin", "linux block")
UNLOADED_RPS = 10_000.0
CONNECTIONS = 100  # of the rate, in a closed loop
KINDS = {"unloaded": (UNLOADED_RPS, 1), "100 connections": (0.0, CONNECTIONS)}  # rate, connections
ROUNDS = 9
XDP, KERNEL = "AF_XDP client", "kernel client"
BOTH_CLIENTS = ("ours", *LINUX)  # the others have the first one alone


def measure(session: Session, seconds: float) -> None:
    """Latency unloaded, and the most that 100 connections reach; each with both clients, interleaved."""
    servers = [server for server in SERVERS if session.baseline or server not in LINUX]
    names = {
        _arm(server, client, kind): (server, client, kind)
        for kind in KINDS
        for client in (XDP, KERNEL)
        for server in servers
        if client == XDP or server in BOTH_CLIENTS
    }
    if why := netns.missing():
        for name in names:
            session.skip(name, why)
        return
    session.settings["veth"] = {
        "attached": "loop and kthread share a core" if len(session.cores) < 3 else "loop and kthread have a core each",
        "unloaded_rps": UNLOADED_RPS,
        "linux": "epoll, TCP_NODELAY, one recv and one send a request",
    }
    slot = seconds / (ROUNDS * len(names))
    _ = session.two_cores  # there must be so many
    with contextlib.ExitStack() as stack:
        pair = links.Veth(stack, session.cores)

        def arm(server: str, client: str, kind: str) -> Callable[[], Point]:
            rate, connections = KINDS[kind]
            return partial(_point, pair, server, client == XDP, rate, connections, slot)

        points = session.interleave({name: arm(*what) for name, what in names.items()}, ROUNDS)
    for name, several in points.items():
        session.point(name, middle(several))
    _figure(session, points, LATENCY, "unloaded", lambda p: p.p50_us, upside_down=True)
    _figure(session, points, RATE, "100 connections", lambda p: p.achieved_rps, upside_down=False)


def _arm(server: str, client: str, kind: str) -> str:
    return f"{server}, {client}, {kind}"


def _point(pair: links.Veth, server: str, xdp: bool, rate: float, connections: int, seconds: float) -> Point:
    rest.demand("a server on a veth pair")
    ours = {"ours": pair.ours, "attached": pair.attached, "reflector": pair.floor}
    with ours[server]() if server in ours else pair.linux(server.removeprefix("linux ")):
        if not xdp:
            return pair.ask_by_kernel(rate, seconds, connections)
        arrivals = "poisson" if rate else "closed"
        with pair.client("ask", connections=connections, arrivals=arrivals) as load:
            return Load(load).measure(rate, seconds)


def _figure(
    session: Session,
    points: dict[str, list[Point]],
    figure: str,
    kind: str,
    value: Callable[[Point], float],
    *,
    upside_down: bool,
) -> None:
    """Round by round, the spinning server's value over ours, or the other way round. Beside it the same with the kernel
    client, with ours behind an iokernel, and of the reflector."""

    def pairs(client: str, server: str = "ours") -> list[float]:
        ours, theirs = ([value(p) for p in points.get(_arm(name, client, kind), ())] for name in (server, "linux spin"))
        above, below = (theirs, ours) if upside_down else (ours, theirs)
        return [a / b for a, b in zip(above, below, strict=False) if b and a == a]

    if not pairs(XDP):
        reason = "an arm left requests unanswered" if session.baseline else "baselines were not asked for"
        session.figure(figure, None, reason=reason)
        return
    others = {
        "with a kernel client": pairs(KERNEL),
        "attached": pairs(XDP, "attached"),
        "bound: a reflector of segments": pairs(XDP, "reflector"),
    }
    beside = {name: statistics.median(ratios) for name, ratios in others.items() if ratios}
    session.figure(figure, statistics.median(pairs(XDP)), runs=pairs(XDP), beside=beside)


def draw(canvas: Canvas, document: dict[str, Any], panel: int) -> None:
    """Median round trips."""
    rows = {row["name"]: row for row in document["arms"]}
    names = [(s, c) for c in (XDP, KERNEL) for s in SERVERS if _arm(s, c, "unloaded") in rows]
    if not names:
        canvas.caption("Veth: not measured here.")
        return
    values = [number(rows[_arm(s, c, "unloaded")]["p50_us"]) for s, c in names]
    colours = [SERVERS.index(s) for s, _ in names]
    labels = [f"{s}, {c}" for s, c in names]
    canvas.bars(labels, values, ylabel="p50 over a veth, unloaded (us)", panel=panel, colours=colours)
    canvas.caption(
        f"Veth: one connection, {UNLOADED_RPS:,.0f} requests of {links.REQUEST_BYTES} bytes a second, {ROUNDS} rounds."
    )
