"""A figure that is the largest of several ratios, from what came of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..goals import GOALS
from ..numbers import plain
from ..session import Session
from .sequential import ABOVE, ERROR, LOOKS, OPEN, SHOWN, Compared

SURE = f"{100 * (1 - 2 * SHOWN):g} %"


def judge(session: Session, figure: str, compared: Mapping[str, Compared], beside: Mapping[str, float]) -> str:
    """Set the figure: the largest ratio of those compared, at least one of which has pairs. The goal is met if all are
    within it, and missed if one is above it. beside: what else stands there. Returns whose ratio it is."""
    found = {name: one for name, one in compared.items() if one.ratio is not None}
    ratios = {name: one.ratio for name, one in found.items() if one.ratio is not None}
    worst = max(ratios, key=lambda name: ratios[name].value)
    ratio = ratios[worst]
    aside = {f"{SURE} from": ratio.low(SHOWN), f"{SURE} to": ratio.high(SHOWN)}
    aside["of all, at most"] = max(one.high(ERROR / len(LOOKS)) for one in ratios.values())
    aside["decided"], aside["of"] = float(sum(one.verdict != OPEN for one in found.values())), float(len(found))
    aside |= beside
    if math.isfinite(ratio.value):
        session.figure(figure, ratio.value, beside=aside, undecided=doubtful(figure, found))
    else:
        reason = f"{worst}: in half of the turns more than a hundredth of the requests stayed unanswered"
        session.figure(figure, None, reason=reason, beside=aside)
    return worst


def doubtful(figure: str, found: Mapping[str, Compared]) -> str:
    """Why the figure is not judged, if so."""
    open_ones = [name for name, one in found.items() if one.verdict == OPEN]
    if not open_ones or any(one.verdict == ABOVE for one in found.values()):
        return ""
    goal = GOALS[figure].goal
    return f"{', '.join(open_ones)}: not known on which side of {goal:g}; measure for longer (--seconds)"


def said(one: Compared) -> dict[str, Any]:
    """What came of an arm, for its row."""
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


def sentence(one: Compared) -> str:
    """What came of an arm, for a person. It has pairs."""
    assert one.ratio is not None
    low, high = one.ratio.low(SHOWN), one.ratio.high(SHOWN)
    lost = f"; {one.lost} pairs left out" if one.lost else ""
    spread = f"{one.ratio.value:.3g} ({low:.3g} to {high:.3g} with {SURE}; {len(one.pairs)} pairs{lost})"
    verdict = f"{one.verdict} {GOALS[one.figure].goal:g}" if one.verdict else "not decided"
    return f"p99, {one.name} over {one.other}: {spread}: {verdict}"
