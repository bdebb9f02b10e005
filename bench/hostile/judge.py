"""The figures of `corelane bench hostile`, from the turns of its arms."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..harness.numbers import Ratio
from ..harness.openloop import Point
from ..harness.session import Session
from ..isolation.victim import ALONE, compare

P99, ATTACH = "hostile.p99_ratio", "hostile.attach_ms"
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


def stand_in(attack: str) -> str:
    """The arm that an attack is compared with, where it shares the victim's core."""
    return f"as busy as: {attack}"


def judge(session: Session, turns: Turns, *, shares_core: bool, wishes: Turns) -> None:
    """Set both figures. wishes: turns without wishes, and with, in this order."""
    over_alone: dict[str, Ratio] = {}
    figure: dict[str, Ratio] = {}
    for name in turns:
        if name == ALONE or name.startswith(stand_in("")):
            continue
        if (ratio := compare(session, turns, name, ALONE)) is not None:
            over_alone[name] = ratio
        below = stand_in(name) if shares_core else ALONE
        if (ratio := compare(session, turns, name, below) if shares_core else ratio) is not None:
            figure[name] = ratio
    attacked = bool(figure)
    without, with_wishes = wishes
    if (ratio := compare(session, wishes, with_wishes, without)) is not None:
        figure[with_wishes] = ratio
    if attacked:
        beside = {OVER_ALONE: max(ratio.median for ratio in over_alone.values())} if over_alone else {}
        beside[CONTROL_SHARE] = max(control_share(turns[name]) for name in figure if name in turns)
        worst = max(figure, key=lambda name: figure[name].median)
        session.settings["figure_from"] = worst
        session.figure(P99, figure[worst].median, runs=figure[worst].pairs, beside=beside)
    else:
        session.figure(P99, None, reason="no attack could be compared: the machine stood still, or none took place")
    judge_attach(session, turns)


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
