"""An iokernel that manages one worker core, and applications in processes of their own that fight for it.

    with shared(cores, apps={"kv": latency(), "batch": batch()}, policy="delay", params="target_us=10") as made:
        kv = made.run(["kv"], "kv")
        job = made.tenant("batch", "batch")
        point, work_per_s = made.beside(job, 50_000, 1.0)

The uplink is the load generator. What a run of the iokernel counted (moves by step, times of decisions) is read from it
directly: it lives in this process.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...drivers.loadgen import Echo, Loadgen, Memcached
from ...iokernel import AppSettings, Iokernel
from ...runtime.clock import default_clock
from ...runtime.hist import Hist
from .._native import ffi, lib
from ..tenant import Tenant
from . import rig
from .load import Load
from .openloop import Point

STEPS = {
    "idle": lib.CL_IO_STEP_IDLE,
    "wake": lib.CL_IO_STEP_WAKE,
    "parked": lib.CL_IO_STEP_PARKED,
    "ask": lib.CL_IO_STEP_ASK,
    "interrupt": lib.CL_IO_STEP_INTERRUPT,
    "evict": lib.CL_IO_STEP_EVICT,
}
LOG_BATCH = 4096


def latency(**settings: Any) -> AppSettings:
    """Of the application that the load goes to."""
    return AppSettings(ipv4=rig.SERVER_IP, kind="latency", **settings)


def batch(**settings: Any) -> AppSettings:
    """Of a job that gets what others leave."""
    return AppSettings(kind="batch", **settings)


@dataclass(frozen=True)
class Move:
    """An entry of the log of moves. from_slot, to_slot: slot + 1 of a kthread, 0: nobody. The last five: low words of
    cl_tsc() at the steps of the hand-over, 0: unknown (struct cl_io_move)."""

    tsc: int
    from_slot: int
    to_slot: int
    what: int
    step: int
    decided: int = 0
    stored: int = 0
    lost: int = 0
    left: int = 0
    back: int = 0


class Shared:
    """The iokernel, its load and its applications. Made by `shared`, which ends them."""

    def __init__(self, kernel: Iokernel, generator: Loadgen, path: str, stack: contextlib.ExitStack) -> None:
        self.kernel = kernel
        self.generator = generator
        self.load = Load(generator)
        self._path = path
        self._stack = stack
        self._logged = ffi.new("uint64_t *")
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

    def beside(
        self, job: Tenant | None, rate: float, seconds: float, measure: Callable[[float, float], Point] | None = None
    ) -> tuple[Point, float]:
        """A point, and the job's units a second meanwhile. rate 0: no load, only the job; the point is then empty."""
        return measure_beside(measure or self.load.measure, job, rate, seconds)

    def actuation(self, step: str) -> Hist:
        """From decision to the moment that the loop saw the new owner run, ns, of all moves so far by that step."""
        return Hist.view(lib.cl_io_actuation(self.kernel.ptr, 0, STEPS[step])).snapshot()

    def decision_time(self) -> Hist:
        """Time of a decision, ns, of those that were timed so far."""
        return Hist.view(lib.cl_io_decision_time(self.kernel.ptr, 0)).snapshot()

    def late_looks(self) -> Hist:
        """Time between two decisions, ns, of those so far that came late: gaps of the loop."""
        return Hist.view(lib.cl_io_late_look(self.kernel.ptr, 0)).snapshot()

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

    def core_share(self, name: str, since: Mapping[str, float] | None = None) -> dict[str, float]:
        """{"core_s", "at_s"} of an application by now, and its "share" of the core since such an answer."""
        cores = next(app["cores"] for app in self.kernel.stats()["apps"] if app["name"] == name)
        now = {"core_s": float(cores["core_s"]), "at_s": time.monotonic()}
        if since is not None:
            now["share"] = (now["core_s"] - since["core_s"]) / max(now["at_s"] - since["at_s"], 1e-9)
        return now

    def moves(self) -> list[Move]:
        """What was logged since the last call."""
        out, lost, found = ffi.new("struct cl_io_move[]", LOG_BATCH), ffi.new("uint64_t *"), []
        while n := int(lib.cl_io_moves(self.kernel.ptr, 0, self._logged, out, LOG_BATCH, lost)):
            # `from` is a word of Python's.
            found += [
                Move(m.tsc, getattr(m, "from"), m.to, m.what, m.step, m.decided, m.stored, m.lost, m.left, m.back)
                for m in out[0:n]
            ]
        self.log_lost += int(lost[0])
        return found


def measure_beside(
    measure: Callable[[float, float], Point], job: Tenant | None, rate: float, seconds: float
) -> tuple[Point, float]:
    """A point, and the units a second that a job did meanwhile (nan: no job). rate 0: only the job; an empty point."""
    before, start = job.work if job else 0, time.monotonic()
    if rate > 0:
        point = measure(rate, seconds)
    else:
        time.sleep(seconds)
        point = Point(0.0, 0.0, 0, 0, seconds=seconds)
    took = time.monotonic() - start
    return point, (job.work - before) / took if job else float("nan")


def tsc_ns(ticks: int) -> float:
    """A span of the time-stamp counter in ns."""
    return ticks * 1e9 / default_clock().hz


@contextlib.contextmanager
def shared(
    cores: tuple[int, ...],
    *,
    apps: Mapping[str, AppSettings],
    policy: str = "delay",
    params: Mapping[str, int | float] | None = None,
    traffic: Echo | Memcached | None = None,
    port: int = 9000,
    flows: int = 64,
    seed: int = 1,
) -> Iterator[Shared]:
    """An iokernel whose loop runs on cores[0] and manages the others."""
    with contextlib.ExitStack() as stack:
        kernel, generator = rig.loaded_iokernel(
            stack,
            cores,
            traffic=traffic,
            port=port,
            flows=flows,
            seed=seed,
            policy=policy,
            policy_params=params,
            mode="adaptive",
            spin_us=rig.SPIN_US,
            apps=apps,
        )
        apps_stack = stack.enter_context(contextlib.ExitStack())
        yield Shared(kernel, generator, kernel.socket_path, apps_stack)
