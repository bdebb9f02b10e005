"""Hand-over: the time from the decision to give a busy core to another process to that process's first instruction.

Three kinds of arms, in turns. The kernel's own ways, between two processes and a thread that decides (handoff_loops.h).
The same with an idle core. And the real path: an iokernel with two applications on its worker core, a batch job and a
server that is asked now and then, so that each request moves the core there and back: once with a job that probes
(ask), once with one that does not (interrupt), once with one that blocks signals as well (evict).

Everybody who takes part in a hand-over stamps his steps with the time-stamp counter (runtime/shm.h, cl_signals), and
the iokernel's log of moves has the stamps. A move is timed from the decision, before its first store, to the new
owner's first instruction after its wait in the kernel, and an ask is broken down into its steps beside those of the
bare flag. Two other views are printed with it: the iokernel's own histogram, from the beginning of the round that
decides to that of the round that sees the new owner run; and the beginning of the application's handler, which adds the
network stack.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..runtime.errors import CorelaneError
from . import decision
from ._native import ffi, lib
from .harness import shared
from .harness.numbers import PERCENTILES, pairwise, percentile
from .harness.plot import Canvas
from .harness.session import Session

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
    "idle core, affinity, eventfd": lib.CL_HANDOFF_IDLE_EVENTFD,
}
INTERRUPTS = ("signal", "futex over a busy core", "futex over a SCHED_IDLE one")
STEPS = {"ask": "probes", "interrupt": "plain", "evict": "deaf"}  # the real path: what the job looks at
SELDOM_RPS = 5_000.0
OFTEN_RPS = 1e9 / 30_000  # the job computes as long between two as the old owner of the kernel's ways does
REAL = {  # arm: step, requests a second to the witness. Each finds the core with the job again
    "ask": ("ask", OFTEN_RPS),
    "ask, seldom": ("ask", SELDOM_RPS),
    "interrupt": ("interrupt", SELDOM_RPS),
    "evict": ("evict", SELDOM_RPS),
}
LOOK_S = 0.2  # at the log of moves, which the loop writes over
# Steps of an ask. The third to the fifth are the move, the others are outside of it.
BEFORE, STORED = "round until the decision", "words stored and seen by all"
SEEN, LEAVES, SWITCH = "decision until the old owner sees it", "old owner until it yields", "yield until the new runs"
SIGHT = "new owner runs until the loop sees it"
ALL_STEPS = (BEFORE, STORED, SEEN, LEAVES, SWITCH, SIGHT)
WORD = 1 << 32  # of a stamp
ROUND_TICKS = 1 << 20  # far more than a round of the loop
BROKEN_DOWN = ("ask", "ask, seldom", "flag, sched_yield")
ROUNDS = 5
SETTLE_NS = 30_000
MOST = 200_000
DECISION_APPS = 16


@dataclass
class Times:
    """Of one round of an arm. ns: each hand-over; missed: those that did not come within 20 ms; steps: ns of each step
    of a hand-over by its name; more: for the row."""

    ns: list[float]
    missed: int = 0
    steps: dict[str, list[float]] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)

    def us(self, q: float) -> float:
        """A percentile; a hand-over that never came counts as infinite."""
        return percentile(sorted(self.ns), q, self.missed) / 1e3


def run(session: Session) -> None:
    """Measure all arms in turns, then one decision over many applications."""
    cores = session.two_cores
    session.settings |= {
        "message": "one hand-over of a core to another process: decision to its first instruction",
        "settle_ns": SETTLE_NS,
        "asked_rps": {arm: rate for arm, (_, rate) in REAL.items()},
        "decision_apps": DECISION_APPS,
    }
    arms: dict[str, Callable[[], Times]] = {}
    with contextlib.ExitStack() as stack:
        real = Real(stack, cores)
        slot = 0.8 * session.seconds / ROUNDS / (len(WAYS) + len(REAL))
        for arm, (step, rate) in REAL.items():
            arms[arm] = partial(real.measure, step, rate, slot)
        for name, way in WAYS.items():
            arms[name] = partial(raw, way, cores, slot)
        got = session.interleave(arms, ROUNDS)
    for name, rounds in got.items():
        row(session, name, rounds)
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
    """The real path: a witness that is asked now and then, and a job of each kind, of which one at a time works."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int]) -> None:
        apps = {"witness": shared.latency(), **{step: shared.batch() for step in STEPS}}
        # shenango: a request for an application without a core is enough, however young it is.
        self.made = stack.enter_context(shared.shared(cores, apps=apps, policy="shenango"))
        self.witness = self.made.tenant("witness", "witness")
        self.jobs = {step: self.made.tenant("batch", step, looks=looks, paused=True) for step, looks in STEPS.items()}
        self.made.load.measure(SELDOM_RPS, 0.05)

    def measure(self, step: str, rate: float, seconds: float) -> Times:
        """Ask for `seconds` while the step's job computes."""
        if step != "evict":
            with self.jobs[step].working():
                self.made.load.measure(rate, 0.02)  # the core changes hands
        self.made.moves()
        calls, before = self.witness.calls, self.made.actuation(step)
        end = time.monotonic() + seconds
        sent, moves = 0, []
        while True:
            # An evicted job is below everybody else until it has paused: one sample a turn of it.
            turn = 0.02 if step == "evict" else min(seconds, LOOK_S)
            with self.jobs[step].working():
                sent += self.made.load.measure(rate, turn).sent
            moves += self.made.moves()
            if time.monotonic() >= end:
                break
            if step == "evict":
                time.sleep(0.04)
        hist = self.made.actuation(step).since(before)
        noted = to_handler(moves, shared.STEPS[step], self.witness.stamps(calls))
        found = pairs(moves, shared.STEPS[step])
        ns = [value for value in (took(*pair) for pair in found) if value is not None]
        steps = [one for one in (broken_down(*pair) for pair in found) if one]
        more: dict[str, Any] = {"asked": sent, "log_lost": self.made.log_lost}
        if ns:
            more["iokernel_p50_us"] = hist.percentile(50) / 1e3
        if noted:
            more |= {f"handler_p{q}_us": percentile(sorted(noted), q / 100) / 1e3 for q in (50, 99)}
        return Times(ns, steps={name: [one[name] for one in steps] for name in ALL_STEPS if steps}, more=more)


