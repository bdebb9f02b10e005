"""Calls for help that ring: decided about at once, as often as one may. c/rung.c says what each scenario does."""

from __future__ import annotations


def test_rings(c_program):
    run = c_program("tests/iokernel/cores/c/rung.c")
    assert run(timeout_s=90).count("passed ") == 8
