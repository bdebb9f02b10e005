"""Simulated clusters as C programs: also under ASan and TSan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_seeds(c_program: Make, nodes: int) -> None:
    count = 60  # test_world.py has more, without a sanitizer
    run = c_program("tests/apps/raft/sim/c/seeds.c", one_thread=True)
    assert f"{count} runs" in run(0, 1, count, nodes)


@pytest.mark.parametrize("mode", [1, 2, 3])
def test_seeds_of_real_nodes(c_program: Make, mode: int) -> None:
    count = 10
    run = c_program("tests/apps/raft/sim/c/seeds.c", one_thread=True)
    assert f"{count} runs" in run(mode, 1, count, 5)
