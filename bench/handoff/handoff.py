"""Hand-over: the time from the decision to give a busy core to another process to that process's first instruction.

Three kinds of arms, in turns. The kernel's own ways, between two processes and a thread that decides (loops.h).
The same with an idle core. And the real path: an iokernel with two applications on its worker core, a batch job and a
server that is asked now and then, so that each request moves the core there and back: once with a job that probes
(ask; in C, a probe each 100 ns, and as a numba function made by `@libos.batch`), once with one that does not
(interrupt), once with one that blocks signals as well (evict), and once without a job. And the first move from a job
that was stopped or killed while it computed.

Everybody who takes part in a hand-over stamps his steps with the time-stamp counter (runtime/shm.h, cl_signals), and
the iokernel's log of moves has the stamps. A move is timed from the decision, before its first store, to the new
owner's first instruction after its wait in the kernel, and a request is broken down into its steps beside those of the
raw flag. Two other views are printed with it: the iokernel's own histogram, from the beginning of the round that
decides to that of the round that sees the new owner run; and the beginning of the application's handler, which adds the
network stack. A move that was overtaken, whose new owner did not begin, or that ended without a stamp of when that was,
counts as missed, by reason (`missed_...`), and as infinite.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...drivers.nic.loadgen.loadgen import Phase
from ...iokernel.control.moves import ALL_PARTS, SEEN, SWITCH, Move
from ...runtime.clock import default_clock, tsc
from ...runtime.errors import CorelaneError
from .. import decision
from .._native import ffi, lib
from ..harness.numbers import PERCENTILES, number, pairwise, percentile
from ..harness.plot import Canvas
from ..harness.session import Session
from ..tenant import shared
from ..tenant.tenant import Tenant
from .moves import (
    FROM_EVICTION,
    TO_EVICTION,
    UNSTAMPED,
    broken_down,
    evictions,
    first_ask,
    lost,
    pairs,
    parked,
    timed,
    to_handler,
    under_way,
    woken,
)

SUMMARY = "moving a core between two processes: ask, interrupt and evict beside the kernel's own ways"
FIGURES = ("handoff.ask_p50_us", "handoff.ask_p99_us", "handoff.interrupt_over_ask", "allocator.decision_ns")

WAYS = {  # arm: the kernel's own way
    "flag, sched_yield": lib.CL_HANDOFF_YIELD,
    "flag, futex wake and wait": lib.CL_HANDOFF_FUTEX,
    "signal": lib.CL_HANDOFF_SIGNAL,
    "futex over a busy core": lib.CL_HANDOFF_WAKE,
    "futex over a SCHED_IDLE one": lib.CL_HANDOFF_WAKE_IDLE,
    "signal, affinity, eventfd (Shenango)": lib.CL_HANDOFF_EVENTFD,
    "idle core, sched_yield": lib.CL_HANDOFF_IDLE_YIELD,
    "idle core, futex": lib.CL_HANDOFF_IDLE_FUTEX,
    "idle core, signal": lib.CL_HANDOFF_IDLE_SIGNAL,
    "idle core, affinity, eventfd": lib.CL_HANDOFF_IDLE_EVENTFD,
}
INTERRUPTS = ("signal", "futex over a busy core", "futex over a SCHED_IDLE one")
JOBS = {  # the real path: the job's code, and what it looks at
    "ask": ("c", "probes"),
    "numba": ("numba", "probes"),
    "interrupt": ("c", "plain"),
    "evict": ("c", "deaf"),
    "stopped": ("c", "probes"),
}
SELDOM_RPS = 5_000.0
OFTEN_RPS = 1e9 / 30_000  # the job computes as long between two as the old owner of the kernel's ways does
REAL = {  # arm: the job, the step, requests a second to the witness. Each finds the core with the job again
    "ask": ("ask", "ask", OFTEN_RPS),
    "ask, numba job": ("numba", "ask", OFTEN_RPS),
    "ask, seldom": ("ask", "ask", SELDOM_RPS),
    "interrupt": ("interrupt", "interrupt", SELDOM_RPS),
    "evict": ("evict", "evict", SELDOM_RPS),
}
PARKED = "owner parked"  # the moves back of the arm ask
WOKEN = "idle core, iokernel"
STOPPED, KILLED = "owner stopped", "owner killed"
CAUGHT = "owner killed in a move"  # decided before it was dead for certain, and not over when it was killed
VICTIM = "victim"  # the name of those that are killed
KILLS, KILLS_LEAST = 18, 2  # a round, for 50 samples in all, and of a shorter run: each takes a process, and 0.2 s
WAIT_S = 10.0
DEAD_NS = 20_000  # after a kill: a decision before that may find a job that runs still
ABSENT_LOAD_S = 0.004  # of requests beside a job that was stopped, or around a kill
TURNS, TURNS_LEAST = 13, 6  # a round, of what gives one sample a turn: evictions, owners that were stopped
WHOLE_S = 10.0  # a shorter run has fewer of both
EVICT_LOAD_S, EVICT_REST_S = 0.004, 0.01
ENDS_S = 0.01  # in which a move under way ends
LOOK_S = 0.2  # at the log of moves, which the loop writes over
BROKEN_DOWN = ("ask", "ask, numba job", "ask, seldom", "evict", "flag, sched_yield")
BESIDE = ("ask, numba job", "ask, seldom", "flag, sched_yield")  # the figures of a request: taken as they are
BY = {step: f"by_{name}" for name, step in shared.STEPS.items()}
ADDED = ("asked", "log_lost", "turns", *BY.values())
ROUNDS = 5
SETTLE_NS = 30_000
MOST = 200_000
DECISION_APPS = 16
P99_LEAST = 100  # moves, for their p99 to be drawn
DECISIONS = {  # how many of the applications want a core
    "one decision": decision.ALWAYS,
    "one decision, half active": DECISION_APPS // 2,
    "one decision, all active": DECISION_APPS,
}


@dataclass
class Times:
    """Of one round of an arm. ns: each hand-over; missed: those that did not come within 20 ms; steps: ns of each step
    of a hand-over by its name; more: for the row; why: reasons of those missed; beside: another arm's, found in this
    round, too."""

    ns: list[float]
    missed: int = 0
    steps: dict[str, list[float]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    why: dict[str, int] = field(default_factory=dict)
    beside: Times | None = None

    def us(self, q: float) -> float:
        """A percentile; a hand-over that never came counts as infinite."""
        return percentile(sorted(self.ns), q, self.missed) / 1e3


def run(session: Session) -> None:
    """Measure all arms in turns, then one decision over many applications."""
    cores = session.two_cores
    session.settings |= {
        "message": "one hand-over of a core to another process: decision to its first instruction",
        "settle_ns": SETTLE_NS,
        "asked_rps": {arm: rate for arm, (_, _, rate) in REAL.items()},
        "decision_apps": DECISION_APPS,
    }
    arms: dict[str, Callable[[], Times]] = {}
    with contextlib.ExitStack() as stack:
        part = min(session.seconds / WHOLE_S, 1.0)
        real = Real(stack, cores, max(round(part * TURNS), TURNS_LEAST), max(round(part * KILLS), KILLS_LEAST))
        slot = 0.8 * session.seconds / ROUNDS / (len(WAYS) + len(REAL) + 3)
        session.settings["slot_s"] = slot
        for arm, (job, step, rate) in REAL.items():
            arms[arm] = partial(real.measure, job, step, rate, slot)
        arms[WOKEN] = partial(real.wake, slot)
        arms[STOPPED] = partial(real.stop, slot)
        arms[KILLED] = real.kill
        for name, way in WAYS.items():
            arms[name] = partial(raw, way, cores, slot)
        got = session.interleave(arms, ROUNDS)
        for name, found_with in ((PARKED, "ask"), (CAUGHT, KILLED)):
            got[name] = [times.beside for times in got[found_with] if times.beside]
    for name, rounds in got.items():
        row(session, name, rounds)
    say_unstamped(session, got)
    break_down(session, got)
    judge(session, got)
    one_decision(session, 0.1 * session.seconds)


def raw(way: int, cores: tuple[int, int], seconds: float) -> Times:
    """One round of one of the kernel's ways."""
    times, out = ffi.new("struct cl_handoff_times[]", MOST), ffi.new("struct cl_handoff_result *")
    err = ffi.new("char[256]")
    fields = {
        "way": way,
        "decider_cpu": cores[0],
        "worker_cpu": cores[1],
        "settle_ns": SETTLE_NS,
        "rounds": MOST,
        "limit_ns": int(seconds * 1e9),
    }
    rc = lib.cl_handoff_run(ffi.new("struct cl_handoff_config *", fields), times, out, err)
    if rc < 0 and rc != -errno.ETIMEDOUT:
        raise CorelaneError("hand over a core", ffi.string(err).decode())
    # A machine that keeps one of the two processes from running for the length of a round misses that hand-over.
    began = [one.began for one in times[0 : out.rounds]]
    seen = [one.seen for one in times[0 : out.rounds]]
    steps: dict[str, list[float]] = {}
    if all(seen):
        steps = {SEEN: seen, SWITCH: [b - s for b, s in zip(began, seen, strict=True)]}
    return Times(began, int(out.missed) + (rc < 0), steps)


