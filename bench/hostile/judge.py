"""The figures of `corelane bench hostile`, from the turns of its arms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..harness.goals import GOALS
from ..harness.numbers import Ratio, median_interval
from ..harness.openloop import Point
from ..harness.session import Session
from ..isolation.victim import ALONE, compare

P99, ATTACH = "hostile.p99_ratio", "hostile.attach_ms"
CONFIDENCE = 0.95
SURE = f"{100 * CONFIDENCE:g} %"
WORST = 3  # of the first look are looked at again, even below the goal
OVER_ALONE, CONTROL_SHARE = "p99_over_alone", "control_core_share"  # beside the figure, without a goal


@dataclass
class Turn:
    """A slice of an arm. attach_ms: how long each took that attached after it; inf: it was refused, for `refused`."""

    point: Point
    attach_ms: list[float] = field(default_factory=list)
    refused: str = ""

    @property
    def p99_us(self) -> float:
        return self.point.p99_us


Turns = Mapping[str, Sequence[Turn]]


@dataclass(frozen=True)
class Looks:
    """What two looks found. first: of each attack, over_alone: over the victim alone; again: of the worst, in turns of
    their own. turns: of both.

    The largest of many medians of a few turns each is large by chance: another attack each time. So the first look
    chooses what is measured again, for longer, and the second look alone judges these.
    """

    turns: Turns
    first: dict[str, Ratio]
    over_alone: dict[str, Ratio]
    again: dict[str, Ratio] = field(default_factory=dict)


def stand_in(attack: str) -> str:
    """The arm that an attack is compared with, where it shares the victim's core."""
    return f"as busy as: {attack}"


def over(session: Session, turns: Turns, *, shares_core: bool, when: str = "") -> dict[str, Ratio]:
    """The victim's p99 under each attack over what it is compared with, turn by turn. when: see `compare`."""
    found = {}
    for name in turns:
        if name == ALONE or name.startswith(stand_in("")):
            continue
        ratio = compare(session, turns, name, stand_in(name) if shares_core else ALONE, when)
        if ratio is not None:
            found[name] = ratio
    return found


def suspects(first: Mapping[str, Ratio]) -> list[str]:
    """Attacks to be looked at again: those that the first look finds above the goal, and the next worst, for it may
    have been lucky with one."""
    worst = sorted(first, key=lambda name: first[name].median, reverse=True)
    return [name for number, name in enumerate(worst) if number < WORST or name in above(first)]


def above(ratios: Mapping[str, Ratio]) -> list[str]:
    """Attacks whose ratio is above the goal."""
    return [name for name, ratio in ratios.items() if not GOALS[P99].met(ratio.median)]


def judge(session: Session, looks: Looks, *, wishes: Turns) -> None:
    """Set both figures. wishes: turns without wishes, and with, in this order."""
    first, again, turns, over_alone = looks.first, looks.again, looks.turns, looks.over_alone
    figure = first | again
    without, with_wishes = wishes
    if (ratio := compare(session, wishes, with_wishes, without)) is not None:
        figure[with_wishes] = ratio
    if first:
        beside = {OVER_ALONE: max(ratio.median for ratio in over_alone.values())} if over_alone else {}
        beside[CONTROL_SHARE] = max(control_share(turns[name]) for name in first)
        worst = max(figure, key=lambda name: figure[name].median)
        session.settings |= {"figure_from": worst, "looked_at_again": list(again)}
        ratio, doubt = figure[worst], doubtful(figure)
        session.figure(P99, ratio.median, runs=ratio.pairs, beside=beside | interval(ratio), undecided=doubt)
    else:
        session.figure(P99, None, reason="no attack could be compared: the machine stood still, or none took place")
    judge_attach(session, turns)


def doubtful(figure: Mapping[str, Ratio]) -> str:
    """Why the figure is not judged, if so: medians are above the goal, and each of them may be within it by chance."""
    harmful = above(figure)
    for name in harmful:
        ends = median_interval(figure[name].pairs, CONFIDENCE)
        if ends is not None and not GOALS[P99].met(ends[0]):
            return ""
    if not harmful:
        return ""
    goal = GOALS[P99].goal
    return f"{', '.join(harmful)}: above {goal:g}, but not with {SURE} confidence; measure for longer (--seconds)"


def interval(ratio: Ratio) -> dict[str, float]:
    """Between which values the median lies with CONFIDENCE."""
    ends = median_interval(ratio.pairs, CONFIDENCE)
    return {f"{SURE} from": ends[0], f"{SURE} to": ends[1]} if ends else {}


def control_share(turns: Sequence[Turn]) -> float:
    """Of a CPU that the iokernel used beside its loop in these turns."""
    return statistics.median(float(turn.point.extra.get("control_core_share", math.nan)) for turn in turns)


def judge_attach(session: Session, turns: Turns) -> None:
    """The longest attach under any attack."""
    longest = {name: max(ms for turn in got for ms in turn.attach_ms) for name, got in turns.items() if has_attach(got)}
    if not longest:
        session.figure(ATTACH, None, reason="nobody attached under an attack")
        return
    worst = max(longest, key=lambda name: longest[name])
    session.settings["attach_from"] = worst
    refused = next((turn.refused for turn in turns[worst] if turn.refused), "")
    if refused:
        session.figure(ATTACH, None, reason=f"{worst}: an honest application was refused: {refused}")
    else:
        session.figure(ATTACH, longest[worst], beside={"alone_ms": longest.get(ALONE, math.nan)})


def has_attach(turns: Sequence[Turn]) -> bool:
    """Whether somebody attached in these."""
    return any(turn.attach_ms for turn in turns)
