"""Records as a table: the time that each message spent in each stage, in us.

A stage is a path: ("handler", "wait: mutex"). Those of a message add up to its latency, by construction: what is not
known of a stage's parts is left to one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...runtime import syscalls
from ...runtime._native import lib
from ...runtime.trace import WAITS, Records, records_of
from . import bursts, faults, systemcalls
from .commands import parts_of
from .stopped import AWAY, NO_CPU, Stood, Stops, piled_up, stops, taken, worked_off

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]

Stage = tuple[str, ...]

TOGETHER: Stage = ("burst", "inbox or handler")
"""Of a message whose start and end are only known of all that were answered by one doorbell (mode sampled)."""
RUNS: Stage = ("handler", "runs")
QUEUED: Stage = ("handler", "run queue")
FAULTS: Stage = ("handler", "page faults")
"""Of what it ran: estimated (faults.py)."""
FOR_CORE: Stage = ("handler", "wait: core")
WINDOWS = (("ring", "", "pickup"), ("inbox", "pickup", "start"), ("handler", "start", "end"), ("reply", "end", "sent"))
"""Stages with the boundaries of a message that they are between; the first begins with it."""
IN_FRONT = ("ring", "inbox")
"""Those in front of the handler."""
WIRE = "wire"
"""Of bytes that a connection could not send or deliver: what a peer or the way to it was late with."""
STOPPED = "kthread stopped"
"""Its parts are reasons (stopped.py)."""
STALLED = getattr(lib, "CL_TRACE_STALLED", 0)
"""Flag of a message that is no request, but such a time of a connection."""


@dataclass(frozen=True)
class Table:
    """Messages and their stages. names: of services, by number. stages: of each path the times of all messages, in us;
    they add up to `total`. waits, commands: the records of their waits, and of commands of a group among them. stood:
    those of times in which kthreads stood still, of all services. calls: system calls of handlers."""

    messages: Array
    names: Sequence[str]
    stages: dict[Stage, Array]
    total: Array
    waits: Array
    hz: int
    stood: Stood
    commands: Array = field(default_factory=lambda: records_of(b"").commands)
    calls: Array | None = None

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
            self.stood,
            self.commands[numpy.isin(self.commands["id"], ids)],
            None if self.calls is None else self.calls[numpy.isin(self.calls["id"], ids)],
        )


def table(records: Records, names: Sequence[str], hz: int, fault_us: float = 0.0, calls: Array | None = None) -> Table:
    """The stages of all messages. hz: of their stamps. fault_us: what a page fault costs (faults.cost_us); 0: there is
    no such stage. calls: system calls (systemcalls.array_of); None: they are not known, and there is none either."""
    import numpy

    messages = records.messages
    us = 1e6 / hz
    stages: dict[Stage, Array] = {}
    why_stopped = stops(records)
    called = None if calls is None else systemcalls.placed(messages, records.waits, calls)
    in_front = {reason: numpy.zeros(len(messages)) for reason in why_stopped}
    for name, first, last in WINDOWS:
        begin = messages[first].astype(float) if first else numpy.zeros(len(messages))
        end = messages[last].astype(float)
        waited: Array = numpy.zeros(len(messages))  # for a core, as those in front of the handler stand still for it
        if name == "handler":
            parts, left = _handler(messages, records)
            waited = parts.pop(FOR_CORE, waited)
            if waited.any():
                stages[STOPPED, AWAY] = stages.get((STOPPED, AWAY), 0.0) + waited * us
            of_calls, asleep = _calls(messages, called, left, why_stopped) if called is not None else ({}, 0.0)
            parts |= of_calls
            left = left - sum(of_calls.values())
        else:
            parts, left, asleep = {}, end - begin, 0.0
        for reason, of in why_stopped.items():
            known = waited if reason == AWAY else asleep if reason == NO_CPU else 0.0
            part = taken(messages, begin, end, of) - known
            if name == "inbox":  # those that had come meanwhile wait for each other
                part = numpy.maximum(part, piled_up(messages, of))
            part = numpy.clip(part, 0, left)
            left = left - part
            if name in IN_FRONT:
                in_front[reason] += part
            if part.any():
                stages[STOPPED, reason] = stages.get((STOPPED, reason), 0.0) + part * us
        if name == "handler" and (of_faults := faults.of_handlers(messages, left, fault_us / us)).any():
            parts[FAULTS] = of_faults
            left = left - of_faults
        parts[RUNS if name == "handler" else (name, "waits" if name in ("ring", "inbox") else "until sent")] = left
        stages |= {path: ticks * us for path, ticks in parts.items()}
    for reason, ticks in worked_off(messages, why_stopped).items():
        _move_to(stages, reason, numpy.maximum(ticks - in_front[reason], 0) * us)
    in_ring, given = bursts.behind(records)
    if given.any():
        stages[bursts.TX_RING], stages[bursts.TO_THE_NIC] = in_ring * us, (given - in_ring) * us
    _put_together(stages, shared(messages))
    _put_on_the_wire(stages, messages, records.waits)
    stood = Stood(records.cores, records.gaps)
    total = (messages["sent"] + given.astype(float)) * us
    return Table(messages, names, stages, total, records.waits, hz, stood, records.commands, called)


def _calls(messages: Array, called: Array, left: Array, why: Mapping[str, Stops]) -> tuple[dict[Stage, Array], Array]:
    """Ticks of the system calls of each handler, by name; and those in which its thread had no CPU, which is the
    call's doing. What else it stood still for meanwhile, it would have without the call. left: of the handler."""
    import numpy

    ends, asleep = called["ticks"], numpy.zeros(len(messages))
    nothing, own = numpy.zeros(len(called)), called["ticks"].copy()
    for reason, of in why.items():
        stood = taken(called, nothing, ends, of)
        if reason == NO_CPU:
            numpy.add.at(asleep, called["row"], stood)
        else:
            own = numpy.maximum(own - stood, 0)
    parts: dict[Stage, Array] = {}
    known = syscalls.names()
    for call in numpy.unique(called["call"]):
        mine, times = called["call"] == call, numpy.zeros(len(messages))
        numpy.add.at(times, called["row"][mine], own[mine])
        times = numpy.minimum(times, left)
        left = left - times
        parts[systemcalls.stage_of(int(call), known)] = times
    return parts, asleep


