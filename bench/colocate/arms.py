"""What `corelane bench colocate` compares: kv and a batch job behind an iokernel, and a server and the job on Linux."""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from ...apps.kv import Store
from ...drivers.nic.loadgen.loadgen import Memcached as Traffic
from ..baseline import memcached
from ..baseline.sockets import LinuxUdp
from ..harness import rest, rig
from ..harness.numbers import plain
from ..harness.openloop import Measure, Point, guess_peak, search_peak
from ..harness.session import Session
from ..harness.stops import Counts, Watch
from ..tenant import shared
from ..tenant.tenant import Tenant
from .stalls import Seen, Stalls

LOW_RPS = 50_000.0
NO_BOUND = 100  # per cent that moves may take of batch work
LOW_TARGET_US, HALF_TARGET_US = 0.01, 50.0  # the lowest: at once
PORT, KEYS, MEMORY_BYTES = 11211, 10_000, 64 << 20
WINDOW_S = 0.01
KV_SPIN_US = 1000  # far longer than what lies between two requests, far shorter than the pauses between arms
CHOICE_TURNS = 3  # of each server on Linux, to choose the stronger
COMPARED = "Linux, batch under SCHED_IDLE"
FIFO_PRIORITY = 1
LINUX = {  # the job's policy, and whether the server is under SCHED_FIFO
    "Linux, batch at nice 19": ("nice 19", False),
    COMPARED: ("idle", False),
    "Linux, batch under SCHED_IDLE, server under SCHED_FIFO": ("idle", True),
}


def _schedule(tid: int, fifo: bool) -> None:
    os.sched_setscheduler(tid, os.SCHED_FIFO if fifo else os.SCHED_OTHER, os.sched_param(FIFO_PRIORITY if fifo else 0))


def no_fifo() -> str:
    """Why the arms under SCHED_FIFO cannot be measured here; "": they can. Asked for by a thread that then ends."""
    said: list[str] = []

    def ask() -> None:
        try:
            _schedule(0, True)
        except PermissionError:
            said.append(
                "the kernel refuses SCHED_FIFO (it wants CAP_SYS_NICE; as root: the control group has no real-time "
                "share, cpu.rt_runtime_us)"
            )

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return "".join(said)


@dataclass
class Beside:
    """One slot of an arm. work: the job's units a second."""

    point: Point
    work: float
    stalls: Stalls | None = None  # what the iokernel saw; None: the arm has none, or there was no load
    pieces: Mapping[str, Sequence[float]] = field(default_factory=dict)  # us of each piece of a request's way, each

    @property
    def p99_us(self) -> float:
        """The median of its windows'; inf if nothing was answered in any."""
        return statistics.median(self.point.window_p99_us) if self.point.window_p99_us else math.inf


Arm = Callable[[float, float], Beside]  # (offered requests a second, 0: none; seconds)


class SweptArm(Protocol):
    """An arm of the sweep over loads. counted: its point has what counters gained as evidence (harness/stops.py);
    reading them disturbs it."""

    def __call__(self, rate: float, seconds: float, /, *, counted: bool = False) -> Beside: ...


def peak_of(measure: Measure, seconds: float) -> float:
    """The highest load that is carried, requests a second; found in so many seconds."""
    guess = guess_peak(measure, seconds=0.4 * seconds, start_rps=200_000)
    return search_peak(measure, start_rps=0.8 * guess, step=1.25, seconds=0.6 * seconds).peak_rps


class Ours:
    """The iokernel with kv and the job. trace: of kv, if not the usual one."""

    def __init__(
        self, stack: contextlib.ExitStack, cores: tuple[int, int], traffic: Traffic, *, trace: str = ""
    ) -> None:
        apps = {"kv": shared.latency(), "batch": shared.batch()}
        self.made = stack.enter_context(shared.shared(cores, apps=apps, traffic=traffic, port=PORT))
        # Alone it must not sleep between requests, or what is added beside the job is less than it is. Where the job
        # wants the core it cedes it at once in any case.
        words = ["kv", "--option", f"memory_bytes={MEMORY_BYTES}", "--spin-us", str(KV_SPIN_US)]
        words += ["--trace", trace] if trace else []
        self.kv = self.made.run(words, "kv")
        self.job = self.made.tenant("batch", "batch", code="numba", paused=True)

    def alone(self, rate: float, seconds: float, *, counted: bool = False) -> Beside:
        """kv without the job, deciding as for the lowest target. counted: read counters meanwhile, see wall.py."""
        self.made.set_policy("delay", f"target_us={LOW_TARGET_US:g}")
        return self._slot(None, rate, seconds, counted)

    def beside(
        self, target_us: float, rate: float, seconds: float, *, moves_percent: int = NO_BOUND, counted: bool = False
    ) -> Beside:
        """Both, with this target, and what moves may cost. rate 0: the job alone. counted: as for `alone`."""
        self.made.set_policy("delay", f"target_us={target_us:g} moves_percent={moves_percent}")
        return self._slot(self.job, rate, seconds, counted)

    def _slot(self, job: Tenant | None, rate: float, seconds: float, counted: bool) -> Beside:
        if counted:
            return self._counted(job, rate, seconds)
        watch = Seen(self.made, self.kv)
        with job.working() if job else contextlib.nullcontext():
            dropped = self.made.drops()
            point, gained = self.made.beside("kv", job, rate, seconds, window_s=WINDOW_S, around=watch)
        point.extra |= {"work_per_s": plain(gained["work"]), "kv_core_share": gained["core_s"]}
        crossed = gained["crossings"]
        point.extra |= {"move_ns": plain(gained["crossing_ns"] / crossed)} if crossed else {}
        point.extra |= {"moves_per_s": gained["moves"], "drops": self.made.drops() - dropped}
        return Beside(point, gained["work"], watch.seen if rate else None)

    def _counted(self, job: Tenant | None, rate: float, seconds: float) -> Beside:
        watch = Watch(partial(self.made.counts_of, "kv"), seconds)
        with job.working() if job else contextlib.nullcontext():
            point, gained = self.made.beside("kv", job, rate, seconds, window_s=WINDOW_S, around=watch)
        point.evidence = watch.evidence
        return Beside(point, gained["work"])


