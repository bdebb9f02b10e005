"""Stealing: what it gains when flows are uneven, costs when they are even, and what it costs that data moves at all.

A runtime of two kthreads serves requests that each read and write a table of `set_bytes`. The load has no core: each
kthread's queue is a load generator, polled like a device (drivers/nic/joined.h). Three loads:

    skewed     8 flows, all at one kthread, SKEWED of what it carries: the other has nothing but what it steals
    even       16 flows, 8 at each, EVEN of what each carries: stealing can only move a request away from its data
    locality   even, in overload, nobody steals. Only whose data a request touches differs, so balance hides nothing:
               home            one of 8 tables that this kthread alone touches
               home, 16 tables one of 16 such tables: as many as a kthread sees whose requests come from everywhere
               moved           one of the same 16 tables for both: as if each request ran on a kthread drawn by chance

What one kthread carries is searched with the arrivals of all arms but locality, Poisson and open loop: a closed loop
has requests waiting at any time, so its peak is one that no open loop carries. And skewed has a curve of loads up to
one that is not carried, with stealing and without; the counters of the kthread whose queue it is say why it ends.

`stealing.skewed_gain` has no goal: none was argued for before it was first measured. What can be argued without
measuring is a bound. With stealing both kthreads run; if a request takes `moved / home` times as long where its data
may be at the other core, two carry at most 2 / (moved / home), and no more than is offered. That stands beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ..drivers.nic.joined import JoinedNic
from ..drivers.nic.loadgen.loadgen import Closed, Echo, Loadgen, Source
from ..drivers.nic.loadgen.runs import Result
from ..libos import Runtime, Scheduler, udp
from .harness import rig, usage
from .harness.load import LIGHT_FRACTION, point_of
from .harness.numbers import Ratio, number, pairwise
from .harness.openloop import Measure, Point, middle, search_peak
from .harness.plot import Canvas
from .harness.session import Session
from .harness.stops import Counts, Watch

SUMMARY = "gain and loss of work stealing with a working set for each flow"
FIGURES = ("stealing.skewed_gain",)

SETS_BYTES = (0, 4096, 65536, 524288, 4194304)
ROUNDS = 3
SKEWED, EVEN = 1.5, 0.7  # of what one kthread carries without stealing
LOCALITY = ("home", "home, 16 tables", "moved")
FIRST_PORT, FLOWS, TABLES, LINE = 20000, 8, 32, 64  # flows: of each kthread
PORT, SERVER_IP, PREFIX = 9000, "10.77.0.2", 16
CLIENT_IPS = ("10.77.0.1", "10.77.0.3")
WINDOW = 32  # requests outstanding while the peak is measured
WARM_S = 0.2
SWEPT = ", load swept"
CURVE = (0.3, 0.6, 0.9, 1.2, 1.5)  # loads of skewed, of what one kthread carries without stealing
PEAK, TURNS, CURVES = 0.2, 0.5, 0.3  # of a size's time
FIRST_OF_CLOSED = 0.6  # where the search for the peak begins, of what a closed loop has


def table_of(place: int, flow: int, drawn: int) -> int:
    """Which table a request of a flow touches, by the number of the place; drawn: at random."""
    if place == 1:
        return 16 * (flow // FLOWS) + drawn % 8
    if place == 2:
        return 16 * (flow // FLOWS) + drawn % 16
    if place == 3:
        return drawn % 16
    return flow


class Server:
    """The handler and its tables, of one size; `place` says whose table a request touches: "flow", or of LOCALITY."""

    def __init__(self, set_bytes: int) -> None:
        import numba
        import numpy as np

        from ..libos.numba.calls import peer_port

        # The last table says which: word 0 is the index in `places`. All pages are there before a request is.
        self._tables = np.ones((TABLES + 1, max(set_bytes // LINE, 1), LINE // 8), np.uint64)
        self._tables[TABLES, 0, 1] = set_bytes // LINE

        chosen = numba.njit(table_of)

        def touch(request: Any, reply: Any, tables: Any) -> int:
            flow = (int(peer_port()) - FIRST_PORT) % (2 * FLOWS)
            place, lines = int(tables[TABLES, 0, 0]), int(tables[TABLES, 0, 1])
            mixed = np.uint64(flow)
            for i in range(8):  # the sequence number: no order that a prefetcher knows
                mixed = (mixed ^ np.uint64(request[i])) * np.uint64(0x9E3779B97F4A7C15)
            table = chosen(place, flow, int(mixed >> np.uint64(40)))
            for line in range(lines):
                tables[table, line, 0] += np.uint64(1)
            n = len(request)
            reply[:n] = request
            return n

        self.handler = udp(PORT, state=self._tables, cache=False)(touch)

    def place(self, name: str) -> None:
        """Whose table requests touch from now on."""
        self._tables[TABLES, 0, 0] = ("flow", *LOCALITY).index(name)


@contextlib.contextmanager
def _loaded(session: Session, server: Server, steal: bool, closed: bool) -> Iterator[tuple[list[Loadgen], Runtime]]:
    """Two generators, a queue each, and the runtime that polls them."""
    with contextlib.ExitStack() as stack:
        generators = [
            Loadgen(
                Echo(),
                arrivals=Closed(WINDOW) if closed else "poisson",
                seed=seed,
                server_ip=SERVER_IP,
                server_mac="02:00:00:00:01:00",  # the joined NIC's, which is that of its first
                server_port=PORT,
                source=Source(mac=f"02:00:00:00:01:0{seed}", ip=ip, first_port=FIRST_PORT + seed * FLOWS, flows=FLOWS),
                checksum=True,
            )
            for seed, ip in enumerate(CLIENT_IPS)
        ]
        for generator in generators:
            stack.callback(generator.close)
        nic = JoinedNic([generator.nic() for generator in generators])
        stack.callback(nic.close)
        runtime = Runtime(
            nic=nic,
            kthreads=2,
            poll="spin",
            cpus=list(session.two_cores),
            address=f"{SERVER_IP}/{PREFIX}",
            scheduler=Scheduler(steal=steal),
        )
        stack.callback(runtime.close)
        runtime.bind(server.handler)
        runtime.start()
        yield generators, runtime


def _together(results: list[Result]) -> Result:
    """One result of generators that ran at the same time."""
    whole = results[0]
    for more in results[1:]:
        whole.latency.merge(more.latency)
        names = ("offered_rps", "offered", "sent", "answered", "late", "dropped", "wrong", "errors")
        sums = {name: getattr(whole, name) + getattr(more, name) for name in names}
        whole = dataclasses.replace(whole, **sums, span_s=max(whole.span_s, more.span_s))
    return whole


def _measure(
    session: Session,
    server: Server,
    place: str,
    rates: tuple[float, float],
    seconds: float,
    *,
    steal: bool,
    closed: bool = False,
    watch: Callable[[Runtime], contextlib.AbstractContextManager[object]] = lambda _: contextlib.nullcontext(),
) -> Point:
    """rates: of the two kthreads' queues, in requests/s; 0: none there. watch: a context around the load."""
    server.place(place)
    with _loaded(session, server, steal, closed) as (generators, runtime):
        used = [(g, rate) for g, rate in zip(generators, rates, strict=True) if rate]
        for generator, rate in used:
            generator.begin(rate, (1 - WARM_S) * seconds, WARM_S * seconds, 1)
        with watch(runtime):
            for generator, _ in used:
                generator.wait()
        point = point_of(_together([generator.result() for generator, _ in used]))
        net = runtime.stats().net
        point.extra["stolen_fraction"] = net["stolen"] / max(net["handled"], 1)
        return point


