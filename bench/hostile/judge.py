"""The figures of `corelane bench hostile`, from what came of each attack."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..harness import pairs
from ..harness.openloop import middle
from ..harness.session import Session
from ..isolation.victim import ALONE

P99, ATTACH = "hostile.p99_ratio", "hostile.attach_ms"
OVER_ALONE, CONTROL_SHARE = "p99_over_alone", "control_core_share"  # beside the figure, without a goal


@dataclass
class Turn(pairs.Turn):
    """A slice of an arm. attach_ms: how long each took that attached after it; inf: it was refused, for `refused`."""

    attach_ms: list[float] = field(default_factory=list)
    refused: str = ""


Rounds = pairs.Rounds[Turn]


def stand_in(attack: str) -> str:
    """The arm that an attack is compared with, where it shares the victim's core."""
    return f"as busy as: {attack}"


def judge(session: Session, attacks: Rounds, wishes: Rounds) -> None:
    """Set both figures, and a note of what was decided."""
    compared = {**attacks.compared, **wishes.compared}
    found = {name: one for name, one in compared.items() if one.ratio is not None}
    session.settings["rounds"] = {
        "attacks": {"counted": attacks.rounds, "loud": attacks.loud},
        "wishes": {"counted": wishes.rounds, "loud": wishes.loud},
    }
    for one in found.values():
        session.note(pairs.sentence(one))
    if any(one.ratio for one in attacks.compared.values()):
        shares = [control_share(attacks.turns[name]) for name in attacks.compared if attacks.turns[name]]
        beside = {**over_alone(attacks), CONTROL_SHARE: max(shares, default=math.nan)}
        session.settings["figure_from"] = pairs.judge(session, P99, found, beside)
    else:
        session.figure(P99, None, reason="no attack could be compared: the machine stood still, or none took place")
    judge_attach(session, attacks.turns)


def over_alone(attacks: Rounds) -> dict[str, float]:
    """The largest ratio over the victim alone, of all requests of both."""
    p99_us = {name: middle([turn.point for turn in turns]).p99_us for name, turns in attacks.turns.items() if turns}
    under = [p99_us[name] for name in attacks.compared if name in p99_us]
    return {OVER_ALONE: max(under) / p99_us[ALONE]} if under and p99_us.get(ALONE) else {}


def control_share(turns: Sequence[Turn]) -> float:
    """Of a CPU that the iokernel used beside its loop in these turns."""
    return statistics.median(float(turn.point.extra.get("control_core_share", math.nan)) for turn in turns)


def judge_attach(session: Session, turns: Mapping[str, Sequence[Turn]]) -> None:
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
