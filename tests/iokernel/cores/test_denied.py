"""Applications that are denied cores: they have what nobody else wants, and a turn now and then."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "scenario",
    [
        "it_goes_last_with_a_turn_now_and_then",
        "it_has_what_nobody_else_wants",
        "a_promise_is_put_off",
        "what_cannot_be_is_refused",
    ],
)
def test_denied(c_program, scenario):
    assert f"passed {scenario}" in c_program("tests/iokernel/cores/c/denied.c")(scenario, timeout_s=90)
