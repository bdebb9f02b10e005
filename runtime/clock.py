"""Clocks for Python: stamps, their conversion, and timelines of corrections. The reasons are in clock.h.

clock = default_clock()
start = tsc()
...
print(clock.ticks_to_ns(tsc() - start))
"""

from __future__ import annotations

import bisect
from typing import Any

from ._native import ffi, lib
from .errors import CorelaneError, check

SOURCES = {
    lib.CL_CLOCK_MEASURED: "measured",
    lib.CL_CLOCK_KERNEL: "kernel",
    lib.CL_CLOCK_ARCH: "architecture",
    lib.CL_CLOCK_MONOTONIC: "monotonic",
    lib.CL_CLOCK_VIRTUAL: "virtual",
}

_MASK = (1 << 64) - 1


def tsc() -> int:
    """A stamp: the raw value of the processor's counter, or of CLOCK_MONOTONIC_RAW in ns where there is none usable."""
    return int(lib.cl_tsc_read())


class Clock:
    """One calibration: constant, so it may be shared by threads and processes of one machine.

    hz: ticks a second; error_ppb: bound on the rate's error; source: "measured", "kernel", "architecture", "monotonic",
    "virtual".
    """

    def __init__(self, ptr: Any, owner: Any = None) -> None:
        self.ptr = ptr
        """`const struct cl_clock *`, for C."""
        self._owner = owner

    @classmethod
    def calibrate(cls) -> Clock:
        """Measure now: 2 to 10 ms, mostly asleep."""
        clock = ffi.new("struct cl_clock *")
        check(lib.cl_clock_calibrate(clock), "calibrate the clock")
        return cls(clock)

    @classmethod
    def from_hz(cls, hz: int, base_tsc: int = 0, base_ns: int = 0) -> Clock:
        """A clock of known rate (1 MHz to 32 GHz), for tests and for replaying another machine's stamps."""
        clock = ffi.new("struct cl_clock *")
        check(lib.cl_clock_from_hz(clock, hz, base_tsc & _MASK, base_ns), f"make a clock of {hz} Hz")
        return cls(clock)

    @property
    def hz(self) -> int:
        """Ticks a second, rounded."""
        return int(self.ptr.hz)

    @property
    def error_ppb(self) -> int:
        """Bound on the relative error of the rate against CLOCK_MONOTONIC, in parts in 10^9."""
        return int(self.ptr.error_ppb)

    @property
    def source(self) -> str:
        """Where the rate comes from."""
        return SOURCES[self.ptr.source]

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC now, through the counter; of a virtual clock its time."""
        return int(lib.cl_clock_now_ns(self.ptr))

    def tsc_to_ns(self, stamp: int) -> int:
        """CLOCK_MONOTONIC in ns at a stamp."""
        return int(lib.cl_clock_tsc_to_ns(self.ptr, stamp & _MASK))

    def ns_to_tsc(self, ns: int) -> int:
        """The stamp at a time of CLOCK_MONOTONIC."""
        return int(lib.cl_clock_ns_to_tsc(self.ptr, ns))

    def ticks_to_ns(self, ticks: int) -> int:
        """Length of an interval in ns; it may be negative."""
        return int(lib.cl_clock_ticks_to_ns(self.ptr, ticks))

    def ns_to_ticks(self, ns: int) -> int:
        """Length of an interval in ticks; it may be negative."""
        return int(lib.cl_clock_ns_to_ticks(self.ptr, ns))

    def as_dict(self) -> dict[str, object]:
        """For `corelane doctor` and the machine section of results."""
        return {
            "hz": self.hz,
            "source": self.source,
            "error_ppb": self.error_ppb,
            "base_error_ns": int(self.ptr.base_error_ns),
            "window_us": int(self.ptr.window_us),
        }


def default_clock() -> Clock:
    """The process's clock, the same that C code uses; calibrated at the first call."""
    return Clock(lib.cl_clock_default())


