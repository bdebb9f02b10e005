"""Records as a table: the time that each message spent in each stage, in us.

A stage is a path: ("handler", "wait: mutex"). Those of a message add up to its latency, by construction: what is not
known of a stage's parts is left to one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...runtime._native import lib
from ...runtime.trace import WAITS, Records

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Stage = tuple[str, ...]

TOGETHER: Stage = ("burst", "inbox or handler")
"""Of a message whose start and end are only known of all that were answered by one doorbell (mode sampled)."""
RUNS: Stage = ("handler", "runs")
QUEUED: Stage = ("handler", "run queue")
WINDOWS = (("ring", "", "pickup"), ("inbox", "pickup", "start"), ("handler", "start", "end"), ("reply", "end", "sent"))
"""Stages with the boundaries of a message that they are between; the first begins with it."""
AWAY = "core away"


@dataclass(frozen=True)
class Table:
    """Messages and their stages. names: of services, by number. stages: of each path the times of all messages, in us;
    they add up to `total`. waits: the records of their waits."""

    messages: Array
    names: Sequence[str]
    stages: dict[Stage, Array]
    total: Array
    waits: Array
    hz: int

    def of_service(self, service: int) -> Table:
        """Of one service alone."""
        import numpy

        mine = self.messages["service"] == service
        ids = self.messages["id"][mine]
        return Table(
            self.messages[mine],
            self.names,
            {path: times[mine] for path, times in self.stages.items()},
            self.total[mine],
            self.waits[numpy.isin(self.waits["id"], ids)],
            self.hz,
        )


def table(records: Records, names: Sequence[str], hz: int) -> Table:
    """The stages of all messages. hz: of their stamps."""
    import numpy

    messages = records.messages
    us = 1e6 / hz
    stages: dict[Stage, Array] = {}
    for name, first, last in WINDOWS:
        begin = messages[first].astype(float) if first else numpy.zeros(len(messages))
        away = _away(messages, begin, messages[last].astype(float), records.cores)
        if name == "handler":
            stages |= _handler(messages, records.waits, away, us)
        else:
            whole = (messages[last] - begin) * us
            stages |= {(name, "waits" if name in ("ring", "inbox") else "until sent"): whole - away * us}
            if away.any():
                stages[name, AWAY] = away * us
    _put_together(stages, shared(messages))
    return Table(messages, names, stages, messages["sent"] * us, records.waits, hz)


def shared(messages: Array) -> Array:
    """Which have no start and end of their own."""
    both = lib.CL_TRACE_SHARED | lib.CL_TRACE_GUESSED
    rows: Array = (messages["flags"] & both) == both
    return rows


def _put_together(stages: dict[Stage, Array], rows: Array) -> None:
    """Of these messages inbox and handler are one stage."""
    import numpy

    if not rows.any():
        return
    parts = [path for path in stages if path[0] in ("inbox", "handler")]
    together = numpy.where(rows, numpy.sum([stages[path] for path in parts], axis=0), 0.0)
    for path in parts:
        stages[path] = numpy.where(rows, 0.0, stages[path])
    stages[TOGETHER] = together


def _away(messages: Array, begin: Array, end: Array, cores: Array) -> Array:
    """Ticks of [begin, end), which are relative to each message's `begin`, in which its kthread had no core."""
    import numpy

    out = numpy.zeros(len(messages))
    for kthread in numpy.unique(cores["kthread"]):
        gone = numpy.sort(cores[cores["kthread"] == kthread], order="begin")
        rows = numpy.nonzero(messages["kthread"] == kthread)[0]
        # Time away until a moment, as a function that is straight between these points.
        at = numpy.stack([gone["begin"], gone["end"]], axis=1).ravel()
        zero = int(at[0])
        until = numpy.cumsum(numpy.stack([numpy.zeros(len(gone)), gone["end"] - gone["begin"]], axis=1).ravel())
        from_zero = (at - numpy.uint64(zero)).astype(float)
        base = messages["begin"][rows].astype(numpy.int64) - zero
        parts = [numpy.interp(base + edge[rows], from_zero, until, left=0.0) for edge in (begin, end)]
        out[rows] = numpy.clip(parts[1] - parts[0], 0, end[rows] - begin[rows])
    return out


def _handler(messages: Array, waits: Array, away: Array, us: float) -> dict[Stage, Array]:
    """Running, waiting by what for, and waiting for the kthread."""
    import numpy

    stages: dict[Stage, Array] = {}
    left = messages["blocked"].astype(float)
    order = numpy.argsort(messages["id"], kind="stable")
    ids = messages["id"][order]
    place = numpy.searchsorted(ids, waits["id"])
    known = numpy.zeros(len(waits), bool)
    inside = place < len(ids)
    known[inside] = ids[place[inside]] == waits["id"][inside]
    for what in numpy.unique(waits["what"][known]):
        mine = known & (waits["what"] == what)
        times = numpy.zeros(len(messages))
        numpy.add.at(times, order[place[mine]], waits["blocked"][mine].astype(float))
        times = numpy.minimum(times, left)
        left = left - times
        if times.any():
            stages["handler", f"wait: {WAITS.get(int(what), 'other')}"] = times * us
    if left.any():
        other = stages.get(("handler", "wait: other"), numpy.zeros(len(messages)))
        stages["handler", "wait: other"] = other + left * us
    ready = messages["ready"].astype(float)
    runs = (messages["end"] - messages["start"]).astype(float) - messages["blocked"] - ready
    # A core that is lost in the middle shows as a wait for it where the uthread was switched away from; else not.
    inside_run = numpy.minimum(away, runs)
    stages[RUNS] = (runs - inside_run) * us
    stages[QUEUED] = ready * us
    if inside_run.any():
        stages["handler", AWAY] = inside_run * us
    return stages
