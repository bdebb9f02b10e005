"""How long a group is without a leader, in virtual time, and how often votes are split."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cltest import soak

Make = Callable[..., Callable[..., str]]
RUNS = soak.examples(500, 10_000)
pytestmark = pytest.mark.soak(short=True, takes_s=6)

# nodes, us of a link, at least and how much more; of a write, at least and how much more; runs in a thousand that may
# need a second term; 99th percentile in us. The timeout is 10 to 19 ms, and the earlier of two mostly 10 to 14 ms.
# Before rivals gave way these needed a second term in 2 %, 7 %, 1 % and 5 % of the runs, and 28, 35, 18 and 30 ms.
WORLDS = [
    (3, 50, 100, 300, 300, 1, 21_000),
    (3, 100, 500, 500, 1000, 1, 23_000),
    (5, 50, 100, 300, 300, 5, 20_000),
    (5, 100, 500, 500, 1000, 10, 23_000),
]


@pytest.mark.parametrize("world", WORLDS)
def test_rivals_give_way_and_split_votes_are_rare(c_program: Make, seed: int, world: tuple[int, ...]) -> None:
    *shape, share, p99_us = world
    said = c_program("tests/apps/raft/core/c/elections.c", one_thread=True)(RUNS, seed, *shape, 0, 1).split()
    got = dict(zip(said[::2], map(int, said[1::2]), strict=True))
    assert got["several_terms"] <= max(RUNS * share // 1000, 1), got
    assert got["p99_us"] <= p99_us, got


def test_after_a_split_vote_the_next_try_does_not_wait_for_a_timeout(c_program: Make, seed: int) -> None:
    """Links so slow that rivals learn of each other too late: most elections are split, and one in a hundred twice."""
    said = c_program("tests/apps/raft/core/c/elections.c", one_thread=True)(
        RUNS, seed, 3, 2000, 500, 300, 300, 0, 1
    ).split()
    got = dict(zip(said[::2], map(int, said[1::2]), strict=True))
    assert got["several_terms"] > RUNS // 4, got
    assert got["p99_us"] <= 65_000, got  # it was 103 ms


# nodes, least us of a write and how much more, nodes that write faster and how many times; 99th percentile in us.
# Before nobody stood while its vote was being written, the first three had no leader in 2 s: a write takes about the
# timeout. Before who writes its vote kept quiet about pre-votes, and late votes counted, those with 400 ms had none in
# 20 s.
SLOW = [
    (3, 9000, 1000, 0, 1, 50_000),
    (5, 16_000, 1000, 0, 1, 90_000),
    (5, 25_000, 20_000, 2, 10, 280_000),
    (3, 50_000, 1000, 2, 50, 300_000),
    (3, 200_000, 1000, 1, 200, 1_500_000),
    (3, 400_000, 1000, 1, 400, 4_000_000),
    (3, 400_000, 1000, 2, 400, 3_000_000),
    (5, 400_000, 1000, 3, 400, 6_000_000),
]


@pytest.mark.parametrize("world", SLOW)
def test_disks_slower_than_the_timeout_delay_elections_and_do_not_prevent_them(
    c_program: Make, seed: int, world: tuple[int, ...]
) -> None:
    nodes, *write, fast, ratio, p99_us = world
    said = c_program("tests/apps/raft/core/c/elections.c", one_thread=True)(
        RUNS // 4, seed, nodes, 50, 100, *write, fast, ratio
    ).split()
    got = dict(zip(said[::2], map(int, said[1::2]), strict=True))
    assert got["p99_us"] <= p99_us, got
