"""Whether the machine was fair: how long threads ran, and for how long they were kept waiting for a CPU.

Some tests depend on when the kernel runs a thread. They judge only rounds in which those threads had what they need,
and repeat the others. The kernel says what they had: /proc/PID/task/TID/schedstat, or where it keeps none, nothing can
be told and every round counts.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


class Watch:
    """What the threads of processes had since it was made: those that have been there all the time."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._before, self._began_ns = self._read(), time.monotonic_ns()

    def _read(self) -> dict[Path, tuple[int, int]]:
        """By thread: ns that it ran, and that it waited while it could run."""
        found = {}
        for pid in self._pids:
            with contextlib.suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    with contextlib.suppress(OSError, ValueError):
                        ran, waited, _ = map(int, (task / "schedstat").read_text().split())
                        found[task] = ran, waited
        return found

    def _shares(self, field: int) -> list[float]:
        after, wall_ns = self._read(), max(time.monotonic_ns() - self._began_ns, 1)
        return [(after[task][field] - self._before[task][field]) / wall_ns for task in after if task in self._before]

    @property
    def known(self) -> bool:
        """Whether the kernel says it at all."""
        return bool(self._before)

    def ran(self) -> float:
        """How many CPUs' worth of time all of them ran together."""
        return sum(self._shares(0))

    def waited(self) -> float:
        """The share of the time for which the one that waited longest waited for a CPU."""
        return max(self._shares(1), default=0.0)


def until_in_fair_rounds(
    happened: Callable[[], T],
    fair: Callable[[], Callable[[], bool]],
    what: str | Callable[[], str],
    most: int = 40,
    limit_s: float = 30.0,
) -> T:
    """Call `happened` until it returns something true, and return that. what: is awaited, or makes a text of it then.

    fair() is called before each round, and what it returns after it: whether the machine was fair meanwhile. After
    `most` fair rounds in vain the test fails. Rounds that were not fair do not count, which is printed; where they take
    `limit_s`, the test is skipped, since nothing can be said.
    """

    def said() -> str:
        return what() if callable(what) else what

    end, judged, repeated = time.monotonic() + limit_s, 0, 0
    while judged < most:
        was_fair = fair()
        if value := happened():
            return value
        if was_fair():
            judged += 1
        else:
            repeated += 1
            print(f"round {judged + repeated} is not judged: the machine gave its time to others")
        if repeated and time.monotonic() > end:
            pytest.skip(
                f"waited {limit_s:g} s for {said()}, and the machine was fair in {judged} of {judged + repeated} "
                "rounds only: run it where less else runs"
            )
    raise AssertionError(f"waited in vain for {said()}: {judged} rounds in which the machine was fair, {repeated} not")
