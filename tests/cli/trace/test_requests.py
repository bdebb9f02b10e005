"""corelane trace --app and --pid: what is read of a runtime, its lines, its file for Perfetto (timeline.py)."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import numpy
import pytest
import traceevents
from maderequests import HZ, NAMES, Made, ticks

from corelane.cli.main import main
from corelane.cli.trace import moves, requests, timeline, views
from corelane.libos.trace.stages import table
from corelane.runtime._native import ffi, lib
from corelane.runtime.layout import dtype
from corelane.runtime.trace import Records


class FakeSegment:
    """Stands for runtime.trace.Segment: records, one reading after the other."""

    pid, name, mode, one_in, hz = 42, "kv", "full", 1, HZ

    def __init__(self, *parts: Records) -> None:
        self.parts = list(parts)

    def __enter__(self) -> FakeSegment:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def skip(self) -> None:
        pass

    def services(self) -> list[str]:
        return NAMES

    def counts(self) -> list[Any]:
        return []

    def read(self, most: int | None = None) -> Records:
        return self.parts.pop(0) if self.parts else Made(0, 1).records()


def slow_mutex() -> Records:
    made = Made(3000, 1)
    some = made.some(0.02)
    made.us["blocked"][some] += 30
    made.us["ready"][some] += 2
    made.what[some] = lib.CL_TRACE_WAITS_MUTEX
    return made.records()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    """traced(records, ..., words): the exit code and what `corelane trace --pid 42` printed; a look takes a second."""

    def run(*parts: Records, words: tuple[str, ...] = ()) -> tuple[int, str]:
        clock = [0.0]
        monkeypatch.setattr("corelane.runtime.trace.Segment.of_process", lambda pid: FakeSegment(*parts))
        monkeypatch.setattr(requests.time, "sleep", lambda s: clock.__setitem__(0, clock[0] + 1.0))
        monkeypatch.setattr(requests.time, "monotonic", lambda: clock[0])
        code = main(["trace", "--pid", "42", "--seconds", str(len(parts)), *words])
        return code, capsys.readouterr().out

    return run


def test_lines_of_the_slowest_as_they_come(traced: Any) -> None:
    code, said = traced(slow_mutex(), words=("--slowest", "3"))
    assert code == 0
    lines = said.splitlines()
    assert lines[0].split() == ["SERVICE", "us", "WHERE"]
    assert all("UDP 9000" in line and "handler / wait: mutex 30" in line for line in lines[1:4])
    assert "process 42 (kv) writes down all: 3,000 requests and" in said


def test_blame_for_people_and_as_json(traced: Any) -> None:
    code, said = traced(slow_mutex(), words=("--blame",))
    assert code == 0
    assert "handler / wait: mutex makes 9" in said
    code, said = traced(slow_mutex(), words=("--json",))
    document = json.loads(said)
    assert (code, document["messages"], document["mode"]) == (0, 3000, "full")
    assert document["blame"][0]["stage"] == ["handler", "wait: mutex"]
    assert len(document["slowest"]) == 5


def test_nothing_is_said_so(traced: Any) -> None:
    assert "nothing was written down: no requests, or tracing is off" in traced(Made(0, 1).records())[1]
    assert "too few requests" in traced(Made(5, 1).records(), words=("--blame",))[1]


def test_what_was_lost_is_said(traced: Any) -> None:
    records = Made(5, 1).records()
    said = traced(Records(records.messages, records.waits, records.cores, 7, 2))[1]
    assert "7 records were written over before they could be read" in said
    assert "2 records were none: its trace memory is damaged" in said


def test_the_file_has_kthreads_stages_and_waits(traced: Any, tmp_path: Path) -> None:
    made = Made(4, 1)
    made.us["blocked"][1] = 5
    made.what[1] = lib.CL_TRACE_WAITS_LOG
    made.us["TX ring"][2] = 9
    made.gone.append((1, 10**9, 10**9 + 100))
    out = tmp_path / "trace.json"
    code, _ = traced(made.records(), words=("--out", str(out), "--json"))
    assert code == 0
    document = json.loads(out.read_text())
    traceevents.check(document)
    events = document["traceEvents"]
    names = [event["name"] for event in events]
    assert names.count("process_name") == 4
    ran = [e for e in events if e["ph"] == "X" and e["name"] == "UDP 9000" and e["pid"] == 3]
    assert len(ran) == 3, "one has waited, and was not there all the time"
    flows = [e for e in events if e["ph"] in "stf"]
    assert {e["id"] for e in flows} == {e["id2"]["local"] for e in events if e["ph"] == "b"}, "an arrow along each"
    assert {"ring", "inbox", "handler", "reply", "wait: log", "core away", "TX ring"} <= set(names)
    assert min(e["ts"] for e in events if "ts" in e) == 0


def test_stages_of_an_event_are_inside_of_its_message() -> None:
    records = slow_mutex()
    events = list(timeline.events(records, NAMES, HZ, int(records.messages["begin"].min())))
    spans: dict[str, list[tuple[float, float]]] = {}
    begun: dict[tuple[str, str], float] = {}
    for event in events:
        if event["ph"] == "b":
            begun[event["id2"]["local"], event["name"]] = event["ts"]
        elif event["ph"] == "e":
            mark = event["id2"]["local"]
            spans.setdefault(mark, []).append((begun[mark, event["name"]], event["ts"]))
    for parts in spans.values():
        assert max(parts, key=lambda p: p[1] - p[0]) == (min(p[0] for p in parts), max(p[1] for p in parts))


def test_a_handler_has_its_page_faults() -> None:
    records = Made(3, 1).records()
    records.messages["faults"][1] = 7
    events = list(timeline.events(records, NAMES, HZ, int(records.messages["begin"].min())))
    handlers = [event for event in events if event["ph"] == "b" and event["name"] == "handler"]
    assert [event.get("args") for event in handlers] == [None, {"page faults": 7}, None]


def test_what_does_not_nest_is_drawn_apart() -> None:
    """Waits of uthreads that have no request, a command's own log beside the others, and stops of a kthread. One of a
    connection is in no queue."""
    records = slow_mutex()
    waits, messages = records.waits.copy(), records.messages
    waits["id"], waits["uthread"] = 0, 1 + numpy.arange(len(waits))
    waits["begin"], waits["blocked"] = 10**9 + 1000 * numpy.arange(len(waits)), ticks(50)
    messages["flags"][5] |= lib.CL_TRACE_STALLED
    commands = numpy.zeros(1, dtype(ffi, "struct cl_trace_command"))
    commands["kind"], commands["id"], commands["begin"] = lib.CL_TRACE_COMMAND, messages["id"][7], messages["begin"][7]
    for at, field in enumerate(("gone", "sent", "flush", "others", "written", "durable"), 1):
        commands[field] = at
    gaps = numpy.zeros(3, dtype(ffi, "struct cl_trace_gap"))
    gaps["kind"], gaps["how"] = lib.CL_TRACE_GAP, [lib.CL_TRACE_GAP_COLLECTS, *2 * [lib.CL_TRACE_GAP_STAMPS]]
    gaps["begin"] = 10**9 + 1000 * numpy.arange(3)
    gaps["end"], gaps["gone"] = gaps["begin"] + 1500, 1500
    made = Records(messages, waits, records.cores, 0, 0, gaps, commands)
    events = list(timeline.events(made, NAMES, HZ, 10**9))
    traceevents.check({"traceEvents": events})
    stalled = f"{int(messages['id'][5]):#x}"
    assert not [e for e in events if e["ph"] == "X" and e["args"].get("id") == stalled and e["pid"] == 5]
    parts = [e["name"] for e in events if e["ph"] == "b" and e["id2"]["local"] == stalled]
    assert parts == ["UDP 9000"], "no stages"


def test_those_that_share_a_handler_are_one_slice() -> None:
    made = Made(4, 1)
    records = made.records()
    messages = records.messages
    messages["kthread"], messages["shared"] = 0, 4
    begin = int(messages["begin"][3])
    messages["start"] = begin + 100_000 - messages["begin"]
    messages["end"] = messages["sent"] = messages["start"] + 1000
    events = list(timeline.events(records, NAMES, HZ, 10**9))
    traceevents.check({"traceEvents": events})
    (ran,) = [e for e in events if e["ph"] == "X" and e["pid"] == 3]
    assert ran["args"]["requests"] == 4


def test_who_is_at_the_head_of_a_queue() -> None:
    """Three come at once, and are handled one after the other: the rows of a busy service can be drawn, too."""
    made = Made(300, 5)
    made.us["blocked"][made.some(0.1)] = 7
    made.kthread[:] = 0
    records = made.records()
    m, at = records.messages, 10**9
    for row in range(300):  # one kthread handles one after the other, each third group of three at once
        begin = 10**9 + row // 3 * 20_000
        start = max(at, begin + int(m["pickup"][row]))
        m["begin"][row], m["start"][row] = begin, start - begin
        m["end"][row] = m["start"][row] + 2000
        m["sent"][row] = m["end"][row]
        at = start + 2000
    document = {"traceEvents": list(timeline.events(records, NAMES, HZ, 10**9))}
    traceevents.check(document)
    heads = [e for e in document["traceEvents"] if e["ph"] == "X" and "inbox (us)" in e["args"]]
    assert len(heads) >= 199, "two of each three wait for the first"
    waited = {e["args"]["id"]: e["args"]["inbox (us)"] for e in heads}
    assert all(e["dur"] <= waited[e["args"]["id"]] + 1e-3 for e in heads)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1.0}, "has no dur"),
        ({"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": -1.0, "dur": 1}, "is -1.0"),
        ({"ph": "Q"}, "is none of the kinds"),
        ({"ph": "b", "name": "a", "cat": "c", "id2": {"local": "1"}, "pid": 1, "tid": 1, "ts": 1}, "not closed"),
        ({"ph": "s", "name": "a", "cat": "c", "id": "1", "pid": 1, "tid": 1, "ts": 1}, r"\['s'\]"),
    ],
)
def test_a_file_that_viewers_do_not_read_is_found(event: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        traceevents.check({"traceEvents": [event]})


@pytest.mark.parametrize(("begin", "end", "inside"), [(1, 19, True), (11, 15, True), (1, 25, False), (0.5, 5, False)])
def test_a_flow_outside_of_slices_is_found(begin: float, end: float, inside: bool) -> None:
    row = {"name": "a", "cat": "c", "pid": 1, "tid": 1}
    slices = [{"ph": "X", **row, "ts": ts, "dur": dur} for ts, dur in ((1, 19), (2, 3), (30, 2))]
    flow = [{"ph": "s", **row, "id": "1", "ts": begin}, {"ph": "f", **row, "id": "1", "bp": "e", "ts": end}]
    with contextlib.nullcontext() if inside else pytest.raises(AssertionError, match="a flow outside of a slice"):
        traceevents.check({"traceEvents": [*slices, *flow]})


def test_the_slowest_come_first() -> None:
    seen = table(slow_mutex(), NAMES, HZ)
    found = views.slowest_of(seen, 4)
    assert [one["us"] for one in found] == sorted((one["us"] for one in found), reverse=True)
    assert sum(found[0]["stages"].values()) == pytest.approx(found[0]["us"], abs=0.01)


def test_a_time_of_several_requests_is_said_to_be_one() -> None:
    made = Made(3, 1)
    made.us["runs"][:] = 400, 300, 200
    made.flags[:2] |= lib.CL_TRACE_SHARED
    made.flags[1] |= lib.CL_TRACE_GUESSED  # as in mode sampled
    records = made.records()
    records.messages["shared"] = 1200, 8, 1
    seen = table(records, NAMES, HZ)
    full, sampled, alone = views.slowest_lines(seen, 3)[1:]
    assert "handler / runs 400.0" in full
    assert full.endswith("; handler shared by 1,200 requests")
    assert "burst / inbox or handler 30" in sampled
    assert sampled.endswith("; handler shared by 8 requests")
    assert "shared" not in alone
    assert [one["shared"] for one in views.slowest_of(seen, 3)] == [1200, 8, 1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--pid", "999999999"), "there is no such process"),
        (("--pid", "1", "--app", "kv"), "not allowed with argument"),
        (("--app", "kv", "--socket", "/nowhere.sock"), "no iokernel listens on /nowhere.sock"),
    ],
)
def test_who_cannot_be_traced_is_told(words: tuple[str, ...], said: str, capsys: Any) -> None:
    assert main(["trace", *words]) != 0
    assert said in capsys.readouterr().err


def test_an_application_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    apps = [{"name": "kv", "pid": os.getpid()}, {"name": "web", "pid": 7}, {"name": "web", "pid": 8}]
    monkeypatch.setattr(requests, "snapshot", lambda path: {"apps": apps})
    monkeypatch.setattr(requests.control, "trace", lambda *_: ({"why": "no runtime of it traces"}, -1))
    for name, said in (("web", "--pid one of 7, 8"), ("db", "there are: kv, web"), ("kv", "no runtime of it traces")):
        assert main(["trace", "--app", name]) == 1
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(("later", "first_us"), [(-1000, 1e6 * 1000 / HZ), (1000, 0)])
def test_moves_of_cores_stand_beside_the_requests_in_the_file(
    later: int, first_us: float, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    """On one clock, which begins with the first of them: what a loop has logged, and what kthreads have written down.
    A request may have come before anybody looked."""
    begin = 10**9 + later

    class Log:
        begin_tsc = tsc = begin
        hz, lost = HZ, 0

        def __enter__(self) -> Log:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def read(self) -> bytes:
            return b""

    apps = [{"name": "kv", "pid": 42, "cores": {}, "age_s": 1.0, "kthreads": 1, "slot": 0}]
    said = {"apps": apps, "cores": {"allocators": [{"loop": 0}]}}
    monkeypatch.setattr(requests, "snapshot", lambda path: said)
    monkeypatch.setattr(moves, "snapshot", lambda path: said)
    monkeypatch.setattr(requests.control, "trace", lambda *_: ({"why": "it is another user's"}, -1))
    monkeypatch.setattr(moves, "_Log", lambda path, loop: Log())
    monkeypatch.setattr("corelane.runtime.trace.Segment.of_process", lambda pid: FakeSegment(Made(3, 1).records()))
    out = tmp_path / "both.json"
    assert main(["trace", "--app", "kv", "--seconds", "0.01", "--json", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 3
    events = json.loads(out.read_text())["traceEvents"]
    titles = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert titles == {"cores: who has them", "cores: moves", *timeline._TITLES.values()}
    traceevents.check(json.loads(out.read_text()))
    assert min(e["ts"] for e in events if "ts" in e) == pytest.approx(first_us)


def test_without_an_iokernel_nothing_is_beside() -> None:
    with moves.Beside("/nowhere.sock") as beside:
        beside.read()
        beside.end()
        assert beside.recording is None
