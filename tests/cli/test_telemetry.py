"""Metrics by OTLP: a collector of the test's own gets them from the official exporter, and reads them by the official
message types."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from corelane.cli import telemetry
from corelane.cli.exposition import Histogram, Metrics
from corelane.cli.main import main
from corelane.iokernel import Iokernel
from corelane.runtime.errors import CorelaneError

from .test_exposition import some

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs it: pip install 'corelane[otel]'")
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what is sent to it; answers with `code`."""

    daemon_threads = True

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.paths: list[str] = []
        self.code = 200
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return "http://{}:{}".format(*self.server_address[:2])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        import gzip

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        assert isinstance(self.server, Collector)
        self.server.paths.append(self.path)
        self.server.heard.append(ExportMetricsServiceRequest.FromString(body))
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


def once(metrics: Metrics) -> Any:
    """A look at metrics, then the end."""
    looks = iter([metrics])

    def look() -> Metrics:
        try:
            return next(looks)
        except StopIteration:
            raise KeyboardInterrupt from None

    return look


def test_each_kind_arrives_as_its_kind(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    assert telemetry.send(collector.url, 0.01, once(some())) == 0
    assert capsys.readouterr().out == f"corelane metrics: sent to {collector.url}/v1/metrics every 0.01 s\n"
    assert collector.paths == ["/v1/metrics"]
    (resource,) = collector.heard[0].resource_metrics
    assert [(a.key, a.value.string_value) for a in resource.resource.attributes] == [("service.name", "corelane")]
    found = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    assert list(found) == ["sent", "up", "own", "took_seconds"]
    total = found["sent"].sum
    assert (total.is_monotonic, total.aggregation_temporality) == (True, 2)
    assert total.data_points[0].as_int == 3
    assert found["up"].gauge.data_points[0].as_double == 1.5
    assert found["took_seconds"].unit == "s"
    full, empty = found["took_seconds"].exponential_histogram.data_points
    assert (full.count, full.sum, full.scale) == (8, 20.5, 3)
    assert sum(full.positive.bucket_counts) == 8
    assert (empty.count, list(empty.positive.bucket_counts)) == (0, [])


def test_a_bucket_is_where_opentelemetry_has_it(collector: Collector) -> None:
    """Of scale 3 bucket i holds what is above 2^(i/8) and at most 2^((i+1)/8)."""
    metrics = Metrics()
    metrics.add("histogram", "h_seconds", {}, Histogram([(1.0, 1), (1.05, 2), (2.0, 4)], 10.1))
    telemetry.send(collector.url, 0.01, once(metrics))
    (point,) = collector.heard[0].resource_metrics[0].scope_metrics[0].metrics[0].exponential_histogram.data_points
    counts = {point.positive.offset + i: n for i, n in enumerate(point.positive.bucket_counts) if n}
    assert counts == {-1: 1, 0: 2, 7: 4}


def test_an_iokernel_is_sent(collector: Collector, socket_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(_s: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("corelane.cli.telemetry.time.sleep", sleep)
    with Iokernel(socket_path, poll="block"):
        assert main(["metrics", "--socket", socket_path, "--otlp", collector.url]) == 0
    names = {m.name for m in collector.heard[0].resource_metrics[0].scope_metrics[0].metrics}
    assert {"corelane_up", "corelane_loop_rounds"} <= names


def test_a_collector_that_refuses_is_said(collector: Collector) -> None:
    collector.code = 400
    with pytest.raises(CorelaneError, match="refused, or nobody answered"):
        telemetry.send(collector.url, 0.01, once(some()))


def test_one_that_fails_later_is_told_once(collector: Collector, capsys: pytest.CaptureFixture[str]) -> None:
    codes = iter([200, 400, 400, 200])

    def look() -> Metrics:
        try:
            collector.code = next(codes)
        except StopIteration:
            raise KeyboardInterrupt from None
        return some()

    assert telemetry.send(collector.url, 0.01, look) == 0
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip().split(" ")[0] for line in told] == ["cannot", "can"]


@pytest.mark.parametrize("url", ["", "127.0.0.1:4318", "ftp://x", "http://"])
def test_what_is_no_url_is_said(url: str) -> None:
    with pytest.raises(CorelaneError, match="it is no URL of HTTP"):
        telemetry.endpoint(url)


def test_a_path_of_ones_own_stays() -> None:
    assert telemetry.endpoint("https://a/b/v1/metrics") == "https://a/b/v1/metrics"
    assert telemetry.endpoint("http://a:1/") == "http://a:1/v1/metrics"


def test_both_ways_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "--otlp", "http://127.0.0.1:1", "--listen", "0"]) == 2
    assert "start one command for each" in capsys.readouterr().err
