"""The persistent log: against a model, cut at every sector, torn, flipped, full, wrapped, concurrent."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Program = Callable[..., Callable[..., str]]
SANITIZED = bool(os.environ.get("CORELANE_SANITIZE"))
C = "tests/libos/storage/c"


@pytest.mark.parametrize("in_flight", [1, 2, 4])
@pytest.mark.parametrize("kib", [512, 4096])
def test_against_a_model_with_power_cuts(c_program: Program, seed: int, kib: int, in_flight: int) -> None:
    steps = 5_000 if SANITIZED else 30_000
    out = c_program(f"{C}/log_model.c")(seed, steps, kib << 10, in_flight)
    assert out.endswith("ok\n")


@pytest.mark.parametrize("kthreads", [1, 2])
@pytest.mark.parametrize("fails", [0, 1])
def test_many_uthreads(c_program: Program, seed: int, kthreads: int, fails: int) -> None:
    appends = 30 if SANITIZED else 200
    assert c_program(f"{C}/log_shared.c")(seed, 64, appends, kthreads, fails).endswith("ok\n")
