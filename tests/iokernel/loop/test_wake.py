"""Whom the loop wakes, and when."""

from __future__ import annotations


def test_a_frame_for_everybody_wakes_two_in_a_round(c_program):
    assert c_program("tests/iokernel/loop/c/patient_wakes.c", one_thread=True)() == "ok\n"
