"""When resp's writer waits in the kernel for its log, and when it does not (in_call.c), in virtual time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from corelane.apps._native import ffi, lib

US, MS, S = 1_000, 1_000_000, 1_000_000_000


class Calls:
    """The rule, and a clock."""

    def __init__(self) -> None:
        self.c: Any = ffi.new("struct cl_resp_in_call *")
        self.now = 7 * S

    def may(self) -> bool:
        return bool(lib.cl_resp_in_call_may(self.c, self.now))

    def call(self, took: int = 60 * US) -> bool:
        """One more; whether the next may be one, too."""
        self.now += 100 * US + took
        lib.cl_resp_in_call_ended(self.c, took, self.now)
        return self.may()

    def rests(self) -> int:
        """How long until the next call; the clock goes on as far."""
        left = self.c.off_until_ns - self.now
        assert left > 0
        assert not self.may()
        self.now += left
        assert self.may()
        return int(left)


def test_a_disk_that_is_quick_is_called_for_ever(seed: int) -> None:
    """The machine's gaps and stalls of the disk, a few hundredths of the time, say nothing."""
    calls, rng = Calls(), random.Random(seed)
    for i in range(20_000):
        assert calls.call(rng.randint(1, 8) * MS if i % 400 == 399 else rng.randint(40, 120) * US)


@pytest.mark.parametrize("usual_us", [20, 60, 250])
def test_a_disk_that_is_slow_as_a_rule_is_left_to_the_ring(usual_us: int) -> None:
    calls = Calls()
    for _ in range(100):
        assert calls.call(usual_us * US)
    assert calls.call(30 * S)
    slow = 1
    while calls.call(2 * MS):
        slow += 1
        assert slow < 100
    assert calls.rests() == S


def test_a_first_write_that_is_slow_says_nothing() -> None:
    calls = Calls()
    assert calls.call(30 * S)
    for _ in range(1000):
        assert calls.call()
    calls = Calls()
    assert calls.call(2 * MS)
    assert not calls.call(2 * MS)


@pytest.mark.parametrize("usual_us", [20, 60, 250])
@pytest.mark.parametrize("slice_ms", [3, 4, 10])
def test_a_core_that_others_have_is_called_on_all_the_same(seed: int, usual_us: int, slice_ms: int) -> None:
    """Once the kthread has had as long as they, a call ends when their slice does: half of the time, and a few calls of
    many."""
    calls, rng = Calls(), random.Random(seed)
    for _ in range(1000):
        had = 0
        while had < slice_ms * MS:
            took = rng.randint(usual_us * 3 // 4, usual_us * 5 // 4) * US
            had += took
            assert calls.call(took)
        assert calls.call(slice_ms * MS)


def test_a_device_that_keeps_nothing_is_not_asked_again_and_again() -> None:
    calls = Calls()
    for _ in range(1000):
        assert calls.call(0)  # something else is in flight now and then
        assert calls.call(0)
        assert calls.call()
    tries = 0
    for rest_s in (1, 2, 4, 8, 16, 32, 64, 64):
        tries = 1
        while calls.call(0):
            tries += 1
        assert tries == 8
        assert calls.rests() == rest_s * S


def test_a_rest_is_short_again_after_a_good_while() -> None:
    calls = Calls()
    for rest_s in (1, 2, 1):
        while calls.call(0):
            pass
        assert calls.rests() == rest_s * S
        calls.now += 3 * S if rest_s == 2 else 0
