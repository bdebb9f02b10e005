"""The descriptor ring under two threads."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(("size", "burst"), [(2, 1), (4, 64), (64, 7), (1024, 32)])
@pytest.mark.parametrize("start", [0, 2**32 - 3000])
def test_two_threads_lose_nothing(c_program, size, burst, start):
    run = c_program("tests/runtime/c/ring_stress.c", sources=[])
    messages = 20_000 if size < 64 else 300_000
    assert f"{messages} descriptors through {size} slots" in run(size, messages, burst, start, timeout_s=60)
