"""A quantum that is over by the signal. c/signalled.c says what each scenario does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

SCENARIOS = ("range", "mark", "late", "not_marked", "no_switch", "lock", "nobody_waits", "all_at_once")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_code_without_probes_lets_others_go_first(c_program: Callable[..., Callable[..., str]], scenario: str) -> None:
    c_program("tests/libos/sched/c/signalled.c")(scenario)
