"""Co-location: the key-value store and a batch job fight for one worker core.

What is compared: kv's latency beside the job with kv's alone, and the work that the job gets done beside kv with what
it does alone on the core, in units of its own. Arms: corelane with the policy `delay`, its target swept, so that one
curve shows what a target buys and costs (each move costs both sides); and Linux: the stronger of stock memcached on one
thread and our own command layer behind a kernel socket, over AF_XDP and a veth pair, with the same job on the same core
at nice 19, at SCHED_IDLE, and at SCHED_IDLE with the server under SCHED_FIFO. The job is a numba function; beside our
kv it was made by `@libos.batch`, which adds probes, and on Linux by numba alone.

Two loads: 50 000 requests a second, and half of what kv carries alone on the core. Every arm is alive throughout; a job
whose turn it is not sleeps, and so do servers that are not asked. What kv carries follows the distance of the two
cores, which the host may change by a factor of four meanwhile: so the peak is searched for at each distance that the
rounds meet, and a round in which it changed, which was at half of no peak, is counted and taken again.

A turn of an arm is measured in windows of 10 ms, its p99 is the median of theirs, and a figure is the median of what
turns that followed each other give. So a pause of the machine, which takes a core for milliseconds some times a second,
spoils the windows that it falls in and not the figure. It spoils those of all arms alike; none is left out, and a
window in which requests stayed unanswered is infinite. What the machine's gaps alone would do to the tail has a turn of
its own in each round. The rows have the percentiles of all requests, and beside them the median of the windows' p99.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..drivers import netns
from ..drivers.loadgen import Memcached as Traffic
from .colocate_arms import (
    COMPARED,
    HALF_TARGET_US,
    KEYS,
    LINUX,
    LOW_RPS,
    LOW_TARGET_US,
    WINDOW_S,
    Arm,
    Beside,
    Ours,
    Servers,
)
from .colocate_plot import CANARY, LOWEST, SWEPT, plot
from .colocate_stalls import Stalls
from .harness import rig
from .harness.jitter import delay_us
from .harness.numbers import pairwise, plain
from .harness.openloop import LOSS_LIMIT, Point, guess_peak, middle, search_peak
from .harness.session import Session

__all__ = ["FIGURES", "SUMMARY", "plot", "run"]

SUMMARY = "kv beside a batch job on one core: latency against batch work, and Linux beside it"
FIGURES = (
    "colocate.low_p99_added_us",
    "colocate.low_batch_share",
    "colocate.linux_p99_over_ours",
    "colocate.batch_over_linux",
    "colocate.half_batch_share",
)

TARGETS_US = (0.01, 5.0, 10.0, 20.0, 50.0, 100.0)
HALF_P99_US = 75.0
NORMAL_QUARTILE = statistics.NormalDist().inv_cdf(0.75)  # median distance to the median, in standard deviations
HALF_TARGET = f"delay target {HALF_TARGET_US:g} us"
ROUNDS = 11
LOADS_RPS = (20_000.0, 100_000.0, 200_000.0, 1_000_000.0)  # LOW_RPS is measured anyway
SWEEP_EVERY = 3  # so many rounds a turn of the sweep: its slots are then as long as those of the others
OVERLOADED = 0.8  # who achieves less of a load is not asked for a higher one in that turn
BOUNDS = (CANARY, "kv alone", LOWEST, COMPARED)
CANARY_S = 0.01  # of interleave's own slice, beside that of CANARY
LINE_S, LINE_SLACK = 0.01, 1.3  # a look at the distance of the cores; what differs by less is the same one
SEARCHES_MOST, AGAIN_MOST = 5, 11  # for a peak; rounds taken again
STALLED_US = 1000.0  # a note says what the iokernel saw where the p99 of all requests is as long


def run(session: Session) -> None:
    """Measure both loads, all arms in turns."""
    cores = session.two_cores
    traffic = Traffic(keys=KEYS)
    session.settings |= {
        "message": f"one GET of a {traffic.key_bytes}-byte key and its {traffic.value_bytes}-byte value",
        "keys": KEYS,
        "low_rps": LOW_RPS,
        "loads_rps": LOADS_RPS,
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
        half = Half(session, ours)
        low, at_half = measure(session, ours, linux, half)
    judge_low(session, low, bool(linux))
    judge_half(session, at_half)


def add_linux(
    session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], traffic: Traffic
) -> dict[str, Arm]:
    """The arms on Linux, or why there are none."""
    why = None if session.baseline else "--no-baseline was given"
    why = why or netns.missing()
    if why:
        for name in (*LINUX, f"{COMPARED}{SWEPT}"):
            session.skip(name, why)
        return {}
    servers = Servers(session, stack, cores, traffic)
    return {name: partial(servers.beside, policy, fifo) for name, (policy, fifo) in LINUX.items()}


# Measuring.


Round = dict[str, Beside]


class Half:
    """Half of the load that kv carries alone on the core, through the iokernel, at each distance of the two cores."""

    def __init__(self, session: Session, ours: Ours) -> None:
        self._session, self._ours = session, ours
        self._peaks: dict[float, float] = {}  # by the round trip of a cache line, ns
        self._searches = 0
        self.moved = 0

    def _peak(self, line_ns: float) -> float | None:
        return next((peak for at, peak in self._peaks.items() if same_distance(at, line_ns)), None)

    def _search(self) -> float:
        self._session.say("kv's peak")
        seconds = 0.15 * self._session.seconds
        guess = guess_peak(self._alone, seconds=0.4 * seconds, start_rps=200_000)
        curve = search_peak(self._alone, start_rps=0.8 * guess, step=1.25, seconds=0.6 * seconds)
        return curve.peak_rps

    def _alone(self, rate: float, seconds: float) -> Point:
        return self._ours.alone(rate, seconds).point

    def round(self, arms: Mapping[str, Arm], seconds: float) -> Round | None:
        """A turn of each arm at half of the peak of the present distance, for which it is searched first if it is a new
        one. None if the distance changed meanwhile; empty if kv carries no load."""
        before = self._session.measure_cacheline(LINE_S)
        if self._peak(before) is None and self._searches < SEARCHES_MOST:
            self._searches += 1
            peak = self._search()
            found, before = before, self._session.measure_cacheline(LINE_S)
            if same_distance(found, before):
                self._peaks[found] = peak
        rate = self._peak(before)
        if rate == 0.0:
            return {}
        got = turn(arms, rate / 2, seconds) if rate else None
        if got and same_distance(before, self._session.measure_cacheline(LINE_S)):
            return got
        self.moved += 1
        return None

    def settings(self) -> dict[str, Any]:
        peaks = [{"line_ns": at, "peak_rps": peak} for at, peak in self._peaks.items()]
        return {"peaks": peaks, "rounds_in_which_the_cores_moved": self.moved}


def same_distance(a_ns: float, b_ns: float) -> bool:
    return max(a_ns, b_ns) <= LINE_SLACK * min(a_ns, b_ns)


def measure(
    session: Session, ours: Ours, linux: Mapping[str, Arm], half: Half
) -> tuple[dict[str, list[Beside]], dict[str, list[Beside]]]:
    """Rounds of the low load (every target, every arm on Linux), and in turns with them rounds of half of the peak (the
    longer target, and each alone), and now and then of the sweep over loads: so that a bad second of the machine is in
    few rounds of any."""
    alone = partial(machine_alone, session)
    low: dict[str, Arm] = {"kv alone": ours.alone, "batch alone": lambda rate, s: ours.beside(LOW_TARGET_US, 0.0, s)}
    low |= {f"delay target {target:g} us": partial(ours.beside, target) for target in TARGETS_US}
    low |= {**linux, CANARY: alone}
    at_half: dict[str, Arm] = {
        "kv alone": ours.alone,
        "batch alone": lambda rate, s: ours.beside(HALF_TARGET_US, 0.0, s),
        "beside": partial(ours.beside, HALF_TARGET_US),
        CANARY: alone,
    }
    low_s, half_s = 0.6 * session.seconds / ROUNDS / len(low), 0.25 * session.seconds / ROUNDS / len(at_half)
    over_loads = (LOWEST, HALF_TARGET, *([COMPARED] if linux else []))
    swept = Swept({name: low[name] for name in over_loads})
    sweep_s = 0.2 * session.seconds / len(range(0, ROUNDS, SWEEP_EVERY)) / len(swept.arms) / len(LOADS_RPS)
    session.settings["slot_s"] = {"low": low_s, "half": half_s, "load swept": sweep_s}
    low_rounds: list[Round] = []
    half_rounds: list[Round] = []
    for number in range(1, ROUNDS + 1):
        session.say(f"round {number} of {ROUNDS}")
        session.take_canary(CANARY_S)
        low_rounds.append(turn(low, LOW_RPS, low_s))
        if (number - 1) % SWEEP_EVERY == 0:
            swept.turn(sweep_s)
        got = half.round(at_half, half_s)
        while got is None and half.moved < AGAIN_MOST:
            got = half.round(at_half, half_s)
        if got:
            half_rounds.append(got)
    lows, halves = by_arm(low_rounds), by_arm(half_rounds)
    session.settings["half"] = half.settings() | {"rounds": len(half_rounds)}
    add_rows(session, lows, LOW_RPS, "")
    add_rows(session, halves, math.nan, ", half of the peak")
    swept.add_rows(session)
    return lows, halves


class Swept:
    """Both targets of ours, and Linux, beside the job over loads."""

    def __init__(self, arms: Mapping[str, Arm]) -> None:
        self.arms = arms
        self._got: dict[tuple[str, float], list[Beside]] = {}

    def turn(self, seconds: float) -> None:
        """All arms at a load, then at the next; not who was overloaded by the one before."""
        able = dict(self.arms)
        for rate in LOADS_RPS:
            for name, arm in list(able.items()):
                slot = arm(rate, seconds)
                self._got.setdefault((name, rate), []).append(slot)
                if slot.point.achieved_rps < OVERLOADED * slot.point.due_rps:
                    del able[name]

    def add_rows(self, session: Session) -> None:
        """A row an arm and load, and why a curve has no more of them."""
        for name in self.arms:
            reached = [rate for rate in LOADS_RPS if (name, rate) in self._got]
            for rate in reached:
                add_row(session, f"{name}{SWEPT}", rate, self._got[name, rate])
            last = middle([slot.point for slot in self._got[name, reached[-1]]])
            session.stops[f"{name}{SWEPT}"] = (
                f"{last.achieved_rps:,.0f} of {reached[-1]:,.0f} requests/s achieved"
                if last.achieved_rps < OVERLOADED * reached[-1]
                else f"{reached[-1]:,.0f} requests/s, the last load asked for"
                if reached[-1] == LOADS_RPS[-1]
                else f"{reached[-1]:,.0f} requests/s: below {OVERLOADED:g} of it was achieved in some turns"
            )


def turn(arms: Mapping[str, Arm], rate: float, seconds: float) -> Round:
    """A turn of each arm."""
    return {name: arm(rate, seconds) for name, arm in arms.items()}


def by_arm(rounds: Sequence[Round]) -> dict[str, list[Beside]]:
    return {name: [one[name] for one in rounds] for name in rounds[0]} if rounds else {}


def add_rows(session: Session, got: Mapping[str, Sequence[Beside]], rate: float, suffix: str) -> None:
    """A row for each arm. rate: nan if it is that of each turn."""
    for name, slots in got.items():
        if name != CANARY:
            label = HALF_TARGET if name == "beside" else name
            offered = rate if math.isfinite(rate) else statistics.median(s.point.offered_rps for s in slots)
            add_row(session, label + suffix, offered, slots)


def machine_alone(session: Session, rate: float, seconds: float) -> Beside:
    """What the gaps in which one of the cores was not to be had would do to a server that takes no time."""
    windows = max(1, round(seconds / WINDOW_S))
    p99 = tuple(delay_us(session.canary.slice(seconds / windows), 0.99) for _ in range(windows))
    return Beside(Point(rate, rate, 0, 0, seconds=seconds, window_p99_us=p99), math.nan)


def middle_p99_us(slots: Sequence[Beside]) -> float:
    """The median of all windows'."""
    return statistics.median(p99 for slot in slots for p99 in slot.point.window_p99_us)


