"""Durable SETs of 16-byte keys with values of 64 bytes, answered when they are on the disk: ours with its log beside
stock redis-server with `appendonly yes` and `appendfsync always`, on the same disk, by turns.

One client over AF_XDP on a veth pair for both, in a closed loop: 50 connections with one SET under way on each, and one
connection. Ours is served over AF_XDP, redis-server on Linux' TCP.

What bounds that is taken in the same rounds: both servers without a log, which is all but the disk; the disk alone, one
durable write after the other on the servers' core. A server that only writes and answers all SETs at once shows how
much of the rest is the link's, and of the kernel's way to the disk. Of the durable arms the disk's flushes are counted,
too. And ours on the memory NIC stands beside it: what the same server and log do where the kernel carries no frames.

Both servers also go beside a neighbour that computes on their core: how a write waits for the disk decides how much of
the core its server gets back.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from ...drivers.linux import netns
from ..baseline import redis
from ..harness import rest, usage
from ..harness.load import Load
from ..harness.numbers import number, pairwise
from ..harness.openloop import Point, middle
from ..harness.plot import Canvas
from ..harness.session import Session
from ..kv_tcp.scripts import Script, Space
from ..log.log import Files, where
from ..log.names import RAW
from . import servers

SUMMARY = "durable SETs beside redis-server with its append-only file, fsync always, on one disk"
FIGURES = ("resp-durable.over_aof", "resp-durable.p50_gain")

KEYS = 100_000
CONNECTIONS = (50, 1)
ROUNDS = 7
OURS, REDIS = "ours", "redis-server"
ON_MEMORY = "ours, memory NIC"
IN_MEMORY = ", in memory"  # behind the name of a server: without its log
BESIDE = ", beside a neighbour"  # that computes on the servers' core
GROUPED = "a server that only writes and answers all at once"
DISK = "O_DIRECT+O_DSYNC pwrite"
DISK_S = 0.1  # of each round


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
            ON_MEMORY: "memory link: client and server in one process",
            REDIS: "the client over AF_XDP on a veth pair; redis-server on Linux' TCP",
        },
    }
    if why := why_not(session, kind):
        for server in (OURS, ON_MEMORY, REDIS):
            session.skip(server, why)
        return
    with contextlib.ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-resp-", dir=folder)))
        pair = servers.Pair(stack, session.two_cores, made, max(CONNECTIONS))
        measure(session, pair, Files(made, 0.0))


def measure(session: Session, pair: servers.Pair, files: Files) -> None:
    """A round is every server with every number of connections, two of them beside a neighbour, too; both without a log
    with the most and ours with one; and the disk alone."""
    script = Space(KEYS).redis_sets()
    many, one = CONNECTIONS
    everybody = (OURS, REDIS, ON_MEMORY, OURS + BESIDE, REDIS + BESIDE)
    loads = [(server, connections) for connections in CONNECTIONS for server in everybody]
    loads += [(server + IN_MEMORY, many) for server in (OURS, REDIS)]
    loads += [(OURS + IN_MEMORY, one), (GROUPED, many)]
    slot = session.seconds / ROUNDS / len(loads)
    arms: dict[str, Callable[[], Any]] = {
        _arm(server, connections): partial(_point, session.two_cores, pair, server, script, connections, slot)
        for server, connections in loads
    }
    arms[DISK] = partial(_disk_us, session, files)
    found: dict[str, list[Any]] = session.interleave(arms, ROUNDS)
    alone_us = found.pop(DISK)
    for name, points in found.items():
        row = session.point(name, middle(points))
        row |= {key: statistics.median(p.extra[key] for p in points) for key in points[0].extra}
    session.arm(DISK, p50_us=statistics.median(alone_us))
    conclude(session, {server: found[_arm(server, many)] for server, n in loads if n == many}, alone_us)
    halves = {server: [p.p50_us for p in found[_arm(server, one)]] for server in (*everybody, OURS + IN_MEMORY)}
    least = [round_us + us for round_us, us in zip(halves[OURS + IN_MEMORY], alone_us, strict=True)]
    beside = {
        "bound: the disk alone": pairwise(halves[REDIS], alone_us).median,
        "bound: that, and ours without a log": pairwise(halves[REDIS], least).median,
        ON_MEMORY: pairwise(halves[REDIS], halves[ON_MEMORY]).median,
        "both beside a neighbour": pairwise(halves[REDIS + BESIDE], halves[OURS + BESIDE]).median,
    }
    session.ratio_figure("resp-durable.p50_gain", halves[REDIS], halves[OURS], beside=beside)


def _disk_us(session: Session, files: Files) -> float:
    """The median of one durable write after the other, on the servers' core. The client's is busy, as it is beside the
    servers: what the host does for a disk may take part of the guest's time."""
    rest.demand("the disk alone")
    with servers.busy(session.cores[0]):
        return files.raw(RAW[DISK], DISK_S, session.cores[1]).us(0.5)


