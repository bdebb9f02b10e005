"""The ratio of turns in pairs, and its interval."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from corelane.bench.harness.pairs.paired import left_out, paired


def noisy(rng: random.Random, n: int, harm: float = 1.0) -> list[float]:
    """p99 of turns, each with a level of its own and now and then a pause of the machine that is all of it."""
    level = [100 * harm * rng.lognormvariate(0, 0.4) for _ in range(n)]
    return [max(one, rng.choice((0, 0, 0, 0, 3000))) for one in level]


def test_the_ratio_is_the_middle_of_pairs() -> None:
    assert paired([10, 20, 30], [10, 10, 10]).value == pytest.approx(2, rel=0.15)
    assert paired([20.0] * 9 + [9000], [10.0] * 10).value == pytest.approx(2)


def test_the_interval_is_that_of_the_signed_ranks() -> None:
    """By all ways in which the signs of eight ranks may fall."""
    sums = [sum(rank for rank, up in enumerate(signs, 1) if up) for signs in itertools.product((0, 1), repeat=8)]
    for error in (0.001, 0.00391, 0.01, 0.025, 0.1):
        k = left_out(8, error)
        assert sum(one < k for one in sums) / 256 <= error
        assert sum(one <= k for one in sums) / 256 > error
    ratio = paired([math.exp(i) for i in range(1, 9)], [1.0] * 8)
    assert (ratio.low(0.0039), ratio.low(0.004)) == (0, pytest.approx(math.e))
    assert (ratio.high(0.0039), ratio.high(0.004)) == (math.inf, pytest.approx(math.exp(8)))


@pytest.mark.parametrize("harm", [1.0, 2.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(harm: float) -> None:
    """Pauses are in both arms, so that the middle of pairs is a little nearer to 1 than the harm."""
    rng, truth = random.Random(7), 1.0 if harm == 1 else 1.93
    found = [paired(noisy(rng, 16, harm), noisy(rng, 16)) for _ in range(400)]
    missed = sum(not ratio.low(0.025) <= truth <= ratio.high(0.025) for ratio in found)
    assert missed <= 400 * 0.08


def test_few_pairs_say_nothing() -> None:
    one = paired([10.0], [10.0])
    assert (one.value, one.low(0.025), one.high(0.025)) == (1, 0, math.inf)


def test_a_turn_that_lost_requests_is_infinite() -> None:
    ratio = paired([10.0, 11.0, math.inf, 12.0, 9.0, 10.0, 11.0], [10.0] * 7)
    assert ratio.value == pytest.approx(1.05, abs=0.05)
    assert ratio.high(0.01) == math.inf
    assert paired([math.inf] * 3, [10.0] * 3).value == math.inf


def test_turns_are_pairs() -> None:
    with pytest.raises(ValueError, match="as many on both sides"):
        paired([1.0], [])
