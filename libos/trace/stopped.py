"""When a kthread stood still, and how much of each message that took: its core was another's, its interpreter collected
garbage, or its thread had no CPU.

Such time is nobody's stage: who waits for the kthread then waits for the same reason as who is in the handler. So it is
taken out of the stages (stages.py), and is a stage of its own, by reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...runtime._native import lib
from ...runtime.trace import Records

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

AWAY = "core away"
COLLECTS = "garbage collection"
NO_CPU = "no CPU"


class Stops(NamedTuple):
    """Of each the kthread, stamps, and ticks between them in which it stood still."""

    kthread: Array
    begin: Array
    end: Array
    gone: Array


class Stood(NamedTuple):
    """Records of times in which kthreads stood still: `struct cl_trace_core` and `_gap`."""

    cores: Array
    gaps: Array

    def during(self, messages: Array) -> Stood:
        """Those that lie over one of these messages, at least in part."""
        return Stood(self.cores[_over(self.cores, messages)], self.gaps[_over(self.gaps, messages)])

    @property
    def without_cpu(self) -> Array:
        """Gaps that the machine made: of threads without a CPU."""
        found: Array = self.gaps[self.gaps["how"] != lib.CL_TRACE_GAP_COLLECTS]
        return found

    @property
    def collections(self) -> Array:
        """Those that an interpreter made."""
        found: Array = self.gaps[self.gaps["how"] == lib.CL_TRACE_GAP_COLLECTS]
        return found


def _over(rows: Array, messages: Array) -> Array:
    """Which of some records of kthreads lie over a message of theirs."""
    import numpy

    out = numpy.zeros(len(rows), bool)
    for kthread in numpy.unique(rows["kthread"]):
        mine = rows["kthread"] == kthread
        those = messages[messages["kthread"] == kthread]
        if len(those):
            order = numpy.argsort(those["begin"], kind="stable")
            latest = numpy.maximum.accumulate((those["begin"] + those["sent"])[order])
            before = numpy.searchsorted(those["begin"][order], rows["end"][mine])  # so many begin before its end
            out[mine] = (before > 0) & (latest[numpy.maximum(before, 1) - 1] > rows["begin"][mine])
    return out


def stops(records: Records) -> dict[str, Stops]:
    """By reason; none of what there was none of."""
    found = {AWAY: _of(records.cores, records.cores["end"] - records.cores["begin"])}
    is_ours = records.gaps["how"] == lib.CL_TRACE_GAP_COLLECTS
    ours, machine = records.gaps[is_ours], records.gaps[~is_ours]
    found[COLLECTS] = _of(ours, ours["gone"])
    found[NO_CPU] = _narrowed(_of(machine, machine["gone"]), machine["id"], records.messages)
    return {reason: of for reason, of in found.items() if len(of.begin)}


def _of(rows: Array, gone: Array) -> Stops:
    return Stops(rows["kthread"].copy(), rows["begin"].copy(), rows["end"].copy(), gone.copy())


def _narrowed(found: Stops, ids: Array, messages: Array) -> Stops:
    """A look at the kernel's counters that one slow message was reason for: it stood still while that was handled, or
    while that waited, if it was for longer than the handler took. Or right after it, in the look itself, where the
    kernel likes best to give the CPU to others: then the look comes to its end late, and whoever is handled next has
    the time."""
    import numpy

    order = numpy.argsort(messages["id"], kind="stable")
    place = numpy.searchsorted(messages["id"][order], ids)
    inside = place < len(order)
    rows = numpy.zeros(len(ids), int)
    rows[inside] = order[place[inside]]
    known = inside.copy()
    known[inside] = messages["id"][rows[inside]] == ids[inside]
    if not known.any():
        return found
    mine = messages[rows[known]]
    in_handler = found.gone[known] <= mine["end"] - mine["start"]
    began = mine["begin"] + numpy.where(in_handler, mine["start"], 0).astype(mine["begin"].dtype)
    ended = mine["begin"] + mine["end"]
    looked = numpy.maximum(found.end[known], ended)
    in_look = 2 * (looked - ended) >= found.gone[known]
    found.begin[known] = numpy.where(in_look, ended, numpy.maximum(found.begin[known], began))
    until = numpy.where(in_look, looked, numpy.minimum(found.end[known], ended))
    found.end[known] = numpy.maximum(found.begin[known], until)
    found.gone[known] = numpy.minimum(found.gone[known], found.end[known] - found.begin[known])
    return found


def taken(messages: Array, first: Array, last: Array, of: Stops) -> Array:
    """Ticks of [first, last), which are relative to each message's `begin`, in which its kthread stood still."""
    import numpy

    out = numpy.zeros(len(messages))
    for kthread in numpy.unique(of.kthread):
        mine = of.kthread == kthread
        rows = numpy.nonzero(messages["kthread"] == kthread)[0]
        zero = of.begin[mine].min()
        begins, ends = ((stamps[mine] - zero).astype(float) for stamps in (of.begin, of.end))
        at, until = _rising(begins, ends, of.gone[mine])
        base = messages["begin"][rows].astype(numpy.int64) - int(zero)
        parts = [numpy.interp(base + edge[rows], at, until, left=0.0) for edge in (first, last)]
        out[rows] = numpy.clip(parts[1] - parts[0], 0, last[rows] - first[rows])
    return out


