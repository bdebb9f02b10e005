"""Percentiles and ratios."""

import math
import random

import pytest

from corelane.bench.harness.numbers import median_interval, number, pairwise, percentile, plain


def test_percentile_is_nearest_rank() -> None:
    values = [float(v) for v in range(1, 101)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile(values, 0.999) == 100
    assert percentile([7.0], 0.5) == 7


def test_percentile_covers_the_fraction_asked_for(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        values = sorted(rng.random() for _ in range(rng.randrange(1, 50)))
        q = rng.random()
        got = percentile(values, q)
        assert sum(v <= got for v in values) >= q * len(values)
        assert sum(v < got for v in values) < q * len(values) or got == values[0]


def test_unanswered_requests_are_infinite() -> None:
    values = [1.0] * 990
    assert percentile(values, 0.99, unanswered=10) == 1.0
    assert percentile(values, 0.991, unanswered=10) == math.inf
    assert percentile([], 0.5, unanswered=3) == math.inf
    assert math.isnan(percentile([], 0.5))


def test_the_spread_of_many_pairs_is_their_middle_half() -> None:
    assert pairwise([1, 2, 3, 4, 500], [1, 1, 1, 1, 1]).spread == "3 (half of 5 pairs within 2 .. 4)"
    assert pairwise([3], [2]).spread == "1.5 (one pair)"


def test_ratios_are_taken_pair_by_pair() -> None:
    ratio = pairwise([10, 40, 9], [5, 10, 9])
    assert ratio.pairs == (2, 4, 1)
    assert (ratio.min, ratio.median, ratio.max) == (1, 2, 4)
    assert pairwise([1.0], [0.0]).median == math.inf
    with pytest.raises(ValueError, match="as many values"):
        pairwise([1, 2], [1])
    with pytest.raises(ValueError, match="at least one"):
        pairwise([], [])


def test_numbers_survive_json() -> None:
    assert plain(math.inf) == "inf"
    assert number(plain(math.inf)) == math.inf
    assert plain(math.nan) is None
    assert math.isnan(number(None))
    assert number(plain(1.5)) == 1.5


def test_the_interval_of_a_median() -> None:
    """Ranks from tables of the binomial: of 6 the ends, of 10 the second, of 32 the tenth; of 5 none."""
    assert median_interval([5, 3, 1, 6, 2, 4]) == (1, 6)
    assert median_interval(range(1, 11)) == (2, 9)
    assert median_interval(range(1, 33)) == (10, 23)
    assert median_interval(range(1, 33), 0.8) == (12, 21)
    assert median_interval(range(5)) is None
    assert median_interval([]) is None
