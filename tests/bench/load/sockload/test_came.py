"""When the kernel had what a socket gave."""

from __future__ import annotations

from collections.abc import Callable


def test_what_waited_in_a_socket_is_as_old_as_it_waited(c_program: Callable[..., Callable[..., str]]):
    run = c_program("tests/bench/load/sockload/c/came.c", sources=["runtime/clock.c"])
    assert "passed" in run()
