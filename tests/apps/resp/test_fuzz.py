"""Random commands, whole and damaged, to the engine of resp; also under ASan."""

from __future__ import annotations

import os
from collections.abc import Callable

from cltest import soak


def test_random_commands(c_program: Callable[..., Callable[..., str]], seed: int) -> None:
    rounds = 10_000 if os.environ.get("CORELANE_SANITIZE") else soak.examples(30_000, 1_000_000)
    run = c_program("tests/apps/resp/c/fuzz_engine.c", one_thread=True)
    assert run(rounds, seed) == f"{rounds} commands\n"
