"""Co-location: the key-value store and a batch job fight for one worker core.

What is compared: kv's latency beside the job with kv's alone, and the work that the job gets done beside kv with what
it does alone on the core, in units of its own. Arms: corelane with the policy `delay`, its target swept, so that one
curve shows what a target buys and costs (each move costs both sides); and Linux: the stronger of stock memcached on one
thread and our own command layer behind a kernel socket, over AF_XDP and a veth pair, with the same job on the same core
at nice 19, at SCHED_IDLE, and at SCHED_IDLE with the server under SCHED_FIFO. The job is a numba function; beside our
kv it was made by `@libos.batch`, which adds probes, and on Linux by numba alone.

Two loads: 50 000 requests a second, and half of what kv carries alone on the core. Every arm is alive throughout; a job
whose turn it is not sleeps, and so do servers that are not asked.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..apps.kv import Store
from ..drivers import netns
from ..drivers.loadgen import Memcached as Traffic
from .baseline import memcached
from .baseline.sockets import LinuxUdp
from .harness import rig, shared
from .harness.numbers import pairwise, plain
from .harness.openloop import Point, guess_peak, middle, search_peak
from .harness.plot import Canvas
from .harness.session import Session
from .tenant import Tenant

SUMMARY = "kv beside a batch job on one core: latency against batch work, and Linux beside it"
FIGURES = (
    "colocate.low_p99_added_us",
    "colocate.low_batch_share",
    "colocate.linux_p99_over_ours",
    "colocate.batch_over_linux",
    "colocate.half_batch_share",
)

LOW_RPS = 50_000.0
TARGETS_US = (0.01, 5.0, 10.0, 20.0, 50.0, 100.0)
LOW_TARGET_US, HALF_TARGET_US = 0.01, 50.0  # the lowest: at once
HALF_P99_US = 75.0
PORT, KEYS, MEMORY_BYTES = 11211, 10_000, 64 << 20
ROUNDS = 3
HALF_ROUNDS = 7  # more and shorter: the host takes a core for milliseconds now and then, which is a p99 of its slot
POLICIES = {"nice 19": ("nice 19", False), "SCHED_IDLE": ("idle", False), "SCHED_FIFO": ("idle", True)}
LINUX = "Linux, batch under {}"
COMPARED = LINUX.format("SCHED_IDLE")


@dataclass
class Beside:
    """One slot of an arm. work: the job's units a second."""

    point: Point
    work: float


Arm = Callable[[float, float], Beside]  # (offered requests a second, 0: none; seconds)


def run(session: Session) -> None:
    """Measure both loads, all arms in turns."""
    cores = session.two_cores
    traffic = Traffic(keys=KEYS)
    session.settings |= {
        "message": f"one GET of a {traffic.key_bytes}-byte key and its {traffic.value_bytes}-byte value",
        "keys": KEYS,
        "low_rps": LOW_RPS,
        "targets_us": TARGETS_US,
        "low_target_us": LOW_TARGET_US,
        "half_target_us": HALF_TARGET_US,
        "job": "products of two 32 by 32 matrices of doubles, a numba function",
        "checksums": rig.CHECKSUMS,
        "links": "corelane: the generator is the iokernel's uplink; Linux: AF_XDP on a veth pair",
    }
    with contextlib.ExitStack() as stack:
        ours = Ours(stack, cores, traffic)
        linux = add_linux(session, stack, cores, traffic)
        session.say("storing the keys")
        for arm in (ours.alone, *linux.values()):
            arm(1000.0, 0.05)
        half = find_half(session, ours)
        low = measure_low(session, ours, linux)
        at_half = measure_half(session, ours, half) if half else {}
    judge_low(session, low, bool(linux))
    judge_half(session, at_half, half)


