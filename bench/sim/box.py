"""The simulator against the machine: the same requests, recorded once, through both.

The machine's side is the scheduler of libos alone (queue_loops.h): a timer makes a uthread of each request when it is
due, and kthreads on one or two cores serve them, stealing from each other. The simulator replays the same load. So
sampling error is in neither.

What the scheduler itself takes is measured at light load (`costs_ns`): of a kthread for each request, by short trains
of them, and until a kthread takes what another one has received, by pairs. The machine's gaps are what the kthreads saw
in the same run: when each was stopped, and for how long. The simulator replays these, too; without them is the arm's
`plain_` columns.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.session import Session
from .draws import draw
from .kept import kept
from .model import App, Costs, Exponential, Simulation
from .recorded import Recorded

SERVICE_NS = 20_000.0
LOADS = (0.3, 0.5, 0.7, 0.8)
ROUNDS = 5
STOPPED_MOST = 0.1  # of a kthread's time, by the machine, in a round that counts
PERCENTILES = (50, 90, 99)
GAPS_ROOM = 1 << 16
# Of what is measured at light load: a train of TRAIN requests of SHORT_NS comes a little faster than they are served.
TRAIN, TRAINS, SHORT_NS, AHEAD_NS, APART_NS = 10, 200, 5_000, 500, 150_000


@kept()
def requests(gap: Any, service: Any, rng: Any, count: Any) -> Any:
    """Arrival times and lengths of the first `count` requests of an application, ns, as the engine draws them."""
    at, length = np.empty(count, np.uint64), np.empty(count, np.uint64)
    now: Any = 1 + np.int64(draw(gap, rng, 0) + 0.5)
    for i in range(count):
        step = np.int64(draw(gap, rng, 0) + 0.5)
        at[i] = now
        length[i] = max(np.int64(draw(service, rng, 0) + 0.5), 1)
        now += step
    return at, length


def drawn(rate_rps: float, service: Any, count: int, seed: int) -> Recorded:
    """A Poisson load."""
    world = Simulation([App("a", rate_rps=rate_rps, service=service, guaranteed=1)], 1, interval_ns=0, seed=seed)
    return Recorded(*requests(*world.draws("a"), count))


@dataclass(frozen=True)
class Ran:
    """What became of a load: when each request began and ended, ns, and when which kthread was stopped for how long."""

    load: Recorded
    begun_ns: Any
    ended_ns: Any
    gaps: Any

    @property
    def latency_ns(self) -> Any:
        return self.ended_ns - self.load.at_ns

    @property
    def stopped(self) -> float:
        """For how long all kthreads together were stopped, over the time of the run. What a gap has after the last
        request's end does not count."""
        end = max(int(self.ended_ns.max()), 1)
        at, _, length = np.reshape(self.gaps, (-1, 3)).T
        return float((np.minimum(at + length, end) - np.minimum(at, end)).sum() / end)


def on_the_box(cores: Sequence[int], load: Recorded) -> Ran:
    """Run requests on kthreads pinned to `cores`. Raises CorelaneError if they cannot be started."""
    n, kthreads = len(load), len(cores)
    begun, ended = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    rows = np.zeros((kthreads, GAPS_ROOM, 2), np.uint64)
    given = load.at_ns.astype(np.uint64), load.service_ns.astype(np.uint64)
    gaps = ffi.new("struct cl_bench_gaps *", {"room": GAPS_ROOM})
    gaps.gaps = ffi.cast("struct cl_bench_gap *", rows.ctypes.data)
    err = ffi.new("char[256]")
    words = [ffi.cast("uint64_t *", a.ctypes.data) for a in (*given, begun, ended)]
    rc = lib.cl_bench_queue(kthreads, ffi.new("int32_t[]", list(cores)), n, *words, gaps, err)
    if rc < 0:
        raise CorelaneError("run requests on kthreads", ffi.string(err).decode())
    found = [
        np.insert(rows[k, : int(gaps.n[k])].astype(np.int64).reshape(-1, 2), 1, k, axis=1) for k in range(kthreads)
    ]
    every = np.concatenate(found)
    every = every[np.argsort(every[:, 0], kind="stable")]
    return Ran(load, begun.astype(np.int64), ended.astype(np.int64), every)


