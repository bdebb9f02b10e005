"""SETs of Redis' protocol that a majority of three nodes has on its disks, beside Redis with its append-only file, and
beside etcd, all on one disk.

Ours are three nodes of raft-resp on the iokernel's switch, which share a core; the client reaches the one that leads by
a tap. Redis has one copy, with `appendfsync always`, and is reached on loopback. The client of both is stock
redis-benchmark on the other core, a SET outstanding on each connection. etcd has three members and clients of its own
kind (baseline/etcd_put.c), and both cores.

What bounds ours is taken in the same rounds: the three nodes with logs on tmpfs, which is all but the disk, and the
disk alone: three writes of 4 KiB at once until the second is done, which is what the log's commit is made of.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from ...apps.raft.service.settings import ELECTION_MS
from ...drivers.linux import netns
from ...runtime.errors import SystemLimit
from ..baseline import redis
from ..baseline.peers import Etcd
from ..harness import rest
from ..harness.numbers import number, pairwise
from ..harness.plot import Canvas
from ..harness.session import Session
from ..log.log import where
from ..raft.arms import ETCD, FLOOR, Slot, baseline, etcd_slot
from ..raft.judge import add_row
from ..raft.lone import floor
from ..raft.nodes import RESP_PORT, address
from ..raft.udp import tap_group
from . import client
from .client import Client

SUMMARY = "SETs replicated by Raft under Redis' protocol, beside Redis' append-only file, fsync always, and etcd"
FIGURES = ("raft-resp.over_aof", "raft-resp.over_etcd", "raft-resp.p50_over_disk")

OURS, REDIS, ON_TMPFS = "ours", "redis-server", "ours, on tmpfs"
CONNECTIONS = (50, 1)
ROUNDS = 5
LEAST_SLOT_S = 0.1
REDIS_PORT, REDIS_MIB = 6390, 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="where all logs lie (%(default)s)")


def why_not(kind: str) -> str:
    """Why nothing can be measured here; "" if it can."""
    if kind in ("tmpfs", "ramfs"):
        return f"the directory is {kind}, where nothing is durable: choose a disk with --directory"
    return netns.missing() or client.missing()


def arm_name(system: str, connections: int) -> str:
    """As in the document."""
    return f"{system}, {connections} connection{'s' if connections > 1 else ''}"


def run(session: Session) -> None:
    """All arms by turns; each begins with servers started anew."""
    base = getattr(session.options, "directory", tempfile.gettempdir())
    kind, device = where(base)
    session.settings |= {
        "message": f"one SET of a 16-byte key and a {client.VALUE_BYTES}-byte value, answered when it is durable",
        "keys": client.KEYS,
        "election_ms": ELECTION_MS,
        "file_system": kind,
        "device": device,
        "links": {
            OURS: "redis-benchmark on Linux' TCP through a tap, the iokernel's uplink",
            REDIS: "redis-benchmark on Linux' TCP over loopback",
            ETCD: "clients like its own over loopback",
        },
    }
    if why := why_not(kind):
        for system in (OURS, REDIS, ETCD):
            session.skip(system, why)
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-raft-resp-", dir=base)))
        arms = arms_of(session, stack, folder)
        slot_s = max(session.seconds / ROUNDS / len(arms), LEAST_SLOT_S)
        session.settings["slot_s"] = slot_s
        got = session.interleave({name: partial(arm, slot_s) for name, arm in arms.items()}, ROUNDS)
    for name, slots in got.items():
        add_row(session, name, slots)
    judge(session, got)


def arms_of(session: Session, stack: contextlib.ExitStack, folder: Path) -> dict[str, Callable[[float], Slot]]:
    """What is measured, by name: what is compared stands next to each other."""
    cores = session.two_cores
    arms: dict[str, Callable[[float], Slot]] = {}
    etcd = baseline(session, ETCD, lambda: Etcd(folder, cores))
    theirs = baseline(session, REDIS, _redis_here)
    (folder / "ours").mkdir()
    shm = None
    if Path("/dev/shm").is_dir():
        shm = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="corelane-raft-resp-", dir="/dev/shm")))
    else:
        session.skip(ON_TMPFS, "there is no /dev/shm")
    for connections in CONNECTIONS:
        arms[arm_name(OURS, connections)] = partial(ours_slot, cores, folder / "ours", connections)
        if theirs:
            arms[arm_name(REDIS, connections)] = partial(redis_slot, cores, folder, connections)
        if etcd:
            arms[arm_name(ETCD, connections)] = partial(etcd_slot, etcd, connections)
        if shm:
            arms[arm_name(ON_TMPFS, connections)] = partial(ours_slot, cores, shm, connections)
    return arms | floor(session, stack, folder)


def _redis_here() -> bool:
    if why := redis.missing():
        raise SystemLimit("start redis-server", why)
    return True


def ours_slot(cores: tuple[int, int], logs: Path, connections: int, seconds: float) -> Slot:
    """Of nodes started anew on the logs that they have left."""
    with tap_group(cores, logs, resp=True, election_ms=ELECTION_MS) as (_, space):
        asked = Client(space, address(1), RESP_PORT, cores[:1])
        asked.await_ok()
        return asked.slot(connections, seconds)


@contextlib.contextmanager
def redis_up(cores: tuple[int, int], folder: Path) -> Iterator[Client]:
    """A redis-server on the core that has our nodes."""
    with netns.namespace("redis") as space:
        where_: dict[str, Any] = {"address": "127.0.0.1", "netns": space.name, "port": REDIS_PORT, "cpu": cores[1]}
        with redis.Redis(**where_, memory_mib=REDIS_MIB, clients=2 * CONNECTIONS[0], durable_in=folder):
            yield Client(space, "127.0.0.1", REDIS_PORT, cores[:1])


def redis_slot(cores: tuple[int, int], folder: Path, connections: int, seconds: float) -> Slot:
    """Of one that reads what it has left."""
    rest.demand("redis-server")
    with redis_up(cores, folder) as asked:
        asked.await_ok()
        return asked.slot(connections, seconds)


def judge(session: Session, got: dict[str, list[Slot]]) -> None:
    """Figures, round by round; those without their baseline are excused by Session.finish."""
    many, one = CONNECTIONS

    def rates(system: str) -> list[float]:
        return [slot.per_s for slot in got[arm_name(system, many)]]

    bounds = {f"bound: {ON_TMPFS}": rates(ON_TMPFS)} if arm_name(ON_TMPFS, many) in got else {}
    for figure, system in (("raft-resp.over_aof", REDIS), ("raft-resp.over_etcd", ETCD)):
        if arm_name(system, many) in got:
            beside = {name: pairwise(bound, rates(system)).median for name, bound in bounds.items()}
            session.ratio_figure(figure, rates(OURS), rates(system), beside=beside)
    floors = [name for name in got if name.startswith(FLOOR)]
    best = min(floors, key=lambda name: statistics.median(s.p50_us for s in got[name]))
    disk_us = [slot.p50_us for slot in got[best]]
    beside = {}
    if bounds:
        both_us = [s.p50_us + us for s, us in zip(got[arm_name(ON_TMPFS, one)], disk_us, strict=True)]
        beside = {f"bound: {ON_TMPFS}, and that write": pairwise(both_us, disk_us).median}
    ours_us = [slot.p50_us for slot in got[arm_name(OURS, one)]]
    session.ratio_figure("raft-resp.p50_over_disk", ours_us, disk_us, beside=beside)


def plot(document: dict[str, Any]) -> Canvas:
    """What 50 connections get, and the median of one."""
    rows = {row["name"]: row for row in document["arms"]}
    message = str(document["settings"]["message"])
    canvas = Canvas("replicated SETs", message=message, n=sum(r["n"] for r in rows.values()), panels=2, size=(16, 8))
    for panel, (connections, field, label) in enumerate(
        ((CONNECTIONS[0], "puts_per_s", "SETs, 50 connections (1/s)"), (CONNECTIONS[1], "put_p50_us", "p50 (us)"))
    ):
        names = [arm_name(s, connections) for s in (OURS, REDIS, ETCD, ON_TMPFS) if arm_name(s, connections) in rows]
        if names:
            canvas.bars(names, [number(rows[name][field]) for name in names], ylabel=label, panel=panel)
    canvas.caption(
        "Ours and etcd: three copies, two of them durable before the answer; redis-server: one copy, fsync always. "
        "Closed loop: the curve has no load axis."
        if rows
        else "Not measured here."
    )
    return canvas
