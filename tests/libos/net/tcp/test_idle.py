"""Connections that say nothing cost a round nothing, however many there are: counted in basic blocks, not in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cltest.cbuild import ROOT, CBuild, default_variant

FEW, MANY = 10, 3000


@pytest.fixture(scope="module")
def blocks() -> Callable[[int], int]:
    """Of the stack and its timers, in 200 ms beside so many connections."""
    if default_variant() != "plain":
        pytest.skip("what is counted is counted without sanitizers")
    builder = CBuild("plain")
    folders = {"libos/net": "*.c", "libos/net/tcp": "[!h]*.c", "libos/sched": "[wt]*.c"}
    counted = [p.relative_to(ROOT) for folder, which in folders.items() for p in sorted((ROOT / folder).glob(which))]
    run = builder.runner(builder.build_counted("tests/libos/net/tcp/c/idle_steps.c", counted), one_thread=True)
    return lambda connections: int(run(connections))


def test_connections_that_say_nothing_cost_a_round_nothing(blocks: Callable[[int], int]) -> None:
    few, many = blocks(FEW), blocks(MANY)
    assert few > 1000
    assert many == few