def all_p99_us(slots: Sequence[Beside]) -> float:
    """That of all requests of all slots."""
    return middle([slot.point for slot in slots]).p99_us


def add_row(session: Session, name: str, rate: float, slots: Sequence[Beside]) -> None:
    """An arm: all requests of its turns, the median of the work and of the windows' p99."""
    works = [slot.work for slot in slots if math.isfinite(slot.work)]
    values: dict[str, Any] = {"work_per_s": statistics.median(works)} if works else {}
    if all(slot.point.sent for slot in slots):
        point = middle([slot.point for slot in slots])
        for key in ("kv_core_share", "moves_per_s"):
            if key in point.extra:
                values[key] = statistics.median(float(slot.point.extra[key]) for slot in slots)
        if "drops" in point.extra:
            drops = sum((slot.point.extra["drops"] for slot in slots), Counter[str]())
            values["drops"] = dict(drops)
            if drops:
                reasons = ", ".join(f"{reason} {n:,}" for reason, n in drops.items())
                session.note(
                    f"{name}: {point.sent - point.answered:,} unanswered; the iokernel dropped {reasons}, with warm-up"
                )
        point.extra |= values | {"p99_window_us": plain(middle_p99_us(slots))}
        point.extra["windows"] = sum(len(slot.point.window_p99_us) for slot in slots)
        if seen := [slot.stalls for slot in slots if slot.stalls]:
            stalls = sum(seen, Stalls())
            point.extra |= stalls.row()
            if point.p99_us >= STALLED_US:
                session.note(
                    f"{name} at {rate:,.0f}/s: p99 over all requests {point.p99_us:,.0f} us; {stalls.sentence()}"
                )
        session.point(name, point)["load_rps"] = rate
    else:
        session.arm(name, load_rps=0.0, **values)


