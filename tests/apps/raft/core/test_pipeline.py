"""How many batches a leader has on their way: as many as pay, which it finds out. In virtual time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from corelane.apps.raft.service.service import REPLICATE

Make = Callable[..., Callable[..., str]]
SECOND_US = 1_000_000


@pytest.fixture
def pipeline(c_program: Make) -> Callable[..., dict[str, int]]:
    """Run tests/apps/raft/core/c/pipeline.c; what it counted."""
    run = c_program("tests/apps/raft/core/c/pipeline.c", one_thread=True)

    def counted(
        link_us: int, gap_us: int, batches: int = 0, way: str = "", slow_ppm: int = 0, shared_us: int = 0
    ) -> dict[str, int]:
        said = run(link_us, gap_us, batches, REPLICATE[way] if way else 0, slow_ppm, shared_us).split()
        return dict(zip(said[::2], map(int, said[1::2]), strict=True))

    return counted


def test_batches_follow_each_other_on_a_network_with_a_delay(pipeline: Callable[..., dict[str, int]]) -> None:
    """Links of 1 ms, a command each 20 us: 500 round trips in the second."""
    one, many = pipeline(1000, 20, 1), pipeline(1000, 20)
    assert one["ahead"] == 0
    assert one["most_flying"] <= 2  # a batch, and what the one before held back from this follower
    assert one["batches"] <= 510
    assert many["most_flying"] >= 3  # on a way of 1 ms
    assert many["batches"] >= 3 * 500
    assert many["mean_us"] < 2000 + 600 < one["mean_us"]
    assert many["answered"] >= 0.99 * SECOND_US / 20


def test_no_more_are_on_their_way_than_was_said(pipeline: Callable[..., dict[str, int]]) -> None:
    assert pipeline(1000, 20, 4)["most_flying"] == 4
    assert pipeline(20_000, 100, 12)["most_flying"] == 12


def test_batches_are_large_where_each_of_them_costs(pipeline: Callable[..., dict[str, int]]) -> None:
    """Frames and answers take 30 us each of something shared, of which each batch needs four: a command each 20 us."""
    one, free = pipeline(20, 20, 1, shared_us=30), pipeline(20, 20, shared_us=30)
    assert free["answered"] >= 0.99 * SECOND_US / 20
    assert free["mean_us"] <= 1.1 * one["mean_us"]
    assert free["batches"] <= SECOND_US / 100


@pytest.mark.parametrize("link_us", [20, 1000])
def test_a_lone_command_waits_for_nobody(pipeline: Callable[..., dict[str, int]], link_us: int) -> None:
    got = pipeline(link_us, 0)
    assert got["longest_us"] == 2 * link_us
    assert got["batches"] == got["answered"]


def test_where_nothing_is_shared_auto_sends_to_all(pipeline: Callable[..., dict[str, int]]) -> None:
    """A frame in fifty to a follower is late: sent to all, the other one's answer comes first."""
    got = {way: pipeline(20, 0, way=way, slow_ppm=20_000) for way in REPLICATE}
    assert (got["all"]["majority"], got["majority"]["majority"], got["auto"]["majority"]) == (0, 1, 0)
    assert got["all"]["mean_us"] < got["majority"]["mean_us"]
    assert got["auto"]["mean_us"] < (got["all"]["mean_us"] + got["majority"]["mean_us"]) / 2


def test_where_the_replicas_share_what_a_put_waits_for_auto_sends_to_a_majority(
    pipeline: Callable[..., dict[str, int]],
) -> None:
    got = {way: pipeline(20, 0, way=way, shared_us=30) for way in REPLICATE}
    assert got["auto"]["majority"] == 1
    assert got["majority"]["mean_us"] < got["all"]["mean_us"]
    assert got["auto"]["mean_us"] < (got["all"]["mean_us"] + got["majority"]["mean_us"]) / 2


def test_a_front_that_is_late_costs_about_a_tick_at_most(pipeline: Callable[..., dict[str, int]]) -> None:
    tick_us = 1000
    got = pipeline(20, 0, way="majority", slow_ppm=20_000)
    assert got["longest_us"] <= 2 * tick_us + 800
