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
turns that followed each other give: the arms of a figure are neighbours in many short rounds, the others have a turn in
every third. So a pause of the machine, which takes a core for milliseconds some times a second, spoils the windows that
it falls in and not the figure. It spoils those of all arms alike; no window is left out, and one in which requests
stayed unanswered is infinite. What the machine's gaps alone would do to the tail has a turn of its own in each round;
judge.py says where it decides. So has the floor under a core that moves (raw.py), at both loads. The
rows have the percentiles of all requests, of all rounds, and beside them the median of the windows' p99.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ...drivers.linux import netns
from ...drivers.nic.loadgen.loadgen import Memcached as Traffic
from ..harness import rig
from ..harness.jitter import delay_us
from ..harness.numbers import plain
from ..harness.openloop import Point
from ..harness.session import Session
from .arms import (
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
    SweptArm,
    no_fifo,
    peak_of,
)
from .floor import floor_of_half, floor_of_low
from .judge import Round, by_arm, judge_half, judge_low
from .pieces import measure as measure_pieces
from .plot import CANARY, DEDICATED, HALF_TARGET, LOWEST, SWEPT, plot
from .raw import ASLEEP_S, RAW, RAW_ALONE, RAW_KV, RAW_KV_ALONE, Raw
from .rows import add_row
from .sweep import LOADS, Swept, SweptRound, arms_swept

__all__ = ["FIGURES", "SUMMARY", "plot", "run"]

SUMMARY = "kv beside a batch job on one core: latency against batch work, and Linux beside it"
FIGURES = (
    "colocate.low_p99_added_us",
    "colocate.low_batch_share",
    "colocate.linux_p99_over_ours",
    "colocate.batch_over_linux",
    "colocate.half_batch_over_core_left",
    "colocate.linearity",
    "colocate.linearity_of_bound",
)

TARGETS_US = (0.01, 5.0, 10.0, 20.0, 50.0, 100.0)
MOST_ROUNDS, ROUNDS_A_SECOND = 32, 4.0  # of those of `seconds`: a turn of the shortest arm is three windows
OTHERS_EVERY, SWEEP_EVERY = 3, 6  # rounds a turn of the arms that no figure needs, and of the sweep
LOW, OTHERS, HALF, SWEEP = 0.84, 0.35, 0.75, 1.0  # of `seconds`
CANARY_S = 0.01  # of interleave's own slice, beside that of CANARY
LINE_S, LINE_SLACK = 0.01, 1.3  # a look at the distance of the cores; what differs by less is the same one
SEARCHES_MOST, AGAIN_MOST = 5, 11  # for a peak; rounds taken again

T = TypeVar("T")


def run(session: Session) -> None:
    """Measure both loads, all arms in turns."""
    cores = session.two_cores
    traffic = Traffic(keys=KEYS)
    session.settings |= {
        "message": f"one GET of a {traffic.key_bytes}-byte key and its {traffic.value_bytes}-byte value",
        "keys": KEYS,
        "low_rps": LOW_RPS,
        "loads_of_peak": LOADS,
        "targets_us": TARGETS_US,
        "low_target_us": LOW_TARGET_US,
        "half_target_us": HALF_TARGET_US,
        "job": "products of two 32 by 32 matrices of doubles, a numba function",
        "checksums": rig.CHECKSUMS,
        "links": "corelane: the generator is the iokernel's uplink; Linux: AF_XDP on a veth pair",
    }
    with contextlib.ExitStack() as stack:
        ours = Ours(stack, cores, traffic)
        linux, linux_alone = add_linux(session, stack, cores, traffic)
        session.say("storing the keys")
        for arm in (ours.alone, *linux.values()):
            arm(1000.0, 0.05)
        raw = stack.enter_context(Raw(cores))
        raw.prepare(session, partial(ours.beside, HALF_TARGET_US))
        half = Half(session, ours)
        alone = {DEDICATED: ours.alone} | ({COMPARED: linux_alone} if linux_alone else {})
        peak = float(session.settings.get("linux_peak_rps", math.nan))
        swept = Swept(arms_swept(ours, raw, linux), alone, raw.pairs, peak)
        low, at_half = measure(session, ours, linux, raw, half, swept)
    measure_pieces(session, cores, traffic, low)
    judge_low(session, low, bool(linux))
    floor_of_low(session, low)
    judge_half(session, at_half)
    floor_of_half(session, at_half)