def simulated(load: Recorded, servers: int, costs: dict[str, float], gaps: Any = ()) -> Any:
    """The simulator's latencies of the same requests, ns. costs: of `costs_ns`; gaps: at which cores stand still."""
    longer = load.longer(costs["request_ns"])
    app = App("a", recorded=longer, guaranteed=servers, central=True)
    world = Simulation(
        [app], servers, interval_ns=0, costs=Costs(receive_ns=round(costs["steal_ns"])), pauses=gaps, seed=1
    )
    standing = sum(int(length) for *_, length in gaps)
    world.run(until_ns=load.until_ns + int(longer.service_ns.sum()) + standing)  # one server alone is done by then
    return world.latencies_ns("a")[1]


def costs_ns(cores: Sequence[int]) -> dict[str, float]:
    """What the scheduler takes, ns, medians at light load. request_ns: of a kthread for a request besides its length;
    steal_ns: until a kthread without work has a request that another one, which is busy, received."""
    starts = APART_NS * np.arange(1, TRAINS + 1, dtype=np.int64)
    at = (starts[:, None] + (SHORT_NS - AHEAD_NS) * np.arange(TRAIN)).ravel()
    train = on_the_box(cores[:1], Recorded(at, np.full(len(at), SHORT_NS)))
    each = np.diff(train.ended_ns.reshape(TRAINS, TRAIN), axis=1)[:, 1:] - SHORT_NS
    found = {"request_ns": float(np.median(each)), "steal_ns": 0.0}
    if len(cores) > 1:
        at = (starts[:, None] + np.array([0, SHORT_NS])).ravel()
        pairs = on_the_box(cores[:2], Recorded(at, np.full(len(at), 4 * SHORT_NS)))
        found["steal_ns"] = max(float(np.median((pairs.begun_ns - pairs.load.at_ns)[1::2])), 0.0)
    return found


def compare(session: Session, seconds: float) -> list[dict[str, Any]]:
    """Rows for one and two cores at each load, and how far apart the two sides are."""
    counts = [n for n in (1, 2) if n <= len(session.cores)]
    part = seconds / (len(counts) * len(LOADS) * ROUNDS)
    rows = []
    costs = costs_ns(session.cores[:2])
    session.settings["box"] = {"service_us": SERVICE_NS / 1e3, "costs_ns": costs}
    for servers in counts:
        for load in LOADS:
            session.say(f"the box and the simulator: {servers} cores at load {load}")
            rate = load * servers / SERVICE_NS * 1e9
            pairs = []
            for round_ in range(ROUNDS):
                given = drawn(rate, Exponential(SERVICE_NS), max(int(rate * part), 200), 100 + round_)
                ran = on_the_box(session.cores[:servers], given)
                pairs.append((ran, simulated(given, servers, costs, ran.gaps), simulated(given, servers, costs)))
            name = f"box and simulator, {servers} cores, load {load:g}"
            kept = [pair for pair in pairs if pair[0].stopped / servers <= STOPPED_MOST]
            if not kept:
                session.skip(name, f"the machine stopped the kthreads for over {100 * STOPPED_MOST:g} % in each round")
                continue
            rows.append(_row(kept, servers, load) | {"rounds_left_out": len(pairs) - len(kept)})
            session.arm(name, **rows[-1])
    return rows


def _row(pairs: Sequence[tuple[Ran, Any, Any]], servers: int, load: float) -> dict[str, Any]:
    """Medians of the rounds; `plain_`: of the simulator without the machine's gaps."""
    row: dict[str, Any] = {"servers": servers, "load": load, "n": sum(len(ran.load) for ran, *_ in pairs)}
    row["stopped"] = statistics.median(ran.stopped / servers for ran, *_ in pairs)
    sides = {
        "box": [ran.latency_ns for ran, *_ in pairs],
        "model": [with_gaps for _, with_gaps, _ in pairs],
        "plain": [without for *_, without in pairs],
    }
    for p in PERCENTILES:
        seen = {side: [float(np.percentile(one, p)) / 1e3 for one in all_] for side, all_ in sides.items()}
        row |= {f"{side}_p{p}_us": statistics.median(values) for side, values in seen.items()}
        for side, name in (("model", f"p{p}_error"), ("plain", f"plain_p{p}_error")):
            row[name] = statistics.median(m / b for m, b in zip(seen[side], seen["box"], strict=True)) - 1
    return row
