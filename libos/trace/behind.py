"""Requests that wait behind a long one: whose fault that is.

While a handler runs for long, requests that come wait in the inbox, and answers that are done wait for their doorbell.
At some load those are more than the long ones themselves, and the tail would be blamed on the inbox. So the time that a
request waits while a long request of its own service has the kthread is given to the stage in which that one spent it.
Not the time behind ordinary requests, which is load; nor behind those of other services, which are no fault of this.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from .stages import QUEUED, RUNS, Table

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

LONG = 3.0  # times what three quarters of the service's handlers take at most
_WAITS = {("inbox", "waits"): ("pickup", "start"), ("reply", "until sent"): ("end", "sent")}


def by_cause(one: Table) -> Table:
    """A table of one service with that time where it belongs. Its stages add up as before."""
    import numpy

    messages = one.messages
    stages = dict(one.stages)
    if len(messages) == 0:
        return one
    took = (messages["end"] - messages["start"]) * (1e6 / one.hz)
    own = stages[RUNS] + stages[QUEUED]  # without what it stood still for
    # One that has waited has let others have the kthread.
    long = (messages["blocked"] == 0) & (own > LONG * numpy.quantile(own, 0.75))
    for wait, (first, last) in _WAITS.items():
        left = stages[wait]
        for cause in (QUEUED, RUNS):
            weight = one.stages[cause] / numpy.maximum(took, 1e-9)
            behind = _overlap(messages, long, weight, first, last) * 1e6 / one.hz
            moved = numpy.minimum(behind, left)
            left = left - moved
            stages[cause] = stages[cause] + moved
        stages[wait] = left
    return dataclasses.replace(one, stages=stages)


def _overlap(messages: Array, long: Array, weight: Array, first: str, last: str) -> Array:
    """Ticks of each message between two boundaries in which a long one had its kthread, times the weight of that."""
    import numpy

    out = numpy.zeros(len(messages))
    for kthread in numpy.unique(messages["kthread"][long]):
        rows = numpy.nonzero(messages["kthread"] == kthread)[0]
        held = numpy.nonzero(long & (messages["kthread"] == kthread))[0]
        held = held[numpy.argsort(messages["begin"][held] + messages["start"][held], kind="stable")]
        zero = int(messages["begin"][rows].min())
        base = (messages["begin"] - numpy.uint64(zero)).astype(float)
        begin, end = base[held] + messages["start"][held], base[held] + messages["end"][held]
        begin[1:] = numpy.maximum(begin[1:], numpy.maximum.accumulate(end)[:-1])  # what two have at once is the first's
        time = numpy.maximum(end - begin, 0) * weight[held]
        at = numpy.stack([begin, numpy.maximum(begin, end)], axis=1).ravel()
        until = numpy.cumsum(numpy.stack([numpy.zeros(len(held)), time], axis=1).ravel())
        edges = [base[rows] + messages[edge][rows] for edge in (first, last)]
        out[rows] = numpy.interp(edges[1], at, until, left=0.0) - numpy.interp(edges[0], at, until, left=0.0)
    return out