class Real:
    """The real path: a witness that is asked now and then, and a job of each kind, of which one at a time works.

    turns, kills: a round. Beside each round of the arm ask are the moves back from the witness, which has parked, to
    the job; beside each round of kills, the moves that those fell into."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int], turns: int, kills: int) -> None:
        self.turns, self.kills = turns, kills
        apps = {"witness": shared.latency(), **{job: shared.batch() for job in (*JOBS, VICTIM)}}
        # shenango: a request for an application without a core is enough, however young it is.
        self.made = stack.enter_context(shared.shared(cores, apps=apps, policy="shenango"))
        self.witness = self.made.tenant("witness", "witness")
        self.jobs = {
            job: self.made.tenant("batch", job, code=code, looks=looks, paused=True)
            for job, (code, looks) in JOBS.items()
        }
        self.made.load.measure(SELDOM_RPS, 0.05)

    def _ended(self) -> list[Move]:
        """The rest of the log, with the ends of the moves that were under way."""
        time.sleep(ENDS_S)
        return self.made.moves()

    def measure(self, job: str, step: str, rate: float, seconds: float) -> Times:
        """Ask for `seconds` while the job computes."""
        if step != "evict":
            with self.jobs[job].working():
                self.made.load.measure(rate, 0.02)  # the core changes hands
        self.made.moves()
        calls, before, log_lost = self.witness.calls, self.made.actuation(step), self.made.log_lost
        end = time.monotonic() + seconds
        sent, turns, moves = 0, 0, []
        while True:
            # An evicted job is below everybody else until it has paused: one sample a turn of it.
            turn = EVICT_LOAD_S if step == "evict" else min(seconds, LOOK_S)
            with self.jobs[job].working():
                sent += self.made.load.measure(rate, turn).sent
            moves += self.made.moves()
            turns += 1
            if time.monotonic() >= end and (step != "evict" or turns >= self.turns):
                break
            if step == "evict":
                time.sleep(EVICT_REST_S)
        moves += self._ended()
        found = pairs(moves, shared.STEPS[step])
        times = _times(*timed(found, lost(moves)))
        if job == "ask" and rate == OFTEN_RPS:
            times.beside = _times(*timed(parked(moves), {}))
        steps = evictions(moves) if step == "evict" else [one for one in (broken_down(*pair) for pair in found) if one]
        times.steps = {name: [one[name] for one in steps] for name in (steps[0] if steps else ())}
        times.more = {"asked": sent, "log_lost": self.made.log_lost - log_lost}
        if times.ns:
            times.more["iokernel_p50_us"] = self.made.actuation(step).since(before).percentile(50) / 1e3
        noted = sorted(to_handler(moves, shared.STEPS[step], self.witness.stamps(calls)))
        if noted:
            times.more |= {f"handler_p{q}_us": percentile(noted, q / 100) / 1e3 for q in (50, 99)}
        return times

    def wake(self, seconds: float) -> Times:
        """Ask for `seconds` while nobody computes: the witness has parked, and the loop wakes it."""
        self.made.load.measure(SELDOM_RPS, 0.02)
        self.made.moves()
        log_lost = self.made.log_lost
        sent = self.made.load.measure(SELDOM_RPS, seconds).sent
        times = _times(*woken(self.made.moves() + self._ended()))
        times.more = {"asked": sent, "log_lost": self.made.log_lost - log_lost}
        return times

    def stop(self, seconds: float) -> Times:
        """Stop the job where it computes, and ask; one sample a turn, as with evictions: it was one."""
        job, end, found = self.jobs["stopped"], time.monotonic() + seconds, Absent()
        while found.turns < self.turns or time.monotonic() < end:
            self.made.moves()
            with job.working(), _stopped(job):
                since = tsc()
                self.made.load.measure(SELDOM_RPS, ABSENT_LOAD_S)
                time.sleep(ENDS_S)
            found.turn(self._ended(), since)
            time.sleep(EVICT_REST_S)
        return found.times()

    def kill(self) -> Times:
        """Kill a job that computes while requests come. What counts is the first decision to take its core after
        that, if the iokernel does not know yet that it is gone; and by itself, the move that the kill fell into."""
        found, caught = Absent(), Absent()
        for _ in range(self.kills):
            moves, killed, dead = self._kill_one()
            found.turn(moves, dead)
            caught.turn(under_way(moves, killed, dead), 0)
        times = found.times()
        times.beside = caught.times()
        return times

    def _kill_one(self) -> tuple[list[Move], int, int]:
        """The log, when the job was about to be killed, and from when on it was dead."""
        job = self.made.tenant("batch", VICTIM)
        _until(lambda: job.work, "the job to compute")
        self.made.moves()
        self.made.generator.start([Phase(2 * ABSENT_LOAD_S, SELDOM_RPS)])
        time.sleep(ABSENT_LOAD_S)
        killed = tsc()
        os.kill(job.pid, signal.SIGKILL)
        dead = tsc() + default_clock().ns_to_ticks(DEAD_NS)
        self.made.generator.wait()
        job.close()
        _until(lambda: VICTIM not in self.made.kernel.apps, "a job that was killed to be removed")
        return self._ended(), killed, dead


def _until(so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not so():
        if time.monotonic() > deadline:
            raise CorelaneError("hand over a core", f"waited {WAIT_S:g} s for {what}")
        time.sleep(0.001)


@contextlib.contextmanager
def _stopped(job: Tenant) -> Iterator[None]:
    """No thread of the job runs, from when the kernel says so."""
    os.kill(job.pid, signal.SIGSTOP)
    try:
        _until(lambda: job.is_stopped, "a job to stop")
        yield
    finally:
        os.kill(job.pid, signal.SIGCONT)


@dataclass
class Absent:
    """First moves from owners that were stopped or killed."""

    ns: list[float] = field(default_factory=list)
    why: dict[str, int] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(BY.values(), 0))
    turns: int = 0

    def turn(self, moves: Sequence[Move], since: int) -> None:
        """The log of one of them, and from when on its owner was absent."""
        self.turns += 1
        one = first_ask(moves, since)
        if one is None:  # it had let go before
            return
        ns, why, step = one
        self.ns += ns
        for key, n in why.items():
            self.why[key] = self.why.get(key, 0) + n
        if step is not None:
            self.more[BY[step]] += 1

    def times(self) -> Times:
        made = _times(self.ns, self.why)
        made.more = self.more | {"turns": self.turns}
        return made


def _times(ns: list[float], why: dict[str, int]) -> Times:
    return Times(ns, sum(why.values()), why=why)


def row(session: Session, name: str, rounds: Sequence[Times]) -> None:
    """One arm: all hand-overs of all rounds together; counts added, medians of what each round has one of."""
    ns = sorted(value for times in rounds for value in times.ns)
    missed = sum(times.missed for times in rounds)
    values = {f"{name}_us": percentile(ns, q, missed) / 1e3 for name, q in PERCENTILES}
    more: dict[str, Any] = {}
    for key in dict.fromkeys(key for times in rounds for key in times.more):
        kept = [times.more[key] for times in rounds if key in times.more]
        more[key] = sum(kept) if key in ADDED else statistics.median(kept)
    for why in dict.fromkeys(why for times in rounds for why in times.why):
        more[f"missed_{why.replace(' ', '_')}"] = sum(times.why.get(why, 0) for times in rounds)
    session.arm(name, n=len(ns) + missed, missed=missed, **values, **more)


def say_unstamped(session: Session, got: dict[str, list[Times]]) -> None:
    """Why moves that ended have no time."""
    counts = {name: sum(times.why.get(UNSTAMPED, 0) for times in rounds) for name, rounds in got.items()}
    some = ", ".join(f"{name} {n}" for name, n in counts.items() if n)
    if some:
        session.note(
            f"moves that ended without a stamp ({some}): the new owner was given the core before it had begun to wait "
            "in the kernel, so that it did not come back from there, or it waited once more before the loop looked"
        )


def break_down(session: Session, got: dict[str, list[Times]]) -> None:
    """The steps of a preemption request, and of the raw flag, as rows: medians do not add up exactly, means do."""
    for arm in BROKEN_DOWN:
        for step in (*ALL_PARTS, TO_EVICTION, FROM_EVICTION):
            ns = sorted(value for times in got[arm] for value in times.steps.get(step, ()))
            if ns:
                values = {f"{name}_us": percentile(ns, q, 0) / 1e3 for name, q in PERCENTILES}
                session.arm(f"{arm}: {step}", n=len(ns), missed=0, **values, mean_us=statistics.fmean(ns) / 1e3)


def judge(session: Session, got: dict[str, list[Times]]) -> None:
    """The figures of the rounds."""
    ask = [times for times in got["ask"] if times.ns]
    if len(ask) < ROUNDS:
        why = f"in {ROUNDS - len(ask)} of {ROUNDS} rounds no core was asked for"
        for name in FIGURES[:3]:
            session.figure(name, None, reason=why)
        return
    p50, p99 = [t.us(0.5) for t in ask], [t.us(0.99) for t in ask]
    for name, runs, q in (("handoff.ask_p50_us", p50, 0.5), ("handoff.ask_p99_us", p99, 0.99)):
        others = {arm: [times.us(q) for times in got[arm] if times.ns] for arm in BESIDE}
        beside = {arm: statistics.median(us) for arm, us in others.items() if us}
        session.figure(name, statistics.median(runs), runs=runs, beside=beside)
    better = [min(got[name][i].us(0.5) for name in INTERRUPTS) for i in range(ROUNDS)]
    session.ratio_figure("handoff.interrupt_over_ask", better, p50)
    fastest = [t.us(0.5) for t in got["flag, sched_yield"]]
    session.note(f"ask over the raw flag and sched_yield, p50: {pairwise(p50, fastest)}")


def one_decision(session: Session, seconds: float) -> None:
    """The iokernel's time for one decision over 16 applications, of which two, half, or all want a core."""
    got = {}
    session.take_canary()
    for name, active in DECISIONS.items():
        session.say(f"{name}, {DECISION_APPS} applications")
        got[name] = found = decision.measure(session.two_cores, DECISION_APPS, seconds / len(DECISIONS), active)
        for arm, times in ((name, found.decision), (f"{name}: reading the lines alone", found.reading)):
            session.arm(arm, n=times.n, mean_ns=times.mean_ns, p50_ns=times.p50_ns, p99_ns=times.p99_ns)
    rest, *others = got
    beside = {f"{DECISIONS[name]} of {DECISION_APPS} active": got[name].decision.p50_ns for name in others}
    beside["reading the lines alone"] = got[rest].reading.p50_ns
    times = got[rest].decision
    session.figure("allocator.decision_ns", times.p50_ns, runs=times.runs_ns, beside=beside)


