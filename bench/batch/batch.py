"""Batches under a limit: a small network answers requests, each within a limit, on one worker core.

Goodput is the requests a second that are answered within the limit, from when each was to be sent. Load is swept from
what every rule carries to several times what any does, at a steady rate and in bursts. An arm's goodput is its best
over the loads of one shape. The limit is LIMIT times what one request alone takes, measured first. Loads are told as
multiples of what batches of one size can carry in time: a request waits for the batch before its own, so these are
batches that take half of the limit.

Fixed batches are swept first: size, waiting time and bound of the queue, all over both shapes. The best of each shape,
and the best that takes one request at a time, are measured again in turns with the policy. The figure is the worse of
the policy's two ratios, of the shape that is not steady; the other shape's stands beside it.

An oracle bounds it (oracle.py): what one answers in time, of the very arrivals of the rounds, who knows all of them
beforehand, with batches that take what the profile says.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..harness.numbers import pairwise
from ..harness.plot import Canvas
from ..harness.session import Session
from ..harness.stops import EXPLAIN_S
from . import model, oracle, rules
from .loads import BURST_S, BURST_SHARE, BURST_TIMES, Load
from .rules import NO_DROP, POLICY, WAITS_TOO, Rule
from .serving import Service, Slot, serving

SUMMARY = "a model's requests in batches under a limit: one at a time, fixed batches, and libos' rule"
FIGURES = ("batch.goodput",)

LIMIT, LONGER = 3.0, 6.0  # times what one request alone takes: of the figure; and one that leaves any rule less to gain
LOADS = (0.8, 1.5, 2.5, 4.0)
SWEPT = (1.0, 2.5)  # loads at which all fixed rules are tried
STAY, FINALISTS = 6, 2  # of the fixed rules of a shape, after the first look and after the second
ROUNDS = 3
SHAPES = {"steady": False, "bursts": True}
JUDGED = "bursts"
OVER_FIXED, OVER_ALONE = "the best fixed batch", "one at a time"
SWEEP_PART, AGAIN_PART, ROUNDS_PART, LONGER_PART, EXPLAIN_PART = 0.2, 0.1, 0.4, 0.1, 0.2  # of the time
LEAST_S, ROUND_LEAST_S = 0.15, 0.25  # a slot: some bursts; and so long in the rounds
PROFILE_RPS, PROFILE_S = 100_000, 0.05  # of a load that fills batches of any size
PROFILE_LOOKS = 5
PROFILE_WAIT_US = 1000  # for a batch to fill
PROFILED = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # sizes
FIRST_SEED, SWEEP_SEEDS = 21, (11, 12)


@dataclass(frozen=True)
class Measured:
    """What the service takes. takes_us: of batches of each size, measured. limit_us: the limit. full_rps: load 1."""

    takes_us: Mapping[int, float]
    limit_us: float
    full_rps: float

    @property
    def one_us(self) -> float:
        """One request alone."""
        return self.takes_us[1]

    @property
    def line(self) -> tuple[float, float]:
        """The fixed part and the part of each request, of batches of two and more."""
        sizes = [n for n in self.takes_us if n > 1]
        each, fixed = np.polyfit(sizes, [self.takes_us[n] for n in sizes], 1)
        return float(fixed), float(each)


def run(session: Session) -> None:
    """Profile, sweep of the fixed rules, then the best of them and the policy in turns."""
    with serving(session.two_cores) as service:
        known = profile(service)
        settings(session, known)
        chosen = {shape: sweep(session, service, known, shape) for shape in SHAPES}
        arms = {rule.name: rule for found in chosen.values() for rule in found}
        arms |= {rule.name: rule for rule in rules.policies(known.limit_us)}
        cells = len(arms) * len(LOADS) * len(SHAPES)
        slot_s = max(ROUNDS_PART * session.seconds / ROUNDS / cells, ROUND_LEAST_S)
        bodies = {  # each arm counts for itself: in one round all get the same arrivals
            name: partial(curves, service, known, rule, slot_s, itertools.count(FIRST_SEED))
            for name, rule in arms.items()
        }
        got = session.interleave(bodies, ROUNDS)
        longer = at_longer_limit(session, service, known)
        say_why_curves_stop(session, service, known, arms)
        session.settings["classes_found"] = [int(n) for n in model.found(service.state)]
    for name, rounds in got.items():
        add_rows(session, name, rounds)
    seeds = range(FIRST_SEED, FIRST_SEED + len(got[POLICY]))
    most = {shape: [most_rps(known, shape, slot_s, seed) for seed in seeds] for shape in SHAPES}
    judge(session, chosen, got, longer, most)


def say_why_curves_stop(session: Session, service: Service, known: Measured, arms: Mapping[str, Rule]) -> None:
    """Each arm at its last load once more, beside the counters."""
    seconds = min(max(EXPLAIN_PART * session.seconds / len(arms) / len(SHAPES), LEAST_S), EXPLAIN_S)
    for shape in SHAPES:
        session.say(f"what is used up at the highest load, {shape}")
        for name, rule in arms.items():
            load = load_of(known, shape, LOADS[-1])
            slot, because = service.explain(rule, load, known.limit_us, seconds, FIRST_SEED)
            why = f"{slot.good_rps:,.0f} of {slot.offered_rps:,.0f} requests/s in time, at the highest load offered"
            session.stop(f"{name}, {shape}", why, because)


Curves = dict[tuple[str, float], Slot]


def profile(service: Service) -> Measured:
    """Of batches of each size, one after the other, medians of some looks: the limit hangs on it."""
    looks: dict[int, list[float]] = {size: [] for size in PROFILED}
    for _ in range(PROFILE_LOOKS):
        for size, found in looks.items():
            rule = Rule("profile", {"batch": size, "wait_us": PROFILE_WAIT_US, "queue": 2 * size})
            service.slot(rule, Load(PROFILE_RPS), math.inf, PROFILE_S, seed=1)
            found.append(service.profile().takes_us[size - 1])
    return within({size: statistics.median(found) for size, found in looks.items()}, LIMIT)


def within(takes_us: Mapping[int, float], limit: float) -> Measured:
    """The same under a limit of so many times what one request takes."""
    limit_us = limit * takes_us[1]
    return Measured(takes_us, limit_us, full_rps(takes_us, limit_us))


def full_rps(takes_us: Mapping[int, float], limit_us: float) -> float:
    """What the best batches carry that take half of the limit; of one request, where it allows no more."""
    return max(1e6 * n / us for n, us in takes_us.items() if n == 1 or 2 * us <= limit_us)


def settings(session: Session, known: Measured) -> None:
    """Of the document."""
    session.settings |= {
        "message": f"one request of {model.PAYLOAD_BYTES} bytes, answered by a network of {model.LAYERS} weights",
        "limit_us": known.limit_us,
        "one_us": known.one_us,
        "batch_us": f"{known.line[0]:.0f} + {known.line[1]:.1f} a request",
        "takes_us": {str(n): round(us, 1) for n, us in known.takes_us.items()},
        "load_1_rps": known.full_rps,
        "loads": LOADS,
        "bursts": f"{BURST_SHARE:.0%} of the time {BURST_TIMES:g} times the rate, for {1e3 * BURST_S:g} ms on average",
    }
    session.say(
        f"one request takes {known.one_us:.0f} us, n together {session.settings['batch_us']} us: limit "
        f"{known.limit_us:.0f} us, load 1 is {known.full_rps:,.0f} requests/s"
    )


def load_of(known: Measured, shape: str, times: float) -> Load:
    """A load as this run tells it."""
    return Load(times * known.full_rps, SHAPES[shape])


def sweep(session: Session, service: Service, known: Measured, shape: str) -> list[Rule]:
    """The best fixed rules of a shape, the best first, and last the best that takes one at a time."""
    candidates = rules.fixed_rules(known.limit_us)
    session.say(f"{len(candidates)} fixed rules, {shape}")
    part_s = SWEEP_PART * session.seconds / len(SHAPES)
    first = goodputs(service, known, candidates, shape, SWEPT, part_s, SWEEP_SEEDS[0])
    alone = [rule for rule in candidates if rule.alone]
    ranked = sorted((r for r in candidates if not r.alone), key=lambda rule: -first[rule.name])[:STAY]
    part_s = AGAIN_PART * session.seconds / len(SHAPES)
    second = goodputs(service, known, ranked + alone, shape, LOADS, part_s, SWEEP_SEEDS[1])
    session.settings.setdefault("sweep", {})[shape] = {"first": first, "second": second}
    best = sorted(ranked, key=lambda rule: -second[rule.name])[:FINALISTS]
    return [*best, max(alone, key=lambda rule: second[rule.name])]


def goodputs(
    service: Service, known: Measured, of: Sequence[Rule], shape: str, loads: Sequence[float], seconds: float, seed: int
) -> dict[str, float]:
    """The best goodput of each rule over some loads."""
    slot_s = max(seconds / len(of) / len(loads), LEAST_S)
    found = dict.fromkeys((rule.name for rule in of), 0.0)
    for times in loads:
        for rule in of:
            slot = service.slot(rule, load_of(known, shape, times), known.limit_us, slot_s, seed)
            found[rule.name] = max(found[rule.name], slot.good_rps)
    return found


def at_longer_limit(session: Session, service: Service, known: Measured) -> dict[str, tuple[float, float]]:
    """By shape: the policy's goodput under the longer limit over that of the best fixed batch, and over the best that
    takes one at a time, one look each."""
    longer, ratios = within(known.takes_us, LONGER), {}
    policy = rules.policies(longer.limit_us)[0]
    fixed = rules.fixed_rules(longer.limit_us)
    for shape in SHAPES:
        session.say(f"a limit of {LONGER:g} times one request, {shape}")
        part_s = LONGER_PART * session.seconds / len(SHAPES)
        found = goodputs(service, longer, [policy, *fixed], shape, SWEPT, part_s, SWEEP_SEEDS[0])
        best = [max(found[rule.name] for rule in fixed if rule.alone == alone) for alone in (False, True)]
        ratios[shape] = (_over(found[policy.name], best[0]), _over(found[policy.name], best[1]))
    return ratios


def _over(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else math.nan


def curves(service: Service, known: Measured, rule: Rule, slot_s: float, seeds: Iterator[int]) -> Curves:
    """Both shapes, all loads, once."""
    seed = next(seeds)
    return {
        (shape, times): service.slot(rule, load_of(known, shape, times), known.limit_us, slot_s, seed)
        for shape in SHAPES
        for times in LOADS
    }


def best_of(curve: Curves, shape: str) -> float:
    """The greatest goodput over the loads of a shape."""
    return max(slot.good_rps for (of, _), slot in curve.items() if of == shape)


def most_rps(known: Measured, shape: str, slot_s: float, seed: int) -> float:
    """What an oracle answers in time of the arrivals of a round, requests/s: its greatest over the loads of a shape.
    It is left what the policy is left of the limit."""
    most = 0.0
    for times in LOADS:
        came_ns = load_of(known, shape, times).at_ns(slot_s, seed)
        most = max(most, oracle.most_in_time(came_ns, known.takes_us, known.limit_us - rules.PATH_US) / slot_s)
    return most


def judge(
    session: Session,
    chosen: Mapping[str, Sequence[Rule]],
    got: Mapping[str, Sequence[Curves]],
    longer: Mapping[str, tuple[float, float]],
    most: Mapping[str, Sequence[float]],
) -> None:
    """The figure, and what each shape says. The best fixed rule of a round is that of the round: the better of the
    finalists. most: by shape, what an oracle answers in each round, requests/s."""
    ratios: dict[str, tuple[list[float], list[float]]] = {}
    bounds: dict[str, float] = {}
    for shape in SHAPES:
        ours = [best_of(curve, shape) for curve in got[POLICY]]
        fixed = {rule.name for found in chosen.values() for rule in found if not rule.alone}
        alone = {rule.name for found in chosen.values() for rule in found if rule.alone}
        both = []
        for names, what in ((fixed, OVER_FIXED), (alone, OVER_ALONE)):
            theirs = [max(best_of(got[name][i], shape) for name in names) for i in range(len(ours))]
            both.append(list(pairwise(ours, theirs).pairs))
            bounds[f"bound: an oracle, {shape}, over {what}"] = pairwise(most[shape], theirs).median
        ratios[shape] = (both[0], both[1])
        parts = {name: pairwise(ours, [best_of(c, shape) for c in got[name]]) for name in (NO_DROP, WAITS_TOO)}
        session.note(
            f"{shape}: goodput {statistics.median(ours):,.0f} requests/s, {statistics.median(both[0]):.3g} times that "
            f"of the best fixed batch ({chosen[shape][0].name}) and {statistics.median(both[1]):.3g} times that of one "
            f"at a time; by load, over the best fixed one there, {by_load(got, fixed, shape)}, over the best of one "
            f"at a time, {by_load(got, alone, shape)}; of itself without early drop {parts[NO_DROP]}, of itself with "
            f"waiting {parts[WAITS_TOO]}; of what an oracle answers that knows all arrivals beforehand "
            f"{pairwise(ours, most[shape])}"
        )
    worse = [min(pair) for pair in zip(*ratios[JUDGED], strict=True)]
    beside = {
        f"{shape}, over {what}": statistics.median(values)
        for shape, pair in ratios.items()
        for what, values in zip((OVER_FIXED, OVER_ALONE), pair, strict=True)
    }
    beside |= {
        f"{shape}, limit {LONGER:g} times one request, over {what}": value
        for shape, pair in longer.items()
        for what, value in zip((OVER_FIXED, OVER_ALONE), pair, strict=True)
    }
    beside |= bounds
    session.figure(FIGURES[0], statistics.median(worse), runs=worse, beside=beside)


def by_load(got: Mapping[str, Sequence[Curves]], fixed: Collection[str], shape: str) -> str:
    """The policy's goodput over that of the best of the fixed rules at each load of a shape, medians of the rounds."""
    told = []
    for of, times in got[POLICY][0]:
        if of == shape:
            ours = [curve[of, times].good_rps for curve in got[POLICY]]
            theirs = [max(got[name][i][of, times].good_rps for name in fixed) for i in range(len(ours))]
            told.append(f"{times:g}: {pairwise(ours, theirs).median:.3g}")
    return ", ".join(told)


