"""The CPUs of processes that are started."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator


@contextlib.contextmanager
def started_on(cpus: Collection[int]) -> Iterator[None]:
    """What this thread starts meanwhile keeps to `cpus`, as does the thread; at the end it has its own ones again."""
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
        yield
    finally:
        os.sched_setaffinity(0, before)
