"""Events in order of virtual time, the draws of the network, and that a seed is the same run every time."""

from __future__ import annotations

from collections.abc import Callable

Make = Callable[..., Callable[..., str]]

SOURCES = ["apps/raft/sim/queue.c", "apps/raft/sim/network.c"]


def test_queue_and_network(c_program: Make, seed: int) -> None:
    run = c_program("tests/apps/raft/sim/c/network.c", SOURCES, one_thread=True)
    first = run(seed, 20_000)
    assert run(seed, 20_000) == first
    assert run(seed + 1, 20_000) != first


def test_a_seed_is_the_same_on_every_machine(c_program: Make) -> None:
    """The digest of one seed, written down: integers only, so no compiler or machine changes it."""
    run = c_program("tests/apps/raft/sim/c/network.c", SOURCES, one_thread=True)
    assert run(1, 1000).strip() == "83ce4bdf361f39fc"
