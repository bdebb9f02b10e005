"""System calls as stages of the handlers that made them (runtime/syscalls.py tells when each was).

A kthread runs one handler at a time: between its start and its end, without what that waits, a call of the thread is
the handler's. What corelane calls while a handler waits is not; the wait has that time. One who waits without it being
written down (mode sampled) has no such stages. Of a request that another kthread began only what the last one ran is
looked at, as its record names no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

    from ...runtime.syscalls import Call

    Array = numpy.ndarray[Any, Any]

Stage = tuple[str, ...]

CALLS: Stage = ("handler", "system call")
"""Its parts are the calls' names."""
_FIELDS = [("kthread", "u4"), ("call", "u4"), ("begin", "u8"), ("ticks", "u8")]
_PLACED = [("row", "i8"), ("id", "u8"), ("kthread", "u4"), ("call", "u4"), ("begin", "u8"), ("ticks", "f8")]


def array_of(calls: Iterable[Call], tsc_of: Callable[[int], int]) -> Array:
    """Calls with stamps: kthread, call, begin, ticks. tsc_of: a stamp of a time in ns."""
    import numpy

    rows = []
    for one in calls:
        begin, end = (max(tsc_of(ns), 0) for ns in (one.begin_ns, one.end_ns))
        rows.append((one.thread, one.call, begin, end - begin))
    return numpy.array(rows, _FIELDS)


def stage_of(call: int, names: Mapping[int, str]) -> Stage:
    """Of a system call of this number."""
    return (*CALLS, names.get(call, f"number {call}"))


def placed(messages: Array, waits: Array, calls: Array) -> Array:
    """Calls that handlers made: row and id of the message, and so much of the call as lies in its handler. One of a
    handler that several share is there for each of them."""
    import numpy

    rows, kthread, begin, end = _ran(messages, waits)
    keys = numpy.stack([kthread.astype(numpy.uint64), begin, end], axis=1)
    pieces, of_piece = numpy.unique(keys, axis=0, return_inverse=True)
    of_piece = of_piece.ravel()
    order = numpy.argsort(of_piece, kind="stable")
    first = numpy.searchsorted(of_piece[order], numpy.arange(len(pieces) + 1))
    out = []
    for number in numpy.unique(calls["kthread"]):
        mine, at = calls[calls["kthread"] == number], numpy.nonzero(pieces[:, 0] == number)[0]
        if not len(at):
            continue
        piece = numpy.searchsorted(pieces[at, 1], mine["begin"], side="right") - 1
        inside = (piece >= 0) & (mine["begin"] < pieces[at[piece], 2])
        mine, piece = mine[inside], at[piece[inside]]
        times = first[piece + 1] - first[piece]
        found = numpy.zeros(int(times.sum()), _PLACED)
        nth = numpy.arange(len(found)) - numpy.repeat(numpy.cumsum(times) - times, times)
        found["row"] = rows[order[numpy.repeat(first[piece], times) + nth]]
        for field in ("kthread", "call", "begin"):
            found[field] = numpy.repeat(mine[field], times)
        found["ticks"] = numpy.repeat(numpy.minimum(mine["ticks"], pieces[piece, 2] - mine["begin"]), times)
        found["id"] = messages["id"][found["row"]]
        out.append(found)
    return numpy.concatenate(out) if out else numpy.zeros(0, _PLACED)


def _ran(messages: Array, waits: Array) -> tuple[Array, Array, Array, Array]:
    """Pieces of time in which a handler ran: row of its message, kthread, begin and end."""
    import numpy

    order = numpy.argsort(messages["id"], kind="stable")
    ids = messages["id"][order]
    place = numpy.searchsorted(ids, waits["id"])
    known = place < len(ids)
    known[known] = ids[place[known]] == waits["id"][known]
    waits, rows = waits[known], order[place[known]]
    waited = messages["blocked"].astype(numpy.int64) + messages["ready"]
    told = numpy.zeros(len(messages), numpy.int64)
    single = waits["n"] == 1
    took = waits["blocked"].astype(numpy.int64) + waits["ready"]
    numpy.add.at(told, rows[single], took[single])
    whole = numpy.nonzero(told >= waited)[0]
    mine = single & numpy.isin(rows, whole)
    waits, rows, took = waits[mine], rows[mine], took[mine]
    begin, end = (messages["begin"] + messages[edge] for edge in ("start", "end"))
    begins = numpy.concatenate([begin[whole], waits["begin"] + took.astype(numpy.uint64)])
    ends = numpy.concatenate([end[whole], waits["begin"]])
    row = numpy.concatenate([whole, rows])
    by_begin, by_end = numpy.lexsort((begins, row)), numpy.lexsort((ends, row))
    row, begins, ends = row[by_begin], begins[by_begin], ends[by_end]
    some = begins < ends
    return row[some], messages["kthread"][row[some]], begins[some], ends[some]


def lines_of(placed: Array, ids: Array, stage: Stage, hz: int, names: Mapping[int, str]) -> list[str]:
    """Evidence: of the calls of a stage how often requests made them, and how long they took. ids: the requests'."""
    import numpy

    if stage[: len(CALLS)] != CALLS:
        return []
    mine = placed[numpy.isin(placed["id"], ids)]
    lines = []
    for call in numpy.unique(mine["call"]):
        of = mine[mine["call"] == call]
        path = stage_of(int(call), names)
        if path[: len(stage)] == stage:
            n = len(numpy.unique(of["id"]))
            of = of[numpy.unique(of[["kthread", "begin"]], return_index=True)[1]]  # a shared handler's once
            each, most = (float(us) * 1e6 / hz for us in (of["ticks"].mean(), of["ticks"].max()))
            lines.append(f"{path[-1]}: {len(of)} calls in {n} of {len(ids)}, {each:.1f} us each, {most:.1f} at most")
    return lines
