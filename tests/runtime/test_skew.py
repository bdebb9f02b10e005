"""How far the counters of CPUs are apart (runtime/skew.h)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest


@pytest.mark.parametrize("seed", [1, 2])
def test_the_true_offset_lies_within_the_bound(c_program: Callable[..., Callable[..., str]], seed: int) -> None:
    said = c_program("tests/runtime/c/skew.c")(seed)
    assert re.fullmatch(r"[1-9]\d* measured, \d+ ticks apart at most\n", said)
