"""The simulator against an iokernel: the same load through both under each policy, with costs measured by themselves.

The requests of a load are drawn once and replayed by both. Latency is of windows of 10 ms on both sides, percentiles
the median of the windows'. What is compared was not used to measure a cost: `managed.calibrate` does that, at light
load and just before. The iokernel's loop notes when it stood still, and the canary says how often and for how long the
machine stops the worker cores; the simulator replays the one as it was, and the other at random, DRAWS times. Nothing
is fitted. The machine has each load twice, and stands beside itself as the simulator stands beside it (`AGAIN`): nobody
who does not know when the machine will stop the worker cores can be nearer than that. The canary watches before and
after each slot; a slot around which it lost more than LOST_MOST of a core is left out on both sides and counted, and
where too few are left nothing is compared.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from ..harness import machine
from ..harness.jitter import Canary, Gaps
from ..harness.numbers import number
from ..harness.session import Session
from .box import drawn
from .managed import INTERVAL_NS, MEAN_NS, SERVICE, URGENT_NS, Box, Calibration, Slot, calibrate, costing
from .model import App, Simulation

POLICIES = ("static", "shenango", "delay", "fair")
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8)
ROUNDS_LEAST, ROUNDS_MOST, SLOT_LEAST_S, SLOT_COSTS_S = 3, 5, 0.05, 0.1
CANARY_S = 0.01  # of a slice; there is one before and one after each slot
LOST_MOST = 0.1  # of a core
KEPT_LEAST = 2  # slots, for anything to be said
DRAWS = 5  # of the worker cores' pauses
PAUSE_LEAST_NS = 2000.0  # shorter gaps are the counter's own, and in the times of moves
Rows = list[dict[str, Any]]
Run = Callable[[float], Slot]  # of so many seconds
ALONE = "the jobs alone"
AGAIN = ", again"  # after a policy: the same load once more
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


@dataclass(frozen=True)
class Pair:
    """The same n requests on the machine and in the simulator; `plain`: there without the machine's gaps."""

    n: int
    box: Seen
    model: Seen
    plain: Seen


def simulated(policy: str, slot: Slot, workers: int, found: Calibration, pauses: Any) -> Seen:
    """The simulator's answer for the load of a slot. pauses: of Simulation."""
    guaranteed = workers if policy == "static" else 0
    app = App("spin", recorded=slot.load.longer(found.request_ns), guaranteed=guaranteed)
    jobs = [App(f"batch{i}", batch=True, maximum=1) for i in range(workers)]
    how: dict[str, Any] = {"interval_ns": INTERVAL_NS, "urgent_ns": URGENT_NS, "seed": 5, "pauses": pauses}
    world = Simulation([app, *jobs], workers, policy=policy, costs=found.costs, **how)
    world.run(until_ns=int(slot.load.at_ns[-1]))
    batch = [world.result(job.name) for job in jobs]
    moves = world.result(app.name).moves + sum(b.moves for b in batch)
    worked, seconds = sum(b.cores_worked for b in batch), world.now_ns / 1e9
    world.run(until_ns=slot.load.until_ns)
    latency = np.full(len(slot.load), np.inf)
    at, done = world.latencies_ns(app.name)
    latency[: len(at)] = done  # what was not done came last
    return seen_of(slot, latency, worked / workers, moves / seconds)


def seen_of(slot: Slot, latency_ns: Any, batch_share: float, moves_per_s: float) -> Seen:
    """From the latencies of a slot's load."""
    p50, p99 = (statistics.median(slot.windows(latency_ns, p)) for p in (50, 99))
    return Seen(p50, p99, batch_share, moves_per_s)


