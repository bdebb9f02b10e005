"""What a simulation is made of, in words of the field; `engine` runs it.

    sim = Simulation([App("kv", rate_rps=8e5, service=Exponential(1000)), App("batch", batch=True)],
                     cores=4, policy="delay", interval_ns=5000, costs=Costs(move_busy_ns=2000))
    sim.run(events=1_000_000)            # warm-up
    sim.reset()
    sim.run(events=5_000_000)
    sim.result("kv").percentile_us(99)

A policy is a `policy.Policy`, or what `policy.load` takes: the name of a built-in one (the same C function that the
iokernel calls), "module:function" or "file.so:function", with `params`, its settings by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any

import numpy as np

from ...iokernel._native import ffi, lib
from ...iokernel.policy.policy import Policy, load
from ...runtime import layout
from ...runtime.errors import CorelaneError
from . import draws, engine, queues
from . import state as e
from .recorded import Recorded

_MOST_NS = 10**15  # of a time: days
MOST_CORES = 1 << 16


def _refuse(what: str, name: str, value: object, hint: str) -> None:
    raise CorelaneError(f"simulate {what}", f"{name} is {value!r}", hint)


def _check(what: str, name: str, value: Any, least: float, most: float, hint: str, kind: Any = (int, float)) -> None:
    """Raise CorelaneError unless it is a number of a kind and within bounds. nan is within none."""
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
        _refuse(what, name, value, hint)


@dataclass(frozen=True)
class Distribution:
    """Service times or gaps, ns. Use Constant, Exponential, Bimodal, Trimodal, LogNormal or BoundedPareto, which say
    what the numbers are. Raises CorelaneError for values that none has."""

    kind: int
    mean: float
    second: float = 0.0
    share: float = 0.0

    def __post_init__(self) -> None:
        what = f"a {_NAMES[self.kind]}"
        values = (self.mean, self.second, self.share)
        for name, value in zip(_TIMES.get(self.kind, ("mean time",)), values, strict=False):
            _check(what, name, value, 1e-3, _MOST_NS, f"a time in ns, more than 0 and up to {_MOST_NS:g}")
        if self.kind == draws.BIMODAL:
            _check(what, "long_share", self.share, 0, 1, "a probability, from 0 to 1")
        if self.kind == draws.LOGNORMAL:
            _check(what, "sigma", self.second, 0, 10, "of the logarithm, from 0 to 10")
        if self.kind == draws.PARETO:
            _check(what, "alpha", self.share, 0.01, 100, "the exponent of the tail, from 0.01 to 100")
            if self.second <= self.mean:
                _refuse(what, "most_ns", self.second, "more than least_ns")

    def moments(self) -> tuple[float, float]:
        """First and second moment, in ns and ns^2."""
        if self.kind == draws.EXPONENTIAL:
            return self.mean, 2 * self.mean**2
        if self.kind == draws.LOGNORMAL:
            return self.mean, self.mean**2 * math.exp(self.second**2)
        if self.kind == draws.PARETO:
            return self._pareto_moment(1), self._pareto_moment(2)
        return sum(p * ns for ns, p in self._values()), sum(p * ns**2 for ns, p in self._values())

    def over(self, ns: float) -> float:
        """Probability that a time is longer than `ns` (more than 0)."""
        if self.kind == draws.EXPONENTIAL:
            return math.exp(-ns / self.mean)
        if self.kind == draws.LOGNORMAL and self.second:
            return math.erfc((math.log(ns / self.mean) / self.second + self.second / 2) / math.sqrt(2)) / 2
        if self.kind == draws.PARETO:
            least, most, alpha = self.mean, self.second, self.share
            beyond = math.pow(least / most, alpha)
            return (math.pow(least / min(max(ns, least), most), alpha) - beyond) / (1 - beyond)
        return sum(p for value, p in self._values() if value > ns)

    def _values(self) -> tuple[tuple[float, float], ...]:
        """All values and their probabilities, where these are few."""
        if self.kind == draws.BIMODAL:
            return (self.mean, 1 - self.share), (self.second, self.share)
        if self.kind == draws.TRIMODAL:
            return (self.mean, 1 / 3), (self.second, 1 / 3), (self.share, 1 / 3)
        return ((self.mean, 1.0),)

    def _pareto_moment(self, k: int) -> float:
        least, most, alpha = self.mean, self.second, self.share
        whole = math.log(most / least) if alpha == k else (most ** (k - alpha) - least ** (k - alpha)) / (k - alpha)
        return float(alpha * least**alpha / (1 - (least / most) ** alpha) * whole)


_NAMES = {
    draws.CONSTANT: "Constant",
    draws.EXPONENTIAL: "Exponential",
    draws.BIMODAL: "Bimodal",
    draws.TRIMODAL: "Trimodal",
    draws.LOGNORMAL: "LogNormal",
    draws.PARETO: "BoundedPareto",
}
_TIMES = {  # names of the numbers of a distribution that are times, where they are not one mean
    draws.BIMODAL: ("short_ns", "long_ns"),
    draws.TRIMODAL: ("short_ns", "middle_ns", "long_ns"),
    draws.PARETO: ("least_ns", "most_ns"),
}


def Constant(ns: float) -> Distribution:
    """Always the same."""
    return Distribution(draws.CONSTANT, ns)


def Exponential(mean_ns: float) -> Distribution:
    """Memoryless."""
    return Distribution(draws.EXPONENTIAL, mean_ns)


def Bimodal(short_ns: float, long_ns: float, long_share: float) -> Distribution:
    """Short, or with probability long_share long."""
    return Distribution(draws.BIMODAL, short_ns, long_ns, long_share)


def Trimodal(short_ns: float, middle_ns: float, long_ns: float) -> Distribution:
    """One of three, each as likely."""
    return Distribution(draws.TRIMODAL, short_ns, middle_ns, long_ns)


def LogNormal(mean_ns: float, sigma: float) -> Distribution:
    """Log-normal of that mean; sigma of the logarithm."""
    return Distribution(draws.LOGNORMAL, mean_ns, sigma)


def BoundedPareto(least_ns: float, most_ns: float, alpha: float) -> Distribution:
    """Pareto of exponent alpha, cut off at most_ns: P(longer than x) falls as x ** -alpha from least_ns on."""
    return Distribution(draws.PARETO, least_ns, most_ns, alpha)


@dataclass(frozen=True)
class App:
    """An application. maximum None: all cores. quantum_ns: a request that has run for so long goes behind others that
    wait in its core's queue, for the cost of a preemption; 0: requests run to completion. Raises CorelaneError for what
    no application can have.

    swing, phase_ns: the rate is rate_rps times 1 + swing and 1 - swing in turns, whose lengths are exponential of mean
    phase_ns. central: its cores share one first-in first-out queue, as the servers of M/G/n; a core that did not take
    from it last needs receive_ns; else each has its own. recorded: its requests, instead of a rate and a service.
    """

    name: str
    rate_rps: float = 0.0
    service: Distribution = field(default_factory=lambda: Exponential(1000.0))
    batch: bool = False
    guaranteed: int = 0
    maximum: int | None = None
    weight: int = 1
    deadline_ns: int = 0
    quantum_ns: int = 0
    constant_gaps: bool = False
    swing: float = 0.0
    phase_ns: int = 0
    central: bool = False
    recorded: Recorded | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        what = f"application {self.name!r}"
        if not isinstance(self.service, Distribution):
            _refuse(what, "service", self.service, "give Constant, Exponential or another one of this module")
        _check(what, "rate_rps", self.rate_rps, 0, 1e12, "requests a second, from 0 to 1e12")
        if self.batch and (self.rate_rps or self.recorded):
            _refuse(what, "rate_rps", self.rate_rps, "batch work has no requests: leave them out, or batch=True")
        if self.recorded and self.rate_rps:
            _refuse(what, "rate_rps", self.rate_rps, "its requests are recorded ones: leave out one of the two")
        for name, most in (("guaranteed", MOST_CORES), ("deadline_ns", _MOST_NS), ("quantum_ns", _MOST_NS)):
            _check(what, name, getattr(self, name), 0, most, f"a whole number from 0 to {most:g}", int)
        _check(what, "swing", self.swing, 0, 1, "a part of the rate, from 0 to 1")
        hint = "the mean length of a turn in ns where there is a swing, else 0"
        _check(what, "phase_ns", self.phase_ns, bool(self.swing), _MOST_NS if self.swing else 0, hint, int)
        if self.swing and self.constant_gaps:
            _refuse(what, "swing", self.swing, "evenly spaced arrivals have none: leave it out, or constant_gaps")
        _check(what, "weight", self.weight, 1, 1000, "a whole number from 1 to 1000", int)
        if self.maximum is not None:
            hint = "at least one core and what is guaranteed, or None: all of them"
            _check(what, "maximum", self.maximum, max(1, self.guaranteed), MOST_CORES, hint, int)


@dataclass(frozen=True)
class Costs:
    """What the mechanisms cost, ns.

    move_busy_ns, move_idle_ns: until a core that worked, that was idle, runs its new owner. seen_ns: of the first, for
    which batch work goes on. first_ns: on top of the first request on a core that another application had. wake_ns: to
    begin on an own core that was idle, where others want it. steal_ns: running a request that another core received;
    receive_ns: the same where an application has one queue, on a core that did not take from it last.
    preempt_ns: of a core, to put a request whose quantum is over behind one that waits and to begin that one.
    packet_ns: of an iokernel loop for a request and its reply. transit_ns: of the rest of their way, on no core.
    decide_ns: of the first loop for a decision, per application. actuate_ns: of the same for each core moved.
    notice_ns: until that loop sees that a core is idle or a request waits without one. sight_ns: until it sees that a
    new owner runs, which is in the time of a move that policies are told. longer_ns: by how much a move between batch
    work and others is longer on average, which is in what policies are told of these: rare long moves are in the mean,
    and not in a time that each move takes. pauses_ns, pauses_per_s: lengths, equally likely, of the time for which a
    core or the first loop stands still, and how often each does.
    """

    move_busy_ns: int = 0
    move_idle_ns: int = 0
    steal_ns: int = 0
    receive_ns: int = 0
    preempt_ns: int = 0
    packet_ns: int = 0
    decide_ns: int = 0
    actuate_ns: int = 0
    seen_ns: int = 0
    first_ns: int = 0
    wake_ns: int = 0
    transit_ns: int = 0
    notice_ns: int = 0
    sight_ns: int = 0
    longer_ns: int = 0
    pauses_ns: tuple[int, ...] = ()
    pauses_per_s: float = 0.0

    def __post_init__(self) -> None:
        for spec in fields(self):
            if spec.name.endswith("_ns"):
                value = getattr(self, spec.name)
                for one in value if spec.name == "pauses_ns" else (value,):
                    _check("costs", spec.name, one, 0, _MOST_NS, "whole ns, 0 or more", (int, np.integer))
        _check("costs", "pauses_per_s", self.pauses_per_s, 0, 1e9, "how often a core stands still, 0 or more")
        if bool(self.pauses_ns) != bool(self.pauses_per_s):
            _refuse("costs", "pauses_per_s", self.pauses_per_s, "pauses have lengths and a rate: give both, or neither")


@dataclass(frozen=True)
class Slow:
    """Requests slower than `slow_ns`, and the sums of what their time went into, ns.

    The way through the iokernel; waiting while a core was on its way, while one could have been given, while latency
    applications had all; the core.
    """

    n: int = 0
    in_iokernel: int = 0
    for_move: int = 0
    for_decision: int = 0
    for_cores: int = 0
    on_core: int = 0

    def __add__(self, other: Slow) -> Slow:
        return Slow(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Result:
    """What one application saw since the last reset. Latency is from arrival to completion.

    Cores, on average: those held are at work for requests, at what comes on top (`cores_extra`: stolen requests, first
    ones, wake-ups, preemptions), on their way, or idle. slowdowns: a histogram of latency over length, in 64ths; empty
    unless they were asked for (`Simulation`).
    """

    name: str
    seconds: float
    arrived: int
    done: int
    dropped: int
    mean_wait_ns: float
    mean_latency_ns: float
    cores_held: float
    cores_worked: float
    cores_extra: float
    cores_moving: float
    moves: int
    violations: int
    preemptions: int
    histogram: Any
    slowdowns: Any
    slow: Slow

    @property
    def cores_idle(self) -> float:
        """Held, and not at work."""
        return self.cores_held - self.cores_worked - self.cores_extra - self.cores_moving

    def percentile_us(self, p: float) -> float:
        """Latency in us at percentile p, the middle of its bucket (within 0.8 %); infinite where requests dropped."""
        return self._percentile(self.histogram, p) / 1e3

    def slowdown(self, p: float) -> float:
        """Latency over length at percentile p, as above."""
        return self._percentile(self.slowdowns, p) / e.ONE

    @property
    def mean_slowdown(self) -> float:
        """Of the requests that were done, nan of none."""
        buckets = np.flatnonzero(self.slowdowns)
        total = sum(bucket_middle_ns(int(at)) * int(self.slowdowns[at]) for at in buckets)
        return total / e.ONE / self.done if self.done else math.nan

    def _percentile(self, histogram: Any, p: float) -> float:
        """Middle of the bucket, in its unit."""
        total = int(histogram.sum()) + self.dropped
        if total == 0:
            return math.nan
        at = int(np.searchsorted(np.cumsum(histogram), math.ceil(total * p / 100)))
        return math.inf if at >= len(histogram) else bucket_middle_ns(at)


def bucket_middle_ns(bucket: int) -> float:
    """Middle of a histogram bucket of the engine."""
    sub = 1 << e.SUB_BITS
    if bucket < sub:
        return float(bucket)
    shift = (bucket >> e.SUB_BITS) - 1
    low = ((bucket & (sub - 1)) + sub) << shift
    return low + ((1 << shift) - 1) / 2


def _loaded(policy: str | Policy | Any, params: Mapping[str, float] | Sequence[int]) -> Policy:
    """What was given as a policy; a numba cfunc of two addresses is one too, and params then are words."""
    if isinstance(policy, str):
        return load(policy, params)
    if isinstance(policy, Policy):
        return policy
    words = tuple(int(word) for word in params)
    return Policy("cfunc", int(policy.address), words + (0,) * (8 - len(words)), {}, True, (policy,))


def _given(apps: Sequence[App], cores: int, pauses: Any) -> e.Given:
    """What is replayed."""
    loads = [app.recorded or Recorded((), ()) for app in apps]
    ends = np.cumsum([len(load) for load in loads])
    place = np.stack([np.concatenate([[0], ends[:-1]]), ends], axis=1).astype(np.int64)
    rows = np.array(pauses, np.int64).reshape(-1, 3)
    if len(rows) and (rows[:, 1].min() < 0 or rows[:, 1].max() > cores or (np.diff(rows[:, 0]) < 0).any()):
        raise CorelaneError("simulate", "pauses are not of its cores, or not in order of time", "sort them by time")
    log = np.zeros((int(ends[-1]), 3), np.int64)
    at, length = (np.concatenate([getattr(load, name) for load in loads]) for name in ("at_ns", "service_ns"))
    return e.Given(at, length, place, log, rows)


class Simulation:
    """A world of applications on `cores` cores. params: the policy's settings. Same arguments and seed: same run.

    urgent_ns: the policy is also called, so long after it was called last, when a request waits for an application
    without a core and when a core goes idle that another could use, as in an iokernel; 0: at intervals only. slow_ns:
    note what requests of a longer latency waited for; 0: do not. shortest_ns: note slowdowns, in which a request counts
    as at least so long (bounded slowdown); 0: do not. pauses: rows of [when, which core, for how long], ns, in order of
    time, at which a core stands still, the first loop if it is number `cores`; instead of those that `costs` draws.
    """

    QUEUE = 1 << 15  # requests an application can have waiting

    def __init__(
        self,
        apps: Sequence[App],
        cores: int,
        *,
        policy: str | Policy | Any = "static",
        interval_ns: int = 5000,
        params: Mapping[str, float] | Sequence[int] = (),
        costs: Costs | None = None,
        urgent_ns: int = 0,
        slow_ns: int = 0,
        shortest_ns: int = 0,
        loops: int = 1,
        seed: int = 1,
        pauses: Any = (),
    ) -> None:
        noted = {"slow_ns": slow_ns, "shortest_ns": shortest_ns}
        self._check_world(apps, cores, loops, {"interval_ns": interval_ns, "urgent_ns": urgent_ns, **noted})
        if urgent_ns and not interval_ns:
            raise CorelaneError("simulate", "an urgent decision comes between those of intervals", "give interval_ns")
        costs = costs or Costs()
        n = len(apps)
        self.apps = tuple(apps)
        self.cores = cores
        self._policy = _loaded(policy, params)  # kept alive, and its code with it
        for app in apps:
            if self._policy.spec == "static" and (app.rate_rps or app.recorded) and not app.guaranteed:
                why = f"static gives {app.name!r} no core ever, since none is guaranteed"
                raise CorelaneError("simulate", why, "guarantee it one, or choose another policy")
        self._view = np.zeros(1, layout.dtype(ffi, "struct cl_policy_view"))
        self._table = np.zeros(n, layout.dtype(ffi, "struct cl_policy_app"))
        self._view[0]["interval_ns"], self._view[0]["n_apps"], self._view[0]["n_cores"] = interval_ns, n, cores
        self._view[0]["params"][:], self._view[0]["move_ns"] = self._policy.params, costs.move_busy_ns + costs.sight_ns
        for row, app in zip(self._table, apps, strict=True):
            row["kind"] = app.batch
            row["guaranteed"], row["weight"], row["deadline_ns"] = app.guaranteed, app.weight, app.deadline_ns
            row["maximum"] = cores if app.maximum is None else app.maximum
        settle = int(ffi.cast("uintptr_t", ffi.addressof(lib, "cl_policy_settle")))
        addresses = [self._policy.address, settle, self._view.ctypes.data, self._table.ctypes.data]
        self._addresses = np.array(addresses, np.uint64)
        self._kinds = np.array([a.batch for a in apps], np.int64)
        self._gap = self._distributions(apps)
        services = [(a.service.kind, a.service.mean, a.service.second, a.service.share) for a in apps]
        self._service = np.array(services, np.float64)  # also where all are whole: the loop is compiled for one type
        self._queues = queues.empty(self.QUEUE, cores, [a.central for a in apps])
        self._counts = np.zeros((n, e.N_COUNTS), np.int64)
        self._hist = np.zeros((n, e.N_BUCKETS), np.int64)
        self._world = np.zeros(e.N_WORLD, np.int64)
        self._times = np.zeros((n, e.N_TIMES), np.int64)
        self._passing = np.zeros(
            (loops, self.QUEUE if costs.packet_ns or costs.pauses_ns or len(pauses) else 1, 4), np.int64
        )
        self._loops = np.zeros((loops, 4), np.int64)
        self._pauses = np.array(costs.pauses_ns, np.int64)
        self._given = _given(self.apps, cores, pauses)
        self._slow = np.zeros((n, e.SLOW_COLUMNS), np.int64)
        self._slowdowns = np.zeros((n, e.N_BUCKETS), np.int64)
        self._reset_at = 0
        self._state = self._cores_and_slots(n, (interval_ns, urgent_ns), (slow_ns, shortest_ns), costs, loops, seed)
        self._seed = seed

    @staticmethod
    def _check_world(apps: Sequence[App], cores: int, loops: int, times: Mapping[str, int]) -> None:
        if not apps:
            raise CorelaneError("simulate", "there is no application", "give an App")
        _check("a machine", "cores", cores, 1, MOST_CORES, f"a whole number from 1 to {MOST_CORES}", int)
        _check("a machine", "loops", loops, 1, MOST_CORES, "a whole number from 1 on", int)
        for name, value in times.items():
            _check("a machine", name, value, 0, _MOST_NS, "whole ns, 0 or more", int)
        for name in (app.name for i, app in enumerate(apps) if app.name in [other.name for other in apps[:i]]):
            raise CorelaneError("simulate", f"two applications have the name {name!r}", "results are found by name")
        guaranteed = sum(app.guaranteed for app in apps)
        if guaranteed > cores:
            raise CorelaneError(
                "simulate",
                f"{guaranteed} guaranteed cores are more than {cores}",
                "guarantee fewer, or give more cores",
            )

    @staticmethod
    def _distributions(apps: Sequence[App]) -> Any:
        """Gaps between arrivals; an application without a rate never has one."""
        rows = []
        for a in apps:
            kind = draws.SHIFTING if a.swing else draws.CONSTANT if a.constant_gaps else draws.EXPONENTIAL
            given = (draws.GIVEN if a.recorded else draws.NEVER, 0.0, 0.0, 0.0)
            gap = (kind, 1e9 / a.rate_rps, a.swing, float(a.phase_ns)) if a.rate_rps else given
            rows.append(gap)
        return np.array(rows)

    @staticmethod
    def _streams(n: int, seed: int) -> Any:
        return np.stack([np.random.SeedSequence([seed, a]).generate_state(4, np.uint64) for a in range(n)])

    def _cores_and_slots(
        self, n: int, given: tuple[int, int], noted: tuple[int, int], costs: Costs, loops: int, seed: int
    ) -> Any:
        slots = n + self.cores + 1 + loops + 1
        size = 1 << (slots - 1).bit_length()
        when = np.full(size, e.FAR, np.int64)
        tree = np.zeros(2 * size, np.int64)
        tree[size:] = np.arange(size)
        for node in range(size - 1, 0, -1):
            tree[node] = tree[2 * node]
        rng = self._streams(2 * n + 1, seed)
        core = np.full((self.cores, 9), -1, np.int64)
        core[:, [1, 2, 5, 6]] = 0
        job = np.zeros((self.cores, 4), np.int64)
        app_n = np.zeros((n, 11), np.int64)
        app_n[:, [3, 5, 10]] = -1
        job_waits, queue_waits = np.zeros((self.cores, 5), np.int64), np.zeros((n, self.QUEUE, 7), np.int64)
        waits = e.Waits(self._slow, self._slowdowns, job_waits, queue_waits)
        quantum = np.array([a.quantum_ns for a in self.apps], np.int64)
        settings = np.zeros(e.N_SETTINGS, np.int64)
        settings[[e.INTERVAL, e.URGENT]] = given
        settings[[e.SLOW, e.SHORTEST]] = noted[0] or e.FAR, max(noted[1], 1)
        settings[[e.MOVE_BUSY, e.MOVE_IDLE, e.SEEN]] = costs.move_busy_ns, costs.move_idle_ns, costs.seen_ns
        settings[[e.STEAL, e.FIRST, e.WAKE]] = costs.steal_ns, costs.first_ns, costs.wake_ns
        settings[[e.PREEMPT, e.SIGHT, e.RECEIVE]] = costs.preempt_ns, costs.sight_ns, costs.receive_ns
        settings[[e.PACKET, e.TRANSIT, e.NOTICE]] = costs.packet_ns, costs.transit_ns, costs.notice_ns
        settings[[e.LONGER, e.NOTES]] = costs.longer_ns, any(noted)
        if costs.pauses_ns:
            settings[e.PAUSE_GAP] = 1e9 / (costs.pauses_per_s * (self.cores + 1))
            engine.schedule(when, tree, slots - 1, int(settings[e.PAUSE_GAP]))
        if len(self._given.pauses):
            settings[e.PAUSE_GAP] = e.FAR
            engine.schedule(when, tree, slots - 1, int(self._given.pauses[0, 0]))
        settings[[e.DECIDE, e.ACTUATE]] = costs.decide_ns, costs.actuate_ns
        phase = np.zeros((n, 2))
        for a in range(n):
            if self._gap[a, 0] == draws.GIVEN and len(self.apps[a].recorded or ()):
                engine.schedule(when, tree, a, int(self._given.at[self._given.place[a, 0]]))
            elif self._gap[a, 0] not in (draws.NEVER, draws.GIVEN):
                engine.schedule(when, tree, a, 1 + draws.next_arrival(0, self._gap, phase, rng, a))
        engine.schedule(when, tree, n + self.cores, 0)
        return e.State(when, tree, rng, core, job, app_n, quantum, phase, settings, self._times, self._world, waits)

    def run(self, events: int = 1 << 60, until_ns: int = e.FAR - 1) -> None:
        """Go on for so many events, or until the clock stands at until_ns."""
        engine.run(
            events,
            until_ns,
            self._world,
            self._view,
            self._table,
            self._addresses,
            self._kinds,
            self._gap,
            self._service,
            self._queues,
            self._counts,
            self._hist,
            self._passing,
            self._loops,
            self._pauses,
            self._given,
            self._state,
        )

    def reset(self) -> None:
        """Forget what was counted, for the end of a warm-up; the state of the world stays."""
        self._counts[:] = 0
        self._hist[:] = 0
        self._times[:] = 0
        self._slow[:] = 0
        self._slowdowns[:] = 0
        self._loops[:, 3] = 0
        self._world[e.DECIDED_NS] = 0
        self._reset_at = self.now_ns

    def progress(self, name: str) -> tuple[int, int]:
        """Of application `name`: requests begun, less those that waited at the reset; waits summed since it, ns."""
        a = next(i for i, app in enumerate(self.apps) if app.name == name)
        waiting = int(self._queues.ends[a, queues.WAITING])
        return int(self._counts[a, e.ARRIVED]) - waiting, int(self._times[a, e.WAIT])

    def latencies_ns(self, name: str) -> Any:
        """Of application `name`'s recorded requests that are done, in the order of their arrival: when each came, and
        its latency; two arrays, ns."""
        a = next(i for i, app in enumerate(self.apps) if app.name == name)
        log = self._given.log[: int(self._world[e.LOGGED])]
        mine = log[log[:, 0] == a]
        mine = mine[np.argsort(mine[:, 1], kind="stable")]
        return mine[:, 1].copy(), mine[:, 2].copy()

    def draws(self, name: str) -> tuple[Any, Any, Any]:
        """Application `name`'s gaps and service as tables of one row, and its stream of randomness at the start."""
        a = next(i for i, app in enumerate(self.apps) if app.name == name)
        return self._gap[a : a + 1], self._service[a : a + 1], self._streams(len(self.apps), self._seed)[a : a + 1]

    def loops_busy(self) -> tuple[float, float]:
        """Since the last reset: part of its time that the busiest loop of the iokernel works; of the first, decides."""
        span = max(self.now_ns - self._reset_at, 1)
        return float(np.max(self._loops[:, 3]) / span), float(self._world[e.DECIDED_NS] / span)

    @property
    def now_ns(self) -> int:
        """The simulated clock."""
        return int(self._world[e.NOW])

    @property
    def events(self) -> int:
        """Events so far: arrivals, what cores did, calls of the policy."""
        return int(self._world[e.EVENTS])

    def result(self, name: str) -> Result:
        """What application `name` saw since the last reset."""
        a = next(i for i, app in enumerate(self.apps) if app.name == name)
        counts, times = self._counts[a], self._times[a]
        done, span = max(int(counts[e.DONE]), 1), max(self.now_ns - self._reset_at, 1)
        return Result(
            name=name,
            seconds=span / 1e9,
            arrived=int(counts[e.ARRIVED]),
            done=int(counts[e.DONE]),
            dropped=int(counts[e.DROPPED]),
            mean_wait_ns=float(times[e.WAIT] / done),
            mean_latency_ns=float(times[e.SOJOURN] / done),
            cores_held=float(times[e.HELD] / span),
            cores_worked=float(times[e.WORK] / span),
            cores_extra=float(times[e.EXTRA] / span),
            cores_moving=float(times[e.MOVED] / span),
            moves=int(counts[e.GAINED]),
            violations=int(counts[e.VIOLATIONS]),
            preemptions=int(counts[e.PREEMPTED]),
            histogram=self._hist[a].copy(),
            slowdowns=self._slowdowns[a].copy(),
            slow=Slow(*map(int, self._slow[a])),
        )