# Judging.


def judge_low(session: Session, got: Mapping[str, Sequence[Beside]], with_linux: bool) -> None:
    """The four figures of the low load, round by round, and beside them those of the middle window of all rounds and of
    all requests."""
    alone, beside = got["kv alone"], got[LOWEST]
    pairs = [(a.p99_us, b.p99_us) for a, b in zip(alone, beside, strict=True)]
    added = [b - a if math.isfinite(b) else math.inf for a, b in pairs]
    ways = {"of the middle windows": middle_p99_us, "over all requests": all_p99_us}
    of_alone, of_ours = ({way: p99(slots) for way, p99 in ways.items()} for slots in (alone, beside))
    other = {way: of_ours[way] - of_alone[way] for way in ways} | spread_of(alone, beside, added)
    session.figure("colocate.low_p99_added_us", statistics.median(added), runs=added, beside=other)
    session.ratio_figure("colocate.low_batch_share", [b.work for b in beside], [a.work for a in got["batch alone"]])
    if with_linux:
        theirs = got[COMPARED]
        session.ratio_figure(
            "colocate.linux_p99_over_ours",
            [t.p99_us for t in theirs],
            [b.p99_us for b in beside],
            beside={way: p99(theirs) / of_ours[way] for way, p99 in ways.items()},
        )
        session.ratio_figure("colocate.batch_over_linux", [b.work for b in beside], [t.work for t in theirs])
    session.settings["low_p99_us"] = {name: plain(middle_p99_us(got[name])) for name in got if name in BOUNDS}
    if with_linux and CANARY in got:
        floor, ours, theirs_us = (middle_p99_us(got[name]) for name in (CANARY, LOWEST, COMPARED))
        alone_us = middle_p99_us(alone)
        session.note(
            f"p99 of the middle window at {LOW_RPS:,.0f} requests/s: {floor:.3g} us are the machine's gaps alone, "
            f"{alone_us:.3g} kv alone, {ours:.3g} beside the job, {theirs_us:.3g} Linux"
        )
        bounds = {name: plain(theirs_us / us) for name, us in (("kv alone", alone_us), (CANARY, floor)) if us > 0}
        session.settings["linux_p99_over"] = (
            bounds  # what the figure would be if the job cost us nothing; if kv did not
        )