def pairs(moves: Sequence[shared.Move], step: int) -> list[tuple[shared.Move, shared.Move, shared.Move | None]]:
    """Each decision whose move ended by `step` or had to go further, the entry of its end, and the decision after it.

    An ask that nobody answered in time belongs to the tail of asks.

    moves: of one core, in order. A move that was overtaken by another one has no end.
    """
    besides = (lib.CL_IO_LOG_EVICTED, lib.CL_IO_LOG_ASIDE, lib.CL_IO_LOG_SQUATTED)
    kept = [m for m in moves if m.what not in besides]
    return [
        (wanted, done, after)
        for wanted, done, after in zip(kept, kept[1:], [*kept[2:], None], strict=False)
        if wanted.what == lib.CL_IO_LOG_WANTED and done.what == lib.CL_IO_LOG_DONE and done.step >= step
    ]


def took(wanted: shared.Move, done: shared.Move, _: shared.Move | None) -> float | None:
    """ns from the decision to the new owner's first instruction. None: it did not say when that was."""
    ticks = (done.back - done.decided) % WORD
    within = done.decided and done.back and ticks <= done.tsc - wanted.tsc + ROUND_TICKS
    return shared.tsc_ns(ticks) if within else None


def broken_down(wanted: shared.Move, done: shared.Move, _: shared.Move | None) -> dict[str, float] | None:
    """ns of each step of a move. None: a stamp is missing, or is of another move."""
    times = [done.decided, done.lost, done.left, done.back]
    if not all(times):
        return None
    # Low words of the counter, a second or two: modulo that, what is out of order is much longer than the whole.
    points = [wanted.tsc, *times, done.tsc]
    before, seen, leaves, switch, sight = ((b - a) % WORD for a, b in itertools.pairwise(points))
    if before + seen + leaves + switch > done.tsc - wanted.tsc + ROUND_TICKS:
        return None
    # The round that saw the new owner run may have begun, and taken its stamp, before that one did.
    values = [before, (done.stored - done.decided) % WORD, seen, leaves, switch, 0 if sight > WORD // 2 else sight]
    return {name: shared.tsc_ns(ticks) for name, ticks in zip(ALL_STEPS, values, strict=True)}


def to_handler(moves: Sequence[shared.Move], step: int, stamps: Sequence[int]) -> list[float]:
    """From each such decision (see pairs): ns to the first stamp of the new owner's handler, if there was one
    before the next move."""
    found, at = [], 0
    for wanted, _, after in pairs(moves, step):
        while at < len(stamps) and stamps[at] < wanted.tsc:
            at += 1
        if at < len(stamps) and (after is None or stamps[at] < after.tsc):
            found.append(shared.tsc_ns(stamps[at] - wanted.tsc))
    return found


def row(session: Session, name: str, rounds: Sequence[Times]) -> None:
    """One arm: all hand-overs of all rounds together."""
    ns = sorted(value for times in rounds for value in times.ns)
    missed = sum(times.missed for times in rounds)
    values = {f"{name}_us": percentile(ns, q, missed) / 1e3 for name, q in PERCENTILES}
    more: dict[str, Any] = {}
    for times in rounds:
        more |= times.more
    session.arm(name, n=len(ns) + missed, missed=missed, **values, **more)


def break_down(session: Session, got: dict[str, list[Times]]) -> None:
    """The steps of an ask, and of the bare flag, as rows: medians do not add up exactly, means do."""
    for arm in BROKEN_DOWN:
        for step in ALL_STEPS:
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
    session.figure("handoff.ask_p50_us", statistics.median(p50), runs=p50)
    session.figure("handoff.ask_p99_us", statistics.median(p99), runs=p99)
    better = [min(got[name][i].us(0.5) for name in INTERRUPTS) for i in range(ROUNDS)]
    session.ratio_figure("handoff.interrupt_over_ask", better, p50)
    fastest = [t.us(0.5) for t in got["flag, sched_yield"]]
    session.note(f"ask over the bare flag and sched_yield, p50: {pairwise(p50, fastest)}")


def one_decision(session: Session, seconds: float) -> None:
    """The iokernel's time for one decision over 16 applications."""
    session.say(f"one decision over {DECISION_APPS} applications")
    found = decision.measure(session.two_cores, DECISION_APPS, seconds)
    session.arm("one decision", n=found.n, mean_ns=found.mean_ns, p50_ns=found.p50_ns, p99_ns=found.p99_ns)
    session.figure("allocator.decision_ns", found.p50_ns, runs=found.runs_ns)


def plot(document: dict[str, Any]) -> Canvas:
    """Medians and 99th percentiles, side by side."""
    arms = [a for a in document["arms"] if isinstance(a.get("p50_us"), int | float) and ": " not in a["name"]]
    names = [str(a["name"]) for a in arms]
    canvas = Canvas(
        "handoff: a core moves to another process",
        message=document["settings"]["message"],
        n=sum(int(a["n"]) for a in arms),
        panels=2,
        size=(13, 6),
    )
    colours = [0 if name in REAL else 6 if name.startswith("idle") else 1 for name in names]
    for panel, key in enumerate(("p50_us", "p99_us")):
        values = [float(a[key]) if isinstance(a[key], int | float) else 0.0 for a in arms]
        canvas.bars(names, values, ylabel=f"{key[:3]} (us)", panel=panel, colours=colours)
    canvas.caption("Blue: through an iokernel. Red: the kernel's own ways, core busy. Teal: the same, core idle.")
    for a in arms:
        if a["p99_us"] == "inf":
            canvas.caption(f"{a['name']}: p99 is infinite: {a['missed']} of {a['n']} did not come within 20 ms.")
    return canvas