def compare(session: Session, seconds: float) -> Rows:
    """Rows ARMS for each policy and load, and how far apart the two sides are.

    On one worker core, or on two where the machine has a third core.
    """
    if len(session.cores) < 2:
        _skip(session, "it takes two cores, and this process may use one")
        return []
    others = [c for c in machine.allowed_cpus() if c not in session.two_cores]
    cores = (*session.two_cores, *others[:1])
    with contextlib.ExitStack() as stack:
        try:
            pair = session.two_cores
            one = {guaranteed: Box(stack, pair, guaranteed) for guaranteed in (0, 1)}
            boxes = one if len(cores) == 2 else {0: Box(stack, cores, 0), 1: Box(stack, cores, len(cores) - 1)}
        except CorelaneError as error:
            _skip(session, str(error))
            return []
        rounds, slot_s = _lengths(seconds, len(costing(one[0], one[1])) + 2 + 2 * len(POLICIES))
        groups = []
        for round_ in range(1, rounds + 1):
            for load in LOADS:
                session.say(f"an iokernel at load {load:g}, and what its moves cost: round {round_} of {rounds}")
                runs = _runs(one, boxes, load, 100 + round_)
                groups.append(Group(load, {name: watched(session.canary, run, slot_s) for name, run in runs.items()}))
        decision_ns = one[0].made.decision_time().percentile(50)
    return judge(session, groups, decision_ns, cores[1:])


def _lengths(seconds: float, slots: int) -> tuple[int, float]:
    """How many rounds, of so many slots for each load, and how long a slot is, s."""
    each = len(LOADS) * slots
    rounds = min(max(int(seconds / each / (SLOT_LEAST_S + SLOT_COSTS_S)), ROUNDS_LEAST), ROUNDS_MOST)
    return rounds, max(seconds / rounds / each - SLOT_COSTS_S, SLOT_LEAST_S)


def _runs(one: Mapping[int, Box], boxes: Mapping[int, Box], load: float, seed: int) -> dict[str, Run]:
    """The slots of a group: what costs are made of; the same requests under each policy, twice; the jobs alone before
    and after these."""

    def replayed(policy: str) -> Run:
        box = boxes[1 if policy == "static" else 0]
        rate = load * box.workers / MEAN_NS * 1e9
        return lambda s: box.slot(policy, drawn(rate, SERVICE, max(round(rate * s), 100), seed))

    def alone(seconds: float) -> Slot:
        return boxes[0].idle("shenango", seconds)

    loaded = {policy + when: replayed(policy) for when in ("", AGAIN) for policy in POLICIES}
    return costing(one[0], one[1]) | {ALONE: alone} | loaded | {ALONE + AGAIN: alone}


@dataclass(frozen=True)
class Turn:
    """A slot, and what the canary saw around it: by core, before and after together."""

    slot: Slot
    gaps: tuple[Gaps, ...]

    @property
    def kept(self) -> bool:
        """Whether the machine left every core alone enough."""
        return all(gaps.lost_fraction <= LOST_MOST for gaps in self.gaps)


@dataclass(frozen=True)
class Group:
    """Turns that belong together: at one load under each policy, and just before them what costs are made of, since
    these change from one moment to the next with the place of the machine's cores on its host."""

    load: float
    turns: Mapping[str, Turn]

    @property
    def kept(self) -> bool:
        """Whether what the policies' turns are compared by can be used."""
        return all(turn.kept for name, turn in self.turns.items() if name.removesuffix(AGAIN) not in POLICIES)

    def replays(self, policy: str) -> list[Slot]:
        """The same load on the machine, once or twice, as far as these count."""
        return [self.turns[policy + when].slot for when in ("", AGAIN) if self.turns[policy + when].kept]

    @property
    def alone_per_s(self) -> tuple[float, float]:
        """What the jobs did alone, before and after: the less and the more."""
        first, second = (max(self.turns[ALONE + when].slot.jobs_per_s, 1.0) for when in ("", AGAIN))
        return min(first, second), max(first, second)

    def seen(self, slot: Slot) -> Seen:
        """What a replay says. The jobs alone are those that were disturbed less: a share is of a whole core."""
        return seen_of(slot, slot.latency_ns, slot.jobs_per_s / self.alone_per_s[1], slot.moves_per_s)

    def share_is_off(self, share: float) -> float:
        """By how much a share would be another one if the jobs alone were those of the other time."""
        less, more = self.alone_per_s
        return share * (more / less - 1)

    def costs(self, decision_ns: float) -> Calibration:
        return calibrate({name: turn.slot for name, turn in self.turns.items()}, decision_ns)

    def pauses(self, cores: Sequence[int]) -> tuple[list[int], float]:
        """Of these cores, while the group was measured."""
        return pauses_of([one for turn in self.turns.values() if turn.kept for one in turn.gaps if one.cpu in cores])


