"""Applications with many kthreads: what a decision costs beside them, and that nothing in them is missed."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "scenario",
    [
        "what_waits_in_any_of_them_is_found",
        "a_call_for_help_is_heard_at_once",
        "a_timer_of_any_of_them_is_due_at_once",
        "idle_kthreads_cost_little",
    ],
)
def test_many(c_program, scenario):
    assert f"passed {scenario}" in c_program("tests/iokernel/cores/c/many.c")(scenario, timeout_s=90)
