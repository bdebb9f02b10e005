"""What the slots of `corelane bench colocate` make of its figures, and which of them count.

At half of kv's peak the goal is a p99 under HALF_P99_US with a delay target of HALF_TARGET_US: what lies between the
two is all that the machine may take from it. So that round counts in which the machine's own gaps, watched just before
and just after the arms with no program of ours running, make a p99 of no more than that (CALM_US; the middle one of
their windows). The rule holds for all arms of the round, and knows nothing of what they gave; how many rounds counted,
and what all of them give, stands beside the figure. At the low load every round counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ..harness.goals import GOALS
from ..harness.numbers import Ratio, median_interval, pairwise, plain
from ..harness.openloop import LOSS_LIMIT, middle
from ..harness.session import Session
from .arms import COMPARED, HALF_TARGET_US, LOW_RPS, Beside
from .plot import CANARY, LOWEST

HALF_P99_US = 75.0
CALM_US = HALF_P99_US - HALF_TARGET_US
CALM_LEAST = 5  # rounds that count, for a figure
GAPS_ALONE = "Linux over the machine's gaps alone"
BOUNDS = (CANARY, "kv alone", LOWEST, COMPARED)

Round = dict[str, Beside]


def by_arm(rounds: Sequence[Round]) -> dict[str, list[Beside]]:
    return {name: [one[name] for one in rounds] for name in rounds[0]} if rounds else {}


def middle_p99_us(slots: Sequence[Beside]) -> float:
    """The median of all windows'; inf if nothing was answered in any."""
    windows = [p99 for slot in slots for p99 in slot.point.window_p99_us]
    return statistics.median(windows) if windows else math.inf


def all_p99_us(slots: Sequence[Beside]) -> float:
    """That of all requests of all slots."""
    return middle([slot.point for slot in slots]).p99_us


def calm(got: Round) -> bool:
    """Whether the machine left room for the goal around this round."""
    return got[CANARY].p99_us <= CALM_US


# The low load.


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
        others = {way: p99(theirs) / of_ours[way] for way, p99 in ways.items()}
        ends = [t.p99_us for t in theirs], [b.p99_us for b in beside]
        session.ratio_figure(
            "colocate.linux_p99_over_ours",
            *ends,
            beside=others | interval("it", pairwise(*ends).pairs) | bounds(session, got),
        )
        session.ratio_figure("colocate.batch_over_linux", [b.work for b in beside], [t.work for t in theirs])
    session.settings["low_p99_us"] = {name: plain(middle_p99_us(got[name])) for name in got if name in BOUNDS}


def bounds(session: Session, got: Mapping[str, Sequence[Beside]]) -> dict[str, float]:
    """What the p99 on Linux is over two floors, of neighbouring slots: kv alone, which the figure would be if the job
    cost us nothing, and the machine's gaps, which it would be if kv took no time either. No system reaches more."""
    theirs = got[COMPARED]
    found: dict[str, float] = {}
    for floor, name in (("kv alone", "Linux over kv alone"), (CANARY, GAPS_ALONE)):
        if floor in got:
            ratio = pairwise([t.p99_us for t in theirs], [f.p99_us for f in got[floor]])
            if math.isfinite(ratio.median):  # a machine without gaps is no bound
                found |= {name: ratio.median} | interval(name, ratio.pairs)
    session.settings["linux_p99_over"] = {name: plain(value) for name, value in found.items()}
    if CANARY in got:
        of = {name: middle_p99_us(got[name]) for name in BOUNDS}
        session.note(
            f"p99 of the middle window at {LOW_RPS:,.0f} requests/s: {of[CANARY]:.3g} us are the machine's gaps alone, "
            f"{of['kv alone']:.3g} kv alone, {of[LOWEST]:.3g} beside the job, {of[COMPARED]:.3g} Linux"
        )
    goal = GOALS["colocate.linux_p99_over_ours"].goal
    assert goal is not None
    most = found.get(f"{GAPS_ALONE}, 95 % to", math.inf)
    if most < goal:
        session.note(
            f"{GAPS_ALONE} is {found[GAPS_ALONE]:.3g}, and with 95 % not above {most:.3g}: a goal of {goal:g} lies "
            "beyond what a server that takes no time reached in this run"
        )
    return found


def interval(of: str, values: Sequence[float]) -> dict[str, float]:
    """How well the rounds know their median."""
    found = median_interval(values)
    return {f"{of}, 95 % from": found[0], f"{of}, 95 % to": found[1]} if found else {}


