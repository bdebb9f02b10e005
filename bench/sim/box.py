"""The simulator against the machine: the same requests, drawn once, through both.

The machine's side is the scheduler of libos alone (queue_loops.h): a timer makes a uthread of each request when it is
due, and kthreads on one or two cores serve them, stealing from each other. The simulator runs the same arrival times
and lengths. So sampling error is in neither; what is left is what the model leaves out: the cost of a spawn and a
steal, timer ticks, and the host's pauses, which the canary of the run shows.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.session import Session
from .draws import draw
from .model import App, Costs, Exponential, Simulation

SERVICE_NS = 20_000.0
LOADS = (0.3, 0.5, 0.7, 0.8)
ROUNDS = 5
PERCENTILES = (50, 90, 99)


@njit(cache=True)
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


@dataclass(frozen=True)
class Seen:
    """Latency from arrival to completion, us, at PERCENTILES, and the mean wait."""

    percentiles_us: tuple[float, ...]
    mean_wait_us: float


def on_the_box(cores: tuple[int, ...], at: Any, length: Any) -> Seen:
    """Run requests on kthreads pinned to `cores`. Raises CorelaneError if they cannot be started."""
    n = len(at)
    begun, ended = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    err = ffi.new("char[256]")
    words = [ffi.cast("uint64_t *", a.ctypes.data) for a in (at, length, begun, ended)]
    rc = lib.cl_bench_queue(len(cores), ffi.new("int32_t[]", list(cores)), n, *words, err)
    if rc < 0:
        raise CorelaneError("run requests on kthreads", ffi.string(err).decode())
    latency = (ended - at).astype(np.float64) / 1e3
    wait = (begun - at).astype(np.float64) / 1e3
    return Seen(tuple(float(np.percentile(latency, p)) for p in PERCENTILES), float(wait.mean()))


def simulated(app: App, servers: int, count: int, seed: int, costs: Costs) -> tuple[Seen, Any, Any]:
    """The simulator's answer for the first `count` requests, and those requests."""
    world = Simulation([app], servers, interval_ns=0, costs=costs, seed=seed)
    at, length = requests(*world.draws(app.name), count)
    world.run(until_ns=int(at[-1]))
    result = world.result(app.name)
    seen = Seen(tuple(result.percentile_us(p) for p in PERCENTILES), result.mean_wait_ns / 1e3)
    return seen, at, length


def compare(session: Session, seconds: float) -> None:
    """Rows "box" and "simulator" for one and two cores at each load, and how far apart they are."""
    counts = [n for n in (1, 2) if n <= len(session.cores)]
    part = seconds / (len(counts) * len(LOADS) * ROUNDS)
    apart = []
    for servers in counts:
        for load in LOADS:
            session.say(f"the box and the simulator: {servers} cores at load {load}")
            rate = load * servers / SERVICE_NS * 1e9
            app = App("a", rate_rps=rate, service=Exponential(SERVICE_NS), guaranteed=servers, central=True)
            count = max(int(rate * part), 200)
            boxes, models = [], []
            for round_ in range(ROUNDS):
                model, at, length = simulated(app, servers, count, 100 + round_, Costs())
                boxes.append(on_the_box(session.cores[:servers], at, length))
                models.append(model)
            row: dict[str, Any] = {"servers": servers, "load": load, "n": count * ROUNDS}
            for side, seen in (("box", boxes), ("model", models)):
                for i, p in enumerate(PERCENTILES):
                    row[f"{side}_p{p}_us"] = statistics.median(s.percentiles_us[i] for s in seen)
                row[f"{side}_mean_wait_us"] = statistics.median(s.mean_wait_us for s in seen)
            session.arm(f"box and simulator, {servers} cores, load {load:g}", **row)
            for i, p in enumerate(PERCENTILES[:2]):
                ratios = [b.percentiles_us[i] / m.percentiles_us[i] for b, m in zip(boxes, models, strict=True)]
                row[f"box_over_model_p{p}"] = statistics.median(ratios)
                apart.append((abs(statistics.median(ratios) - 1), p, servers, load))
    worst, p, servers, load = max(apart)
    session.settings["box_service_us"] = SERVICE_NS / 1e3
    session.settings["box_over_simulator_worst"] = worst
    session.note(
        f"the box and the simulator on the same requests differ by {100 * worst:.2g} % at most in p50 and p90 "
        f"(median of {ROUNDS} pairs; p{p}, {servers} cores, load {load:g}); p99 and mean waits stand in the arms"
    )
