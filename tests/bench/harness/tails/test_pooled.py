"""The ratio of the p99 of all requests of two arms, and its interval."""

from __future__ import annotations

import math
import random

import pytest
from cltest import soak
from cltest.slots import slot

from corelane.bench.harness.tails import Pooled, pooled
from corelane.bench.harness.tails.pooled import LEAST_TURNS, middles, more_often
from corelane.runtime.hist import Hist


def hist(*values_ns: int, infinite: int = 0) -> Hist:
    one = Hist()
    one.record_all(values_ns)
    one.record_infinite(infinite)
    return one


def of(rng: random.Random, pairs: int, level_us: float, **above: float) -> Pooled:
    """An arm with a level, and bursts perhaps, over one at 10 us without."""
    pairs_of = [(slot(rng, level_us, **above).point.hist, slot(rng).point.hist) for _ in range(pairs)]
    return pooled([a for a, _ in pairs_of], [b for _, b in pairs_of])


def test_all_requests_of_an_arm_are_one_population() -> None:
    """A hundredth of all is above 1 000, and of one slot all."""
    slow, quick = hist(*[1000] * 20), hist(*[100] * 990)
    assert pooled([slow, quick], [quick, quick]).above_us == pytest.approx(1, rel=1e-3)
    assert pooled([slow, quick], [quick, quick]).value == pytest.approx(10, rel=1e-3)
    assert pooled([quick, quick], [quick, quick]).value == 1


def test_what_is_not_answered_is_infinite() -> None:
    lost, whole = hist(*[100] * 90, infinite=10), hist(*[100] * 100)
    assert pooled([lost], [whole]).value == math.inf
    assert math.isnan(pooled([whole], [lost]).value)
    assert math.isnan(pooled([lost], [lost]).value)
    many = pooled([lost] * LEAST_TURNS, [lost] * LEAST_TURNS)
    assert (many.low(0.025), many.high(0.025)) == (0, math.inf)


def test_few_pairs_say_nothing() -> None:
    few = pooled([hist(100)] * (LEAST_TURNS - 1), [hist(50)] * (LEAST_TURNS - 1))
    assert (few.value, few.low(0.025), few.high(0.025)) == (pytest.approx(2, rel=1e-3), 0, math.inf)


def test_turns_are_pairs() -> None:
    with pytest.raises(ValueError, match="as many on both sides"):
        pooled([hist(1)], [])


@pytest.mark.soak(short=True, takes_s=2)
@pytest.mark.parametrize("truth", [1.0, 2.0])
def test_the_interval_holds_the_truth_about_as_often_as_it_says(truth: float) -> None:
    rng = random.Random(5)
    found = [of(rng, 12, 10 * truth) for _ in range(soak.examples(20, 40))]
    assert sum(not one.low(0.025) <= truth <= one.high(0.025) for one in found) <= len(found) / 8


def test_bursts_that_are_in_few_slots_are_in_the_ratio() -> None:
    """Two slots in five have one of 12 ms of their 200. The slot in the middle has none."""
    rng = random.Random(6)
    found = of(rng, 64, 10.0, burst=0.4, burst_s=0.012)
    assert found.value > 20
    assert found.low(0.025) > 1.5


def test_a_turn_of_which_nothing_counts_is_in_neither() -> None:
    one, other = hist(*[100] * 100), hist(*[300] * 100)
    found = pooled([None, other] * LEAST_TURNS, [one, None] * LEAST_TURNS)
    assert (found.turns, found.value) == (LEAST_TURNS, pytest.approx(3, rel=1e-3))
    assert found.low(0.025) == found.high(0.025) == found.value
    assert pooled([None, other], [one, one]).low(0.025) == 0
    with pytest.raises(ValueError, match="one that counts"):
        pooled([None], [one])


def test_it_is_drawn_alike_each_time() -> None:
    first, second = (of(random.Random(3), 10, 12.0) for _ in range(2))
    assert first == second


def test_the_middle_slot_forgets_what_is_seldom() -> None:
    found = middles([[10, 20, 9000], [], [20, 30, 20]] * 4, [[10], [10, 11], [9, 8000]] * 4)
    assert (found.above_us, found.below_us, found.turns) == (20, 10, LEAST_TURNS)
    assert found.low(0.025) <= found.value == 2 <= found.high(0.025) < 10
    with pytest.raises(ValueError, match="one that counts"):
        middles([[]], [[1.0]])


def test_few_pairs_say_nothing_of_the_middle_slot_either() -> None:
    few = middles([[20.0]] * (LEAST_TURNS - 1), [[10.0]] * (LEAST_TURNS - 1))
    assert (few.value, few.low(0.025), few.high(0.025)) == (2, 0, math.inf)


def test_how_likely_chance_has_more_in_one_arm() -> None:
    """Of 3 and 1 of 4 each, the lady's cups: 17 of 70."""
    assert more_often(3, 4, 1, 4) == pytest.approx(17 / 70)
    assert more_often(0, 10, 0, 10) == more_often(0, 0, 0, 0) == 1
    assert more_often(13, 32, 0, 32) < 1e-4
    assert more_often(0, 32, 13, 32) == 1