def _counts(runtime: Runtime, cpu: int) -> Counts:
    """Of the first kthread, which runs on `cpu` (harness/stops.py)."""
    sched = runtime.stats(0).sched
    tids = [tid for tid in usage.threads() if os.sched_getaffinity(tid) == {cpu}]
    used = usage.of_threads(tids)
    return Counts(sched["polls"], sched["polls"] - sched["idle_turns"], used.busy_s, used.waited_s)


def _skewed(session: Session, server: Server, steal: bool) -> tuple[Measure, Measure]:
    """A load on one queue, and the same with the counters of the kthread whose queue that is."""
    measure = partial(_measure, session, server, "flow", steal=steal)

    def explain(rate: float, seconds: float) -> Point:
        watches: list[Watch] = []

        def watch(runtime: Runtime) -> Watch:
            idle = watches[-1].idle if watches else None
            watches.append(Watch(partial(_counts, runtime, session.two_cores[0]), seconds, idle))
            return watches[-1]

        measure((LIGHT_FRACTION * rate, 0.0), seconds, watch=watch)
        point = measure((rate, 0.0), seconds, watch=watch)
        point.evidence = watches[-1].evidence
        return point

    return lambda rate, seconds: measure((rate, 0.0), seconds), explain


def _peak(session: Session, server: Server, seconds: float) -> float:
    """What one kthread carries, requests/s, in an open loop; 0: nothing was answered."""
    closed = _measure(session, server, "flow", (1.0, 0.0), 0.1 * seconds, steal=False, closed=True).achieved_rps
    if not closed:
        return 0.0
    measure, _ = _skewed(session, server, False)
    found = search_peak(measure, start_rps=FIRST_OF_CLOSED * closed, step=1.25, seconds=0.9 * seconds)
    return found.peak_rps or max(point.achieved_rps for point in found.points)