# Linux.


class Servers:
    """The kernel's UDP servers: memcached and our command layer on a socket, of which the stronger is compared with."""

    def __init__(self, session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], traffic: Traffic) -> None:
        self.links: dict[str, rig.LinuxLink] = {}
        self.threads: dict[str, int] = {}
        link = rig.LinuxLink(stack, cores, traffic=traffic, port=PORT)
        before = os.listdir("/proc/self/task")
        store = stack.enter_context(Store(MEMORY_BYTES))
        where = {"address": link.far.address, "port": PORT, "netns": link.far.namespace.name}
        self.on_socket = LinuxUdp(poll="block", batch=32, cpu=cores[1], store=store, **where)  # type: ignore[arg-type]
        stack.enter_context(self.on_socket)
        (self.threads["our store on a socket"],) = (int(t) for t in set(os.listdir("/proc/self/task")) - set(before))
        self.links["our store on a socket"] = link
        if memcached.missing():
            session.note(f"stock memcached was not compared with: {memcached.missing()}")
        else:
            link = rig.LinuxLink(stack, cores, traffic=traffic, port=PORT)
            server = memcached.Memcached(
                memory_mib=256, address=link.far.address, netns=link.far.namespace.name, port=PORT, cpu=cores[1]
            )
            self.stock = stack.enter_context(server)
            self.links["memcached -t 1"] = link
            self.threads["memcached -t 1"] = server.pid
        self.jobs = {
            policy: stack.enter_context(Tenant("batch", cpu=cores[1], code="numba", policy=policy, paused=True))
            for policy in dict(LINUX.values())
        }
        self.name = self._stronger(session)
        session.say(f"the peak of {self.name} on Linux")
        self.peak_rps = peak_of(lambda rate, s: self.alone(rate, s).point, 0.1 * session.seconds)

    def _stronger(self, session: Session) -> str:
        """The server with the lower p99 beside the job under SCHED_IDLE, which is what the figures compare with: the
        middle one of turns, since a single slot may have one of the machine's pauses in it."""
        slots: dict[str, list[float]] = {name: [] for name in self.links}
        for turn in range(CHOICE_TURNS):
            for self.name, got in slots.items():
                session.say(f"which server on Linux is the stronger, turn {turn + 1} of {CHOICE_TURNS}: {self.name}")
                if not turn:
                    self.beside("idle", False, 1000.0, 0.05)  # stores the keys
                slot = self.beside("idle", False, LOW_RPS, 0.04 * session.seconds / CHOICE_TURNS)
                got.append(slot.p99_us)
        p99 = {name: statistics.median(got) for name, got in slots.items()}
        best = min(p99, key=lambda name: p99[name])
        session.settings["linux_server"] = {"chosen": best, "p99_us": {n: plain(v) for n, v in p99.items()}}
        return best

    def alone(self, rate: float, seconds: float) -> Beside:
        """The server without the job."""
        rest.demand(f"{self.name} on Linux")
        for tid in self._tids():
            _schedule(tid, False)
        return Beside(self.links[self.name].load.measure(rate, seconds, WINDOW_S), math.nan)

    def beside(self, policy: str, fifo: bool, rate: float, seconds: float, *, counted: bool = False) -> Beside:
        """The server and the job. rate 0: the job alone. counted: read counters meanwhile, see wall.py."""
        rest.demand(f"{self.name} on Linux")
        load = self.links[self.name].load
        for tid in self._tids():
            _schedule(tid, fifo)
        job, watch = self.jobs[policy], Watch(self._counts, seconds) if counted else None
        with job.working():
            point, gained = shared.measure_beside(load, partial(shared.work_of, job), rate, seconds, WINDOW_S, watch)
        point.extra["work_per_s"] = plain(gained["work"])
        point.evidence = watch.evidence if watch else None
        return Beside(point, gained["work"])

    def _counts(self) -> Counts:
        server = self.stock if self.name == "memcached -t 1" else self.on_socket
        return rig.counts_of_linux(server, self._tids())

    def _tids(self) -> list[int]:
        first = self.threads[self.name]
        return [first] if self.name != "memcached -t 1" else [int(t) for t in os.listdir(f"/proc/{first}/task")]
