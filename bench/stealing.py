"""Stealing: what it gains when flows are uneven and costs when they are even, with a working set for each flow.

A runtime of two kthreads serves requests that each read their flow's working set (a table of `set_bytes`), so that a
request handled by another core than usual finds its data in the wrong cache. Two loads, each with stealing on and off,
in turn:

    skewed   one flow: all requests fall to one kthread, the other has nothing but what it steals
    even     64 flows over both kthreads: stealing can only move a request away from its data

Both are offered LOAD of what one kthread carries. The client's thread shares core 0 with a kthread, as there are two
cores only; it sleeps between requests. Compare the arms with each other, not with other benchmarks.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..drivers.nic.loadgen.loadgen import Echo, Loadgen, Source
from ..drivers.nic.memory import memory_link
from ..libos import Runtime, Scheduler, udp
from .harness import rig
from .harness.load import Load
from .harness.numbers import pairwise
from .harness.openloop import Point, middle, search_peak
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "gain and loss of work stealing with a working set for each flow"
FIGURES: tuple[str, ...] = ()

SETS_BYTES = (0, 4096, 65536)
SHAPES = {"skewed": 1, "even": 64}  # shape: flows
ROUNDS = 3
LOAD = {"skewed": 1.2, "even": 0.7}  # of what one kthread carries without stealing
FIRST_PORT, FLOWS, LINE = 20000, 64, 64
CLIENT_IP, SERVER_IP, PREFIX = "10.77.0.1", "10.77.0.2", 16


def _handler(set_bytes: int) -> Any:
    """Echo that reads and writes every cache line of its flow's working set first."""
    import numpy as np

    from ..libos.numba.calls import peer_port

    lines = set_bytes // LINE
    state = np.zeros((FLOWS, max(lines, 1), LINE // 8), np.uint64)

    def touch(request: Any, reply: Any, tables: Any) -> int:
        flow = (int(peer_port()) - FIRST_PORT) % FLOWS
        for line in range(lines):
            tables[flow, line, 0] += np.uint64(1)
        n = len(request)
        reply[:n] = request
        return n

    return udp(9000, state=state, cache=False)(touch)


@contextlib.contextmanager
def _server(session: Session, set_bytes: int, flows: int, steal: bool) -> Iterator[tuple[Load, Runtime]]:
    cores = session.two_cores
    with contextlib.ExitStack() as stack:
        client_end, server_end = memory_link((1, 2))
        stack.callback(client_end.close)
        stack.callback(server_end.close)
        runtime = Runtime(
            nic=server_end,
            kthreads=2,
            cpus=list(cores),
            address=f"{SERVER_IP}/{PREFIX}",
            scheduler=Scheduler(spin_us=50, steal=steal),
        )
        stack.callback(runtime.close)
        runtime.bind(_handler(set_bytes))
        runtime.start()
        generator = Loadgen(
            Echo(),
            server_ip=SERVER_IP,
            server_mac=runtime.mac,
            server_port=9000,
            source=Source(ip=CLIENT_IP, first_port=FIRST_PORT, flows=flows),
            checksum=True,
        )
        stack.callback(generator.close)
        generator.start_client(client_end, cpu=cores[0], spin=False)
        yield Load(generator, counts=partial(rig.counts_of_runtime, runtime, server_end)), runtime


def _measure(session: Session, set_bytes: int, flows: int, steal: bool, rate: float, seconds: float) -> Point:
    with _server(session, set_bytes, flows, steal) as (load, runtime):
        point = load.measure(rate, seconds)
        net = runtime.stats().net
        point.extra["stolen_fraction"] = net["stolen"] / max(net["handled"], 1)
        return point


def run(session: Session) -> None:
    """For each working set: the peak of one kthread, then both shapes with stealing on and off."""
    session.settings |= {
        "message": "one request of 22 bytes that touches its flow's working set, and its reply",
        "checksums": rig.CHECKSUMS,
        "load": {shape: f"{share} of what one kthread carries" for shape, share in LOAD.items()},
    }
    part = session.seconds / len(SETS_BYTES)
    for set_bytes in SETS_BYTES:
        session.say(f"working set of {set_bytes} bytes: peak of one kthread")
        with _server(session, set_bytes, SHAPES["skewed"], False) as (load, _):
            found = search_peak(load.measure, start_rps=5e4, seconds=0.25 * part, tries=8, explain=load.explain)
        session.stop(f"one kthread, {set_bytes} B", found.stop, found.because)
        peak = found.peak_rps or max(p.achieved_rps for p in found.points)
        slot = 0.7 * part / (ROUNDS * 4)
        arms: dict[str, Callable[[], Point]] = {
            f"{shape}, {set_bytes} B, {'stealing' if steal else 'no stealing'}": partial(
                _measure, session, set_bytes, flows, steal, LOAD[shape] * peak, slot
            )
            for shape, flows in SHAPES.items()
            for steal in (True, False)
        }
        points = session.interleave(arms, ROUNDS)
        for name, taken in points.items():
            row = session.point(name, middle(taken))
            row["stolen_fraction"] = statistics.median(p.extra["stolen_fraction"] for p in taken)
        for shape in SHAPES:
            on, off = (
                [p.achieved_rps for p in points[f"{shape}, {set_bytes} B, {word}"]]
                for word in ("stealing", "no stealing")
            )
            word = "gain" if shape == "skewed" else "cost"
            session.note(
                f"{shape} flows of {set_bytes} B: throughput with / without stealing ({word}): {pairwise(on, off)}"
            )


def plot(document: dict[str, Any]) -> Canvas:
    """Answers a second of every arm."""
    rows = document["arms"]
    canvas = Canvas(
        "Stealing with a working set for each flow",
        message=document["settings"]["message"],
        n=sum(int(row["sent"]) for row in rows),
    )
    canvas.bars(
        [row["name"] for row in rows],
        [row["achieved_rps"] for row in rows],
        ylabel="throughput (requests/s)",
        colours=[int(row["name"].endswith("no stealing")) for row in rows],
    )
    canvas.caption(f"Median of {ROUNDS} interleaved rounds, open loop. skewed: 1 flow; even: 64 flows on two kthreads.")
    return canvas
