"""Managed cores: every transition of a move, stepped on a clock of its own (C programs; docs/cores.md)."""

from __future__ import annotations


def test_every_transition_of_a_move(c_program):
    run = c_program("tests/iokernel/c/cores_steps.c")
    assert "passed new_owner_dies" in run(timeout_s=90)
