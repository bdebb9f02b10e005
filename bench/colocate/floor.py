"""What raw hand-overs (raw.py) reach of the figures of `corelane bench colocate`, in the same rounds.

Beside each figure that hangs on the core's moves stands what the raw hand-overs reached, round by round, with the
interval in which its median lies with 95 %, and what ours is over that. There are two of them: in one the server only
spends the time of a request, in the other it does what kv does. A note says what that means for the goal: the raw
hand-overs missed it as well, or reached it, or the rounds do not tell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from ..harness.goals import GOALS
from ..harness.numbers import median_interval, pairwise, plain
from ..harness.session import Session
from .arms import COMPARED, Beside
from .judge import CALM_LEAST, HALF_P99_US, Round, by_arm, calm, interval, middle_p99_us, share
from .plot import LOWEST
from .raw import RAW, RAW_ALONE, RAW_KV, RAW_KV_ALONE

FLOORS = {RAW: RAW_ALONE, RAW_KV: RAW_KV_ALONE}  # with the same server alone
Slots = Mapping[str, Sequence[Beside]]


def floor_of_low(session: Session, got: Slots) -> None:
    """Beside the figures of the low load: raw hand-overs, also those whose server does what kv does."""
    ours = works(got[LOWEST])
    for name, alone_name in FLOORS.items():
        if name not in got:
            continue
        raw = works(got[name])
        over_raw = pairwise(ours, raw).pairs
        batch_share = pairwise(raw, works(got["batch alone"])).pairs
        put(session, "colocate.low_batch_share", batch_share, over_raw, floor=name)
        if COMPARED in got:
            put(session, "colocate.batch_over_linux", pairwise(raw, works(got[COMPARED])).pairs, over_raw, floor=name)
            p99_over = pairwise(p99s(got[COMPARED]), p99s(got[name])).pairs
            put(session, "colocate.linux_p99_over_ours", p99_over, floor=name)
        added = added_us(got[name], got[alone_name], "p99")
        put(session, "colocate.low_p99_added_us", added, floor=name)
        for quantile in ("p50", "p90"):
            each = added_us(got[name], got[alone_name], quantile)
            said = {f"{name}, {quantile} added": statistics.median(each)}
            session.figures["colocate.low_p99_added_us"]["beside"] |= said
        about = session.settings.setdefault("raw", {}).setdefault("low_p99_us", {})
        about |= {one: plain(middle_p99_us(got[one])) for one in (name, alone_name)}


def added_us(beside: Sequence[Beside], alone: Sequence[Beside], which: str) -> list[float]:
    """What the job adds to a percentile, round by round; p99 is that of the middle window."""

    def of(slot: Beside) -> float:
        return slot.p99_us if which == "p99" else float(getattr(slot.point, f"{which}_us"))

    pairs = [(of(b), of(a)) for b, a in zip(beside, alone, strict=True)]
    return [b - a if math.isfinite(b) else math.inf for b, a in pairs]


def floor_of_half(session: Session, rounds: Sequence[Round]) -> None:
    """Beside the share at half of the peak: of the rounds that count, or of all where those are too few."""
    if not rounds:
        return
    counted = [one for one in rounds if calm(one)]
    enough = len(counted) >= CALM_LEAST
    got, which = by_arm(counted if enough else rounds), "the rounds that count" if enough else "all rounds"
    name = "colocate.half_batch_over_core_left"
    about = session.settings.setdefault("raw", {})
    about["half_rounds"] = which
    for floor in (one for one in FLOORS if one in got):
        p99_us = middle_p99_us(got[floor])
        tailed = p99_us >= HALF_P99_US
        shares = share(got, floor).pairs
        ours_over = pairwise(share(got).pairs, shares).pairs
        put(session, name, shares, ours_over, told=not tailed, floor=floor)  # the goal is of both
        session.figures[name]["beside"][f"{floor}, p99, us, of the middle window"] = p99_us
        about.setdefault("half_p99_us", {})[floor] = plain(p99_us)
        if tailed:
            session.note(
                f"at half of kv's peak the p99 of {floor} is {p99_us:.3g} us in the middle window of {which}: one "
                f"under {HALF_P99_US:g} lies beyond what two processes and a generator reached in this run"
            )


def works(slots: Sequence[Beside]) -> list[float]:
    return [slot.work for slot in slots]


def p99s(slots: Sequence[Beside]) -> list[float]:
    return [slot.p99_us for slot in slots]


def put(
    session: Session,
    figure_name: str,
    values: Sequence[float],
    over_raw: Sequence[float] = (),
    *,
    floor: str = RAW,
    told: bool = True,
) -> None:
    """Beside a figure: what raw hand-overs reached of it, round by round, and ours over theirs; told: a note, too,
    on what that says of the goal. floor: which raw hand-overs."""
    middle = statistics.median(values)
    found = {floor: middle} | interval(floor, values)
    if over_raw:
        ratio = f"ours over {floor}"
        found |= {ratio: statistics.median(over_raw)} | interval(ratio, over_raw)
    figure = session.figures[figure_name]
    figure["beside"] = dict(figure.get("beside") or {}) | {key: v for key, v in found.items() if math.isfinite(v)}
    if told:
        session.note(verdict(figure_name, middle, median_interval(values), floor))


def verdict(name: str, middle: float, ends: tuple[float, float] | None, floor: str = RAW) -> str:
    """What raw hand-overs say of the goal of a figure. ends: of the interval of their median; None: too few rounds."""
    goal = GOALS[name]
    what = f"{floor} reached {middle:.3g} of {name}"
    if not math.isfinite(middle):
        return f"{what}: the rounds tell nothing of the goal"
    if ends is None:
        return f"{what}, in too few rounds to say more"
    low, high = ends
    best, worst, never = (high, low, "above") if goal.sense == "at least" else (low, high, "below")
    if not goal.met(best):
        return (
            f"{what}, and with 95 % not {never} {best:.3g}: a goal of {goal.goal:g} lies beyond what two processes "
            "without network, iokernel and policy reached in this run"
        )
    spread = f"{what} ({low:.3g} to {high:.3g} with 95 %)"
    if goal.met(worst):
        return f"{spread}: a goal of {goal.goal:g} is within reach of a core that moves"
    return f"{spread}: whether a goal of {goal.goal:g} is within reach of a core that moves these rounds do not tell"