def _curves(session: Session, server: Server, size: str, peak: float, seconds: float) -> None:
    """Skewed over loads, with stealing and without, until a load is not carried."""
    both = {f"skewed, {size}, {'stealing' if on else 'no stealing'}{SWEPT}": on for on in (True, False)}
    loads = {name: _skewed(session, server, on) for name, on in both.items()}
    session.curves(
        {name: measure for name, (measure, _) in loads.items()},
        dict.fromkeys(both, peak),
        seconds=seconds,
        fractions=CURVE,
        explain={name: explain for name, (_, explain) in loads.items()},
    )


def _arms(session: Session, server: Server, size: str, peak: float, slot: float) -> dict[str, Callable[[], Point]]:
    loads = {"skewed": (SKEWED * peak, 0.0), "even": (EVEN * peak, EVEN * peak)}
    arms: dict[str, Callable[[], Point]] = {
        f"{shape}, {size}, {'stealing' if steal else 'no stealing'}": partial(
            _measure, session, server, "flow", rates, slot, steal=steal
        )
        for shape, rates in loads.items()
        for steal in (True, False)
    }
    return arms | {
        f"locality, {size}, {place}": partial(
            _measure, session, server, place, (peak, peak), slot, steal=False, closed=True
        )
        for place in LOCALITY
    }


def _compare(session: Session, size: str, points: dict[str, list[Point]]) -> tuple[float, float]:
    """Notes what the arms of one size say about each other, pair by pair. Returns skewed: throughput with / without
    stealing; and moved / home."""

    def ratio(above: str, below: str, key: str = "achieved_rps") -> Ratio:
        above_values, below_values = ([getattr(p, key) for p in points[name]] for name in (above, below))
        return pairwise(above_values, below_values)

    on, off = f"{size}, stealing", f"{size}, no stealing"
    gain = ratio(f"skewed, {on}", f"skewed, {off}")
    session.note(f"skewed flows of {size}: throughput with / without stealing: {gain}")
    for key in ("p50_us", "p99_us"):
        name = key.removesuffix("_us")
        found = ratio(f"even, {on}", f"even, {off}", key)
        session.note(f"even flows of {size}: {name} with / without stealing: {found}")
    home, more, moved = (f"locality, {size}, {place}" for place in LOCALITY)
    cost = ratio(home, moved)
    session.note(f"data of {size}: time of a request, moved / home: {cost}")
    session.note(f"data of {size}: time of a request, home with 16 tables / home: {ratio(home, more)}")
    return gain.median, cost.median