def _move_to(stages: dict[Stage, Array], reason: str, more: Array) -> None:
    """So much of what they wait in front of the handler is of a stop."""
    import numpy

    for name in IN_FRONT:
        part = numpy.minimum(more, stages[name, "waits"])
        if part.any():
            stages[name, "waits"] = stages[name, "waits"] - part
            stages[STOPPED, reason] = stages.get((STOPPED, reason), 0.0) + part
        more = more - part


def windows(message: Any, in_ring: int, given: int) -> list[tuple[str, int, int]]:
    """Its stages, each with the ticks after its begin that it is between. in_ring, given: of `bursts.behind`."""
    sent = int(message["sent"])
    known = [(name, int(message[first]) if first else 0, int(message[last])) for name, first, last in WINDOWS]
    taken = sent + in_ring
    return [*known, (bursts.TX_RING[0], sent, taken), (bursts.TO_THE_NIC[0], taken, sent + given)]


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


def _put_on_the_wire(stages: dict[Stage, Array], messages: Array, waits: Array) -> None:
    """What a connection stood still for is no stage of a request, but its own; its wait says why."""
    import numpy

    rows = (messages["flags"] & STALLED) != 0
    if not rows.any():
        return
    place, known = places(messages, waits)
    whole = numpy.sum([stages[path] for path in stages], axis=0)
    left = rows.copy()
    for what in numpy.unique(waits["what"][known]):
        mine = numpy.zeros(len(messages), bool)
        mine[place[known & (waits["what"] == what)]] = True
        if (mine & left).any():
            stages[WIRE, WAITS.get(int(what), "other")] = numpy.where(mine & left, whole, 0.0)
            left &= ~mine
    if left.any():
        stages[WIRE, "other"] = numpy.where(left, whole, 0.0)
    for path in stages:
        if path[0] != WIRE:
            stages[path] = numpy.where(rows, 0.0, stages[path])


def places(messages: Array, waits: Array) -> tuple[Array, Array]:
    """Of each wait, or command, the row of its message, and whether that is there."""
    import numpy

    order = numpy.argsort(messages["id"], kind="stable")
    ids = messages["id"][order]
    place = numpy.searchsorted(ids, waits["id"])
    inside = place < len(ids)
    known = inside.copy()
    known[inside] = ids[place[inside]] == waits["id"][inside]
    rows = numpy.zeros(len(waits), int)
    rows[known] = order[place[known]]
    return rows, known


def _handler(messages: Array, records: Records) -> tuple[dict[Stage, Array], Array]:
    """Ticks of waiting by what for, and of waiting for the kthread; and those that are left, in which it ran."""
    import numpy

    waits = records.waits
    left = messages["blocked"].astype(float)
    stages = _commands(messages, records.commands)
    for times in stages.values():
        left = left - times
    place, known = places(messages, waits)
    for what in numpy.unique(waits["what"][known]):
        mine = known & (waits["what"] == what)
        times = numpy.zeros(len(messages))
        numpy.add.at(times, place[mine], waits["blocked"][mine].astype(float))
        times = numpy.minimum(times, left)
        left = left - times
        path = ("handler", f"wait: {WAITS.get(int(what), 'other')}")
        of = _in_log(waits[mine], place[mine], times) if what == lib.CL_TRACE_WAITS_LOG else {(): times}
        stages |= {(*path, *part): ticks for part, ticks in of.items() if ticks.any()}
    if left.any():
        other = stages.get(("handler", "wait: other"), numpy.zeros(len(messages)))
        stages["handler", "wait: other"] = other + left
    ready = messages["ready"].astype(float)
    stages[QUEUED] = ready
    # A core that is lost in the middle shows as a wait for it where the uthread was switched away from; else not.
    runs = (messages["end"] - messages["start"]).astype(float) - messages["blocked"] - ready
    return stages, runs


def _in_log(waits: Array, place: Array, times: Array) -> dict[Stage, Array]:
    """Ticks of the parts of waits for a log, each of the message in row `place`, which add up to `times`. Of those that
    say nothing of their flush, and what was cut off, are no part."""
    import numpy

    first, second, whole = (waits[field].astype(float) for field in ("first", "second", "blocked"))
    known = first + second > 0
    parts: dict[Stage, Array] = {}
    ends = {"queued": first, "written": second, "acknowledged": numpy.where(known, whole - first - second, 0.0)}
    for name, ticks in ends.items():
        part = numpy.zeros(len(times))
        numpy.add.at(part, place, ticks)
        parts[name,] = numpy.minimum(part, times)
        times = times - parts[name,]
    return parts | {(): times}


def _commands(messages: Array, commands: Array) -> dict[Stage, Array]:
    """Ticks of the parts of the waits of commands; in each message they add up to what it was blocked."""
    import numpy

    place, known = places(messages, commands)
    place, commands = place[known], commands[known]
    place, first = numpy.unique(place, return_index=True)  # one a message
    stages: dict[Stage, Array] = {}
    for path, ticks in parts_of(commands[first], messages["blocked"][place]).items():
        stages[path] = numpy.zeros(len(messages))
        stages[path][place] = ticks
    return stages
