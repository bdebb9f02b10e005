"""In how many parts commands go (parts.c): from what a trial of each number of parts costs, drawn or given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from corelane.apps._native import ffi, lib

PARTS = (1, 2, 4, 8, 16)
TRIAL = 12  # rounds
LEARN = 2 * len(PARTS) * TRIAL
LONGEST = (128 + len(PARTS)) * TRIAL
Costs = Callable[[int, random.Random], float]


class Leader:
    """Parts, and rounds of 64 commands that each take what that number of parts costs."""

    def __init__(self, seed: int = 1) -> None:
        self.p: Any = ffi.new("struct cl_raft_parts *")
        self.random = random.Random(seed)

    def run(self, rounds: int, cost_ns: Costs, at_once: float = 64) -> Counter[int]:
        """How many rounds went in each number of parts."""
        went: Counter[int] = Counter()
        for _ in range(rounds):
            parts = lib.cl_raft_parts_now(self.p)
            went[parts] += 1
            area = 64 * cost_ns(parts, self.random)
            lib.cl_raft_parts_round(self.p, int(area), int(area / at_once), 64)
        return went

    @property
    def best(self) -> int:
        return PARTS[self.p.best]


def given(costs: Sequence[float], noise: float = 0) -> Costs:
    return lambda parts, random: costs[PARTS.index(parts)] * (1 + noise * random.uniform(-1, 1))


def test_it_begins_with_many_parts():
    assert lib.cl_raft_parts_now(Leader().p) == 16


@pytest.mark.parametrize("best", PARTS)
@pytest.mark.parametrize("noise", [0, 0.1])
def test_the_best_number_of_parts_has_nearly_all_rounds(best, noise):
    """Whatever the others are: no number of parts is found by way of its neighbours."""
    costs = [300_000.0 if parts != best else 200_000.0 for parts in PARTS]
    leader = Leader()
    leader.run(LEARN + TRIAL, given(costs, noise))
    assert leader.best == best
    leader.run(2 * LONGEST, given(costs, noise))
    went = leader.run(4 * LONGEST, given(costs, noise))
    assert went[best] > 0.95 * went.total()
    assert set(went) == set(PARTS), "the others are tried now and then, for the load may change"


def test_what_is_far_worse_is_tried_more_seldom():
    leader = Leader()
    costs = given([190_000, 300_000, 200_000, 200_000, 200_000])
    leader.run(LEARN + 2 * LONGEST, costs)
    went = leader.run(20 * LONGEST, costs)
    assert went[2] < went[4] / 2


def test_a_load_that_changes_is_noticed():
    leader = Leader()
    one, many = given([2e5, 3e5, 3e5, 3e5, 3e5], 0.1), given([9e5, 6e5, 6e5, 6e5, 4e5], 0.1)
    leader.run(LEARN + 4 * LONGEST, one)
    assert leader.best == 1
    leader.run(3 * LONGEST, many)
    assert leader.best == 16
    leader.run(3 * LONGEST, one)
    assert leader.best == 1


def test_a_load_that_swings_says_nothing_of_the_parts():
    """All costs ten times as much for a while: what is best stays so, as a trial is compared with one beside it."""
    leader = Leader()
    costs = [2e5, 2.4e5, 2.4e5, 2.4e5, 2.4e5]
    leader.run(LEARN + LONGEST, given(costs))
    for factor in (10, 1, 30, 1, 5):
        leader.run(3 * LONGEST, given([factor * cost for cost in costs]))
        assert leader.best == 1


def test_a_stall_changes_nothing():
    """One round in a thousand takes a hundred times as long."""
    leader, costs = Leader(3), [2e5, 3e5, 3e5, 3e5, 3e5]
    leader.run(LEARN + LONGEST, given(costs))

    def stalls(parts: int, random: random.Random) -> float:
        return costs[PARTS.index(parts)] * (100 if random.random() < 0.001 else 1)

    went = leader.run(10 * LONGEST, stalls)
    assert went[1] > 0.6 * went.total()


def test_with_one_command_at_a_time_nothing_is_learned():
    """They go at once in any number of parts; what it knew of a load of many is still known."""
    leader = Leader()
    costs = given([2e5, 3e5, 3e5, 3e5, 3e5])
    leader.run(LEARN + LONGEST, costs)
    assert leader.best == 1
    went = leader.run(LONGEST, costs, at_once=1)
    assert went[16] > went.total() - 2 * TRIAL
    leader.run(2 * TRIAL, costs)
    assert leader.best == lib.cl_raft_parts_now(leader.p) == 1


def test_a_round_without_time_is_no_trial():
    leader = Leader()
    for _ in range(10 * LEARN):
        lib.cl_raft_parts_round(leader.p, 0, 0, 0)
        assert lib.cl_raft_parts_now(leader.p) == 16
