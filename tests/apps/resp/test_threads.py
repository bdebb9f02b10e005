"""The port of resp on kthreads, as a C program: under TSan, too."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("log", [0, 1, 2], ids=["memory", "log", "log in the call"])
@pytest.mark.parametrize("kthreads", [1, 2])
def test_clients_count_block_and_publish(c_program: Make, seed: int, kthreads: int, log: int) -> None:
    rounds = 50 if os.environ.get("CORELANE_SANITIZE") else 200
    said = c_program("tests/apps/resp/c/resp_threads.c")(kthreads, log, rounds, seed)
    assert said.endswith("ok\n")
    assert ("units in" in said) == bool(log)
