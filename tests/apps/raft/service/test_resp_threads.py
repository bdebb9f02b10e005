"""A node with RESP's port, its clients and who watches it, as a C program: under TSan, too."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Make = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("log", [0, 1], ids=["memory", "log"])
def test_clients_and_who_watches(c_program: Make, seed: int, log: int) -> None:
    rounds = 30 if os.environ.get("CORELANE_SANITIZE") else 100
    said = c_program("tests/apps/raft/service/c/resp_service.c")(log, rounds, seed)
    assert said.endswith("ok\n")
