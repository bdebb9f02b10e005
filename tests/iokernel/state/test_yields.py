"""When an idle loop yields its CPU."""

from __future__ import annotations


def test_a_loop_yields_where_it_may_find_somebody(c_program):
    assert c_program("tests/iokernel/state/c/yields.c", one_thread=True)() == "ok\n"
