"""Requests that wait behind a long one: whose fault that is.

While a handler runs for long, requests that come wait in the inbox, and answers that are done wait for their doorbell.
At some load those are more than the long ones themselves, and the tail would be blamed on the inbox. So the time that a
request waits while a long request of its own service has the kthread is given to the stage in which that one spent it.
Not the time behind ordinary requests, which is load; nor behind those of other services, which are no fault of this.

Commands of a group wait in the same way for those before them: until their batch goes, which is held back while others
are on their way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .commands import BATCH, COMMIT, NEVER
from .stages import FAULTS, QUEUED, RUNS, Stage, Table, places
from .systemcalls import CALLS

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
    parts = [path for path in stages if path in (QUEUED, RUNS, FAULTS) or path[: len(CALLS)] == CALLS]
    own = numpy.sum([stages[path] for path in parts], axis=0)  # without what it stood still for
    # One that has waited has let others have the kthread.
    long = (messages["blocked"] == 0) & (own > LONG * numpy.quantile(own, 0.75))
    handler = messages["start"], messages["end"]
    for wait, (first, last) in _WAITS.items():
        _give(one, stages, wait, parts, long, handler, (messages[first], messages[last]))
    if BATCH in stages:
        _commands(one, stages)
    return dataclasses.replace(one, stages=stages)


def _commands(one: Table, stages: dict[Stage, Array]) -> None:
    """A long one is on its way from when its batch goes until it is answered."""
    import numpy

    messages = one.messages
    causes = [path for path in stages if path[: len(COMMIT)] == COMMIT and path != BATCH]
    gone = numpy.zeros(len(messages))
    place, known = places(messages, one.commands)
    known &= one.commands["gone"] != NEVER
    gone[place[known]] = numpy.minimum(one.commands["gone"], messages["end"][place])[known]
    own = numpy.sum([stages[path] for path in causes], axis=0)
    long = own > LONG * numpy.quantile(own, 0.75)
    _give(one, stages, BATCH, causes, long, (gone, messages["end"]), (numpy.zeros(len(messages)), gone))


def _give(
    one: Table,
    stages: dict[Stage, Array],
    wait: Stage,
    causes: Sequence[Stage],
    long: Array,
    held: tuple[Array, Array],
    waited: tuple[Array, Array],
) -> None:
    """The time between `waited` in which a long one held up the others, between `held`, is of what made that long."""
    import numpy

    took = numpy.maximum((held[1] - held[0]) * (1e6 / one.hz), 1e-9)
    left = stages[wait]
    for cause in causes:
        behind = _overlap(one.messages, long, one.stages[cause] / took, held, waited) * 1e6 / one.hz
        moved = numpy.minimum(behind, left)
        left = left - moved
        stages[cause] = stages[cause] + moved
    stages[wait] = left


def _overlap(
    messages: Array, long: Array, weight: Array, held_up: tuple[Array, Array], waited: tuple[Array, Array]
) -> Array:
    """Ticks of each message between its `waited` in which a long one had its kthread, times the weight of that."""
    import numpy

    out = numpy.zeros(len(messages))
    for kthread in numpy.unique(messages["kthread"][long]):
        rows = numpy.nonzero(messages["kthread"] == kthread)[0]
        held = numpy.nonzero(long & (messages["kthread"] == kthread))[0]
        held = held[numpy.argsort(messages["begin"][held] + held_up[0][held], kind="stable")]
        zero = int(messages["begin"][rows].min())
        base = (messages["begin"] - numpy.uint64(zero)).astype(float)
        begin, end = (base[held] + edge[held] for edge in held_up)
        begin[1:] = numpy.maximum(begin[1:], numpy.maximum.accumulate(end)[:-1])  # what two have at once is the first's
        time = numpy.maximum(end - begin, 0) * weight[held]
        at = numpy.stack([begin, numpy.maximum(begin, end)], axis=1).ravel()
        until = numpy.cumsum(numpy.stack([numpy.zeros(len(held)), time], axis=1).ravel())
        edges = [base[rows] + edge[rows] for edge in waited]
        out[rows] = numpy.interp(edges[1], at, until, left=0.0) - numpy.interp(edges[0], at, until, left=0.0)
    return out
