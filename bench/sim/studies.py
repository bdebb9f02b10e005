"""The questions that the simulator is asked, each a function of a session and a budget in seconds of real time."""

from __future__ import annotations

import math
import statistics
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ...iokernel.policy import load as load_policy
from ..harness.numbers import number
from ..harness.session import Session
from . import formulas, recursion
from .draws import EXPONENTIAL
from .model import App, Bimodal, Constant, Costs, Distribution, Exponential, LogNormal, Result, Simulation

SERVERS = (1, 2, 4, 8, 16, 32, 64)
LOAD = 0.9
ENGINE_SHARE = 0.7  # of the time; the recursion takes the rest
SAMPLING_GOAL = 0.003
BATCHES = 20
SUSPECT = 4.0  # standard errors
MEAN_NS = 100_000.0  # long against the clock's 1 ns, so that rounding does not show

POLICIES = ("static", "shenango", "delay", "fair")
CORES = (4, 16, 64, 256)
LOADS = (0.1, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9)
# Round figures of two-core machines (docs/performance.md): a core moved by asking, an idle one, a stolen request, a
# request and its reply through the iokernel, a decision per application, telling a core to move.
COSTS = Costs(move_busy_ns=2000, move_idle_ns=500, steal_ns=150, packet_ns=150, decide_ns=30, actuate_ns=100)
SERVICE_NS = 10_000.0
LIMIT_US = 10 * SERVICE_NS / 1e3

ONE_LOOP_CORES = (4, 8, 16, 32, 48, 64, 96, 128, 256)
ONE_LOOP_LOAD = 0.6