def size_name(set_bytes: int) -> str:
    """As it stands in names of arms: 0 B, 4 KiB, 4 MiB."""
    power = 2 if set_bytes >= 1 << 20 else 1 if set_bytes >= 1 << 10 else 0
    return f"{set_bytes >> 10 * power} {('B', 'KiB', 'MiB')[power]}"


def run(session: Session) -> None:
    """For each working set: the peak of one kthread, then all arms by turns."""
    session.settings |= {
        "message": "one request of 22 bytes that touches a working set, and its reply",
        "checksums": rig.CHECKSUMS,
        "load": {"skewed": f"{SKEWED} of what one kthread carries", "even": f"{EVEN} of what each carries"},
        "client": "none: each kthread polls the load generator that is its queue, and pays for it",
    }
    part, found = session.seconds / len(SETS_BYTES), []
    for set_bytes in SETS_BYTES:
        server, size = Server(set_bytes), size_name(set_bytes)
        session.say(f"working set of {size}: peak of one kthread")
        peak = _peak(session, server, PEAK * part)
        if not peak:
            session.skip(size, "nothing was answered while the peak was measured: give more --seconds")
            continue
        session.settings.setdefault("peak_rps", {})[size] = round(peak)
        arms = _arms(session, server, size, peak, TURNS * part / (ROUNDS * 7))
        points = session.interleave(arms, ROUNDS)
        for name, taken in points.items():
            row = session.point(name, middle(taken))
            row["stolen_fraction"] = statistics.median(p.extra["stolen_fraction"] for p in taken)
        found.append(_compare(session, size, points))
        _curves(session, server, size, peak, CURVES * part)
    if not found:
        return
    gain, cost = min(found)
    beside = {"moved / home, same set": cost, "most that this cost permits": min(SKEWED, 2 / cost)}
    session.figure("stealing.skewed_gain", gain, runs=[g for g, _ in found], beside=beside)


def plot(document: dict[str, Any]) -> Canvas:
    """Answers a second of every arm, and p99 over loads of one queue."""
    swept = [row for row in document["arms"] if row["name"].endswith(SWEPT)]
    rows = [row for row in document["arms"] if row not in swept]
    canvas = Canvas(
        "Stealing with a working set for each flow",
        message=document["settings"]["message"],
        n=sum(int(row["sent"]) for row in document["arms"]),
        panels=2,
        size=(16, 13),
    )
    canvas.bars(
        [row["name"] for row in rows],
        [row["achieved_rps"] for row in rows],
        ylabel="throughput (requests/s)",
        colours=[1 if row["name"].endswith("no stealing") else 5 if "locality" in row["name"] else 0 for row in rows],
        log=True,
    )
    canvas.caption("Blue: with stealing. Red: without. Grey: locality alone, nobody steals.")
    canvas.caption(
        f"Median of {ROUNDS} interleaved rounds; open loop, but for locality, which keeps {WINDOW} requests a kthread."
    )
    for i, name in enumerate(dict.fromkeys(row["name"] for row in swept)):
        points = [row for row in swept if row["name"] == name]
        p99 = [number(row["p99_us"]) for row in points]
        if any(map(math.isfinite, p99)):
            loads = [float(row["offered_rps"]) for row in points]
            label = name.removesuffix(SWEPT).removeprefix("skewed, ")
            canvas.curve(loads, p99, label=label, colour=i // 2, style="-" if i % 2 == 0 else "--", panel=1)
    axis = canvas.axes[1]
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("offered load (requests/s)")
    axis.set_ylabel("p99 from the intended send time (us)")
    for name, why in document["settings"]["stops"].items():
        canvas.caption(f"{name.removesuffix(SWEPT).removeprefix('skewed, ')} stops: {why}.")
    return canvas
