"""Shares of core time that batch work is promised: kept to a turn beside whatever wants the cores."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "scenario",
    [
        "it_is_kept_beside_one_that_wants_everything",
        "nothing_is_taken_while_enough_is_left",
        "a_gift_counts_for_a_while",
        "who_rests_is_owed_nothing",
        "several_share_what_is_guaranteed_to_nobody",
        "a_guarantee_comes_first",
    ],
)
def test_promise(c_program, scenario):
    assert f"passed {scenario}" in c_program("tests/iokernel/cores/c/promise.c")(scenario, timeout_s=90)