INTERVALS_US = (5, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
BURST_CORES = 16
DECISIONS = 100  # at least so many in a run, however long the interval


def check_formulas(session: Session, seconds: float) -> None:
    """M/M/n against Erlang-C for 1 to 64 servers, M/G/1 against Pollaczek-Khinchine, and the simulator's own speed.

    At this load a mean wait converges so slowly that 0.3 % would take minutes. So each M/M/n is compared by a control
    variate (see `recursion` and `judge`); the plain error and its standard error stand beside it.
    """
    shapes: list[tuple[str, int, Distribution]] = [(f"M/M/{n}", n, Exponential(MEAN_NS)) for n in SERVERS]
    shapes += [
        ("M/D/1", 1, Constant(MEAN_NS)),
        ("M/G/1 log-normal", 1, LogNormal(MEAN_NS, 1.0)),
        ("M/G/1 bimodal", 1, Bimodal(MEAN_NS / 2, MEAN_NS * 50, 0.01)),
    ]
    errors, plain_errors, standard_errors, speeds = [], [], [], []
    # The wait's relative deviation grows with the servers: fewer arrivals wait.
    weights = [n**0.5 for _, n, _ in shapes]
    for (name, n, service), weight in zip(shapes, weights, strict=True):
        session.say(f"{name} at load {LOAD}")
        first, second = service.moments()
        rate = LOAD * n / first
        world = Simulation([App("a", rate_rps=rate * 1e9, service=service, guaranteed=n)], n, interval_ns=0, seed=7)
        by_theory = formulas.mean_wait_mmn(n, rate, first), formulas.mean_wait_mg1(rate, first, second)
        expected = by_theory[0 if service.kind == EXPONENTIAL else 1]
        checked = check(world, n, ENGINE_SHARE * seconds * weight / sum(weights))
        plain = abs(checked.mean_wait_ns / expected - 1)
        standard = checked.standard_error_ns / expected
        error = judge(checked, expected, rate, first)
        if name.startswith("M/M/"):
            errors.append(error)
            plain_errors.append(plain)
            standard_errors.append(standard)
        speeds.append(checked.events_per_s)
        session.arm(
            name,
            cores=n,
            load=LOAD,
            n=checked.n,
            mean_wait_ns=checked.mean_wait_ns,
            theory_ns=expected,
            plain_error=plain,
            standard_error=standard,
            relative_error=error,
            events_per_s=checked.events_per_s,
        )
    session.figure("sim.erlang_error", max(errors), runs=errors)
    session.figure("sim.events_per_s", sorted(speeds)[len(speeds) // 2], runs=speeds)
    session.note(
        "sim.erlang_error is by control variate: the Kiefer-Wolfowitz recursion on the same draws, whose mean is "
        f"Erlang-C; without it the largest error in {seconds:.3g} s is {100 * max(plain_errors):.2g} %, and one "
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


def spend(world: Simulation, seconds: float, chunk: int, least_ns: int = 0) -> None:
    """Warm up with one chunk and a tenth of least_ns, forget that, then run chunks until the time is over and the
    simulated clock has gone on by least_ns.
    """
    world.run(events=chunk)
    world.run(until_ns=world.now_ns + least_ns // 10)
    world.reset()
    begin_ns, started = world.now_ns, time.perf_counter()
    while True:
        world.run(events=chunk)
        if time.perf_counter() - started >= seconds and world.now_ns - begin_ns >= least_ns:
            return


def policies_against_load(session: Session, seconds: float) -> None:
    """One latency application and one batch application on 4 to 256 cores, each policy, load up to 90 %.

    The latency application is guaranteed a quarter of the cores (all that `static` ever gives it). One iokernel loop
    for every 16 cores.
    """
    part = seconds / (len(CORES) * len(POLICIES) * len(LOADS))
    for cores in CORES:
        for policy in POLICIES:
            session.say(f"{policy} on {cores} cores")
            arm = f"{policy}, {cores} cores"
            stop = "the highest load tried"
            for load in LOADS:
                row = _point(policy, cores, load, max(cores // 16, 1), part)
                session.arm(arm, policy=policy, cores=cores, load=load, **row)
                if number(row["p999_us"]) > LIMIT_US:
                    why = _why(policy, cores, load, max(cores // 16, 1))
                    stop = f"p99.9 is beyond {LIMIT_US:g} us at load {load:g}: {why}"
                    break
            session.stops[arm] = stop


def cores_of_one_loop(session: Session, seconds: float) -> None:
    """The same applications, at one load, on ever more cores, all behind one iokernel loop: where each policy ends."""
    part = seconds / (len(ONE_LOOP_CORES) * len(POLICIES))
    for policy in POLICIES[1:]:  # `static` ends at any number of cores by what it gives
        session.say(f"{policy}, one loop")
        arm = f"{policy}, one loop"
        stop = "the highest number of cores tried"
        for cores in ONE_LOOP_CORES:
            row = _point(policy, cores, ONE_LOOP_LOAD, 1, part)
            session.arm(arm, policy=policy, cores=cores, load=ONE_LOOP_LOAD, loops=1, **row)
            if number(row["p999_us"]) > LIMIT_US:
                why = _why(policy, cores, ONE_LOOP_LOAD, 1)
                stop = f"p99.9 is beyond {LIMIT_US:g} us at {cores} cores: {why}"
                break
        session.stops[arm] = stop


def _point(policy: str, cores: int, load: float, loops: int, seconds: float) -> dict[str, Any]:
    rate = load * cores / SERVICE_NS * 1e9
    n = max(cores // 16, 1)
    share = max(cores // 4, 1)
    # Equal applications, one for every 16 cores, and as many for each loop.
    apps = [
        App(f"kv{i}", rate_rps=rate / n, service=Exponential(SERVICE_NS), guaranteed=max(share // n, 1))
        for i in range(n)
    ]
    world = Simulation([*apps, App("batch", batch=True)], cores, policy=policy, costs=COSTS, loops=loops, seed=11)
    spend(world, seconds, chunk=100_000)
    seen, batch = together([world.result(app.name) for app in apps]), world.result("batch")
    asked = max(1 - load, 1e-9) * cores
    return {
        "n": seen.done,
        "p50_us": _finite(seen.percentile_us(50)),
        "p99_us": _finite(seen.percentile_us(99)),
        "p999_us": _finite(seen.percentile_us(99.9)),
        "batch_share": batch.cores_worked / asked,
        "moves_per_s": (seen.moves + batch.moves) / max(seen.seconds, 1e-9),
        "violations": seen.violations,
    }


def together(results: Sequence[Result]) -> Result:
    """Latencies and counts of equal applications, as of one."""
    return replace(
        results[0],
        done=sum(r.done for r in results),
        dropped=sum(r.dropped for r in results),
        moves=sum(r.moves for r in results),
        violations=sum(r.violations for r in results),
        histogram=sum(r.histogram for r in results),
    )


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def _why(policy: str, cores: int, load: float, loops: int) -> str:
    """The resource that ran out, by arithmetic on the model's own parameters; or that it was none of them."""
    packets = load * cores / SERVICE_NS / loops * COSTS.packet_ns
    if policy == "static":
        return "static never gives more than the guaranteed quarter of the cores"
    if packets > 0.9:
        return f"each iokernel loop is {100 * packets:.0f} % busy with packets"
    return f"no loop is full ({100 * packets:.0f} % busy with packets); what is late then is not measured"


def headroom(view: Any, apps: Any, spare: int = 1) -> None:
    """A policy that keeps cores spare: what a slow allocator must do, since bursts do not wait for it."""
    for i in range(view.n_apps):
        busy = apps[i].cores - apps[i].idle
        waiting = 1 if apps[i].packet_delay_ns > 0 else 0
        apps[i].grant = busy + waiting + spare


def cores_against_interval(session: Session, seconds: float) -> None:
    """Cores held so that p99.9 stays under the limit, against the time between decisions (Shenango, section 2).

    One application with log-normal service at 40 % of 16 cores; the bursts are those of Poisson arrivals. For each
    interval the least headroom that keeps the limit is found by bisection; what it holds on average is the price of
    deciding rarely.
    """
    part = seconds / (len(INTERVALS_US) * BURST_CORES.bit_length())
    policy = load_policy(f"{__name__}:headroom")
    for interval_us in INTERVALS_US:
        session.say(f"cores needed with a decision every {interval_us} us")
        results: dict[int, Result] = {}

        def keeps(spare: int, interval_ns: int = interval_us * 1000, results: dict[int, Result] = results) -> bool:
            rate = 0.4 * BURST_CORES / SERVICE_NS * 1e9
            app = App("kv", rate_rps=rate, service=LogNormal(SERVICE_NS, 0.6))
            chosen = policy.with_settings(spare=spare)
            world = Simulation([app], BURST_CORES, policy=chosen, interval_ns=interval_ns, costs=COSTS, seed=5)
            spend(world, part, chunk=100_000, least_ns=DECISIONS * interval_ns)
            results[spare] = world.result("kv")
            return results[spare].percentile_us(99.9) <= LIMIT_US

        spare = bisect_left(range(BURST_CORES + 1), True, key=keeps)
        if spare > BURST_CORES:
            session.note(f"no headroom on {BURST_CORES} cores keeps the limit with a decision every {interval_us} us")
            continue
        seen = results[spare]
        session.arm(
            f"interval {interval_us} us",
            interval_us=interval_us,
            headroom_cores=spare,
            n=seen.done,
            cores_held=seen.cores_held,
            cores_worked=seen.cores_worked,
            p999_us=seen.percentile_us(99.9),
        )