class Ours:
    """The iokernel with kv and the job."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int], traffic: Traffic) -> None:
        apps = {"kv": shared.latency(), "batch": shared.batch()}
        self.made = stack.enter_context(shared.shared(cores, apps=apps, traffic=traffic, port=PORT))
        self.made.run(["kv", "--option", f"memory_bytes={MEMORY_BYTES}"], "kv")
        self.job = self.made.tenant("batch", "batch", code="numba", paused=True)

    def alone(self, rate: float, seconds: float) -> Beside:
        """kv without the job, deciding as for the lowest target."""
        self.made.set_policy("delay", f"target_us={LOW_TARGET_US:g}")
        return self._slot(None, rate, seconds)

    def beside(self, target_us: float, rate: float, seconds: float) -> Beside:
        """Both, with this target. rate 0: the job alone."""
        self.made.set_policy("delay", f"target_us={target_us:g}")
        return self._slot(self.job, rate, seconds)

    def _slot(self, job: Tenant | None, rate: float, seconds: float) -> Beside:
        with job.working() if job else contextlib.nullcontext():
            before, counted = self.made.core_share("kv"), self.made.counts()
            point, work = self.made.beside(job, rate, seconds)
            share = self.made.core_share("kv", before)["share"]
            moves = self.made.counts()["moves"] - counted["moves"]
        point.extra |= {"work_per_s": plain(work), "kv_core_share": share, "moves_per_s": moves / seconds}
        return Beside(point, work)


# Linux.


def add_linux(
    session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], traffic: Traffic
) -> dict[str, Arm]:
    """The arms on Linux, or why there are none."""
    why = None if session.baseline else "--no-baseline was given"
    why = why or netns.missing()
    names = {LINUX.format(policy): form for policy, form in POLICIES.items()}
    if why:
        for name in names:
            session.skip(name, why)
        return {}
    servers = Servers(session, stack, cores, traffic)
    return {name: partial(servers.beside, policy, fifo) for name, (policy, fifo) in names.items()}


class Servers:
    """The kernel's UDP servers: memcached and our command layer on a socket, of which the stronger is compared with."""

    def __init__(self, session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], traffic: Traffic) -> None:
        self.links: dict[str, rig.LinuxLink] = {}
        self.threads: dict[str, int] = {}
        link = rig.LinuxLink(stack, cores, traffic=traffic, port=PORT)
        before = os.listdir("/proc/self/task")
        store = stack.enter_context(Store(MEMORY_BYTES))
        where = {"address": link.far.address, "port": PORT, "netns": link.far.namespace.name}
        stack.enter_context(LinuxUdp(mode="block", batch=32, cpu=cores[1], store=store, **where))  # type: ignore[arg-type]
        (self.threads["our store on a socket"],) = (int(t) for t in set(os.listdir("/proc/self/task")) - set(before))
        self.links["our store on a socket"] = link
        if memcached.missing():
            session.note(f"stock memcached was not compared with: {memcached.missing()}")
        else:
            link = rig.LinuxLink(stack, cores, traffic=traffic, port=PORT)
            server = memcached.Memcached(
                memory_mib=256, address=link.far.address, netns=link.far.namespace.name, port=PORT, cpu=cores[1]
            )
            stack.enter_context(server)
            self.links["memcached -t 1"] = link
            self.threads["memcached -t 1"] = server.pid
        self.jobs = {
            policy: stack.enter_context(Tenant("batch", cpu=cores[1], code="numba", policy=policy, paused=True))
            for policy, _ in POLICIES.values()
        }
        self.name = self._stronger(session)

    def _stronger(self, session: Session) -> str:
        """The server with the lower p99 beside the job under SCHED_IDLE, which is what the figures compare with."""
        p99 = {}
        for name in self.links:
            session.say(f"which server on Linux is the stronger: {name}")
            self.name = name
            self.beside("idle", False, 1000.0, 0.05)  # stores the keys
            p99[name] = self.beside("idle", False, LOW_RPS, 0.02 * session.seconds).point.p99_us
        best = min(p99, key=lambda name: p99[name])
        session.settings["linux_server"] = {"chosen": best, "p99_us": {n: plain(v) for n, v in p99.items()}}
        return best

    def beside(self, policy: str, fifo: bool, rate: float, seconds: float) -> Beside:
        """The server and the job."""
        load = self.links[self.name].load
        for tid in self._tids():
            os.sched_setscheduler(tid, os.SCHED_FIFO if fifo else os.SCHED_OTHER, os.sched_param(1 if fifo else 0))
        job = self.jobs[policy]
        with job.working():
            point, work = shared.measure_beside(load.measure, job, rate, seconds)
        point.extra["work_per_s"] = plain(work)
        return Beside(point, work)

    def _tids(self) -> list[int]:
        first = self.threads[self.name]
        return [first] if self.name != "memcached -t 1" else [int(t) for t in os.listdir(f"/proc/{first}/task")]


