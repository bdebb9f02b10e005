"""The questions that the simulator is asked, each a function of a session and of seconds.

These are of real time where speed is measured. Elsewhere they are what one point may take, in events, EVENTS_PER_S to a
second, so that the answers do not depend on how fast a machine is; most points need far less (sampling.py).
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ..harness.session import Session
from . import formulas, plain, recursion
from .draws import EXPONENTIAL
from .model import App, Bimodal, Constant, Costs, Distribution, Exponential, LogNormal, Result, Simulation, Slow
from .sampling import GOAL, Sampled, carried, memory_ns, sample

SERVERS = (1, 2, 4, 8, 16, 32, 64)
LOAD = 0.9
ENGINE_SHARE = 0.7  # of the time; the recursion takes the rest
SAMPLING_GOAL = 0.003
PLAIN_SHARE = 6.0  # of the same time on top, for what stands beside the figure
BATCHES = 20
SUSPECT = 4.0  # standard errors
MEAN_NS = 100_000.0  # long against the clock's 1 ns, so that rounding does not show

POLICIES = ("static", "shenango", "delay", "fair")
CORES = (4, 16, 64, 256)
LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 1.0, 1.05)  # the last one nobody carries
# Round figures of two-core machines (docs/performance.md): a core moved by asking, an idle one, a stolen request, a
# request and its reply through the iokernel, a decision per application, telling a core to move.
COSTS = Costs(move_busy_ns=2000, move_idle_ns=500, steal_ns=150, packet_ns=150, decide_ns=30, actuate_ns=100)
SERVICE_NS = 10_000.0
LIMIT_US = 10 * SERVICE_NS / 1e3
URGENT_NS = 1000  # of an iokernel
JAIN_LEAST = 0.005  # of the cores, for an index of fairness to be told
FULL = 0.97  # of a resource that has run out

ONE_LOOP_CORES = (4, 8, 16, 32, 48, 64, 96, 128, 256)
ONE_LOOP_LOAD = 0.6

EVENTS_PER_S = 6e6  # round figure of a world with a policy, see `speed`


@dataclass(frozen=True)
class Point:
    """What is simulated."""

    policy: str
    cores: int
    load: float
    loops: int


SPEED_POINTS = (Point("delay", 4, 0.7, 1), Point("delay", 64, 0.7, 4))


def check_formulas(session: Session, seconds: float) -> None:
    """M/M/n against Erlang-C for 1 to 64 servers, M/G/1 against Pollaczek-Khinchine, and the simulator's own speed.

    At this load a mean wait converges so slowly that 0.3 % takes seconds for one server and minutes for 64. So each
    M/M/n is compared by a control variate (see `recursion` and `judge`); the plain error and its standard error are in
    its row. Beside the figure stands the plain error at a moderate load (see `plain`), for which it takes at most
    PLAIN_SHARE times as long, or two batches of each seed.
    """
    shapes: list[tuple[str, int, Distribution]] = [(f"M/M/{n}", n, Exponential(MEAN_NS)) for n in SERVERS]
    shapes += [
        ("M/D/1", 1, Constant(MEAN_NS)),
        ("M/G/1 log-normal", 1, LogNormal(MEAN_NS, 1.0)),
        ("M/G/1 bimodal", 1, Bimodal(MEAN_NS / 2, MEAN_NS * 50, 0.01)),
    ]
    errors, unaided, standard_errors, speeds = [], [], [], []
    # The wait's relative deviation grows with the servers: fewer arrivals wait.
    weights = [n**0.5 for _, n, _ in shapes]
    for (name, n, service), weight in zip(shapes, weights, strict=True):
        session.say(f"{name} at load {LOAD}")
        first, second = service.moments()
        rate = LOAD * n / first
        app = App("a", rate_rps=rate * 1e9, service=service, guaranteed=n, central=True)
        world = Simulation([app], n, interval_ns=0, seed=7)
        by_theory = formulas.mean_wait_mmn(n, rate, first), formulas.mean_wait_mg1(rate, first, second)
        expected = by_theory[0 if service.kind == EXPONENTIAL else 1]
        checked = check(world, n, ENGINE_SHARE * seconds * weight / sum(weights))
        off = abs(checked.mean_wait_ns / expected - 1)
        standard = checked.standard_error_ns / expected
        error = judge(checked, expected, rate, first)
        if name.startswith("M/M/"):
            errors.append(error)
            unaided.append(off)
            standard_errors.append(standard)
        speeds.append(checked.events_per_s)
        session.arm(
            name,
            cores=n,
            load=LOAD,
            n=checked.n,
            mean_wait_ns=checked.mean_wait_ns,
            theory_ns=expected,
            plain_error=off,
            standard_error=standard,
            relative_error=error,
            events_per_s=checked.events_per_s,
        )
    beside = {
        f"plain error at load {LOAD:g}, the largest": max(unaided),
        "largest standard error of those at that load": max(standard_errors),
        **plain.compare(session, PLAIN_SHARE * seconds),
    }
    session.figure("sim.erlang_error", max(errors), runs=errors, beside=beside)
    session.say("the simulator's speed with a policy")
    with_policy = {f"with {p.policy} and batch work, {p.cores} cores": speed(p, seconds / 20) for p in SPEED_POINTS}
    session.figure("sim.events_per_s", sorted(speeds)[len(speeds) // 2], runs=speeds, beside=with_policy)
    session.note(
        "sim.erlang_error is by control variate: the Kiefer-Wolfowitz recursion on the same draws, whose mean is "
        f"Erlang-C; without it the largest error in {seconds:.3g} s is {100 * max(unaided):.2g} %, and one "
        f"standard error of sampling is up to {100 * max(standard_errors):.2g} %"
    )
    if max(standard_errors) > SAMPLING_GOAL:
        session.note(f"the budget did not suffice for a plain check to {100 * SAMPLING_GOAL:g} %: give more --seconds")


@dataclass(frozen=True)
class Checked:
    """A run, and the recursion on its draws. Times in ns; n: requests."""

    n: int
    mean_wait_ns: float
    standard_error_ns: float
    recursion_wait_ns: float
    mean_gap_ns: float
    mean_service_ns: float
    events_per_s: float


def check(world: Simulation, servers: int, seconds: float, chunk: int = 50_000) -> Checked:
    """Run for so long after a warm-up; then the same requests by recursion. Standard error by BATCHES batch means."""
    world.run(events=4 * chunk)
    skip, _ = world.progress("a")
    world.reset()
    waiting, _ = world.progress("a")  # minus those that waited at the reset
    first, started = world.events, time.perf_counter()
    seen = [(0, 0)]
    while len(seen) <= BATCHES or time.perf_counter() - started < seconds:
        world.run(events=chunk)
        n, waits = world.progress("a")
        seen.append((n - waiting, waits))
    speed = (world.events - first) / (time.perf_counter() - started)
    edges = [seen[i * (len(seen) - 1) // BATCHES] for i in range(BATCHES + 1)]
    means = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(edges)]
    n, waits = seen[-1]
    by_recursion, gaps, lengths = recursion.sums(*world.draws("a"), servers, skip, n)
    return Checked(n, waits / n, statistics.stdev(means) / BATCHES**0.5, by_recursion / n, gaps / n, lengths / n, speed)


def speed(point: Point, seconds: float, chunk: int = 50_000) -> float:
    """Events a second of a study's world, which calls a policy and moves cores."""
    world, *_ = world_of(point)
    world.run(events=chunk)
    first, started = world.events, time.perf_counter()
    while True:
        world.run(events=chunk)
        took = time.perf_counter() - started
        if took >= seconds:
            return (world.events - first) / took