def watched(canary: Canary, run: Run, seconds: float) -> Turn:
    """Run a slot between two slices of the canary."""
    before = canary.slice(CANARY_S)
    slot = run(seconds)
    for gaps, after in zip(before, canary.slice(CANARY_S), strict=True):
        gaps.add(after)
    return Turn(slot, tuple(before))


def judge(
    session: Session, groups: Sequence[Group], decision_ns: float, workers: Sequence[int]
) -> list[dict[str, Any]]:
    """Rows ARMS from the turns that count; the others are left out, with the reason where too few are left.

    workers: cores that the application and the jobs share.
    """
    every = [turn for group in groups for turn in group.turns.values()]
    used = [turn for g in groups if g.kept for turn in g.turns.values() if turn.kept]
    costs = [group.costs(decision_ns).rows() for group in groups if group.kept]
    session.settings["managed"] = {
        "loads": LOADS,
        "workers": len(workers),
        "slots": len(every),
        "slots_left_out": len(every) - len(used),
        "costs_ns": {name: statistics.median(one.get(name, 0.0) for one in costs) for name in (costs or [{}])[0]},
        "costs_range_ns": {name: _range(one.get(name, 0.0) for one in costs) for name in (costs or [{}])[0]},
    }
    rows = []
    for name, (policy, load) in ARMS.items():
        mine = [group for group in groups if group.load == load]
        kept = [(group, slot) for group in mine if group.kept for slot in group.replays(policy)]
        if len(kept) < KEPT_LEAST:
            few = f"{len(kept)} of {2 * len(mine)} slots are left, and {KEPT_LEAST} are needed"
            session.skip(name, f"{few}: around the others, or what they are compared by, {LOST}")
            continue
        pairs = [_pair(group, slot, policy, decision_ns, workers) for group, slot in kept]
        rows.append(_row(policy, load, pairs, len(workers)) | itself([g for g in mine if g.kept], policy))
        session.arm(name, **rows[-1])
    if len(used) < len(every):
        session.note(f"{len(every) - len(used)} of the {len(every)} slots of an iokernel were left out: {LOST}")
    if rows:
        session.note(apart(rows))
    return rows


def _range(values: Iterable[float]) -> tuple[float, float]:
    found = sorted(values)
    return found[0], found[-1]


def _pair(group: Group, slot: Slot, policy: str, decision_ns: float, workers: Sequence[int]) -> Pair:
    """What both sides say of a slot."""
    costs, (lengths, per_s), n = group.costs(decision_ns), group.pauses(workers), len(workers)
    drawn = [simulated(policy, slot, n, costs, pauses_at(slot, n, lengths, per_s, seed)) for seed in range(DRAWS)]
    model = Seen(*(statistics.median(getattr(seen, name) for seen in drawn) for name in MEASURES))
    return Pair(len(slot.load), group.seen(slot), model, simulated(policy, slot, n, costs, ()))


def _skip(session: Session, why: str) -> None:
    for name in ARMS:
        session.skip(name, why)


def pauses_of(watched: Sequence[Gaps]) -> tuple[list[int], float]:
    """Lengths of a core's pauses that the canary saw, ns, and how many a second."""
    lengths: list[int] = []
    for gaps in watched:
        for start, (count, total) in sorted(gaps.buckets.items()):
            if start >= PAUSE_LEAST_NS:
                lengths += [round(total / count)] * count
    seconds = sum(gaps.seconds for gaps in watched)
    return lengths, len(lengths) / seconds if seconds else 0.0