def add_linux(
    session: Session, stack: contextlib.ExitStack, cores: tuple[int, int], traffic: Traffic
) -> tuple[dict[str, SweptArm], Arm | None]:
    """The arms on Linux, and its server alone; or why there are none."""
    why = None if session.baseline else "--no-baseline was given"
    why = why or netns.missing()
    if why:
        for name in LINUX:
            session.skip(name, why)
        session.skip(f"{COMPARED}{SWEPT}", why)
        return {}, None
    servers = Servers(session, stack, cores, traffic)
    session.settings["linux_peak_rps"] = plain(servers.peak_rps)
    arms: dict[str, SweptArm] = {name: partial(servers.beside, policy, fifo) for name, (policy, fifo) in LINUX.items()}
    if why := no_fifo():
        for name in [name for name, (_, fifo) in LINUX.items() if fifo]:
            session.skip(name, why)
            del arms[name]
    return arms, servers.alone


# Measuring.


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
        return peak_of(self._alone, seconds)

    def _alone(self, rate: float, seconds: float) -> Point:
        return self._ours.alone(rate, seconds).point

    def round(self, arms: Mapping[str, Arm], seconds: float) -> Round | None:
        """A turn of each arm at half of the peak. None if the distance changed meanwhile; empty if kv carries no
        load."""
        return self.at_peak(lambda peak: self._watched(arms, peak / 2, seconds) if peak else Round())

    def at_peak(self, measure: Callable[[float], T]) -> T | None:
        """What `measure` finds, given the peak of the present distance, for which it is searched first if it is a new
        one. None if the distance changed meanwhile."""
        before = self._session.measure_cacheline(LINE_S)
        if self._peak(before) is None and self._searches < SEARCHES_MOST:
            self._searches += 1
            peak = self._search()
            found, before = before, self._session.measure_cacheline(LINE_S)
            if same_distance(found, before):
                self._peaks[found] = peak
        at = self._peak(before)
        got = measure(at) if at is not None else None
        if got is not None and same_distance(before, self._session.measure_cacheline(LINE_S)):
            return got
        self.moved += 1
        return None

    def _watched(self, arms: Mapping[str, Arm], rate: float, seconds: float) -> Round:
        """A turn of each arm, and of the machine alone on both sides of them."""
        before = machine_alone(self._session, rate, seconds / 2)
        got = turn(arms, rate, seconds)
        windows = before.point.window_p99_us + machine_alone(self._session, rate, seconds / 2).point.window_p99_us
        return got | {CANARY: replace(before, point=replace(before.point, seconds=seconds, window_p99_us=windows))}

    def settings(self) -> dict[str, Any]:
        peaks = [{"line_ns": at, "peak_rps": peak} for at, peak in self._peaks.items()]
        return {"peaks": peaks, "rounds_in_which_the_cores_moved": self.moved}


def same_distance(a_ns: float, b_ns: float) -> bool:
    return max(a_ns, b_ns) <= LINE_SLACK * min(a_ns, b_ns)


