"""Records of requests as trace events: a row a kthread of what it ran, a row a queue of who is at its head, each
message with its stages, and an arrow along it.

Rows of Trace Event Format hold slices that do not overlap, or lie within each other. Those who wait in a queue do
overlap; who is at its head does not, since queues are first in, first out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...libos.trace import bursts
from ...libos.trace.commands import NEVER
from ...libos.trace.stages import STALLED, WINDOWS, windows
from ...libos.trace.stopped import AWAY, COLLECTS, NO_CPU, stops
from ...runtime.trace import WAITS, Records
from .output import place

Event = dict[str, Any]

_KTHREADS, _MESSAGES, _QUEUES, _STOPS = 3, 4, 5, 6  # as processes; 1 and 2 are the cores' (recording.py)
_TITLES = {
    _KTHREADS: "kthreads: what they ran",
    _QUEUES: "queues: who is at their head",
    _STOPS: "kthreads: what they stood still for",
    _MESSAGES: "requests: their stages",
}
_REASONS = (AWAY, COLLECTS, NO_CPU)
_WAITED_IN = [window for window in WINDOWS if window[0] != "handler"]


@dataclass
class _Rows:
    """What events are made of. flows: of each message its slices (row, time), as they are made."""

    records: Records
    names: Sequence[str]
    hz: int
    begin_tsc: int
    flows: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)

    def us(self, tsc: int) -> float:
        return round(1e6 * (tsc - self.begin_tsc) / self.hz, 3)

    def event(self, phase: str, name: str, pid: int, tid: int, at: int, **more: Any) -> Event:
        return {"ph": phase, "name": name, "cat": "request", **place(pid, tid), "ts": self.us(at), **more}

    def part(self, name: str, kthread: int, begin: int, end: int, mark: str, **more: Any) -> tuple[Event, Event]:
        """Of a request: the two ends. Those of a mark nest, by their order where they are of one moment."""
        of = {"id2": {"local": mark}}
        first = self.event("b", name, _MESSAGES, kthread, begin, **of, **more)
        return first, self.event("e", name, _MESSAGES, kthread, end, **of)

    def between(self, name: str, pid: int, tid: int, begin: int, end: int, **args: Any) -> Event:
        duration = round(self.us(end) - self.us(begin), 3)
        return self.event("X", name, pid, tid, begin, dur=duration, args=args)

    def name(self, message: Any) -> str:
        service = int(message["service"])
        return self.names[service] if service < len(self.names) else f"service {service}"

    def through(self, message: Any, pid: int, tid: int, at: int) -> None:
        self.flows.setdefault(int(message["id"]), []).append((at, pid, tid))


def events(records: Records, names: Sequence[str], hz: int, begin_tsc: int) -> Iterator[Event]:
    """Trace Event Format. begin_tsc: where its time begins."""
    rows = _Rows(records, names, hz, begin_tsc)
    yield from _titles(records)
    yield from _queues(rows)
    yield from _ran(rows)
    yield from _flows(rows)
    yield from _stood_still(rows)
    inside: dict[int, list[Event]] = {}
    for wait in records.waits:
        inside.setdefault(int(wait["id"]), []).extend(_wait(rows, wait))
    for command in records.commands:
        inside.setdefault(int(command["id"]), []).extend(_command(rows, command))
    behind = (ticks.tolist() for ticks in bursts.behind(records))
    for message, in_ring, given in zip(records.messages, *behind, strict=True):
        yield from _stages(rows, message, windows(message, in_ring, given), inside.pop(int(message["id"]), ()))
    for left in inside.values():  # of messages that were not read
        yield from left


def _titles(records: Records) -> Iterator[Event]:
    def title(kind: str, pid: int, tid: int, name: str) -> Event:
        return {"ph": "M", "name": kind, **place(pid, tid), "args": {"name": name}}

    for pid, name in _TITLES.items():
        yield title("process_name", pid, 0, name)
    for kthread in sorted({int(k) for k in (*records.messages["kthread"], *records.cores["kthread"])}):
        yield title("thread_name", _KTHREADS, kthread, f"kthread {kthread}")
        for reason in _REASONS:
            yield title("thread_name", _STOPS, _stop(kthread, reason), f"kthread {kthread}: {reason}")
        for number, (queue, _, _) in enumerate(_WAITED_IN):
            yield title("thread_name", _QUEUES, _queue(kthread, number), f"kthread {kthread}: {queue}")


def _queue(kthread: int, number: int) -> int:
    return kthread * len(_WAITED_IN) + number


def _stop(kthread: int, reason: str) -> int:
    return kthread * len(_REASONS) + _REASONS.index(reason)


def _queues(rows: _Rows) -> Iterator[Event]:
    """Of each queue who is at its head: since it came, or since the one before has left."""
    import numpy

    messages = rows.records.messages
    messages = messages[(messages["flags"] & STALLED) == 0]
    for number, (queue, first, last) in enumerate(_WAITED_IN):
        came = messages["begin"] + (messages[first] if first else numpy.uint64(0))
        left = messages["begin"] + messages[last]
        order = numpy.lexsort((came, left))
        for kthread in numpy.unique(messages["kthread"]):
            before = 0
            for row in order[messages["kthread"][order] == kthread]:
                since, until = max(int(came[row]), before), int(left[row])
                if until > since:
                    tid, waited = _queue(int(kthread), number), rows.us(until) - rows.us(int(came[row]))
                    name = rows.name(messages[row])
                    mark = f"{int(messages['id'][row]):#x}"
                    yield rows.between(name, _QUEUES, tid, since, until, id=mark, **{f"{queue} (us)": round(waited, 3)})
                    rows.through(messages[row], _QUEUES, tid, since)
                before = max(before, until)


def _ran(rows: _Rows) -> Iterator[Event]:
    """As long as a message runs without a wait, its kthread is its own; else others run there meanwhile. Those that
    share their handler's time are one slice."""
    drawn = (-1, 0, 0)
    for m in rows.records.messages:
        kthread, begin, end = int(m["kthread"]), int(m["begin"]) + int(m["start"]), int(m["begin"]) + int(m["end"])
        if end > begin and not m["blocked"] and not m["ready"]:
            if drawn != (kthread, begin, end):
                drawn = kthread, begin, end
                mark, n = f"{int(m['id']):#x}", int(m["shared"])
                yield rows.between(rows.name(m), _KTHREADS, kthread, begin, end, id=mark, requests=n)
            rows.through(m, _KTHREADS, kthread, begin)


