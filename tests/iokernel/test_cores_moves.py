"""Managed cores, stepped on a clock of their own (C programs): each transition, and random events; docs/cores.md."""

from __future__ import annotations

import pytest


def test_every_transition_of_a_move(c_program):
    run = c_program("tests/iokernel/c/cores_steps.c")
    assert "passed ages_are_from_below" in run(timeout_s=90)


@pytest.mark.parametrize("policy", ["delay", "shenango", "fair"])
def test_what_holds_at_every_instant(c_program, seed, policy):
    run = c_program("tests/iokernel/c/cores_random.c")
    for i in range(2):
        assert " 0 violations" in run(policy, str(seed + i), "100000", timeout_s=90)