def measure(
    session: Session, ours: Ours, linux: Mapping[str, SweptArm], raw: Raw, half: Half, swept: Swept
) -> tuple[dict[str, list[Beside]], list[Round]]:
    """Rounds of the low load, and in turns with them rounds of half of the peak (the longer target, and each alone),
    and now and then of the other targets and policies and of the sweep over loads: so that a bad second of the machine
    is in few rounds of any."""
    low: dict[str, Arm] = {
        CANARY: partial(machine_alone, session),
        "kv alone": ours.alone,
        LOWEST: partial(ours.beside, LOW_TARGET_US),
        **{name: arm for name, arm in linux.items() if name == COMPARED},
        RAW: partial(raw.beside, LOW_TARGET_US),
        RAW_ALONE: raw.alone,
        RAW_KV: partial(raw.beside_kv, LOW_TARGET_US),
        RAW_KV_ALONE: raw.alone_kv,
        "batch alone": lambda rate, s: ours.beside(LOW_TARGET_US, 0.0, s),
    }
    others: dict[str, Arm] = {f"delay target {us:g} us": partial(ours.beside, us) for us in TARGETS_US}
    others = {name: arm for name, arm in (others | dict(linux)).items() if name not in low}
    at_half: dict[str, Arm] = {
        "kv alone": ours.alone,
        "beside": raw.taught_by(partial(ours.beside, HALF_TARGET_US)),
        RAW: partial(raw.beside, HALF_TARGET_US),
        RAW_KV: partial(raw.beside_kv, HALF_TARGET_US),
        "batch alone": lambda rate, s: ours.beside(HALF_TARGET_US, 0.0, s),
    }
    rounds = min(MOST_ROUNDS, max(1, round(ROUNDS_A_SECOND * session.seconds)))
    turns, sweeps = len(range(0, rounds, OTHERS_EVERY)), len(range(0, rounds, SWEEP_EVERY))
    low_s, others_s, half_s, sweep_s = (
        part * session.seconds / slots
        for part, slots in (
            (LOW, rounds * len(low)),
            (OTHERS, turns * len(others)),
            (HALF, rounds * (len(at_half) + 1)),
            (SWEEP, sweeps * swept.slots),
        )
    )
    session.settings["slot_s"] = {"low": low_s, "other arms": others_s, "half": half_s, "load swept": sweep_s}

    def one_round(number: int) -> tuple[Round, Round, SweptRound, Round | None]:
        """At the low load, of the other arms, swept over loads, at half of the peak; empty: not in this round."""
        session.say(f"round {number + 1} of {rounds}")
        there_and_back = dict(reversed(low.items())) if number % 2 else low  # neither neighbour is always the first
        at_low, at_others, at_loads = turn(there_and_back, LOW_RPS, low_s), Round(), SweptRound()
        if number % OTHERS_EVERY == 0:
            at_others = turn(others, LOW_RPS, others_s)
        if number % SWEEP_EVERY == 0:
            at_loads = half.at_peak(lambda peak: swept.turn(peak, sweep_s) if peak else SweptRound()) or SweptRound()
        got = half.round(at_half, half_s)
        while got is None and half.moved < AGAIN_MOST:
            got = half.round(at_half, half_s)
        return at_low, at_others, at_loads, got

    lows_of, others_of, swept_of, halves_of = zip(*session.rounds(rounds, one_round, CANARY_S), strict=True)
    lows, half_rounds = by_arm(lows_of), [got for got in halves_of if got]
    other_rows = by_arm([got for got in others_of if got])
    for name in others:
        if name not in other_rows:
            session.skip(name, "each of its rounds was left out of judgement")
    for got in swept_of:
        swept.add(got)
    session.say("loads that are not carried, and why")
    swept.find_walls(half.at_peak, sweep_s)
    session.settings["half"] = half.settings()
    add_rows(session, lows | other_rows, LOW_RPS, "")
    add_rows(session, by_arm(half_rounds), math.nan, ", half of the peak")
    swept.judge(session)
    return lows, half_rounds


def turn(arms: Mapping[str, Arm], rate: float, seconds: float) -> Round:
    """A turn of each arm."""
    return {name: arm(rate, seconds) for name, arm in arms.items()}


def add_rows(session: Session, got: Mapping[str, Sequence[Beside]], rate: float, suffix: str) -> None:
    """A row for each arm. rate: nan if it is that of each turn."""
    for name, slots in got.items():
        if name != CANARY:
            label = HALF_TARGET if name == "beside" else name
            offered = rate if math.isfinite(rate) else statistics.median(s.point.offered_rps for s in slots)
            add_row(session, label + suffix, offered, slots)


def machine_alone(session: Session, rate: float, seconds: float) -> Beside:
    """What the gaps in which one of the cores was not to be had would do to a server that takes no time. Before that
    everybody has gone to sleep."""
    time.sleep(ASLEEP_S)
    windows = max(1, round(seconds / WINDOW_S))
    p99 = tuple(delay_us(session.canary.slice(seconds / windows), 0.99) for _ in range(windows))
    return Beside(Point(rate, rate, 0, 0, seconds=seconds, window_p99_us=p99), math.nan)
