"""A quantum that is over by the signal. c/signalled.c says what each scenario does."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

SCENARIOS = ("range", "mark", "late", "not_marked", "no_switch", "lock", "nobody_waits", "all_at_once")


@pytest.mark.skipif(
    os.environ.get("CORELANE_SANITIZE") == "tsan",
    reason="TSan runs a handler when its own code is called next, and interruptible code calls nothing",
)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_code_without_probes_lets_others_go_first(c_program: Callable[..., Callable[..., str]], scenario: str) -> None:
    c_program("tests/libos/sched/c/signalled.c")(scenario)
