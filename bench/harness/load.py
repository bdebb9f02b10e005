"""Open-loop load from the loadgen engine, as points of a curve.

The engine runs in its own thread (a client thread, or the poll loop that it is the NIC of). `Load.measure` gives it a
warm-up and a measured phase, sleeps until both are over and reads the counts and the histogram.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from ...runtime.errors import CorelaneError
from ...runtime.hist import Hist
from .._native import ffi, lib
from .openloop import Point

WARM_FRACTION = 0.15
WARM_MOST_S = 0.3


class Engine(Protocol):
    """What is needed of drivers.loadgen.Loadgen."""

    @property
    def ptr(self) -> Any: ...


class Load:
    """Measures points with one engine. One caller at a time.

    busy_s: CPU seconds that the server's cores have used so far, if the benchmark can say.
    """

    def __init__(self, engine: Engine, busy_s: Callable[[], float] | None = None) -> None:
        self.engine = engine
        self.busy_s = busy_s

    def measure(self, rate_rps: float, seconds: float) -> Point:
        """Offer `rate_rps` for `seconds`, the warm-up included. CorelaneError if the engine failed or hangs."""
        warm_s = min(WARM_FRACTION * seconds, WARM_MOST_S)
        phases = ffi.new("struct cl_loadgen_phase[2]")
        phases[0].duration_ns, phases[0].rate, phases[0].measured = int(warm_s * 1e9), rate_rps, 0
        phases[1].duration_ns, phases[1].rate, phases[1].measured = int((seconds - warm_s) * 1e9), rate_rps, 1
        before = self.busy_s() if self.busy_s else 0.0
        self._run(phases, seconds)
        busy = self.busy_s() - before if self.busy_s else float("nan")
        return self._point(rate_rps, seconds - warm_s, busy)

    def _run(self, phases: Any, seconds: float) -> None:
        err = ffi.new("char[256]")
        if lib.cl_loadgen_run(self.engine.ptr, phases, len(phases), err) < 0:
            raise CorelaneError("the load generator did not start", ffi.string(err).decode())
        # Beyond the phases: resolving, preloading, draining, each bounded by the engine itself.
        give_up = time.monotonic() + seconds + 60
        time.sleep(seconds)
        while (state := lib.cl_loadgen_state(self.engine.ptr)) not in (lib.CL_LOAD_IDLE, lib.CL_LOAD_FAILED):
            if time.monotonic() > give_up:
                lib.cl_loadgen_abort(self.engine.ptr)
                raise CorelaneError("the load did not end", "its thread does not run", "see that its core is free")
            time.sleep(0.002)
        if state == lib.CL_LOAD_FAILED:
            raise CorelaneError(
                "no load could be offered", "the server did not answer", "is it running at that address?"
            )

    def _point(self, rate_rps: float, seconds: float, busy_s: float) -> Point:
        counts = ffi.new("struct cl_loadgen_counts *")
        lib.cl_loadgen_counts(self.engine.ptr, 1, counts)
        hist = Hist.view(lib.cl_loadgen_latency(self.engine.ptr, 1), self.engine).snapshot()
        # A server that falls behind answers the last requests after the phase: that time counts as well.
        took_s = lib.cl_clock_ticks_to_ns(lib.cl_clock_default(), int(counts.last_tsc) - int(counts.start_tsc)) * 1e-9
        point = Point(
            rate_rps,
            int(counts.answered) / max(took_s, seconds),
            int(counts.sent),
            int(counts.answered),
            int(counts.late),
            int(counts.dropped),
            busy_core_s=busy_s,
            seconds=seconds,
            hist=hist,
        )
        if counts.wrong or counts.errors:
            point.extra |= {"wrong": int(counts.wrong), "errors": int(counts.errors)}
        if counts.hits + counts.misses + counts.stored:
            point.extra |= {"hits": int(counts.hits), "misses": int(counts.misses), "stored": int(counts.stored)}
        point.set_percentiles(hist)
        return point
