"""Turns of the durable put: who follows whom, and what is compared with what. No speed is asserted."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from corelane.bench.raft.turns import Turns, joined, order, take_turns


@dataclass(frozen=True)
class Turn:
    """A put's median."""

    p50_us: float


def test_ours_is_before_and_after_each_of_the_others() -> None:
    said: list[str] = []

    def arm(name: str) -> Turn:
        said.append(name)
        return Turn(float(len(said)))

    others = {name: (lambda name=name: arm(name)) for name in "abc"}
    turns = take_turns(lambda: arm("ours"), others, range(4), lambda number: said.append(str(number)))
    plain = [name for name in said if not name.isdigit()]
    assert plain[::2] == ["ours"] * 13
    assert sorted(plain[1::2]) == sorted("abc" * 4)
    for name in "abc":  # time goes on evenly here but for the word of a round, so the mean around is the time between
        for turn, beside in zip(turns.others[name], turns.beside[name], strict=True):
            assert beside == pytest.approx(turn.p50_us, abs=0.5)
        assert turns.ours_over(name).median == pytest.approx(1 / turns.over_ours(name).median, rel=1e-2)


def test_rounds_taken_one_by_one_each_have_ours_on_both_sides() -> None:
    clock = itertools.count(1)
    others = {name: (lambda: Turn(float(next(clock)))) for name in "ab"}
    parts = [take_turns(lambda: Turn(float(next(clock))), others, [number]) for number in (0, 2)]
    turns = joined(parts)
    assert [turn.p50_us for turn in turns.ours] == [1, 3, 5, 6, 8, 10]
    assert {name: [turn.p50_us for turn in of] for name, of in turns.others.items()} == {"a": [2, 9], "b": [4, 7]}
    assert turns.beside == {"a": [2, 9], "b": [4, 7]}


def test_each_other_one_begins_a_round_and_ends_one() -> None:
    rounds = [order("abcd", number) for number in range(8)]
    assert all(sorted(names) == list("abcd") for names in rounds)
    assert {names[0] for names in rounds} == {names[-1] for names in rounds} == set("abcd")


def test_the_better_way_is_chosen_by_other_rounds() -> None:
    quick, slow = [Turn(10), Turn(10), Turn(90)], [Turn(20), Turn(5), Turn(20)]
    turns = Turns([], {"x": quick, "y": slow, "z": quick}, {"x": [1, 2, 3], "y": [4, 5, 6], "z": [7, 8, 9]})
    better = turns.better("best", ("x", "y"))
    assert set(better.others) == {"z", "best"}
    # Round 0: 50 against 12.5 in the others; 1: 50 against 20; 2: 10 against 12.5.
    assert [turn.p50_us for turn in better.others["best"]] == [20, 5, 90]
    assert better.beside["best"] == [4, 5, 3]
