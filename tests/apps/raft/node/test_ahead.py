"""What clients of RESP see when leadership moves: redirects, transactions, WATCH, blocking commands, leases."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("scenario", ["moved", "multi", "blocked", "watch", "lease", "no_lease"])
def test_scenarios(c_program: Make, scenario: str) -> None:
    run = c_program("tests/apps/raft/node/c/ahead_scenarios.c", one_thread=True)
    assert run(scenario) == "ok\n"
