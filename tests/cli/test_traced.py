"""What top and metrics have of traces (traced.py): why a service is slow, and exemplars."""

from __future__ import annotations

import time
from typing import Any

import pytest
from maderequests import HZ, NAMES, Made
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from corelane.cli import tables, traced
from corelane.cli.exposition import openmetrics
from corelane.cli.measures import measure
from corelane.libos.trace.pieces import raw
from corelane.runtime._native import lib
from corelane.runtime.errors import CorelaneError
from corelane.runtime.trace import Raw, Records

from .test_top import app, statistics, times

PID = 101  # of kv


def slow_lock(seed: int) -> Records:
    made = Made(3000, seed)
    some = made.some(0.02)
    made.us["blocked"][some] += 300
    made.what[some] = lib.CL_TRACE_WAITS_MUTEX
    return made.records()


class Rings:
    """Stands for runtime.trace.Segment."""

    mode, one_in, hz = "full", 1, HZ

    def __init__(self, pid: int) -> None:
        self.pid, self.name, self.closed, self.began_ns = pid, "kv", False, time.monotonic_ns()
        self.parts = [slow_lock(1), slow_lock(2)]

    def services(self) -> list[str]:
        return NAMES

    def ns_of(self, stamp: int) -> int:
        return self.began_ns + (stamp - 10**9) * 10**9 // HZ

    def read_raw(self, most: int | None = None) -> Raw:
        return Raw(raw(self.parts.pop(0) if self.parts else Made(0, 1).records()), 0, 0)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Rings]:
    """Segments as they are opened: of kv alone, the other one is another user's."""
    made: list[Rings] = []

    def open_it(pid: int) -> Rings:
        if pid != PID:
            raise CorelaneError("read the traces", "it is another user's")
        made.append(Rings(pid))
        return made[-1]

    monkeypatch.setattr("corelane.runtime.trace.Segment.of_process", open_it)
    return made


def with_service() -> dict[str, Any]:
    stats = statistics()
    service = {"name": "udp:9000", "requests": 3000, "latency": times(*[2.0] * 98, 300.0, 320.0)}
    stats["apps"][0]["services"] = [service]
    stats |= {"control": {}, "departed": {}}
    return stats


def test_why_a_service_is_slow(opened: list[Rings]) -> None:
    stats = with_service()
    with traced.Traces() as traces:
        traces.add_to(stats)
        kv, job = stats["apps"]
        assert kv["services"][0]["why"] == kv["why"] == "lock"
        assert "why" not in job
        traces.add_to(with_service())
        assert len(opened) == 1, "it stays open"
        stats["apps"] = [job]
        traces.add_to(stats)
        assert opened[0].closed, "it has left"


def test_a_row_without_services_of_its_own_says_it_too() -> None:
    row = app("kv", 1, "latency") | {"counters": {"values": {}}, "why": "log flush"}
    assert tables.services(row)[0][-1] == "log flush"


def test_exemplars_name_requests(opened: list[Rings]) -> None:
    stats = with_service()
    with traced.Traces() as traces:
        traces.add_to(stats)
    families = {f.name: f for f in text_string_to_metric_families(openmetrics(measure(stats)))}
    found = [s.exemplar for s in families["corelane_service_latency_seconds"].samples if s.exemplar is not None]
    assert len(found) >= 3, "of fast and of slow ones"
    ids = {int(m["id"]) for part in (slow_lock(1),) for m in part.messages}
    for exemplar in found:
        text = exemplar.labels["trace_id"]
        assert len(text) == 32
        assert (int(text[:16], 16), int(text[16:], 16) in ids) == (PID, True)
        assert abs(float(exemplar.timestamp) - time.time()) < 60
    assert max(e.value for e in found) > 300e-6


def test_only_so_much_is_held(opened: list[Rings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "HELD", 3500)
    with traced.Traces() as traces:
        for _ in range(3):
            traces.add_to(with_service())
        (held,) = [traces._apps[PID]]
        assert sum(part.records for _, part in held._parts) <= 3500


def test_one_that_cannot_be_read_is_tried_again_later(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(pid: int) -> Rings:
        asked.append(pid)
        raise CorelaneError("read the traces", "it is another user's")

    monkeypatch.setattr("corelane.runtime.trace.Segment.of_process", refuse)
    one, now = traced._App(7), 100.0
    for later in (0.0, 1.0, traced.AGAIN_S - 0.1, traced.AGAIN_S + 0.1):
        assert one.look(now + later) == {}
    assert len(asked) == 2