def conclude(session: Session, found: dict[str, list[Point]], alone_us: list[float]) -> None:
    """The ratio, and what it would be if the log cost nothing; nothing but one write for all requests; or if there were
    only the disk, with as many requests to a write as our flushes have. What the same write takes beside the load is
    longer than alone: with that it stands there, too.

    found: with the most connections, by server.
    """
    rates = {server: [p.achieved_rps for p in points] for server, points in found.items()}
    many, in_memory = CONNECTIONS[0], rates[OURS + IN_MEMORY]
    at_once = [many / (many / rate + us / 1e6) for rate, us in zip(in_memory, alone_us, strict=True)]
    shared = [p.extra.get("requests_per_flush", p.extra["requests_per_batch"]) for p in found[OURS]]
    by_disk = [n * 1e6 / us for n, us in zip(shared, alone_us, strict=True)]
    over = {
        "bound: ours without a log": in_memory,
        "bound: that, and then one write for all": at_once,
        "bound: the disk alone, as many requests to a write": by_disk,
    }
    call_us = [p.extra.get("call_us", 0.0) for p in found[OURS]]
    if all(call_us):
        waited = [many / (many / rate + us / 1e6) for rate, us in zip(in_memory, call_us, strict=True)]
        over["bound: ours without a log, and then one write as long as ours took"] = waited
    over |= {
        GROUPED: rates[GROUPED],
        ON_MEMORY: rates[ON_MEMORY],
    }
    beside = {name: pairwise(each, rates[REDIS]).median for name, each in over.items()}
    beside["both without a log"] = pairwise(in_memory, rates[REDIS + IN_MEMORY]).median
    beside["both beside a neighbour"] = pairwise(rates[OURS + BESIDE], rates[REDIS + BESIDE]).median
    session.ratio_figure("resp-durable.over_aof", rates[OURS], rates[REDIS], beside=beside)


def _arm(server: str, connections: int) -> str:
    return f"{server}, {connections} connection{'s' if connections > 1 else ''}"


def _point(
    cores: tuple[int, int], pair: servers.Pair, server: str, script: Script, connections: int, slot: float
) -> Point:
    """extra, with a log: the disk's flushes a second, requests for each; of redis-server the part of the time that it
    ran, of ours, which spins, requests of a batch that its writer took, and how long the kernel kept it for a write."""
    rest.demand("a server on a veth pair")
    durable = not server.endswith(IN_MEMORY)
    port = servers.OURS_PORT
    service = None
    with contextlib.ExitStack() as stack:
        if server == ON_MEMORY:
            on_memory = servers.on_memory(cores, pair.folder, script, connections)
            service, load = stack.enter_context(on_memory)
        else:
            if server.startswith(OURS):
                service = stack.enter_context(pair.ours(durable=durable))
            elif server == GROUPED:
                stack.enter_context(pair.grouped(connections))
            else:
                port = servers.REDIS_PORT if durable else servers.MEMORY_PORT
            load = stack.enter_context(pair.client(port, script, connections))
        if server.endswith(BESIDE):
            stack.enter_context(servers.busy(cores[1]))
        flushes, begin = usage.disk_flushes(pair.folder), time.monotonic()
        busy = pair.redis_busy_s()
        point = Load(load).measure(0.0, slot)
        took = time.monotonic() - begin
        gained = (usage.disk_flushes(pair.folder) or 0) - (flushes or 0)
        if durable and flushes is not None:
            point.extra |= {
                "flushes_s": gained / took,
                "requests_per_flush": point.achieved_rps * took / max(gained, 1),
            }
        if port == servers.REDIS_PORT:
            point.extra["server_busy"] = (pair.redis_busy_s() - busy) / took
        if durable and service is not None:
            log = service.stats()
            point.extra["requests_per_batch"] = log["log_units"] / max(log["log_batches"], 1)
            point.extra["call_us"] = log["log_call_ns"] / max(log["log_in_call"], 1) / 1e3
    return point


def plot(document: dict[str, Any]) -> Canvas:
    """What both carry, and the median of one connection."""
    rows = {str(row["name"]): row for row in document["arms"] if "sent" in row}
    n = sum(int(row["sent"]) for row in rows.values())
    canvas = Canvas("durable SETs", message="a SET, answered when it is on the disk", n=n, panels=2, size=(16, 8))
    for panel, (connections, field, label) in enumerate(
        ((CONNECTIONS[0], "achieved_rps", "durable SETs, 50 connections (1/s)"), (CONNECTIONS[1], "p50_us", "p50 (us)"))
    ):
        arms = [_arm(s, connections) for s in (OURS, REDIS, ON_MEMORY, OURS + BESIDE, REDIS + BESIDE)]
        names = [name for name in arms if name in rows]
        if names:
            canvas.bars(names, [number(rows[name][field]) for name in names], ylabel=label, panel=panel)
    canvas.caption(
        "One client over AF_XDP for both, closed loop; ours over AF_XDP, and on the memory NIC; redis-server on Linux' "
        "TCP, with appendfsync always. Both logs on one disk. A neighbour computes on the servers' core."
        if rows
        else "Not measured here."
    )
    return canvas