class Pairs:
    """Which stamps were which times of CLOCK_MONOTONIC, as it was seen again and again.

    NTP steers CLOCK_MONOTONIC, and a clock's rate is measured once: after an hour a `Clock` may be milliseconds off.
    Who puts times of the kernel beside stamps looks again now and then. What lies between two looks lies on the line
    between them; before the first and behind the last one the rate holds.

    hz: of the stamps, which are this process's own counter's (`tsc`)."""

    APART_NS = 10**9
    """Looks are kept that are so far apart, and the last one."""

    def __init__(self, hz: int) -> None:
        self._hz = hz
        self._stamps: list[int] = []
        self._times: list[int] = []
        self.look()

    def look(self) -> None:
        """See which stamp it is now."""
        stamp, ns = ffi.new("uint64_t *"), ffi.new("int64_t *")
        check(lib.cl_clock_pair(stamp, ns), "read the clock")
        self.saw(int(stamp[0]), int(ns[0]))

    def saw(self, stamp: int, ns: int) -> None:
        """It was `ns` at this stamp. One that does not lie behind the last one is left out."""
        if self._stamps and (stamp <= self._stamps[-1] or ns <= self._times[-1]):
            return
        if len(self._times) > 1 and ns - self._times[-2] < self.APART_NS:
            self._stamps.pop()
            self._times.pop()
        self._stamps.append(stamp)
        self._times.append(ns)

    def stamp_of(self, ns: int) -> int:
        """The stamp at a time of CLOCK_MONOTONIC."""
        return _on_lines(self._times, self._stamps, ns, (self._hz, 10**9))

    def ns_of(self, stamp: int) -> int:
        """CLOCK_MONOTONIC in ns at a stamp."""
        return _on_lines(self._stamps, self._times, stamp, (10**9, self._hz))


def monotonic_s(stamp: int) -> float:
    """time.monotonic() at a stamp of this process's own counter, of late."""
    return Pairs(default_clock().hz).ns_of(stamp) / 1e9


def _on_lines(x: list[int], y: list[int], at: int, rate: tuple[int, int]) -> int:
    """What y is at a value of x. rate: how much y grows while x grows by how much, where no two are known."""
    i = bisect.bisect_right(x, at) - 1
    if 0 <= i < len(x) - 1:
        return y[i] + (at - x[i]) * (y[i + 1] - y[i]) // (x[i + 1] - x[i])
    i = max(i, 0)
    return y[i] + (at - x[i]) * rate[0] // rate[1]


class VirtualClock(Clock):
    """A clock that stands still until it is told to go on. Give it to a NIC: what is made on that takes it from there.

    Nothing wakes a thread that sleeps until an instant of it: what lives by it is stepped (libos.Stepper), from one
    thread.
    """

    START_NS = 1_000_000_000
    """Where it begins unless told otherwise: a stamp of 0 means "never" in many places."""

    def __init__(self, start_ns: int = START_NS) -> None:
        """Raises CorelaneError for a start below 1."""
        if start_ns < 1:
            raise CorelaneError(
                "make a virtual clock", f"it cannot start at {start_ns} ns", "start it at 1 ns or later"
            )
        self.word = ffi.new("uint64_t *", start_ns)
        """`uint64_t *` with its time, for C."""
        clock = ffi.new("struct cl_clock *")
        lib.cl_clock_virtual(clock, self.word)
        super().__init__(clock)

    def advance(self, ns: int) -> int:
        """Let `ns` pass, 0 or more, and return the time. Nothing runs by this: see libos.Stepper."""
        if ns < 0:
            raise CorelaneError("advance a virtual clock", f"{ns} ns", "time goes forward: give 0 or more")
        self.word[0] += ns
        return int(self.word[0])


class Timeline:
    """A clock that is corrected now and then (wall time, a PTP master), as offsets from CLOCK_MONOTONIC.

    A correction changes what later stamps mean, never earlier ones, also if it steps backwards: stored stamps are not
    rewritten, and what was read in the light of an older version can be read so again.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ptr = ffi.new("struct cl_timeline *")

    @property
    def version(self) -> int:
        """Corrections so far."""
        return int(self.ptr.n)

    def step(self, from_tsc: int, offset_ns: int) -> int:
        """From stamp `from_tsc` on, this clock is CLOCK_MONOTONIC + offset_ns. Returns the new version.

        CorelaneError if `from_tsc` lies before the last correction or the timeline is full.
        """
        return check(
            lib.cl_timeline_step(self.ptr, from_tsc & _MASK, offset_ns),
            "correct the clock",
            hint="corrections are appended in the order of their stamps, 256 at most",
        )

    def ns(self, stamp: int, version: int | None = None) -> int:
        """This clock's time in ns at a stamp, in the light of the first `version` corrections (default: of all)."""
        upto = 0xFFFFFFFF if version is None else version
        return int(lib.cl_timeline_ns(self.ptr, self.clock.ptr, stamp & _MASK, upto))
