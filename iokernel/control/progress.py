"""How fast work goes: units that an application says it has done, against the core time that it had.

An application publishes its count some times a second (runtime/shm.h, cl_arena_counters), with the time of that.
Its core time is read at other moments, which the iokernel chooses; in between it is taken to have grown evenly.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_KEPT_S = 3.0  # of samples: what is older tells nothing of how it goes now


@dataclass(frozen=True, slots=True)
class Sample:
    """At a time on the monotonic clock: core time that it had had, and units that it had done."""

    at_s: float
    core_s: float
    units: int


class Progress:
    """What is known of one application. Counts that go back are none of an honest one, and left out."""

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque()
        self._last: tuple[float, float] | None = None  # when its core time was read last, and what it was

    def note(self, now_s: float, core_s: float, published_s: float, units: int | None) -> None:
        """It was read now that it had core_s, and that it had published, at another time, that it had done `units`."""
        before, self._last = self._last or (now_s, core_s), (now_s, core_s)
        published_s = min(published_s, now_s)  # it may say what it likes
        newest = self.samples[-1] if self.samples else None
        if units is None or (newest is not None and (published_s <= newest.at_s or units < newest.units)):
            return
        then, had = before
        part = min(1.0, max(0.0, (published_s - then) / (now_s - then))) if now_s > then else 1.0
        self.samples.append(Sample(published_s, had + part * (core_s - had), units))
        while len(self.samples) > 2 and now_s - self.samples[1].at_s > _KEPT_S:
            self.samples.popleft()

    @property
    def units(self) -> int:
        """Done, as far as it is known; 0: nothing is."""
        return self.samples[-1].units if self.samples else 0

    @property
    def seen_units(self) -> int:
        """Done between the first sample that is kept and the last."""
        return self.samples[-1].units - self.samples[0].units if self.samples else 0

    @property
    def seen_core_s(self) -> float:
        """Core time between these."""
        return self.samples[-1].core_s - self.samples[0].core_s if self.samples else 0.0

    @property
    def rate(self) -> float:
        """Units in a second of core time; 0: not known."""
        return self.seen_units / self.seen_core_s if self.seen_core_s > 0 else 0.0

    @property
    def pace(self) -> float:
        """Units in a second of time; 0: none, or not known."""
        seen_s = self.samples[-1].at_s - self.samples[0].at_s if self.samples else 0.0
        return self.seen_units / seen_s if seen_s > 0 else 0.0
