"""Trace Event Format, as ui.perfetto.dev and chrome://tracing read it: what each kind of event has to have.

The format's document ("Trace Event Format", 2016) as a JSON schema in the words that it needs, and a validator of these
words. Beyond the schema: slices of a row nest, flows begin and end, async events are closed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

NUMBER = {"type": "number"}
TEXT = {"type": "string"}
WHOLE = {"type": "integer"}
PLACE = {"name": TEXT, "pid": WHOLE, "tid": {"type": "integer", "minimum": 1}}  # of 0 Perfetto makes another one
LOCAL = {"type": "object", "required": ["local"], "properties": {"local": TEXT}}  # of its process
NAMED = {"type": "object", "required": ["name"], "properties": {"name": TEXT}}
TIMED = {**PLACE, "ts": {"type": "number", "minimum": 0}}


def _event(phase: str, more: dict[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    fields = {"ph": {"const": phase}, **more}
    return {"type": "object", "properties": fields, "required": ["ph", *(required or more)]}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {
        "displayTimeUnit": {"const": "ms"},  # Perfetto of before 2022 took "ns" for the unit of ts
        "traceEvents": {
            "type": "array",
            "items": {
                "oneOf": [
                    _event("X", {**TIMED, "dur": {"type": "number", "minimum": 0}}),
                    _event("i", {**TIMED, "s": {"enum": ["g", "p", "t"]}}),
                    _event("b", {**TIMED, "cat": TEXT, "id2": LOCAL}),
                    _event("e", {**TIMED, "cat": TEXT, "id2": LOCAL}),
                    _event("s", {**TIMED, "cat": TEXT, "id": TEXT}),
                    _event("t", {**TIMED, "cat": TEXT, "id": TEXT}),
                    _event("f", {**TIMED, "cat": TEXT, "id": TEXT, "bp": {"const": "e"}}),
                    _event("M", {**PLACE, "args": NAMED}),
                ]
            },
        },
    },
}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
}


def errors(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """What a value breaks of a schema."""
    if "const" in schema and value != schema["const"]:
        yield f"{where} is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value!r}, none of {schema['enum']}"
    if "type" in schema and (not isinstance(value, _TYPES[schema["type"]]) or isinstance(value, bool)):
        yield f"{where} is {value!r}, no {schema['type']}"
        return
    if value != value or ("minimum" in schema and value < schema["minimum"]):
        yield f"{where} is {value!r}"
    if isinstance(value, dict):
        yield from (f"{where} has no {key}" for key in schema.get("required", ()) if key not in value)
        for key, of in schema.get("properties", {}).items():
            if key in value:
                yield from errors(value[key], of, f"{where}.{key}")
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            yield from errors(item, schema["items"], f"{where}[{i}]")
    if "oneOf" in schema:
        kinds = schema["oneOf"]
        if sum(next(errors(value, one, where), None) is None for one in kinds) != 1:
            tried = [list(errors(value, one, where)) for one in kinds]
            yield f"{where} is none of the kinds of events: {min(tried, key=len)}"


def check(document: Any) -> None:
    """Assert that a document is one that the viewers read, and that its rows can be drawn."""
    found = list(errors(document, SCHEMA))
    assert not found, found[:5]
    events = document["traceEvents"]
    group_of: dict[int, int] = {}  # Perfetto knows a row by its tid alone
    rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    parts: dict[tuple[str, int, str], list[tuple[float, str, str]]] = defaultdict(list)
    flows: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for event in events:
        place = (event["pid"], event["tid"])
        assert group_of.setdefault(event["tid"], event["pid"]) == event["pid"], f"a row of two groups: {event}"
        if event["ph"] == "X":
            rows[place].append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] in "be":
            parts[event["cat"], event["pid"], event["id2"]["local"]].append((event["ts"], event["ph"], event["name"]))
        elif event["ph"] in "stf":
            flows[event["id"]].append((event["ts"], event["ph"]))
    for mark, of in parts.items():
        _open_and_close(mark, of)
    for place, slices in rows.items():
        _nest(place, slices)
    for steps in flows.values():
        order = [phase for _, phase in sorted(steps, key=lambda step: (step[0], "stf".index(step[1])))]
        assert order[0] == "s", order
        assert order[-1] == "f", order
        assert set(order[1:-1]) <= {"t"}, order
    begins = {place: sorted(begin for begin, _ in slices) for place, slices in rows.items()}
    ends = {place: list(accumulate((end for _, end in sorted(slices)), max)) for place, slices in rows.items()}
    for event in events:
        if event["ph"] in "stf":
            place = (event["pid"], event["tid"])
            begun = bisect_right(begins.get(place, ()), event["ts"] + 1e-3)
            assert begun, "a flow outside of a slice"
            assert ends[place][begun - 1] >= event["ts"] - 1e-3, "a flow outside of a slice"  # of those, the last end


def _open_and_close(mark: tuple[str, int, str], events: list[tuple[float, str, str]]) -> None:
    """Each end is that of what was opened last: in order of time, and of the file where they are of one moment."""
    opened: list[str] = []
    for at, phase, name in sorted(events, key=lambda event: event[0]):
        if phase == "b":
            opened.append(name)
        else:
            assert opened[-1:] == [name], f"parts of {mark} do not nest: {name} ends at {at}"
            opened.pop()
    assert not opened, f"parts of {mark} are not closed: {opened}"


def _nest(place: tuple[int, int], slices: list[tuple[float, float]]) -> None:
    """Slices of a row follow one another, or lie within each other, but for the rounding of times."""
    open_until: list[float] = []
    for begin, end in sorted(slices, key=lambda s: (s[0], -s[1])):
        while open_until and open_until[-1] <= begin + 2e-3:
            open_until.pop()
        assert not open_until or end <= open_until[-1] + 2e-3, f"slices of row {place} overlap at {begin}"
        open_until.append(end)
