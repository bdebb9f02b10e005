"""Requests as spans: a collector of the test's own gets them from the official exporter, and reads them by the official
message types."""

from __future__ import annotations

import gzip
import http.server
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from maderequests import HZ, NAMES, Made

from corelane.cli.trace import spans
from corelane.cli.traced import trace_id
from corelane.runtime._native import lib
from corelane.runtime.errors import CorelaneError

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs it: pip install 'corelane[otel]'")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what is sent to it; answers with `code`."""

    daemon_threads = True

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[Any] = []
        self.paths: list[str] = []
        self.code = 200
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.server_address[:2])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        self.server.paths.append(self.path)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.resources.append(resource.resource)
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(self.server.code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def clock() -> spans.Clock:
    began = time.monotonic_ns()
    return spans.Clock(lambda tsc: began + (tsc - 10**9) * 10**9 // HZ)


def test_a_request_is_a_span_and_its_stages_are_below_it(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "AT_ONCE", 7)
    made = Made(5, 1)
    made.us["blocked"][2] = 40
    made.what[2] = lib.CL_TRACE_WAITS_MUTEX
    made.us["TX ring"][3], made.us["to the NIC"][3] = 9, 2
    records, before = made.records(), time.time_ns()
    assert spans.send(collector.url, records, NAMES, 42, "kv", clock()) == 5
    assert set(collector.paths) == {"/v1/traces"}
    assert len(collector.paths) == 4, "27 spans, 7 at a time"
    facts = {a.key: a.value for a in collector.resources[0].attributes}
    assert (facts["service.name"].string_value, facts["process.pid"].int_value) == ("kv", 42)
    requests = [span for span in collector.spans if not span.parent_span_id]
    assert [span.name for span in requests] == ["UDP 9000"] * 5
    assert len({span.span_id for span in collector.spans}) == len(collector.spans) == 27
    for message, request in zip(records.messages, requests, strict=True):
        assert request.trace_id.hex() == trace_id(42, int(message["id"]))
        mine = [s for s in collector.spans if s.parent_span_id == request.span_id]
        behind = ["TX ring", "to the NIC"] if message["id"] == records.messages["id"][3] else []
        assert [s.name for s in mine] == ["ring", "inbox", "handler", "reply", *behind]
        assert {s.trace_id for s in mine} == {request.trace_id}
        assert mine[0].start_time_unix_nano == request.start_time_unix_nano
        assert mine[-1].end_time_unix_nano == request.end_time_unix_nano
        for a, b in itertools.pairwise(mine):
            assert a.end_time_unix_nano == b.start_time_unix_nano
        assert abs(request.start_time_unix_nano - before) < 60 * 10**9
    (waited,) = [e for s in collector.spans for e in s.events]
    assert waited.name == "wait: mutex"
    assert waited.attributes[0].value.double_value == pytest.approx(40, abs=0.01)


def test_who_does_not_take_them_is_told(collector: Collector) -> None:
    collector.code = 400
    with pytest.raises(CorelaneError, match=r"send spans to http://.*/v1/traces: it was refused"):
        spans.send(collector.url, Made(1, 1).records(), NAMES, 42, "kv", clock())
    with pytest.raises(CorelaneError, match="it is no URL of HTTP"):
        spans.send("file:///x", Made(1, 1).records(), NAMES, 42, "kv", clock())


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(CorelaneError, match=r"pip install 'corelane\[otel\]'"):
        spans.send("http://127.0.0.1:1", Made(1, 1).records(), NAMES, 42, "kv", clock())
