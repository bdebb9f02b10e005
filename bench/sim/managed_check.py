"""The simulator against an iokernel: the same load through both under each policy, with costs measured by themselves.

Latency is of windows of 10 ms on both sides, percentiles the median of the windows'. What is compared was not used to
measure a cost: `managed.calibrate` does that, at other loads, and the canary says how often and for how long the
machine stops a core. Nothing is fitted. The canary watches before and after each slot; a slot around which it lost more
than LOST_MOST of a core is left out on every side and counted, and where too few are left nothing is compared.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...runtime.errors import CorelaneError
from ..harness import machine
from ..harness.jitter import Canary, Gaps
from ..harness.numbers import number
from ..harness.session import Session
from .managed import INTERVAL_NS, MEAN_NS, URGENT_NS, WINDOW_S, Box, Calibration, Slot, calibrate, costing
from .model import App, Costs, Simulation

POLICIES = ("static", "shenango", "delay", "fair")
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8)
ROUNDS_LEAST, ROUNDS_MOST, SLOT_LEAST_S, SLOT_COSTS_S = 3, 5, 0.03, 0.1
MODEL_WINDOWS = 100
CANARY_S = 0.01  # of a slice; there is one before and one after each slot
LOST_MOST = 0.1  # of a core
KEPT_LEAST = 2  # slots, for anything to be said
PAUSE_LEAST_NS = 2000.0  # shorter gaps are the counter's own, and in the times of moves
STALL_MOST_NS = 1e6
ALONE = "the jobs alone"
LOST = f"the canary lost more than {100 * LOST_MOST:g} % of a core"
MEASURES = ("p50_us", "p99_us", "batch_share", "moves_per_s")
ARMS = {f"iokernel and simulator, {p}, load {load:g}": (p, load) for p in POLICIES for load in LOADS}


@dataclass(frozen=True)
class Seen:
    """One policy at one load on one side: percentiles of latency, cores' worth of batch work, moves a second."""

    p50_us: float
    p99_us: float
    batch_share: float
    moves_per_s: float


def simulated(policy: str, load: float, workers: int, found: Calibration, windows: int = MODEL_WINDOWS) -> Seen:
    """The simulator's answer."""
    app = App("spin", load * workers / MEAN_NS * 1e9, found.service, guaranteed=workers if policy == "static" else 0)
    jobs = [App(f"batch{i}", batch=True, maximum=1) for i in range(workers)]
    how: dict[str, Any] = {"interval_ns": INTERVAL_NS, "urgent_ns": URGENT_NS, "seed": 5}
    world = Simulation([app, *jobs], workers, policy=policy, costs=found.costs, **how)
    window_ns = round(WINDOW_S * 1e9)
    world.run(until_ns=2 * window_ns)
    p50, p99, moves, worked = [], [], 0, 0.0
    for _ in range(windows):
        world.reset()
        world.run(until_ns=world.now_ns + window_ns)
        seen, batch = world.result(app.name), [world.result(job.name) for job in jobs]
        p50.append(seen.percentile_us(50))
        p99.append(seen.percentile_us(99))
        moves += seen.moves + sum(b.moves for b in batch)
        worked += sum(b.cores_worked for b in batch)
    return Seen(statistics.median(p50), statistics.median(p99), worked / windows / workers, moves / windows / WINDOW_S)


def compare(session: Session, seconds: float) -> None:
    """Rows ARMS for each policy and load, and how far apart the two sides are.

    On one worker core, or on two where the machine has a third core.
    """
    if len(session.cores) < 2:
        _skip(session, "it takes two cores, and this process may use one")
        return
    others = [c for c in machine.allowed_cpus() if c not in session.two_cores]
    cores = (*session.two_cores, *others[:1])
    with contextlib.ExitStack() as stack:
        try:
            pair = session.two_cores
            one = {guaranteed: Box(stack, pair, guaranteed) for guaranteed in (0, 1)}
            boxes = one if len(cores) == 2 else {0: Box(stack, cores, 0), 1: Box(stack, cores, len(cores) - 1)}
        except CorelaneError as error:
            _skip(session, str(error))
            return
        worker = session.two_cores[1]
        runs, rounds, slot_s = _runs(one, boxes, seconds)
        turns: Turns = {name: [] for name in runs}
        for round_ in range(1, rounds + 1):
            session.say(f"policies of an iokernel against load, and what its moves cost: round {round_} of {rounds}")
            for name, run in runs.items():
                turns[name].append(watched(session.canary, lambda run=run: run(slot_s)))  # type: ignore[misc]
        decision_ns = one[0].made.decision_time().percentile(50)
    judge(session, turns, decision_ns, worker, len(cores) - 1)


def _runs(
    one: Mapping[int, Box], boxes: Mapping[int, Box], seconds: float
) -> tuple[dict[str, Callable[[float], Slot]], int, float]:
    """The slots of a round, how many rounds, and how long a slot is, s."""
    runs = costing(one[0], one[1])
    runs[ALONE] = lambda s: boxes[0].slot("shenango", 0.0, s)
    for name, (policy, load) in ARMS.items():
        box = boxes[1 if policy == "static" else 0]
        runs[name] = partial(box.slot, policy, load * box.workers / MEAN_NS * 1e9)
    rounds = min(max(int(seconds / len(runs) / (SLOT_LEAST_S + SLOT_COSTS_S)), ROUNDS_LEAST), ROUNDS_MOST)
    return runs, rounds, max(seconds / rounds / len(runs) - SLOT_COSTS_S, SLOT_LEAST_S)


