"""Polling a condition with a deadline: the only way that tests here wait for another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
MOST_RUNS = 100


def wait_until(
    predicate: Callable[[], T], deadline_s: float = 60.0, what: str | Callable[[], str] = "", poll_s: float = 0.002
) -> T:
    """Call `predicate` until it returns something true, and return that.

    The pause between calls grows from `poll_s` to 50 ms, so a long wait leaves the cores to what is waited for.
    AssertionError after `deadline_s` seconds; it says `what` was awaited (a text, or a function that makes one then).
    """
    end = time.monotonic() + deadline_s
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() >= end:
            said = (what() if callable(what) else what) or repr(predicate)
            raise AssertionError(f"waited {deadline_s:g} s in vain for {said} (last value {value!r})")
        time.sleep(poll_s)
        poll_s = min(poll_s * 1.5, 0.05)


def answered(measure: Callable[[], T], point_of: Callable[[T], Any] = lambda found: found) -> T:
    """What a short load came to, once any of it was answered: a busy machine may keep a server from running for all of
    its time. point_of: its outcome, an openloop.Point or the like. AssertionError after MOST_RUNS."""
    for _ in range(MOST_RUNS):
        found = measure()
        if point_of(found).answered:
            return found
    raise AssertionError(f"nothing was answered in {MOST_RUNS} runs (last: {found!r})")
