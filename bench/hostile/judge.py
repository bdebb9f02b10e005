"""The figures of `corelane bench hostile`, from what came of each attack."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..harness.goals import GOALS
from ..harness.numbers import plain
from ..harness.openloop import middle
from ..harness.session import Session
from ..isolation.victim import ALONE
from .sequential import ABOVE, ERROR, LOOKS, OPEN, P99, SHOWN, Compared, Rounds, Turn

ATTACH = "hostile.attach_ms"
SURE = f"{100 * (1 - 2 * SHOWN):g} %"
OVER_ALONE, CONTROL_SHARE = "p99_over_alone", "control_core_share"  # beside the figure, without a goal


def stand_in(attack: str) -> str:
    """The arm that an attack is compared with, where it shares the victim's core."""
    return f"as busy as: {attack}"


def said(one: Compared) -> dict[str, Any]:
    """What came of an attack, for its row."""
    if one.ratio is None:
        return {}
    assert one.whole is not None
    bad, other = one.bad
    whole = {"whole_turns": one.whole.value, "whole_from": one.whole.low(SHOWN), "whole_to": one.whole.high(SHOWN)}
    return {
        "ratio": plain(one.ratio.value),
        "ratio_from": plain(one.ratio.low(SHOWN)),
        "ratio_to": plain(one.ratio.high(SHOWN)),
        "pairs": len(one.pairs),
        "verdict": one.verdict or "not decided",
        **{name: plain(value) for name, value in whole.items()},
        "all_requests": plain(one.of_all),
        "bad_turns": bad,
        "bad_turns_of_the_other": other,
        "p99_us_of_turns": [[plain(turn.p99_us) for turn in pair] for pair in one.pairs],
    }


def judge(session: Session, attacks: Rounds, wishes: Rounds) -> None:
    """Set both figures, and a note of what was decided."""
    compared = {**attacks.compared, **wishes.compared}
    found = {name: one for name, one in compared.items() if one.ratio is not None}
    session.settings["rounds"] = {
        "attacks": {"counted": attacks.rounds, "loud": attacks.loud},
        "wishes": {"counted": wishes.rounds, "loud": wishes.loud},
    }
    for name, one in found.items():
        session.note(sentence(name, one))
    if any(one.ratio for one in attacks.compared.values()):
        judge_p99(session, attacks, found)
    else:
        session.figure(P99, None, reason="no attack could be compared: the machine stood still, or none took place")
    judge_attach(session, attacks.turns)


def sentence(name: str, one: Compared) -> str:
    """What came of an attack, for a person."""
    assert one.ratio is not None
    low, high = one.ratio.low(SHOWN), one.ratio.high(SHOWN)
    lost = f"; {one.lost} pairs left out" if one.lost else ""
    spread = f"{one.ratio.value:.3g} ({low:.3g} to {high:.3g} with {SURE}; {len(one.pairs)} pairs{lost})"
    return f"p99, {name} over {one.other}: {spread}: {verdict(one)}"


def verdict(one: Compared) -> str:
    """Which side of the goal."""
    return f"{one.verdict} {GOALS[P99].goal:g}" if one.verdict else "not decided"


def judge_p99(session: Session, attacks: Rounds, found: Mapping[str, Compared]) -> None:
    """The largest ratio. The goal is met if all attacks are within it, and missed if one is above it."""
    ratios = {name: one.ratio for name, one in found.items() if one.ratio is not None}
    worst = max(ratios, key=lambda name: ratios[name].value)
    ratio = ratios[worst]
    beside = {f"{SURE} from": ratio.low(SHOWN), f"{SURE} to": ratio.high(SHOWN)}
    beside["of all, at most"] = max(one.high(ERROR / len(LOOKS)) for one in ratios.values())
    beside["decided"], beside["of"] = float(sum(one.verdict != OPEN for one in found.values())), float(len(found))
    beside |= over_alone(attacks)
    shares = [control_share(attacks.turns[name]) for name in attacks.compared if attacks.turns[name]]
    beside[CONTROL_SHARE] = max(shares, default=math.nan)
    session.settings["figure_from"] = worst
    doubt = doubtful(found)
    if not math.isfinite(ratio.value):
        reason = f"{worst}: in half of the turns more than a hundredth of the victim's requests stayed unanswered"
        session.figure(P99, None, reason=reason, beside=beside)
        return
    session.figure(P99, ratio.value, beside=beside, undecided=doubt)


def doubtful(found: Mapping[str, Compared]) -> str:
    """Why the figure is not judged, if so."""
    open_ones = [name for name, one in found.items() if one.verdict == OPEN]
    if not open_ones or any(one.verdict == ABOVE for one in found.values()):
        return ""
    goal = GOALS[P99].goal
    return f"{', '.join(open_ones)}: not known on which side of {goal:g}; measure for longer (--seconds)"


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
