"""Soaks: tests that go on for as long as there is time, and long forms of tests. `make soak` runs them.

`@pytest.mark.soak` marks a test that only `make soak` runs; takes_s says about how long it takes where CORELANE_SOAK_S
does not decide that. `@pytest.mark.soak(short=True)` marks one that has a short form, which `make test` runs.

CORELANE_SOAK_S is the time of each soak, and says that this is a run of soaks: no other test runs. With
CORELANE_SOAK_TOTAL_S the soaks come in a random order, and one that does not fit into what is left of that time is
skipped.
"""

from __future__ import annotations

import os
import random
import time

import pytest

SOAK_S = float(os.environ.get("CORELANE_SOAK_S") or 0)
TOTAL_S = float(os.environ.get("CORELANE_SOAK_TOTAL_S") or 0)
SOAKS = "CORELANE_SOAK_S" in os.environ
_BEGUN = time.monotonic()


def examples(short: int, long: int) -> int:
    """How many a property test tries: `short` in make test, `long` in make soak."""
    return long if SOAKS else short


def chosen(items: list[pytest.Item]) -> list[pytest.Item]:
    """What this run is to run, in its order."""
    if not SOAKS:
        return [item for item in items if not (mark := _mark(item)) or mark.kwargs.get("short")]
    soaks = [item for item in items if _mark(item)]
    if TOTAL_S:
        random.shuffle(soaks)
    return soaks


def skip_without_time(item: pytest.Item) -> None:
    """Skip a soak that does not fit into what is left."""
    mark = _mark(item)
    if mark is None or not TOTAL_S or not SOAKS:
        return
    takes_s = mark.kwargs.get("takes_s", SOAK_S)
    if time.monotonic() - _BEGUN + takes_s > TOTAL_S:
        pytest.skip(f"takes about {takes_s:g} s, and less is left of CORELANE_SOAK_TOTAL_S={TOTAL_S:g}")


def _mark(item: pytest.Item) -> pytest.Mark | None:
    return item.get_closest_marker("soak")