def add_rows(session: Session, name: str, rounds: Sequence[Curves]) -> None:
    """An arm's row for each shape and load: medians of the rounds."""
    for shape, times in rounds[0]:
        slots = [curve[shape, times] for curve in rounds]

        def middle(key: str, slots: Sequence[Slot] = slots) -> float:
            return statistics.median(float(getattr(slot, key)) for slot in slots)

        session.arm(
            name,
            shape=shape,
            load=times,
            sent=sum(slot.sent for slot in slots),
            answered=sum(slot.answered for slot in slots),
            dropped=sum(slot.late + slot.full for slot in slots),
            offered_rps=middle("offered_rps"),
            achieved_rps=middle("good_rps"),
            p50_us=middle("p50_us"),
            p99_us=middle("p99_us"),
            requests_a_batch=middle("batch"),
            dropped_late=sum(slot.late for slot in slots),
            dropped_full=sum(slot.full for slot in slots),
        )


def plot(document: dict[str, Any]) -> Canvas:
    """Goodput against load, steady and in bursts."""
    arms = document["arms"]
    canvas = Canvas(
        "batch: requests answered within the limit, one core",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in arms),
        panels=2,
        size=(13, 6),
    )
    for panel, shape in enumerate(SHAPES):
        for i, name in enumerate(dict.fromkeys(a["name"] for a in arms)):
            rows = sorted((a for a in arms if (a["name"], a["shape"]) == (name, shape)), key=lambda a: float(a["load"]))
            canvas.curve(
                [a["offered_rps"] for a in rows], [a["achieved_rps"] for a in rows], label=name, colour=i, panel=panel
            )
        axis = canvas.axes[panel]
        axis.set_xlabel(f"requests that came ({shape}, 1/s)")
        axis.set_ylabel("answered within the limit (1/s)")
    limit_us = float(document["settings"]["limit_us"])
    canvas.caption(
        f"Limit {limit_us:.0f} us. Medians of {ROUNDS} rounds. Curves end at the highest load that is offered."
    )
    return canvas