def pauses_at(slot: Slot, workers: int, lengths: Sequence[int], per_s: float, seed: int) -> Any:
    """Rows of Simulation's pauses: those of the loop as they were, those of the workers at random, as many."""
    rng = np.random.default_rng(seed)
    loop = np.insert(slot.loop_gaps, 1, workers, axis=1)
    n = rng.poisson(per_s * workers * slot.load.until_ns / 1e9) if lengths else 0
    at, who = rng.integers(1, slot.load.until_ns, n), rng.integers(0, workers, n)
    drawn = np.stack([at, who, rng.choice(np.array(lengths or [0]), n)], axis=1)
    rows = np.concatenate([loop, drawn]).astype(np.int64)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def _row(policy: str, load: float, pairs: Sequence[Pair], workers: int) -> dict[str, Any]:
    """Medians of the slots; of errors, those of each slot's own."""
    row: dict[str, Any] = {"under": policy, "load": load, "n": sum(pair.n for pair in pairs), "workers": workers}
    for measure in MEASURES:
        both = [(getattr(pair.box, measure), getattr(pair.model, measure)) for pair in pairs]
        row[f"box_{measure}"] = statistics.median(box for box, _ in both)
        row[f"model_{measure}"] = statistics.median(model for _, model in both)
        row[f"plain_{measure}"] = statistics.median(getattr(pair.plain, measure) for pair in pairs)
        if measure == "batch_share":
            row["batch_apart"] = statistics.median(model - box for box, model in both)
        else:
            row[f"{measure.rsplit('_', 1)[0]}_error"] = _error(both)
    return row


def _error(both: Sequence[tuple[float, float]]) -> float | None:
    """How far the second of each two is from the first, in the median; None: none of them is a number."""
    ratios = [second / first - 1 for first, second in both if first >= 1 and second and math.isfinite(first)]
    return statistics.median(ratios) if ratios else None


def itself(groups: Sequence[Group], policy: str) -> dict[str, Any]:
    """The machine's second replays against its first, by what the simulator is held to. {}: none to compare.

    A share is of what the jobs do alone, which had two times of its own: the difference of these counts as well.
    """
    twice = [(group, replays) for group in groups if len(replays := group.replays(policy)) == 2]
    both = [[group.seen(slot) for slot in replays] for group, replays in twice]
    if not both:
        return {}
    replayed = statistics.median(second.batch_share - first.batch_share for first, second in both)
    off = statistics.median(group.share_is_off(one[0].batch_share) for (group, _), one in zip(twice, both, strict=True))
    return {
        "p50_again_error": _error([(first.p50_us, second.p50_us) for first, second in both]),
        "p99_again_error": _error([(first.p99_us, second.p99_us) for first, second in both]),
        "batch_again_apart": max(replayed, off, key=abs),
    }


def apart(rows: Sequence[dict[str, Any]]) -> str:
    """How far the simulator is from the machine, in a sentence."""
    said = []
    for key, name in (("p50_error", "p50"), ("p99_error", "p99"), ("moves_per_error", "moves a second")):
        kept = [row for row in rows if row.get(key) is not None and math.isfinite(number(row[key]))]
        if kept:
            worst = max(kept, key=lambda row: abs(row[key]))
            middle = statistics.median(abs(row[key]) for row in kept)
            told = (
                f"{name} by {100 * middle:.2g} % in the median and {100 * worst[key]:+.2g} % at most "
                f"({worst['under']}, load {worst['load']:g})"
            )
            own = [abs(number(row[again])) for row in rows if row.get(again := key.replace("_error", "_again_error"))]
            if own:
                told += f"; the machine from itself by {100 * statistics.median(own):.2g} % and {100 * max(own):.2g} %"
            said.append(told)
    worst = max(rows, key=lambda row: abs(row["batch_apart"]))
    where = f"{worst['under']}, load {worst['load']:g}"
    said.append(f"the batch jobs' share of a core by {worst['batch_apart']:+.2g} at most ({where})")
    return "the simulator differs from the machine's iokernel in " + ", ".join(said)
