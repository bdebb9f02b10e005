"""Whether the stages of a request add up to its latency, as that is measured from outside of the runtime.

Outside is the server's NIC, whose calls are stamped by the same clock: from the return of the one by which the request
came to the return of the one by which its answer went. What lies beyond is the client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...apps import echo as app
from ...runtime._native import lib
from ..harness.session import Session
from .watching import watched

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

PORT = 9000
RATES = (20_000.0, 200_000.0, 1_000_000.0)  # one at a time, and in bursts
SLICE_S = 0.05
SLICES = 6  # of each
FEWEST = 1000


def errors_ns(messages: Array, came: Array, went: Array, hz: int) -> Array:
    """Of each request, by how much the sum of its stages is not what was measured. In order, all of them."""
    import numpy

    measured = (went - came).astype(float)
    error: Array = numpy.abs(measured - messages["sent"]) * 1e9 / hz
    return error


def measure(session: Session, seconds: float) -> None:
    """The figure: p99 of all, and of each rate."""
    import numpy

    session.say("sum of the stages against the latency at the NIC")
    found: dict[float, list[Array]] = {rate: [] for rate in RATES}
    slice_s = min(SLICE_S, seconds / len(RATES) / SLICES)
    left_out = 0
    with watched(lambda runtime: runtime.bind(app.handler("c", PORT)), session.two_cores, PORT) as server:
        for rate in RATES:
            for _ in range(SLICES):
                records, pairs = server.slice(rate, slice_s), server.wire.take()
                known = (records.messages["flags"] & (lib.CL_TRACE_ANSWERED | lib.CL_TRACE_UNSENT)) == (
                    lib.CL_TRACE_ANSWERED
                )
                if pairs is None or records.lost or not known.all() or len(pairs[0]) != len(records.messages):
                    left_out += 1
                else:
                    found[rate].append(errors_ns(records.messages, *pairs, server.segment.hz))
    if left_out:
        session.note(f"sums: {left_out} of {SLICES * len(RATES)} slices left out: requests that were not answered")
    every = [part for parts in found.values() for part in parts]
    whole = numpy.concatenate(every) if every else numpy.zeros(0)
    if len(whole) < FEWEST:
        session.figure("trace.sum_error", None, reason=f"{len(whole)} requests: give more --seconds")
        return
    session.settings["sum_error"] = {
        f"{rate:,.0f}/s": {"n": sum(map(len, parts)), "p99_ns": _p99(numpy.concatenate(parts))}
        for rate, parts in found.items()
        if parts
    }
    session.figure("trace.sum_error", _p99(whole), runs=[_p99(part) for part in every if len(part)])


def _p99(errors: Array) -> float:
    import numpy

    return float(numpy.quantile(errors, 0.99))
