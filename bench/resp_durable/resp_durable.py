"""Durable SETs of 16-byte keys with values of 64 bytes, answered when they are on the disk: ours with its log beside
stock redis-server with `appendonly yes` and `appendfsync always`, on the same disk, by turns.

One client over AF_XDP on a veth pair for both, in a closed loop: 50 connections with one SET under way on each, and one
connection. Ours is served over AF_XDP, redis-server on Linux' TCP.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ..baseline import redis
from ..harness import rest
from ..harness.load import Load
from ..harness.numbers import number
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from ..kv_tcp.scripts import Script, Space
from ..log.log import where
from . import servers

SUMMARY = "durable SETs beside redis-server with its append-only file, fsync always, on one disk"
FIGURES = ("resp-durable.over_aof", "resp-durable.p50_gain")

KEYS = 100_000
CONNECTIONS = (50, 1)
ROUNDS = 7
OURS, REDIS = "ours", "redis-server"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="where both logs lie (%(default)s)")


def why_not(session: Session, kind: str) -> str:
    """Why nothing can be measured here; "" if it can."""
    if kind in ("tmpfs", "ramfs"):
        return f"the directory is {kind}, where nothing is durable: choose a disk with --directory"
    if not session.baseline:
        return "--no-baseline was given"
    return netns.missing() or redis.missing() or ""


def run(session: Session) -> None:
    """Both servers by turns."""
    folder = getattr(session.options, "directory", tempfile.gettempdir())
    kind, device = where(folder)
    session.settings |= {
        "message": "one SET of a 16-byte key and a 64-byte value, answered when it is durable",
        "keys": KEYS,
        "file_system": kind,
        "device": device,
        "links": {
            OURS: "the client over AF_XDP on a veth pair; ours over AF_XDP",
            REDIS: "the client over AF_XDP on a veth pair; redis-server on Linux' TCP",
        },
    }
    if why := why_not(session, kind):
        for server in (OURS, REDIS):
            session.skip(server, why)
        return
    with contextlib.ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-resp-", dir=folder)))
        pair = servers.Pair(stack, session.two_cores, made, max(CONNECTIONS))
        measure(session, pair)


def measure(session: Session, pair: servers.Pair) -> None:
    """A round is every server with every number of connections."""
    script = Space(KEYS).redis_sets()
    slot = session.seconds / ROUNDS / len(CONNECTIONS) / 2
    arms: dict[str, Callable[[], Point]] = {}
    for connections in CONNECTIONS:
        for server in (OURS, REDIS):
            arms[_arm(server, connections)] = partial(_point, pair, server, script, connections, slot)
    found = session.interleave(arms, ROUNDS)
    for name, points in found.items():
        session.point(name, middle(points))
    many, one = CONNECTIONS
    rates = {server: [p.achieved_rps for p in found[_arm(server, many)]] for server in (OURS, REDIS)}
    session.ratio_figure("resp-durable.over_aof", rates[OURS], rates[REDIS])
    halves = {server: [p.p50_us for p in found[_arm(server, one)]] for server in (OURS, REDIS)}
    session.ratio_figure("resp-durable.p50_gain", halves[REDIS], halves[OURS])


def _arm(server: str, connections: int) -> str:
    return f"{server}, {connections} connection{'s' if connections > 1 else ''}"


def _point(pair: servers.Pair, server: str, script: Script, connections: int, slot: float) -> Point:
    rest.demand("a server on a veth pair")
    port = servers.OURS_PORT if server == OURS else servers.REDIS_PORT
    with (
        pair.ours() if server == OURS else contextlib.nullcontext(),
        pair.client(port, script, connections) as load,
    ):
        return Load(load).measure(0.0, slot)


def plot(document: dict[str, Any]) -> Canvas:
    """What both carry, and the median of one connection."""
    rows = {str(row["name"]): row for row in document["arms"] if "sent" in row}
    n = sum(int(row["sent"]) for row in rows.values())
    canvas = Canvas("durable SETs", message="a SET, answered when it is on the disk", n=n, panels=2, size=(16, 8))
    for panel, (connections, field, label) in enumerate(
        ((CONNECTIONS[0], "achieved_rps", "durable SETs, 50 connections (1/s)"), (CONNECTIONS[1], "p50_us", "p50 (us)"))
    ):
        names = [_arm(server, connections) for server in (OURS, REDIS) if _arm(server, connections) in rows]
        if names:
            canvas.bars(names, [number(rows[name][field]) for name in names], ylabel=label, panel=panel)
    canvas.caption(
        "One client over AF_XDP for both, closed loop; ours over AF_XDP, redis-server on Linux' TCP, with appendfsync "
        "always. Both logs on one disk."
        if rows
        else "Not measured here."
    )
    return canvas
