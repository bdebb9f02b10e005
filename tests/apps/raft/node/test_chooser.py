"""Which of two ways commits sooner (chooser.c): in virtual time, from drawn times of batches."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from corelane.apps._native import ffi, lib

Time = Callable[[int, random.Random], float]


class Choice:
    """A chooser and the batches that go through it, one at a time."""

    def __init__(self, seed: int) -> None:
        self.c: Any = ffi.new("struct cl_raft_chooser *")
        self.random = random.Random(seed)

    def run(self, batches: int, took: Time) -> list[int]:
        """took(way): ns of a batch that goes that way. The ways that they went."""
        counts, ways = ffi.new("int *"), []
        for _ in range(batches):
            ways.append(lib.cl_raft_chooser_next(self.c, counts))
            lib.cl_raft_chooser_took(self.c, counts[0], max(int(took(ways[-1], self.random)), 1))
        return ways


LEARN = 8 * 2 * 32
ROUND = 16 * 32
LONGEST = 64 * 32


def noisy(*means: float) -> Time:
    """Times with a long tail: of each way's mean."""
    return lambda way, random: random.expovariate(1 / means[way])


@pytest.mark.parametrize("better", [0, 1])
@pytest.mark.parametrize(
    "which", [*range(6), *(pytest.param(n, marks=pytest.mark.soak(takes_s=1)) for n in range(6, 20))]
)
def test_the_better_way_has_nearly_all_batches(better, which):
    means = [300_000.0, 300_000.0]
    means[better] = 200_000.0
    choice = Choice(which)
    learning = choice.run(LEARN, noisy(*means))
    assert learning.count(0) == learning.count(1)
    choice.run(10 * LONGEST, noisy(*means))
    ways = choice.run(20 * LONGEST, noisy(*means))
    assert choice.c.way == better
    assert 1 / 70 <= ways.count(1 - better) / len(ways) <= 1 / 50


@pytest.mark.parametrize("better", [0, 1])
def test_a_way_that_is_a_little_better_is_the_first_choice(better):
    """Nothing speaks for the one that came first; later a change takes a twentieth."""
    means = [206.0, 206.0]
    means[better] = 200.0
    choice = Choice(0)
    choice.run(LEARN + 1, lambda way, _: means[way])
    assert choice.c.way == better
    choice.run(50 * ROUND, lambda way, _: means[1 - way])
    assert choice.c.way == better, "it changed for less than a twentieth"


def test_rounds_get_longer_while_the_other_way_is_clearly_worse():
    for other, shares in ((230_000, (16, 32, 64, 64)), (220_000, (16, 16, 16, 16))):
        choice = Choice(1)
        times = (other, 200_000)
        choice.run(LEARN, lambda way, _, times=times: times[way])
        for epochs in shares:
            ways = choice.run(32 * epochs, lambda way, _, times=times: times[way])
            assert ways == [1] * 32 * (epochs - 1) + [0] * 32


def test_a_long_round_ends_early_where_batches_take_longer():
    """And the next one is short again: the other way may be better now."""
    choice = Choice(1)
    choice.run(LEARN + ROUND + 2 * ROUND + LONGEST, lambda way, _: (300_000, 200_000)[way])
    assert choice.c.epochs == 64
    ways = choice.run(2 * ROUND + 32, lambda way, _: (300_000, 400_000)[way])
    assert ways == [1] * ROUND + [0] * 32 + [1] * 15 * 32 + [0] * 32


def test_a_tail_counts():
    """Way 1 is faster by a third, but one batch in a hundred takes 30 ms."""

    def took(way: int, random: random.Random) -> float:
        return 300_000 if way == 0 else 30_000_000 if random.random() < 0.01 else 200_000

    choice = Choice(1)
    choice.run(LEARN + 20 * ROUND, took)
    ways = choice.run(40 * ROUND, took)
    assert ways.count(0) > 0.85 * len(ways)


def test_what_changes_is_noticed():
    choice = Choice(2)
    choice.run(LEARN + 8 * ROUND, noisy(300_000, 200_000))
    assert choice.c.way == 1
    choice.run(30 * ROUND, noisy(200_000, 300_000))
    assert choice.c.way == 0
    choice.run(10 * LONGEST, noisy(200_000, 300_000))
    assert choice.c.epochs == 64
    choice.run(30 * ROUND, noisy(300_000, 200_000))
    assert choice.c.way == 1


def test_a_load_that_changes_says_nothing_of_the_ways():
    """Batches become ten times as long, and shorter again, while way 1 takes three quarters of way 0's time."""
    choice = Choice(3)
    choice.run(LEARN + 8 * ROUND, noisy(400_000, 300_000))
    assert choice.c.way == 1
    for factor in (10, 1, 30, 1, 5):
        for _ in range(6):
            choice.run(ROUND, noisy(factor * 400_000, factor * 300_000))
            assert choice.c.way == 1


def test_ways_that_are_alike_do_not_change_often():
    choice = Choice(4)
    changes, before = 0, 0
    for _ in range(200):
        choice.run(ROUND, noisy(300_000, 300_000))
        changes += choice.c.way != before
        before = choice.c.way
    assert changes <= 50, changes  # at the least every fourth round


def test_the_first_batch_of_a_way_counts_for_the_one_before():
    """Where that one left work behind: 50 ms, which would make the other one look bad."""
    last = [0]

    def took(way: int, random: random.Random) -> float:
        left = 50_000_000 if (way, last[0]) == (0, 1) else 0
        last[0] = way
        return 300_000 + left

    choice = Choice(5)
    choice.run(LEARN + 10 * ROUND, took)
    assert choice.c.way == 0
    assert choice.c.mean_ns[0] == 300_000
    assert choice.c.mean_ns[1] > 1_000_000
