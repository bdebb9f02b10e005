"""When a port rings the doorbell of an iokernel that sleeps (C program)."""

from __future__ import annotations


def test_a_sleep_is_ended_by_one_ring(c_program):
    assert c_program("tests/drivers/port/c/doorbell.c", one_thread=True)() == "ok\n"
