"""A connection is answered alike whatever pieces come in and go out. Also under the sanitizers."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cltest import soak

Make = Callable[..., Callable[..., str]]


@pytest.mark.soak(short=True, takes_s=10)
def test_pieces(c_program: Make, seed: int) -> None:
    rounds = 60 if os.environ.get("CORELANE_SANITIZE") else soak.examples(150, 5000)
    run = c_program("tests/apps/kv/stream/c/conn_pieces.c", one_thread=True)
    assert f"{rounds} rounds" in run(rounds, seed)
