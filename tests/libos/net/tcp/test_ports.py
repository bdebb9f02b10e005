"""Which ports connections go out from (libos/net/tcp/ports.h)."""

from __future__ import annotations

from collections.abc import Callable


def test_ports_of_one_peer_tell_nothing_of_others(c_program: Callable[..., Callable[..., str]], seed: int) -> None:
    assert c_program("tests/libos/net/tcp/c/ports.c", one_thread=True)(seed) == "ok\n"
