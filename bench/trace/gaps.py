"""Whether time that the machine takes during a request is named as such.

A canary on the server's core (taker.h) takes it for 20 us and more at random times, and knows when. A gap counts if it
lies over a request at least in part, by the requests' own records. It is named if a record of a gap lies over it, and
says that at least half of its time was gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...apps import spin
from ...runtime.errors import check
from .._native import ffi, lib
from ..harness.session import Session
from .watching import watched

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

PORT = 9000
SERVICE_US, RATE = 10.0, 50_000.0  # half of what one core does
LEAST_US, MOST_US = 20, 60
SLICE_S, SLICES = 0.3, 8
SEED = 20251129
ROOM = 4096
SHARE = 0.5  # of a gap, that its record has to say
FEWEST = 20


def overlaps(begin: Array, end: Array, others_begin: Array, others_end: Array) -> Array:
    """Which of some intervals lie over one of the others, at least in part."""
    import numpy

    order = numpy.argsort(others_begin, kind="stable")
    begins, latest = others_begin[order], numpy.maximum.accumulate(others_end[order])
    before = numpy.searchsorted(begins, end)  # so many begin before its end
    over: Array = (before > 0) & (latest[numpy.maximum(before, 1) - 1] > begin) if len(begins) else before > 0
    return over


def judge(taken: Array, messages: Array, gaps: Array) -> Array:
    """Of the gaps that lie over a request, whether each was named. taken: rows of begin and end."""
    import numpy

    begin, end = taken[:, 0], taken[:, 1]
    during = overlaps(begin, end, messages["begin"], messages["begin"] + messages["sent"])
    named = [
        bool(((gaps["begin"] < e) & (gaps["end"] > b) & (gaps["gone"] >= SHARE * float(e - b))).any())
        for b, e in zip(begin[during], end[during], strict=True)
    ]
    return numpy.array(named, bool)


def measure(session: Session, seconds: float) -> None:
    """The figure."""
    import numpy

    session.say("gaps of the machine")
    slice_s, all_of, first = min(SLICE_S, seconds / SLICES), 0, True
    parts: list[Array] = []
    options = spin.Options(port=PORT, distribution="exponential", mean_us=SERVICE_US, seed=SEED)
    with watched(lambda runtime: spin.setup(runtime, options), session.two_cores, PORT) as server:
        for i in range(SLICES):
            taker, err = ffi.new("struct cl_bench_taker **"), ffi.new("char[256]")
            cpu = session.two_cores[1]
            rc = lib.cl_bench_taker_start(cpu, SEED + i, LEAST_US * 1000, MOST_US * 1000, ROOM, taker, err)
            check(rc, "take a core now and then", err)
            first &= bool(lib.cl_bench_taker_is_first(taker[0]))
            out = ffi.new("struct cl_bench_taken[]", ROOM)
            try:
                records = server.slice(RATE, slice_s)
            finally:
                n = lib.cl_bench_taker_stop(taker[0], out, ROOM)
            taken = numpy.frombuffer(ffi.buffer(out, 16 * n), numpy.uint64).reshape(-1, 2)
            all_of += len(taken)
            parts.append(judge(taken, records.messages, records.gaps))
    named = numpy.concatenate(parts)
    session.settings["gaps"] = {
        "taken": all_of,
        "during requests": len(named),
        "us": [LEAST_US, MOST_US],
        "seed": SEED,
        "scheduler of the canary": "SCHED_FIFO" if first else "as all others: it may not be SCHED_FIFO",
        "server": f"spins {SERVICE_US:g} us in the mean, {RATE:,.0f} requests/s",
    }
    if len(named) < FEWEST:
        session.figure("trace.gap_found", None, reason=f"{len(named)} gaps during requests: give more --seconds")
        return
    session.figure("trace.gap_found", float(named.mean()), runs=[float(part.mean()) for part in parts if len(part)])