def _flows(rows: _Rows) -> Iterator[Event]:
    """An arrow from each slice of a message to the next one."""
    for number, places in rows.flows.items():
        places.sort()
        for i, (at, pid, tid) in enumerate(places):
            if len(places) > 1:
                phase = "s" if i == 0 else "f" if i == len(places) - 1 else "t"
                end = {"bp": "e"} if phase == "f" else {}
                yield rows.event(phase, "message", pid, tid, at, id=f"{number:#x}", **end)


def _stood_still(rows: _Rows) -> Iterator[Event]:
    """A row a reason, as one stop may lie over the end of another; of one reason, what two looks have in common is the
    first one's."""
    for reason, of in stops(rows.records).items():
        until: dict[int, int] = {}
        for begin, end, kthread, gone in sorted(zip(*(of.begin, of.end, of.kthread, of.gone), strict=True)):
            since, row = max(int(begin), until.get(kthread, 0)), _stop(int(kthread), reason)
            if end > since:
                until[kthread] = int(end)
                part = {"stood still (us)": round(1e6 * int(gone) / rows.hz, 3)}
                yield rows.between(reason, _STOPS, row, since, int(end), **part)


def _stages(rows: _Rows, m: Any, parts: Sequence[tuple[str, int, int]], inside: Sequence[Event]) -> Iterator[Event]:
    """A message, its stages in it, and in its handler what is inside of that."""
    kthread, begin, mark = int(m["kthread"]), int(m["begin"]), f"{int(m['id']):#x}"
    came, sent = rows.part(rows.name(m), kthread, begin, begin + parts[-1][2], mark)
    yield came
    for stage, first, last in parts:
        since, until = begin + first, begin + last
        if until > since and not m["flags"] & STALLED:
            counted = {"args": {"page faults": int(m["faults"])}} if stage == "handler" and m["faults"] else {}
            start, end = rows.part(stage, kthread, since, until, mark, **counted)
            yield start
            if stage == "handler":
                yield from inside
                inside = ()
            yield end
    yield from inside
    yield sent


def _wait(rows: _Rows, w: Any) -> Iterator[Event]:
    """Of no request: on a row of its uthread."""
    name, begin = f"wait: {WAITS.get(int(w['what']), 'other')}", int(w["begin"])
    mark = f"{int(w['id']):#x}" if w["id"] else f"uthread {int(w['uthread']):#x}"
    args = {"object": f"{int(w['object']):#x}", "holder": f"{int(w['holder']):#x}"}
    end = begin + int(w["blocked"]) + int(w["ready"])
    yield from rows.part(name, int(w["kthread"]), begin, end, mark, args=args)


# Of a command: from, to.
_OF_COMMANDS = (
    ("batch", "", "gone"),
    ("own log: queued", "gone", "flush"),
    ("own log: written", "flush", "written"),
    ("own log: acknowledged", "written", "durable"),
    ("others: sent", "gone", "sent"),
    ("others: acknowledged", "sent", "others"),
)


def _command(rows: _Rows, c: Any) -> Iterator[Event]:
    """Its own log and the others beside each other, so the others have a mark of their own."""
    kthread, begin = int(c["kthread"]), int(c["begin"])
    args = {"entry": int(c["index"]), "node": int(c["node"])}
    for name, first, last in _OF_COMMANDS:
        since, until = int(c[first]) if first else 0, int(c[last])
        if NEVER not in (since, until) and until > since:
            mark = f"{int(c['id']):#x}" + (" others" if name.startswith("others") else "")
            yield from rows.part(name, kthread, begin + since, begin + until, mark, args=args)
