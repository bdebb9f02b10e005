"""How the figures of the hostile benchmark are formed."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.pairs import ABOVE, LOOKS, OPEN, WITHIN, Compared, said
from corelane.bench.harness.session import Session
from corelane.bench.hostile.judge import P99, Rounds, Turn, judge
from corelane.bench.isolation.victim import ALONE
from corelane.runtime.hist import Hist

FLOOD, CHURN = "flood", "churn"
N = LOOKS[1]
WISHES = {"greedy": [1.0] * N, "modest": [1.0] * N}


def turn(value_us: float, attach_ms: float | None = None) -> Turn:
    """A turn in which all requests took as long; inf: in which some stayed unanswered."""
    hist = Hist()
    hist.record(round(1000 * (10 if math.isinf(value_us) else value_us)), 100)
    hist.record_infinite(10 if math.isinf(value_us) else 0)
    point = Point(1e6, 1e6, 10_000, 10_000, seconds=0.01, hist=hist)
    point.set_percentiles(hist)
    return Turn(point, [] if attach_ms is None else [attach_ms], "no room" if attach_ms == math.inf else "")


def rounds(p99_us: dict[str, list[float]], over: dict[str, str], attach_ms: dict[str, float]) -> Rounds:
    turns = {name: [turn(value, attach_ms.get(name)) for value in values] for name, values in p99_us.items()}
    done = Rounds(turns, {name: Compared(name, other, P99, len(over)) for name, other in over.items()}, N)
    for name, one in done.compared.items():
        for pair in zip(turns[name], turns[one.other], strict=True):
            one.add(*pair)
        one.look()
    return done


def judged(
    p99_us: dict[str, list[float]],
    *,
    wishes: dict[str, list[float]] | None = None,
    attach_ms: dict[str, float] | None = None,
) -> dict[str, Any]:
    session = Session("hostile", seconds=1, cores=[0], progress=io.StringIO())
    attacks = rounds(p99_us, {name: ALONE for name in p99_us if name != ALONE}, attach_ms or {})
    judge(session, attacks, rounds(wishes or WISHES, {"greedy": "modest"}, {}))
    document = session.document()
    return {"p99": document["figures"]["hostile.p99_ratio"], "attach": document["figures"]["hostile.attach_ms"]} | {
        "settings": document["settings"],
        "attacks": attacks,
    }


def test_the_figure_is_the_largest_ratio() -> None:
    got = judged({ALONE: [10] * N, FLOOD: [11] * N, CHURN: [13] * N})
    assert got["p99"]["value"] == pytest.approx(1.3, rel=0.04)
    assert got["p99"]["met"] is True
    assert got["settings"]["figure_from"] == CHURN
    assert got["p99"]["beside"]["of all, at most"] == pytest.approx(1.3, rel=0.04)
    assert (got["p99"]["beside"]["decided"], got["p99"]["beside"]["of"]) == (3, 3)


def test_one_attack_that_harms_is_a_goal_missed_whatever_is_known_of_others() -> None:
    got = judged({ALONE: [10] * N, FLOOD: [30] * N, CHURN: [10, 40] * (N // 2)})
    assert got["p99"]["met"] is False
    assert got["p99"]["value"] > 1.5


def test_a_figure_within_the_goal_is_not_met_while_an_attack_is_not_decided() -> None:
    got = judged({ALONE: [10] * N, FLOOD: [11] * N, CHURN: [10] * (N - 1) + [10.1]}, wishes=WISHES)
    assert got["p99"]["met"] is True
    got = judged({ALONE: [10] * N, FLOOD: [11] * N, CHURN: [10, 20] * (N // 2)})
    assert got["p99"]["met"] is None
    assert got["p99"]["reason"] == "churn: not known on which side of 1.5; measure for longer (--seconds)"
    (note,) = (note for note in got["settings"]["notes"] if "churn over alone" in note and "judged" not in note)
    assert note.endswith("not decided")


def test_a_row_says_what_came_of_its_attack() -> None:
    one = judged({ALONE: [10] * N, FLOOD: [30] * N})["attacks"].compared[FLOOD]
    row = said(one)
    assert row["ratio"] == row["ratio_from"] == row["ratio_to"] == pytest.approx(3, rel=0.04)
    assert (row["pairs"], row["verdict"]) == (N, ABOVE)
    assert said(Compared(FLOOD, ALONE, P99)) == {}
    assert {WITHIN, ABOVE} & {OPEN} == set()


def test_wishes_are_judged_over_none() -> None:
    got = judged({ALONE: [10] * N, FLOOD: [11] * N}, wishes={"greedy": [15_000] * N, "modest": [300] * N})
    assert got["p99"]["value"] == pytest.approx(50, rel=0.04)
    assert got["settings"]["figure_from"] == "greedy"


def test_turns_that_lost_requests_under_attack_count_as_infinite() -> None:
    got = judged({ALONE: [10] * N, FLOOD: [math.inf] * N})["p99"]
    assert got["value"] is None
    assert "flood: in half of the turns more than a hundredth" in got["reason"]


def test_where_the_machine_stood_still_beside_no_attack_nothing_is_compared() -> None:
    got = judged({ALONE: [math.inf] * N, FLOOD: [12] * N})["p99"]
    assert got["value"] is None
    assert "the machine stood still" in got["reason"]


def test_the_longest_attach_is_judged() -> None:
    attach_ms = {ALONE: 2.0, FLOOD: 90.0, CHURN: 120.0}
    got = judged({ALONE: [10], FLOOD: [10], CHURN: [10]}, attach_ms=attach_ms)["attach"]
    assert got["value"] == pytest.approx(120)
    assert got["met"] is False
    assert got["beside"] == {"alone_ms": 2.0}


def test_a_refused_attach_is_said() -> None:
    got = judged({ALONE: [10], FLOOD: [10]}, attach_ms={FLOOD: math.inf})["attach"]
    assert got["value"] is None
    assert "flood: an honest application was refused: no room" in got["reason"]
