"""The quantum between uthreads of one scheduler. tests/libos/sched/c/quantum.c says what each scenario does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCENARIOS = (
    "order",
    "no_order_but_theirs",
    "frames",
    "none",
    "long_handlers",
    "others_come",
    "attached",
    "told",
    "away",
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_long_uthreads_let_others_go_first(c_program: Callable[..., Callable[..., str]], scenario: str) -> None:
    c_program("tests/libos/sched/c/quantum.c")(scenario)