# Measuring.


def find_half(session: Session, ours: Ours) -> float:
    """Half of the load that kv carries alone on the core, through the iokernel; 0 if it carries none."""
    session.say("kv's peak")
    measure = lambda rate, seconds: ours.alone(rate, seconds).point  # noqa: E731
    seconds = 0.15 * session.seconds
    guess = guess_peak(measure, seconds=0.4 * seconds, start_rps=200_000)
    curve = search_peak(measure, start_rps=0.8 * guess, step=1.25, seconds=0.6 * seconds)
    session.settings["peak_rps"], session.settings["peak_stop"] = curve.peak_rps, curve.stop
    return curve.peak_rps / 2


def measure_low(session: Session, ours: Ours, linux: Mapping[str, Arm]) -> dict[str, list[Beside]]:
    """The low load, every target and every arm on Linux."""
    arms: dict[str, Arm] = {"kv alone": ours.alone, "batch alone": lambda rate, s: ours.beside(LOW_TARGET_US, 0.0, s)}
    arms |= {f"delay target {target:g} us": partial(ours.beside, target) for target in TARGETS_US}
    arms |= linux
    slot = 0.5 * session.seconds / ROUNDS / len(arms)
    got = session.interleave({name: partial(arm, LOW_RPS, slot) for name, arm in arms.items()}, ROUNDS)
    for name, slots in got.items():
        add_row(session, name, LOW_RPS, slots)
    return got


def measure_half(session: Session, ours: Ours, rate: float) -> dict[str, list[Beside]]:
    """kv at half of its peak, beside the job with the longer target, and each alone."""
    arms: dict[str, Arm] = {
        "kv alone": ours.alone,
        "batch alone": lambda rate, s: ours.beside(HALF_TARGET_US, 0.0, s),
        "beside": partial(ours.beside, HALF_TARGET_US),
    }
    slot = 0.25 * session.seconds / HALF_ROUNDS / len(arms)
    got = session.interleave({name: partial(arm, rate, slot) for name, arm in arms.items()}, HALF_ROUNDS)
    for name, slots in got.items():
        label = f"delay target {HALF_TARGET_US:g} us" if name == "beside" else name
        add_row(session, f"{label}, half of the peak", rate, slots)
    return got


def add_row(session: Session, name: str, rate: float, slots: Sequence[Beside]) -> None:
    """An arm: all requests of its rounds, the median of the work."""
    works = [slot.work for slot in slots if math.isfinite(slot.work)]
    values: dict[str, Any] = {"work_per_s": statistics.median(works)} if works else {}
    if all(slot.point.sent for slot in slots):
        point = middle([slot.point for slot in slots])
        point.extra |= values
        session.point(name, point)["load_rps"] = rate
    else:
        session.arm(name, load_rps=0.0, **values)


# Judging.


def judge_low(session: Session, got: Mapping[str, Sequence[Beside]], with_linux: bool) -> None:
    """The four figures of the low load, round by round."""
    alone, beside = got["kv alone"], got[f"delay target {LOW_TARGET_US:g} us"]
    added = [b.point.p99_us - a.point.p99_us for a, b in zip(alone, beside, strict=True)]
    if all(map(math.isfinite, added)):
        session.figure("colocate.low_p99_added_us", statistics.median(added), runs=added)
    else:
        session.figure("colocate.low_p99_added_us", None, reason="requests stayed unanswered: a p99 is infinite")
    session.ratio_figure("colocate.low_batch_share", [b.work for b in beside], [a.work for a in got["batch alone"]])
    if with_linux:
        theirs = got[COMPARED]
        session.ratio_figure(
            "colocate.linux_p99_over_ours", [t.point.p99_us for t in theirs], [b.point.p99_us for b in beside]
        )
        session.ratio_figure("colocate.batch_over_linux", [b.work for b in beside], [t.work for t in theirs])