def piled_up(messages: Array, of: Stops) -> Array:
    """Of each message for how long, in ticks, its kthread stood still right before it was picked up: it had come
    meanwhile, and so had those that are in front of it now. So much of its wait for them is of that.

    That is so of what the first poll brings after a stop, if that is no longer after it than the stop was long."""
    import numpy

    out = numpy.zeros(len(messages))
    for kthread in numpy.unique(of.kthread):
        rows, mine = numpy.nonzero(messages["kthread"] == kthread)[0], of.kthread == kthread
        polls, poll_of = numpy.unique(messages["begin"][rows] + messages["pickup"][rows], return_inverse=True)
        ends, gone = of.end[mine], of.gone[mine]
        first = numpy.searchsorted(polls, ends)
        there = first < len(polls)
        first, ends, gone = first[there], ends[there], gone[there]
        soon = polls[first] - ends <= gone
        stood = numpy.zeros(len(polls))
        numpy.maximum.at(stood, first[soon], gone[soon].astype(float))
        out[rows] = stood[poll_of]
    return out


def worked_off(messages: Array, why: Mapping[str, Stops]) -> dict[str, Array]:
    """Of each message for how many ticks, by reason, it waited in front of its handler because its kthread had stood
    still: meanwhile and after that, for what had piled up was worked off first.

    By a replay: the same messages, with the same times in their handlers, one after the other as they came, if nothing
    had stood still (Lindley's recursion). What they really waited longer than that is of the stops, as far as the
    kthread stood still since it last had nothing to do. Of a sample alone this finds only what they stood still
    themselves."""
    import numpy

    out = {reason: numpy.zeros(len(messages)) for reason in why}
    handled = (messages["flags"] & lib.CL_TRACE_STALLED) == 0
    edges = messages["start"].astype(float), messages["end"].astype(float)
    own = edges[1] - edges[0] - messages["blocked"] - messages["ready"]
    own -= sum((taken(messages, *edges, of) for of in why.values()), numpy.zeros(len(messages)))
    own = numpy.maximum(own, 0) / numpy.maximum(messages["shared"], 1)
    for kthread in numpy.unique(messages["kthread"][handled]) if why else ():
        rows = numpy.nonzero((messages["kthread"] == kthread) & handled)[0]
        rows = rows[numpy.argsort(messages["begin"][rows], kind="stable")]
        zero = messages["begin"][rows[0]]
        came, takes = (messages["begin"][rows] - zero).astype(float), own[rows]
        worked = numpy.cumsum(takes) - takes
        alone = worked + numpy.maximum.accumulate(came - worked) - came  # it would have waited
        longer = numpy.maximum(edges[0][rows] - alone, 0)
        until = numpy.maximum.accumulate(came + edges[1][rows])
        anew = numpy.concatenate([[True], came[1:] >= until[:-1]])
        since = came[numpy.maximum.accumulate(numpy.where(anew, numpy.arange(len(rows)), 0))]
        stood: dict[str, Array] = {}
        for reason, of in why.items():
            mine = of.kthread == kthread
            begins, ends = (
                (stamps[mine].astype(numpy.int64) - int(zero)).astype(float) for stamps in (of.begin, of.end)
            )
            if mine.any():
                at, total = _rising(begins, ends, of.gone[mine])
                stood[reason] = numpy.interp(came + edges[0][rows], at, total, left=0.0) - numpy.interp(
                    since, at, total, left=0.0
                )
        whole = sum(stood.values(), numpy.zeros(len(rows)))
        for reason, ticks in stood.items():
            out[reason][rows] = ticks * numpy.minimum(longer / numpy.maximum(whole, 1), 1)
    return out


def _rising(begin: Array, end: Array, gone: Array) -> tuple[Array, Array]:
    """Time that it has stood still until a moment: a function that is straight between these points. What two have in
    common is the first one's."""
    import numpy

    order = numpy.argsort(begin, kind="stable")
    begin, end, gone = begin[order], end[order], gone[order].astype(float)
    share = gone / numpy.maximum(end - begin, 1)
    begin[1:] = numpy.maximum(begin[1:], numpy.maximum.accumulate(end)[:-1])
    end = numpy.maximum(begin, end)
    at = numpy.stack([begin, end], axis=1).ravel()
    steps = numpy.stack([numpy.zeros(len(begin)), (end - begin) * numpy.minimum(share, 1.0)], axis=1).ravel()
    return at, numpy.cumsum(steps)
