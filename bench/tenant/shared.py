"""An iokernel that manages one worker core, and applications in processes of their own that fight for it.

    with shared(cores, apps={"kv": latency(), "batch": batch()}, policy="delay") as made:
        kv = made.run(["kv"], "kv")
        job = made.tenant("batch", "batch")
        point, gained = made.beside("kv", job, 50_000, 1.0)  # gained["work"]: units a second

The uplink is the load generator. What a run of the iokernel counted (moves by step, times of decisions) is read from it
directly: it lives in this process.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

from ...drivers._native import lib as drivers
from ...drivers.nic.loadgen.loadgen import Echo, Loadgen, Memcached
from ...iokernel import Allowance, AppConfig, Idle, Iokernel, UserConfig
from ...iokernel.control.moves import STEP_NAMES, Move, entries
from ...runtime.clock import default_clock
from ...runtime.hist import Hist
from .._native import ffi, lib
from ..harness import rig
from ..harness.load import Load
from ..harness.openloop import Point
from ..harness.stops import Counts
from .tenant import Tenant

STEPS = {name: step for step, name in STEP_NAMES.items()}
LOG_BATCH = 4096
BEGUN = (drivers.CL_LOAD_RUNNING, drivers.CL_LOAD_IDLE, drivers.CL_LOAD_FAILED)
BETWEEN = "shenango"  # decides while nothing is measured: see Shared.working
SETTLE_S = 0.003  # moves under way end
EARLY_S = 5e-4  # before the end of a load its counters are read: who sleeps wakes some 0.1 ms late


def latency(**settings: Any) -> AppConfig:
    """Of the application that the load goes to."""
    return AppConfig(ip=rig.SERVER_IP, class_="latency", **settings)


def batch(**settings: Any) -> AppConfig:
    """Of a job that gets what others leave."""
    return AppConfig(class_="batch", **settings)


class Shared:
    """The iokernel, its load and its applications. Made by `shared`, which ends them."""

    def __init__(self, kernel: Iokernel, generator: Loadgen, path: str, stack: contextlib.ExitStack) -> None:
        self.kernel = kernel
        self.generator = generator
        self.load = Load(generator)
        self._path = path
        self._stack = stack
        self._logged = ffi.new("uint64_t *")
        self._ids: dict[str, int] = {}  # of applications, by name
        self.log_lost = 0

    def run(self, arguments: list[str], name: str) -> rig.App:
        """`corelane run` of an application."""
        words = [*arguments, "--socket", self._path, "--name", name, "--poll", "adaptive"]
        app = rig.App(words)
        self._stack.callback(app.close)
        return app

    def tenant(self, role: str, name: str, **options: Any) -> Tenant:
        """An application of tenant.py."""
        made = Tenant(role, socket=self._path, name=name, **options)
        self._stack.callback(made.close)
        return made

    def set_policy(self, name: str, params: str = "") -> None:
        """Have another policy decide from now on."""
        self.kernel.set_policy(name, params)

    @contextlib.contextmanager
    def working(self, jobs: Sequence[Tenant], policy: str) -> Iterator[None]:
        """The jobs' turn under a policy.

        Before and after, BETWEEN decides: under it each job gets a core for as long as it takes to begin, and to see
        that its turn is over. Under `static`, where another one has the core for good, none would, and the loop would
        poll beside whoever is measured next."""
        with contextlib.ExitStack() as stack:
            self.set_policy(BETWEEN)
            for job in jobs:
                stack.enter_context(job.working())
            self.set_policy(policy)
            try:
                yield
            finally:
                self.set_policy(BETWEEN)
        time.sleep(SETTLE_S)

    def beside(
        self,
        name: str,
        job: Tenant | None,
        rate: float,
        seconds: float,
        *,
        window_s: float | None = None,
        around: AbstractContextManager[object] | None = None,
    ) -> tuple[Point, dict[str, float]]:
        """A point, and what was gained a second under that load: the job's units (`work`), core time of the application
        `name` in s (`core_s`), and what was counted of moves. rate 0: no load, only the job; the point is then empty.
        window_s: see Load.measure; around: a context for the time in which requests are under way."""

        def read() -> dict[str, float]:
            counts = self.counts()
            moved = {key: float(counts[key]) for key in ("moves", "crossings", "crossing_ns")}
            return work_of(job) | {"core_s": self.core_s(name)} | moved

        return measure_beside(self.load, read, rate, seconds, window_s, around)

    def actuation(self, step: str) -> Hist:
        """From decision to the moment that the loop saw the new owner run, ns, of all moves so far by that step."""
        return Hist.view(lib.cl_io_actuation(self.kernel.ptr, 0, STEPS[step])).snapshot()

    def decision_time(self) -> Hist:
        """Time of a decision, ns, of those that were timed so far."""
        return Hist.view(lib.cl_io_decision_time(self.kernel.ptr, 0)).snapshot()

    def reading_time(self) -> Hist:
        """Time of reading the lines that a decision reads, ns, before others of those decisions."""
        return Hist.view(lib.cl_io_reading_time(self.kernel.ptr, 0)).snapshot()

    def late_decisions(self) -> Hist:
        """Time between two decisions, ns, of those so far that came late: gaps of the loop."""
        return Hist.view(lib.cl_io_late_decision(self.kernel.ptr, 0)).snapshot()

    def counts(self) -> dict[str, int]:
        """struct cl_io_cores_stats of the loop."""
        out = ffi.new("struct cl_io_cores_stats *")
        lib.cl_io_cores_stats(self.kernel.ptr, 0, out)
        return {name: int(getattr(out, name)) for name, _ in ffi.typeof("struct cl_io_cores_stats").fields}

    def drops(self) -> Counter[str]:
        """Packets that the iokernel dropped so far, by reason; those of all loops, ports and uplinks together."""
        found: Counter[str] = Counter()
        stats = self.kernel.stats()
        for port in (*stats["loops"], *stats["apps"], *stats["uplinks"]):
            found.update({key: n for key, n in port.items() if "_dropped_" in key and n})
        return found

    def core_s(self, name: str) -> float:
        """Core time of an application so far, as the iokernel accounts for it."""
        return float(self._cores_of(name).core_ns) / 1e9

    def _cores_of(self, name: str) -> Any:
        """struct cl_io_app_cores of an application."""
        if name not in self._ids:
            self._ids |= {app["name"]: app["id"] for app in self.kernel.stats()["apps"]}
        return rig.cores_of(self.kernel, self._ids[name])

    def counts_of(self, name: str) -> Counts:
        """What stops.py asks, of an application whose core time the iokernel accounts for: that is time with work, and
        what waited in it at decisions while another had the core is in `waiting`."""
        found, cores = rig.counts_of_iokernel(self.kernel), self._cores_of(name)
        return replace(
            found,
            looks=0,
            found=0,
            published_s=None,
            worker_s=float(cores.core_ns) / 1e9,
            decisions=int(cores.checks),
            waiting=int(cores.congested),
        )

    def moves(self) -> list[Move]:
        """What was logged since the last call."""
        out, lost, found = ffi.new("struct cl_io_move[]", LOG_BATCH), ffi.new("uint64_t *"), []
        while n := int(lib.cl_io_moves(self.kernel.ptr, 0, self._logged, out, LOG_BATCH, lost)):
            found += entries(ffi.buffer(out), n)
        self.log_lost += int(lost[0])
        return found


def await_begin(generator: Loadgen) -> None:
    """Until the load that was started is under way, or over."""
    deadline = time.monotonic() + 10
    while drivers.cl_loadgen_state(generator.ptr) not in BEGUN and time.monotonic() < deadline:
        time.sleep(0.001)


class Gained:
    """What counters gain a second while a load lasts: read when it was asked for, and again just before it ends, since
    what comes then (the last answers, reading the results) is no load, and the job has the core to itself.

    A context around the load; entering lasts for nearly its length. around: another one, for all of its time.
    """

    def __init__(
        self, read: Callable[[], Mapping[str, float]], seconds: float, around: AbstractContextManager[object] | None
    ) -> None:
        self._read = read
        self._seconds = seconds
        self._around = around or contextlib.nullcontext()
        self._entered = contextlib.ExitStack()
        self.per_s: dict[str, float] = {}

    def __enter__(self) -> Self:
        end = time.monotonic() + max(self._seconds - EARLY_S, self._seconds / 2)
        with contextlib.ExitStack() as entered:
            entered.enter_context(self._around)
            before, start = self._read(), time.monotonic()
            time.sleep(max(end - start, 0))
            after, took = self._read(), time.monotonic() - start
            self.per_s = {name: (value - before[name]) / took for name, value in after.items()}
            self._entered = entered.pop_all()
        return self

    def __exit__(self, *why: Any) -> None:
        self._entered.__exit__(*why)


def work_of(job: Tenant | None) -> dict[str, float]:
    """The job's counter, to be read by Gained; nan: no job."""
    return {"work": job.work if job else math.nan}


