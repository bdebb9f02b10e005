"""The ratio of two arms' p99 over all requests, and its interval."""

from __future__ import annotations

import math
import random

import pytest

from corelane.bench.hostile.pooled import pooled
from corelane.runtime.hist import Hist


LONG_RUN = 1.93  # of 3000 turns of `turns`, with a harm of 2: pauses are of the machine, and are in both


def hist(*values_us: float) -> Hist:
    made = Hist()
    for value in values_us:
        if math.isinf(value):
            made.record_infinite()
        else:
            made.record(round(1000 * value))
    return made


def turns(rng: random.Random, n: int, harm: float = 1.0) -> list[Hist]:
    """Each of 300 requests, with a level of its own and now and then a pause of the machine."""
    found = []
    for _ in range(n):
        level = 50 * rng.lognormvariate(0, 0.4) * harm
        pause = [1000 * rng.random()] * rng.choice((0, 0, 0, 0, 4))
        found.append(hist(*(level * rng.expovariate(1) for _ in range(300)), *pause))
    return found


def test_the_ratio_is_that_of_all_requests() -> None:
    short, long = [hist(*[10.0] * 99, 10.0), hist(*[10.0] * 97, *[500.0] * 3)], [hist(*[10.0] * 100)] * 2
    assert pooled(short, long).value == pytest.approx(50, rel=0.04)  # 3 of 200: a hundredth, though the middle is 1
    assert pooled(long, long).value == pytest.approx(1)


def test_the_interval_is_of_turns_and_not_of_requests() -> None:
    calm, bad = hist(*[10.0] * 100), hist(*[10.0] * 90, *[100.0] * 10)
    ratio = pooled([calm, calm, calm, bad], [calm] * 4)
    assert (ratio.low(0.025), ratio.high(0.025)) == (pytest.approx(1), pytest.approx(10, rel=0.04))


def test_unanswered_requests_are_infinite() -> None:
    lost, calm = hist(*[10.0] * 90, *[math.inf] * 10), hist(*[10.0] * 100)
    assert pooled([lost], [calm]).value == math.inf
    assert pooled([lost, calm], [calm, calm]).high(0.025) == math.inf


@pytest.mark.parametrize("harm", [1.0, 2.0])
def test_the_interval_holds_the_truth_as_often_as_it_says(harm: float) -> None:
    rng, missed = random.Random(7), 0
    for _ in range(12):
        ratio = pooled(turns(rng, 16, harm), turns(rng, 16))
        truth = 1.0 if harm == 1 else LONG_RUN
        missed += not ratio.low(0.025) <= truth <= ratio.high(0.025)
    assert missed <= 3


def test_the_same_turns_give_the_same_interval() -> None:
    rng = random.Random(3)
    above, below = turns(rng, 5), turns(rng, 5)
    assert pooled(above, below) == pooled(above, below)


def test_turns_are_pairs() -> None:
    with pytest.raises(ValueError, match="as many on both sides"):
        pooled([hist(1.0)], [])