def judge_half(session: Session, got: Mapping[str, Sequence[Beside]], rate: float) -> None:
    """Work beside kv at half of its peak, over the part of the core that kv left, as the iokernel accounted for it in
    the same slot: from each decision for kv to its parking. That is less than half, since kv works in batches."""
    name = "colocate.half_batch_share"
    if not got:
        session.figure(name, None, reason="kv carried no load")
        return
    p99 = statistics.median(b.point.p99_us for b in got["beside"])
    session.settings["half"] = {"rps": rate, "p99_us": plain(p99)}
    if not p99 < HALF_P99_US:
        session.figure(name, None, reason=f"kv's p99 is {p99:.4g} us there, not under {HALF_P99_US:g}")
        return
    shares = [float(b.point.extra["kv_core_share"]) for b in got["beside"]]
    session.settings["half"]["kv_core_share"] = statistics.median(shares)
    each = [b.work / (1 - share) for b, share in zip(got["beside"], shares, strict=True)]
    ratio = pairwise(each, [a.work for a in got["batch alone"]])
    session.figure(name, ratio.median, runs=ratio.pairs)


def plot(document: dict[str, Any]) -> Canvas:
    """Batch work against kv's p99: our targets as one curve, Linux' policies as points."""
    rows = [a for a in document["arms"] if a.get("load_rps") == LOW_RPS]
    # Of a run so short that the job did nothing, the bare work.
    alone = next(a["work_per_s"] for a in document["arms"] if a["name"] == "batch alone") or 1.0
    canvas = Canvas(
        f"colocate: a batch job's work against kv's p99, {LOW_RPS:,.0f} requests/s, one core for both",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in rows),
        size=(10, 6.5),
    )
    if not any(isinstance(a["p99_us"], int | float) and "work_per_s" in a for a in rows):
        done = [a for a in document["arms"] if isinstance(a.get("work_per_s"), int | float)]
        values = [float(a["work_per_s"]) for a in done]
        canvas.bars([str(a["name"]) for a in done], values, ylabel="batch work (units/s)")
        canvas.caption("No curve: in every arm requests stayed unanswered, and p99 is infinite.")
        return canvas
    axis = canvas.axes[0]
    curve = [a for a in rows if str(a["name"]).startswith("delay target") and isinstance(a["p99_us"], int | float)]
    shares = [float(a["work_per_s"]) / alone for a in curve]
    if curve:
        canvas.curve([float(a["p99_us"]) for a in curve], shares, label="corelane, delay target swept")
    for a, share in zip(curve, shares, strict=True):
        target = str(a["name"]).removeprefix("delay target ")
        axis.annotate(target, (float(a["p99_us"]), share), xytext=(5, -10), textcoords="offset points", fontsize=8)
    linux = [a for a in rows if str(a["name"]).startswith("Linux") and isinstance(a["p99_us"], int | float)]
    for i, a in enumerate(linux, 1):
        x, y = [float(a["p99_us"])], [float(a["work_per_s"]) / alone]
        canvas.curve(x, y, label=str(a["name"]), colour=i, style="", marker="s")
    for a in rows:
        if a["name"] == "kv alone" and isinstance(a["p99_us"], int | float):
            axis.axvline(float(a["p99_us"]), color="#999999", linestyle="--", linewidth=1.2, label="kv alone, p99")
    axis.set_xscale("log")
    axis.set_xlabel("kv's p99 from the intended send time (us)")
    axis.set_ylabel("batch work over the job alone (1)")
    canvas.caption("Up and to the left is better. The curve ends at the largest target that was tried.")
    return canvas