def judge(checked: Checked, expected_ns: float, rate: float, mean_ns: float) -> float:
    """Relative error of the mean wait, the sampling error taken out; rate in 1/ns.

    The control variate's expectation is the theory's mean only if the draws are what they should be: so the error of
    the drawn gaps' and lengths' means counts too, and a plain error beyond what sampling explains counts in full.
    """
    off = abs(checked.mean_wait_ns - expected_ns)
    if off > SUSPECT * checked.standard_error_ns:
        return off / expected_ns
    controlled = abs(checked.mean_wait_ns - checked.recursion_wait_ns) / expected_ns
    return max(controlled, abs(checked.mean_gap_ns * rate - 1), abs(checked.mean_service_ns / mean_ns - 1))


def policies_against_load(session: Session, seconds: float) -> None:
    """Latency and batch applications on 4 to 256 cores, each policy, up to the first load that is not carried.

    The latency applications are guaranteed a quarter of the cores (all that `static` ever gives them). One iokernel
    loop for every 16 cores. How evenly equals share is in each row (`jain_`), and by policy in the settings.
    """
    seen = []
    for cores in CORES:
        for policy in POLICIES:
            session.say(f"{policy} on {cores} cores")
            points = (Point(policy, cores, load, max(cores // 16, 1)) for load in LOADS)
            seen += _curve(session, f"{policy}, {cores} cores", points, seconds, "load")
    _note_unknown(session, "against load", seen)
    by_policy = {policy: [s for s in seen if s.point.policy == policy] for policy in POLICIES}
    session.settings["least_jain"] = {policy: least_jain(mine) for policy, mine in by_policy.items()}


def least_jain(seen: Sequence[Seen]) -> dict[str, float]:
    """The least index of fairness at a load that is carried, of the batch and of the latency applications' core time,
    where they held JAIN_LEAST of the cores: of a turn or two in a whole run nobody can have an equal share."""
    found: dict[str, list[float]] = {"batch": [], "latency": []}
    for s in filter(lambda s: s.carried, seen):
        for kind, held, index in (("batch", s.batch, s.jain_batch), ("latency", s.kv, s.jain_latency)):
            if held.cores_held >= JAIN_LEAST * s.point.cores and math.isfinite(index):
                found[kind].append(index)
    return {kind: min(values) for kind, values in found.items() if values}


def cores_of_one_loop(session: Session, seconds: float) -> None:
    """The same applications, at one load, on ever more cores, all behind one iokernel loop: where each policy ends."""
    seen = []
    for policy in POLICIES[1:]:  # `static` ends at any number of cores by what it gives
        session.say(f"{policy}, one loop")
        points = (Point(policy, cores, ONE_LOOP_LOAD, 1) for cores in ONE_LOOP_CORES)
        seen += _curve(session, f"{policy}, one loop", points, seconds, "cores", loops=1)
    _note_unknown(session, "behind one loop", seen)


def _curve(session: Session, arm: str, points: Iterable[Point], seconds: float, along: str, **more: Any) -> list[Seen]:
    """Rows up to the first point that is not carried; where and why the tail passes the limit, and the curve ends."""
    said: list[str] = []
    out: list[Seen] = []
    late = False
    for point in points:
        seen = measure(point, seconds)
        out.append(seen)
        session.arm(arm, policy=point.policy, cores=point.cores, load=point.load, **seen.row(), **more)
        where = f"{along} {getattr(point, along):g}"
        if not late and seen.surely_late:
            late = True
            said.append(f"p99.9 is beyond {LIMIT_US:g} us at {where}: {seen.why_slow()}")
        if not seen.carried:
            said.append(f"{where} is not carried: {seen.why_full()}")
            break
    else:
        said.append(f"the highest {along} tried is carried")
    session.stop_uncounted(arm, "; ".join(said))
    return out


def _note_unknown(session: Session, where: str, seen: Sequence[Seen]) -> None:
    """Say which of the points that are carried are not known well enough."""
    kept = [s for s in seen if s.carried]
    unknown = [s for s in kept if not s.sampled.known]
    if not unknown:
        return
    loads: dict[str, list[float]] = {}
    for s in unknown:
        loads.setdefault(f"{s.point.policy} on {s.point.cores} cores", []).append(s.point.load)
    names = "; ".join(f"{who} at load {', '.join(f'{x:g}' for x in at)}" for who, at in loads.items())
    session.note(
        f"of {len(kept)} points {where} that are carried, p99.9 of {len(unknown)} is not known to {100 * GOAL:g} %: "
        f"give more --seconds ({names})"
    )


@dataclass(frozen=True)
class Seen:
    """A point and what became of it. kv, batch: the latency, the batch applications together; sampled: how well the
    former's p99.9 is known. busiest: part of its time that the busiest loop works; deciding: that the first one decides
    and moves cores. jain_batch, jain_latency: Jain's index of core time held, nan of a single application."""

    point: Point
    kv: Result
    sampled: Sampled
    batch: Result
    busiest: float
    deciding: float
    jain_batch: float
    jain_latency: float

    @property
    def p999_us(self) -> float:
        return self.kv.percentile_us(99.9)

    @property
    def carried(self) -> bool:
        """As of a load on the machine."""
        return carried(self.kv)

    @property
    def surely_late(self) -> bool:
        """The tail is beyond the limit by more than two standard errors, or the load is not carried at all."""
        return not self.carried or self.p999_us * (1 - 2 * self.sampled.error) > LIMIT_US

    def row(self) -> dict[str, Any]:
        """For the document: parts of the cores' time, and of that of requests over LIMIT_US, each summing to 1."""
        cores, kv, slow = self.point.cores, self.kv, self.kv.slow
        time_ns = max(sum(self._slow_ns().values()), 1)
        return {
            "n": kv.done,
            **{f"{name}_us": finite(kv.percentile_us(p)) for name, p in (("p50", 50), ("p99", 99), ("p999", 99.9))},
            "p999_error": finite(self.sampled.error),
            "known": self.sampled.known,
            "simulated_ms": self.sampled.simulated_ms,
            "carried": self.carried,
            "batch_share": self.batch.cores_worked / ((1 - self.point.load) * cores) if self.point.load < 1 else None,
            "moves_per_s": (kv.moves + self.batch.moves) / max(kv.seconds, 1e-9),
            "violations": kv.violations,
            "jain_batch": _number(self.jain_batch),
            "jain_latency": _number(self.jain_latency),
            "loop_busy": self.busiest,
            "loop_decides": self.deciding,
            **{f"cores_{name}": part for name, part in self.shares().items()},
            "slow": slow.n,
            **{f"slow_{name}": ns / time_ns for name, ns in self._slow_ns().items()},
        }

    def shares(self) -> dict[str, float]:
        """Of all cores' time: at the requests, stealing them, idle with their applications, on the way, in batch work,
        and nobody's."""
        kv, batch, cores = self.kv, self.batch, self.point.cores
        return {
            "requests": kv.cores_worked / cores,
            "stealing": kv.cores_extra / cores,
            "idle": kv.cores_idle / cores,
            "moving": (kv.cores_moving + batch.cores_moving) / cores,
            "batch": batch.cores_worked / cores,
            "nobody": 1 - (kv.cores_held + batch.cores_held) / cores,
        }

    def _slow_ns(self) -> dict[str, int]:
        slow = self.kv.slow
        return {
            "in_iokernel": slow.in_iokernel,
            "for_move": slow.for_move,
            "for_decision": slow.for_decision,
            "for_cores": slow.for_cores,
            "on_core": slow.on_core,
        }

    def why_slow(self) -> str:
        """What most of the time of the slow requests went into."""
        times = self._slow_ns()
        if not self.kv.slow.n:
            return self.why_full()
        most = max(times, key=lambda name: times[name])
        part = f"{100 * times[most] / max(sum(times.values()), 1):.0f} % of the time of slower requests"
        return {
            "in_iokernel": f"{part} is their way through a loop that is {100 * self.busiest:.0f} % busy",
            "for_move": f"{part} is waiting for cores on their way",
            "for_decision": f"{part} is waiting while others have cores that the policy does not give, or not yet",
            "for_cores": f"{part} is waiting while latency applications have all cores ({self._spent()})",
            "on_core": f"{part} is their own service",
        }[most]

    def why_full(self) -> str:
        """The resource that ran out."""
        if self.busiest >= FULL:
            decides = f", {100 * self.deciding:.0f} % of it decisions" if self.deciding >= 0.05 else ""
            return f"an iokernel loop is {100 * self.busiest:.0f} % busy{decides}"
        held = (self.kv.cores_held) / self.point.cores
        if held < FULL:
            return f"the policy gives the latency applications {100 * held:.0f} % of the cores"
        return f"they have {100 * held:.0f} % of the cores ({self._spent()})"

    def _spent(self) -> str:
        shares = {name: part for name, part in self.shares().items() if part >= 0.005}
        return ", ".join(f"{name} {100 * part:.1f} %" for name, part in shares.items())


def world_of(point: Point) -> tuple[Simulation, list[str], list[str]]:
    """Equal latency applications, one for every 16 cores, and as many equal ones of batch work, but two at least; the
    names of both."""
    rate = point.load * point.cores / SERVICE_NS * 1e9
    n = max(point.cores // 16, 1)
    guaranteed = max(max(point.cores // 4, 1) // n, 1)
    apps = [App(f"kv{i}", rate_rps=rate / n, service=Exponential(SERVICE_NS), guaranteed=guaranteed) for i in range(n)]
    how: dict[str, Any] = {"loops": point.loops, "seed": 11, "slow_ns": round(LIMIT_US * 1e3), "urgent_ns": URGENT_NS}
    jobs = [App(f"batch{i}", batch=True) for i in range(max(n, 2))]
    world = Simulation([*apps, *jobs], point.cores, policy=point.policy, costs=COSTS, **how)
    return world, [app.name for app in apps], [job.name for job in jobs]


def measure(point: Point, seconds: float) -> Seen:
    """Simulate a point until its tail is known, or its events are spent."""
    world, names, jobs = world_of(point)
    memory = memory_ns(point.load, point.cores, SERVICE_NS)
    kv, sampled = sample(
        world, lambda: together([world.result(name) for name in names]), seconds * EVENTS_PER_S, memory
    )
    batch = together([world.result(job) for job in jobs])
    return Seen(point, kv, sampled, batch, *world.loops_busy(), _shared(world, jobs), _shared(world, names))


def _shared(world: Simulation, names: Sequence[str]) -> float:
    """Jain's index of the core time that these held."""
    return formulas.jain([world.result(name).cores_held for name in names]) if len(names) > 1 else math.nan


def together(results: Sequence[Result]) -> Result:
    """Latencies and counts of equal applications, as of one."""
    return replace(
        results[0],
        arrived=sum(r.arrived for r in results),
        done=sum(r.done for r in results),
        cores_held=sum(r.cores_held for r in results),
        cores_worked=sum(r.cores_worked for r in results),
        cores_extra=sum(r.cores_extra for r in results),
        cores_moving=sum(r.cores_moving for r in results),
        slow=sum((r.slow for r in results), Slow()),
        dropped=sum(r.dropped for r in results),
        moves=sum(r.moves for r in results),
        violations=sum(r.violations for r in results),
        preemptions=sum(r.preemptions for r in results),
        histogram=sum(r.histogram for r in results),
        slowdowns=sum(r.slowdowns for r in results),
    )


def finite(value: float) -> float | str:
    """For the document."""
    return value if math.isfinite(value) else "inf"


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
