"""Stream sockets on uthreads: each call, and many at once on kthreads that steal. Under sanitizers too."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cltest import soak

Program = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("kthreads", [1, 2, 4])
def test_each_call(c_program: Program, kthreads: int) -> None:
    assert c_program("tests/libos/net/tcp/c/sockets.c")(kthreads) == "ok\n"


@pytest.mark.soak(short=True, takes_s=3)
@pytest.mark.parametrize(("kthreads", "clients"), [(1, 40), (2, 40), (4, 40)])
def test_nothing_is_lost_and_nobody_sleeps_for_ever(c_program: Program, kthreads: int, clients: int, seed: int) -> None:
    rounds = 5 if os.environ.get("CORELANE_SANITIZE") else soak.examples(10, 500)
    assert c_program("tests/libos/net/tcp/c/sockets_stress.c")(kthreads, clients, rounds, seed) == "ok\n"


@pytest.mark.parametrize("kthreads", [1, 2, 4])
def test_handlers_get_each_frame_whole(c_program: Program, kthreads: int, seed: int) -> None:
    assert c_program("tests/libos/net/tcp/c/serve.c")(kthreads, 60, seed) == "ok\n"