def spread_of(alone: Sequence[Beside], beside: Sequence[Beside], added: Sequence[float]) -> dict[str, float]:
    """How well the rounds know what the job adds to the p99: the standard error of their median, from the median
    distance to it; and what it adds to p50 and p90, which the machine's gaps spoil less."""
    found = {}
    if len(added) > 1 and all(map(math.isfinite, added)):
        distance = statistics.median(abs(a - statistics.median(added)) for a in added)
        found["standard error"] = math.sqrt(math.pi / 2) * distance / NORMAL_QUARTILE / math.sqrt(len(added))
    for name in ("p50", "p90"):
        pairs = zip(alone, beside, strict=True)
        each = [getattr(b.point, f"{name}_us") - getattr(a.point, f"{name}_us") for a, b in pairs]
        found[f"{name} added"] = statistics.median(each)
    return found


def judge_half(session: Session, got: Mapping[str, Sequence[Beside]]) -> None:
    """Work beside kv at half of its peak, over the part of the core that kv left, as the iokernel accounted for it in
    the same slot: from each decision for kv to its parking. That is less than half, since kv works in batches."""
    name = "colocate.half_batch_share"
    about = session.settings.setdefault("half", {})
    if not got:
        moved = about.get("rounds_in_which_the_cores_moved")
        why = f"the host moved the cores in each of {moved} rounds" if moved else "kv carried no load"
        session.figure(name, None, reason=why)
        return
    p99 = middle_p99_us(got["beside"])
    floor = {name: middle_p99_us(got[name]) for name in ("kv alone", CANARY) if name in got}
    rates = [b.point.offered_rps for b in got["beside"]]
    about |= {"rps": rates, "p99_us": plain(p99), "p99_us_of": {name: plain(us) for name, us in floor.items()}}
    session.note(
        f"p99 of the middle window at half of the peak ({min(rates):,.0f} to {max(rates):,.0f} requests/s): "
        + ", ".join(f"{us:.3g} us {name}" for name, us in floor.items())
        + f", {p99:.3g} beside the job at a target of {HALF_TARGET_US:g}"
    )
    shares = [float(b.point.extra["kv_core_share"]) for b in got["beside"]]
    about["kv_core_share"] = statistics.median(shares)
    each = [b.work / (1 - share) for b, share in zip(got["beside"], shares, strict=True)]
    ratio = pairwise(each, [a.work for a in got["batch alone"]])
    points = [b.point for b in got["beside"]]
    other = {"kv's p99, us, of the middle window": p99, "over all requests": all_p99_us(got["beside"])}
    other["unanswered, of all requests"] = middle(points).loss
    lost = statistics.median(p.loss for p in points)
    if p99 < HALF_P99_US and lost < LOSS_LIMIT:
        session.figure(name, ratio.median, runs=ratio.pairs, beside=other)
        return
    bounds = ", ".join(f"{us:.4g} {name}" for name, us in floor.items())
    if p99 < HALF_P99_US:
        reason = f"kv left {100 * lost:.2g} % unanswered in the middle slot, not under {100 * LOSS_LIMIT:g} %"
    else:
        reason = f"kv's p99 is {p99:.4g} us there, not under {HALF_P99_US:g} ({bounds})"
    session.figure(name, None, reason=reason, beside=other | {"the share all the same": ratio.median})
