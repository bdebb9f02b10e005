"""Congestion control by itself."""

from __future__ import annotations

from collections.abc import Callable


def test_nothing_of_a_recovery_counts_behind_it(c_program: Callable[..., Callable[..., str]]) -> None:
    assert c_program("tests/libos/net/tcp/c/cc.c")() == "ok\n"
