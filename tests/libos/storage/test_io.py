"""Uthreads that wait for storage. c/io.c says what each program does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Program = Callable[..., Callable[..., str]]
SOURCE = "tests/libos/storage/c/io.c"


@pytest.mark.parametrize(("device", "rounds"), [("memory", 200), ("fault", 100), ("uring", 15), ("threads", 15)])
@pytest.mark.parametrize("mode", ["block", "adaptive", "spin"])
@pytest.mark.parametrize("kthreads", [1, 2, 3])
def test_uthreads_get_what_they_wait_for(
    c_program: Program, tmp_path: Path, seed: int, kthreads: int, mode: str, device: str, rounds: int
) -> None:
    files = [tmp_path / "f"] if device in ("uring", "threads") else []
    out = c_program(SOURCE)(kthreads, mode, device, rounds, seed, *files)
    if out.startswith("skip"):
        pytest.skip(out[5:])


@pytest.mark.parametrize("scenario", ["stepped", "stop_in_flight", "refusals", "managed"])
def test_scenarios(c_program: Program, scenario: str) -> None:
    c_program(SOURCE)("scenario", scenario)
