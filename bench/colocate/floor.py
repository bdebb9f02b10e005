"""What raw hand-overs (raw.py) reach of the figures of `corelane bench colocate`, in the same rounds.

Beside each figure that hangs on the core's moves stands what the raw hand-overs reached, round by round, with the
interval in which its median lies with 95 %, and what ours is over that. A note says what that means for the goal: the
raw hand-overs missed it as well, or reached it, or the rounds do not tell.
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
from .raw import RAW, RAW_ALONE

Slots = Mapping[str, Sequence[Beside]]


def floor_of_low(session: Session, got: Slots) -> None:
    """Beside the figures of the low load."""
    raw, ours = works(got[RAW]), works(got[LOWEST])
    over_bare = pairwise(ours, raw).pairs
    put(session, "colocate.low_batch_share", pairwise(raw, works(got["batch alone"])).pairs, over_bare)
    if COMPARED in got:
        put(session, "colocate.batch_over_linux", pairwise(raw, works(got[COMPARED])).pairs, over_bare)
        put(session, "colocate.linux_p99_over_ours", pairwise(p99s(got[COMPARED]), p99s(got[RAW])).pairs)
    pairs = zip(p99s(got[RAW]), p99s(got[RAW_ALONE]), strict=True)
    added = [beside - alone if math.isfinite(beside) else math.inf for beside, alone in pairs]
    put(session, "colocate.low_p99_added_us", added)
    for name in ("p50", "p90"):
        each = [
            getattr(beside.point, f"{name}_us") - getattr(alone.point, f"{name}_us")
            for beside, alone in zip(got[RAW], got[RAW_ALONE], strict=True)
        ]
        session.figures["colocate.low_p99_added_us"]["beside"][f"{RAW}, {name} added"] = statistics.median(each)
    about = session.settings.setdefault("raw", {})
    about["low_p99_us"] = {name: plain(middle_p99_us(got[name])) for name in (RAW, RAW_ALONE)}


def floor_of_half(session: Session, rounds: Sequence[Round]) -> None:
    """Beside the share at half of the peak: of the rounds that count, or of all where those are too few."""
    if not rounds:
        return
    counted = [one for one in rounds if calm(one)]
    enough = len(counted) >= CALM_LEAST
    got, which = by_arm(counted if enough else rounds), "the rounds that count" if enough else "all rounds"
    p99_us = middle_p99_us(got[RAW])
    name = "colocate.half_batch_over_core_left"
    tailed = p99_us >= HALF_P99_US
    ours_over = pairwise(share(got).pairs, share(got, RAW).pairs).pairs
    put(session, name, share(got, RAW).pairs, ours_over, told=not tailed)  # the goal is of both
    session.figures[name]["beside"][f"{RAW}, p99, us, of the middle window"] = p99_us
    session.settings.setdefault("raw", {})["half_p99_us"] = plain(p99_us)
    session.settings["raw"]["half_rounds"] = which
    if tailed:
        session.note(
            f"at half of kv's peak the p99 of {RAW} is {p99_us:.3g} us in the middle window of {which}: one under "
            f"{HALF_P99_US:g} lies beyond what two processes and a generator reached in this run"
        )


def works(slots: Sequence[Beside]) -> list[float]:
    return [slot.work for slot in slots]


def p99s(slots: Sequence[Beside]) -> list[float]:
    return [slot.p99_us for slot in slots]


def put(
    session: Session, name: str, values: Sequence[float], over_bare: Sequence[float] = (), told: bool = True
) -> None:
    """Beside a figure: what raw hand-overs reached of it, round by round, and ours over theirs; told: a note, too,
    on what that says of the goal."""
    middle = statistics.median(values)
    found = {RAW: middle} | interval(RAW, values)
    if over_bare:
        ratio = "ours over raw hand-overs"
        found |= {ratio: statistics.median(over_bare)} | interval(ratio, over_bare)
    figure = session.figures[name]
    figure["beside"] = dict(figure.get("beside") or {}) | {key: v for key, v in found.items() if math.isfinite(v)}
    if told:
        session.note(verdict(name, middle, median_interval(values)))


def verdict(name: str, middle: float, ends: tuple[float, float] | None) -> str:
    """What raw hand-overs say of the goal of a figure. ends: of the interval of their median; None: too few rounds."""
    goal = GOALS[name]
    what = f"{RAW} reached {middle:.3g} of {name}"
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