@dataclass(frozen=True)
class Turn:
    """A slot, and what the canary saw around it: by core, before and after together."""

    slot: Slot
    gaps: tuple[Gaps, ...]

    @property
    def kept(self) -> bool:
        """Whether the machine left every core alone enough."""
        return all(gaps.lost_fraction <= LOST_MOST for gaps in self.gaps)


Turns = Mapping[str, list[Turn]]


def watched(canary: Canary, run: Callable[[], Slot]) -> Turn:
    """Run a slot between two slices of the canary."""
    before = canary.slice(CANARY_S)
    slot = run()
    for gaps, after in zip(before, canary.slice(CANARY_S), strict=True):
        gaps.add(after)
    return Turn(slot, tuple(before))


def judge(session: Session, turns: Turns, decision_ns: float, worker: int, workers: int) -> None:
    """Rows ARMS from the turns that count; the others are left out, with the reason where too few are left.

    worker: core from which costs are taken; workers: how many the application and the jobs share.
    """
    slots = {name: [turn.slot for turn in mine if turn.kept] for name, mine in turns.items()}
    every = [turn for mine in turns.values() for turn in mine]
    gaps = [one for turn in every if turn.kept for one in turn.gaps]
    out = sum(not turn.kept for turn in every)
    session.settings["managed"] = {"loads": LOADS, "workers": workers, "slots": len(every), "slots_left_out": out}

    def missing(name: str) -> str:
        few = f"{len(slots[name])} of {len(turns[name])} slots are left of {name!r}, and {KEPT_LEAST} are needed"
        return "" if len(slots[name]) >= KEPT_LEAST else f"{few}: around the others {LOST}"

    short = next(filter(None, (missing(name) for name in turns if name not in ARMS)), "")
    if short:
        _skip(session, short)
        return
    found = calibrate(slots, decision_ns, stalled([one for one in gaps if one.cpu == worker]))
    found = replace(found, costs=with_pauses(found.costs, gaps))
    alone = statistics.median_low(slot.jobs_per_s for slot in slots[ALONE])
    session.settings["managed"] |= {"costs_ns": found.rows(), "alone_per_s": alone}
    rows = []
    for name, point in ARMS.items():
        if why := missing(name):
            session.skip(name, why)
            continue
        rows.append(_row(*point, slots[name], alone, workers, found))
        session.arm(name, **rows[-1])
    if out:
        session.note(f"{out} of the {len(every)} slots of an iokernel and of its costs were left out: {LOST}")
    if rows:
        session.note(apart(rows))


def _skip(session: Session, why: str) -> None:
    for name in ARMS:
        session.skip(name, why)


def with_pauses(costs: Costs, watched: Sequence[Gaps]) -> Costs:
    """The costs, and the pauses of a core that the canary saw."""
    lengths: list[int] = []
    for gaps in watched:
        for start, (count, total) in sorted(gaps.buckets.items()):
            if start >= PAUSE_LEAST_NS:
                lengths += [round(total / count)] * count
    seconds = sum(gaps.seconds for gaps in watched)
    return replace(costs, pauses_ns=tuple(lengths), pauses_per_s=len(lengths) / seconds if seconds else 0.0)


def stalled(watched: Sequence[Gaps]) -> float:
    """Part of its time that a core did not have, but for what is too long and too seldom to be in a median."""
    lost = sum(
        total
        for gaps in watched
        for start, (_, total) in gaps.buckets.items()
        if PAUSE_LEAST_NS <= start < STALL_MOST_NS
    )
    return lost / max(sum(gaps.seconds for gaps in watched) * 1e9, 1.0)


def _row(
    policy: str, load: float, slots: Sequence[Slot], alone: float, workers: int, found: Calibration
) -> dict[str, Any]:
    model = simulated(policy, load, workers, found)
    box = Seen(
        statistics.median_low([value for slot in slots for value in slot.p50_us] or [math.nan]),
        statistics.median_low([value for slot in slots for value in slot.p99_us] or [math.nan]),
        statistics.median_low(slot.jobs_per_s for slot in slots) / alone,
        statistics.median_low(slot.moves_per_s for slot in slots),
    )
    row: dict[str, Any] = {"under": policy, "load": load, "n": sum(slot.requests for slot in slots), "workers": workers}
    for measure in MEASURES:
        row |= {f"box_{measure}": getattr(box, measure), f"model_{measure}": getattr(model, measure)}
    for measure in ("p50_us", "p99_us", "moves_per_s"):
        ours, theirs = getattr(model, measure), getattr(box, measure)
        row[f"{measure.rsplit('_', 1)[0]}_error"] = ours / theirs - 1 if theirs >= 1 and ours else None
    row["batch_apart"] = model.batch_share - box.batch_share
    return row


def apart(rows: Sequence[dict[str, Any]]) -> str:
    """How far the simulator is from the machine, in a sentence."""
    said = []
    for key, name in (("p50_error", "p50"), ("p99_error", "p99"), ("moves_per_error", "moves a second")):
        kept = [row for row in rows if row.get(key) is not None and math.isfinite(number(row[key]))]
        if kept:
            worst = max(kept, key=lambda row: abs(row[key]))
            middle = statistics.median(abs(row[key]) for row in kept)
            said.append(
                f"{name} by {100 * middle:.2g} % in the median and {100 * worst[key]:+.2g} % at most "
                f"({worst['under']}, load {worst['load']:g})"
            )
    worst = max(rows, key=lambda row: abs(row["batch_apart"]))
    where = f"{worst['under']}, load {worst['load']:g}"
    said.append(f"the batch jobs' share of a core by {worst['batch_apart']:+.2g} at most ({where})")
    return "the simulator differs from the machine's iokernel in " + ", ".join(said)