def spread_of(alone: Sequence[Beside], beside: Sequence[Beside], added: Sequence[float]) -> dict[str, float]:
    """How well the rounds know what the job adds to the p99; and what it adds to p50 and p90, which the machine's gaps
    spoil less."""
    found = interval("it", added)
    for name in ("p50", "p90"):
        pairs = zip(alone, beside, strict=True)
        each = [getattr(b.point, f"{name}_us") - getattr(a.point, f"{name}_us") for a, b in pairs]
        found[f"{name} added"] = statistics.median(each)
    return found


# Half of the peak.


def share(got: Mapping[str, Sequence[Beside]], arm: str = "beside") -> Ratio:
    """Work beside kv over the part of the core that kv left, as the iokernel accounted for it in the same slot: from
    each decision for kv to its parking. That is less than half, since kv works in batches. Of another arm likewise."""
    each = [b.work / (1 - float(b.point.extra["kv_core_share"])) for b in got[arm]]
    return pairwise(each, [a.work for a in got["batch alone"]])


def judge_half(session: Session, rounds: Sequence[Round]) -> None:
    """The share, of the rounds that count."""
    name = "colocate.half_batch_over_core_left"
    about = session.settings.setdefault("half", {})
    if not rounds:
        moved = about.get("rounds_in_which_the_cores_moved")
        why = f"the host moved the cores in each of {moved} rounds" if moved else "kv carried no load"
        session.figure(name, None, reason=why)
        return
    counted = [one for one in rounds if calm(one)]
    every, got = by_arm(rounds), by_arm(counted)
    about |= {"rounds": len(rounds), "rounds_that_count": len(counted), "calm_us": CALM_US}
    for which, some in (("all rounds", every), ("the rounds that count", got)):
        if some:
            describe(session, f"{len(some['beside'])} ({which})", some)
    works, alone = ([b.work for b in every[arm]] for arm in ("beside", "batch alone"))
    other = {
        "rounds": float(len(counted)),
        "of": float(len(rounds)),
        "kv's p99, us, of the middle window of all rounds": middle_p99_us(every["beside"]),
        "the share of all rounds": share(every).median,
        "by load, of all rounds: batch work over 1 - load / peak": 2 * pairwise(works, alone).median,
        "unanswered, of all requests": middle([b.point for b in every["beside"]]).loss,
    }
    if len(counted) < CALM_LEAST:
        gaps_us = statistics.median(one[CANARY].p99_us for one in rounds)
        reason = (
            f"in {len(rounds) - len(counted)} of {len(rounds)} rounds the machine's own gaps made a p99 above "
            f"{CALM_US:g} us ({gaps_us:.3g} in the middle one)"
        )
        session.figure(name, None, reason=reason, beside=other)
        return
    p99, ratio = middle_p99_us(got["beside"]), share(got)
    about |= {
        "rps": [b.point.offered_rps for b in got["beside"]],
        "p99_us": plain(p99),
        "p99_us_of": {arm: plain(middle_p99_us(got[arm])) for arm in ("kv alone", CANARY)},
        "kv_core_share": statistics.median(float(b.point.extra["kv_core_share"]) for b in got["beside"]),
    }
    other = {"kv's p99, us, of the middle window": p99} | other
    lost = statistics.median(b.point.loss for b in got["beside"])
    if p99 < HALF_P99_US and lost < LOSS_LIMIT:
        session.figure(name, ratio.median, runs=ratio.pairs, beside=other)
        return
    reason = (
        f"kv left {100 * lost:.2g} % unanswered in the middle slot, not under {100 * LOSS_LIMIT:g} %"
        if p99 < HALF_P99_US
        else f"kv's p99 is {p99:.4g} us there, not under {HALF_P99_US:g}"
    )
    session.figure(name, None, reason=reason, beside=other | {"the share all the same": ratio.median})


def describe(session: Session, which: str, got: Mapping[str, Sequence[Beside]]) -> None:
    """A note of the p99 of each arm in some of the rounds."""
    rates = [b.point.offered_rps for b in got["beside"]]
    session.note(
        f"p99 of the middle window at half of the peak ({min(rates):,.0f} to {max(rates):,.0f} requests/s) in rounds: "
        f"{which}: {middle_p99_us(got[CANARY]):.3g} us the machine's gaps alone, {middle_p99_us(got['kv alone']):.3g} "
        f"kv alone, {middle_p99_us(got['beside']):.3g} beside the job at a target of {HALF_TARGET_US:g}"
    )
