"""What the control thread has done, refused and failed at; faults of its own are logged, too, but fill no disk."""

from __future__ import annotations

import logging
import time
import traceback
from collections import Counter

_log = logging.getLogger("corelane.iokernel")

_SILENT_S = 60.0


class Counters(Counter[str]):
    """By name."""

    last_error = ""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[type[BaseException], str, int], tuple[float, int]] = {}  # when; how many since

    def fault(self, error: BaseException) -> str:
        """A fault of ours, which was survived: "failed". Of those of one type at one line of code the first is logged
        with its traceback, then one a minute, with how many there were. Returns what it is in a line."""
        text = f"{type(error).__name__}: {error}"
        self["failed"] += 1
        self.last_error = text
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = (type(error), last.filename, last.lineno or 0)
        told_at, unsaid = self._told.get(place, (float("-inf"), 0))
        if (now := time.monotonic()) < told_at + _SILENT_S:
            self._told[place] = (told_at, unsaid + 1)
            return text
        self._told[place] = (now, 0)
        more = f" ({unsaid} times more since it was told)" if unsaid else ""
        _log.error("a step of the control thread failed; it goes on%s", more, exc_info=error)
        return text