def measure_beside(
    load: Load,
    read: Callable[[], Mapping[str, float]],
    rate: float,
    seconds: float,
    window_s: float | None,
    around: AbstractContextManager[object] | None = None,
) -> tuple[Point, dict[str, float]]:
    """A point, and what the counters gained a second under its load. rate 0: no load; an empty point."""
    gained = Gained(read, seconds, around if rate > 0 else None)
    if rate > 0:
        return load.measure(rate, seconds, window_s, gained), gained.per_s
    with gained:
        return Point(0.0, 0.0, 0, 0, seconds=seconds), gained.per_s


def tsc_ns(ticks: int) -> float:
    """A span of the time-stamp counter in ns."""
    return ticks * 1e9 / default_clock().hz


@contextlib.contextmanager
def shared(
    cores: tuple[int, ...],
    *,
    apps: Mapping[str, AppConfig],
    user_defaults: UserConfig | None = None,
    policy: str = "delay",
    traffic: Echo | Memcached | None = None,
    port: int = 9000,
) -> Iterator[Shared]:
    """An iokernel whose loop runs on cores[0] and manages the others. user_defaults: what wishes may come to."""
    with contextlib.ExitStack() as stack:
        kernel, generator = rig.loaded_iokernel(
            stack,
            cores,
            traffic=traffic,
            port=port,
            policy=policy,
            poll="adaptive",
            idle=Idle(spin_us=rig.SPIN_US),
            apps=apps,
            allowance=Allowance(user_defaults=user_defaults or UserConfig()),
        )
        apps_stack = stack.enter_context(contextlib.ExitStack())
        yield Shared(kernel, generator, kernel.socket_path, apps_stack)