def plot(document: dict[str, Any]) -> Canvas:
    """Medians and 99th percentiles, side by side."""
    arms = [a for a in document["arms"] if a.get("p50_us") is not None and ": " not in a["name"]]
    names = [str(a["name"]) for a in arms]
    many = [i for i, a in enumerate(arms) if a["n"] >= P99_LEAST]
    canvas = Canvas(
        "handoff: a core moves to another process",
        message=document["settings"]["message"],
        n=sum(int(a["n"]) for a in arms),
        panels=2 if many else 1,
        size=(14, 8),
    )
    colours = [
        0 if name in (*REAL, PARKED, WOKEN, STOPPED, KILLED, CAUGHT) else 6 if name.startswith("idle") else 1
        for name in names
    ]
    canvas.bars(names, [number(a["p50_us"]) for a in arms], ylabel="p50 (us)", colours=colours)
    if many:
        values = [number(arms[i]["p99_us"]) for i in many]
        canvas.bars([names[i] for i in many], values, ylabel="p99 (us)", panel=1, colours=[colours[i] for i in many])
    canvas.caption("Blue: through an iokernel. Red: the kernel's own ways, core busy. Teal: the same, core idle.")
    if len(many) < len(arms):
        few = ", ".join(f"{a['name']} ({a['n']})" for a in arms if a["n"] < P99_LEAST)
        canvas.caption(f"No p99 of fewer than {P99_LEAST} moves: {few}.")
    for a in arms:
        if a["p99_us"] == "inf":
            canvas.caption(f"{a['name']}: p99 is infinite: {a['missed']} of {a['n']} did not come or did not say when.")
    return canvas
