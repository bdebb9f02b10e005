"""How the figures of the hostile benchmark are formed."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from corelane.bench.harness.numbers import Ratio
from corelane.bench.harness.openloop import Point
from corelane.bench.harness.session import Session
from corelane.bench.hostile.judge import Looks, Turn, judge, over, stand_in, suspects
from corelane.bench.isolation.victim import ALONE

FLOOD, CHURN = "flood", "churn"
WISHES = {"modest": [1.0], "greedy": [1.0]}


def turns(p99_us: dict[str, list[float]], attach_ms: dict[str, float] | None = None) -> dict[str, list[Turn]]:
    def turn(name: str, value: float) -> Turn:
        took = (attach_ms or {}).get(name)
        point = Point(1e6, 1e6, 10_000, 10_000, p99_us=value, seconds=0.01)
        return Turn(point, [] if took is None else [took], "no room" if took == math.inf else "")

    return {name: [turn(name, value) for value in values] for name, values in p99_us.items()}


def judged(
    p99_us: dict[str, list[float]],
    *,
    shares_core: bool = False,
    wishes: dict[str, list[float]] | None = None,
    attach_ms: dict[str, float] | None = None,
    again: dict[str, list[float]] | None = None,
) -> dict[str, Any]:
    session = Session("hostile", seconds=1, cores=[0], progress=io.StringIO())
    first = over(session, turns(p99_us), shares_core=shares_core)
    more = over(session, turns(again or {}), shares_core=shares_core)
    alone = over(session, turns(p99_us), shares_core=False)
    both = {name: [*got, *turns(again or {}).get(name, ())] for name, got in turns(p99_us, attach_ms).items()}
    judge(session, Looks(both, first, alone, more), wishes=turns(wishes or WISHES))
    document = session.document()
    return {"p99": document["figures"]["hostile.p99_ratio"], "attach": document["figures"]["hostile.attach_ms"]} | {
        "settings": document["settings"]
    }


def test_with_a_third_core_the_figure_is_the_worst_attack_over_alone() -> None:
    got = judged({ALONE: [10, 10, 10], FLOOD: [11, 12, 4000], CHURN: [14, 13, 13]})
    assert got["p99"]["value"] == pytest.approx(1.3)
    assert got["settings"]["figure_from"] == CHURN


def test_where_the_attacker_shares_the_core_the_figure_is_over_neighbours_as_busy() -> None:
    arms = {ALONE: [10, 10, 10], FLOOD: [44, 42, 40], stand_in(FLOOD): [40, 40, 40]}
    got = judged(arms, shares_core=True)
    assert got["p99"]["value"] == pytest.approx(1.05)
    assert got["p99"]["beside"] == {"p99_over_alone": pytest.approx(4.2), "control_core_share": None}


def test_what_the_first_look_finds_is_judged_by_the_second() -> None:
    first = {ALONE: [10, 10, 10], FLOOD: [50, 40, 10], CHURN: [12, 11, 12]}
    got = judged(first, again={ALONE: [10] * 8, FLOOD: [13, 11, 9, 10, 14, 11, 13, 11]})
    assert got["p99"]["value"] == pytest.approx(1.2)
    assert got["p99"]["met"] is True
    assert got["settings"]["figure_from"] == CHURN
    assert got["settings"]["looked_at_again"] == [FLOOD]


def test_a_victim_that_is_harmed_each_time_is_a_goal_missed() -> None:
    got = judged({ALONE: [10, 10], FLOOD: [30, 31]}, again={ALONE: [10] * 8, FLOOD: [30, 28, 31, 16, 33, 29, 30, 30]})
    assert got["p99"]["value"] == pytest.approx(3)
    assert got["p99"]["met"] is False
    assert got["p99"]["beside"]["95 % from"] == pytest.approx(1.6)


def test_a_victim_that_may_be_harmed_is_not_judged() -> None:
    got = judged({ALONE: [10, 10], FLOOD: [30, 31]}, again={ALONE: [10] * 8, FLOOD: [30, 8, 31, 9, 7, 33, 20, 40]})
    assert got["p99"]["value"] == pytest.approx(2.5)
    assert got["p99"]["met"] is None
    assert got["p99"]["reason"] == "flood: above 1.5, but not with 95 % confidence; measure for longer (--seconds)"


@pytest.mark.parametrize(("harm", "never"), [(1.0, False), (3.0, True)])
def test_chance_is_no_harm_and_harm_no_chance(harm: float, never: bool) -> None:
    """Fifteen attacks, of which one does harm. Half of the pairs that do none are off by a factor of 1.6 or more."""
    found = []
    for seed in range(30):
        rng = random.Random(seed)

        def draw(n: int, who: Sequence[str], rng: random.Random = rng) -> dict[str, list[float]]:
            noisy = {name: [100 * rng.lognormvariate(0, 0.5) for _ in range(n)] for name in (ALONE, *who)}
            return noisy | {FLOOD: [harm * p99 for p99 in noisy[FLOOD]]} if FLOOD in who else noisy

        first = draw(6, (FLOOD, *(f"attack {i}" for i in range(14))))
        chosen = suspects(over(Session("hostile", cores=[0]), turns(first), shares_core=False))
        found.append(judged(first, again=draw(30, chosen))["p99"]["met"])
    assert never not in found
    assert found.count(not never) > 20


def test_the_worst_of_the_first_look_are_looked_at_again() -> None:
    first = {f"attack {i}": Ratio((1 + i / 10,)) for i in range(5)}
    assert suspects(first) == ["attack 4", "attack 3", "attack 2"]
    assert suspects(first | {f"harm {i}": Ratio((2.0,)) for i in range(4)}) == [f"harm {i}" for i in range(4)]


def test_wishes_are_judged_over_none() -> None:
    got = judged({ALONE: [10], FLOOD: [11]}, wishes={"modest": [300, 300], "greedy": [15_000, 15_000]})
    assert got["p99"]["value"] == pytest.approx(50)
    assert got["settings"]["figure_from"] == "greedy"


def test_a_slice_that_lost_requests_under_attack_counts_as_infinite() -> None:
    got = judged({ALONE: [10, 10, 10], FLOOD: [11, math.inf, math.inf]})
    assert got["p99"]["value"] is None
    assert got["p99"]["met"] is not True


def test_a_pair_whose_slice_without_attack_lost_requests_is_left_out() -> None:
    assert judged({ALONE: [10, math.inf, 10], FLOOD: [12, 10, 13]})["p99"]["runs"] == pytest.approx([1.2, 1.3])
    got = judged({ALONE: [math.inf, math.inf, 10], FLOOD: [12, 10, 13]}, wishes={"modest": [], "greedy": []})
    assert got["p99"]["value"] is None
    assert "the machine stood still" in got["p99"]["reason"]


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
