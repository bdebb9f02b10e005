"""The port's side of a hand-over (C program): waiting for a core, and grants that come late."""

from __future__ import annotations


def test_a_kthread_acts_on_its_grant_whenever_that_comes(c_program):
    run = c_program("tests/drivers/port/c/cores.c")
    assert run(timeout_s=90).count("passed ") == 28
