"""Metrics to a collector of OpenTelemetry, by OTLP over HTTP, through its official SDK (an optional dependency).

The SDK's instruments cannot take counts that were made elsewhere, histograms above all. So the points are made of the
SDK's own classes, and given to its exporter. A native histogram of Prometheus of schema 3 is an exponential histogram
of OpenTelemetry of scale 3, whose buckets are counted one lower.
"""

from __future__ import annotations

import logging
import time
import urllib.parse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..runtime.errors import CorelaneError
from .exposition import SCHEMA, Family, Histogram, Labels, Metrics
from .streams import tell

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricExporter, MetricsData

INSTALL = "pip install 'corelane[otel]'"
PATH = "/v1/metrics"  # OTLP/HTTP, "Endpoint URLs for OTLP/HTTP"


def endpoint(url: str, path: str = PATH) -> str:
    """A collector's address, with a path where it has none. CorelaneError if it is no address."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CorelaneError(f"send to {url}", "it is no URL of HTTP", "write it as http://127.0.0.1:4318")
    return url if parts.path.strip("/") else url.rstrip("/") + path


def send(url: str, every_s: float, look: Callable[[], Metrics]) -> int:
    """Look and send, until Ctrl-C. CorelaneError without the SDK, or if the first ones cannot be sent; what fails
    later is told once, and tried again."""
    where = endpoint(url)
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as error:
        raise CorelaneError(f"send metrics to {where}", "OpenTelemetry's SDK is not installed", INSTALL) from error
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # it would say each time what is told once
    logging.getLogger("opentelemetry").propagate = False
    exporter = OTLPMetricExporter(endpoint=where, timeout=min(max(every_s, 1.0), 10.0))
    try:
        return _send(where, every_s, look, exporter)
    except KeyboardInterrupt:
        return 0  # how one ends it
    finally:
        exporter.shutdown()


def _send(where: str, every_s: float, look: Callable[[], Metrics], exporter: MetricExporter) -> int:
    begun_ns, due, failing = time.time_ns(), time.monotonic(), False
    first = True
    while True:
        why = _failure(exporter, points(look(), begun_ns, time.time_ns()))
        if first and why:
            raise CorelaneError(f"send metrics to {where}", why, "is a collector there, and takes OTLP over HTTP?")
        if first:
            print(f"corelane metrics: sent to {where} every {every_s:g} s", flush=True)
        elif bool(why) is not failing:
            tell(f"corelane metrics: {f'cannot be sent to {where}: {why}' if why else 'can be sent again'}")
        first, failing = False, bool(why)
        due = max(due + every_s, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0.0))


def _failure(exporter: MetricExporter, sent: MetricsData) -> str:
    """Why it could not be sent; empty if it could."""
    from opentelemetry.sdk.metrics.export import MetricExportResult

    try:
        result = exporter.export(sent)
    except OSError as error:
        return str(error)
    return "" if result is MetricExportResult.SUCCESS else "it was refused, or nobody answered"


def points(metrics: Metrics, begun_ns: int, now_ns: int) -> MetricsData:
    """The metrics in the SDK's classes. begun_ns, now_ns: since 1970; since when counters count, and when they were
    read."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    made = [_metric(name, family, begun_ns, now_ns) for name, family in metrics.families.items()]
    scope = ScopeMetrics(InstrumentationScope("corelane"), made, "")
    return MetricsData([ResourceMetrics(Resource({"service.name": "corelane"}), [scope], "")])


def _metric(name: str, family: Family, begun_ns: int, now_ns: int) -> Metric:
    from opentelemetry.sdk.metrics import export as sdk

    cumulative = sdk.AggregationTemporality.CUMULATIVE
    data: Any
    if family.kind == "histogram":
        data = sdk.ExponentialHistogram(list(_histograms(family.samples, begun_ns, now_ns)), cumulative)
    else:
        start = begun_ns if family.kind == "counter" else 0
        each = [
            sdk.NumberDataPoint(dict(labels), start, now_ns, value)
            for labels, value in family.samples
            if not isinstance(value, Histogram)
        ]
        is_counter = family.kind == "counter"
        data = sdk.Sum(each, cumulative, is_monotonic=True) if is_counter else sdk.Gauge(each)
    return sdk.Metric(name.removesuffix("_total"), None, "s" if name.endswith("_seconds") else "1", data)


def _histograms(samples: Iterable[tuple[Labels, float | Histogram]], begun_ns: int, now_ns: int) -> Iterable[Any]:
    from opentelemetry.sdk.metrics import export as sdk

    for labels, value in samples:
        assert isinstance(value, Histogram)
        counts = value.native()
        low, high = min(counts, default=1), max(counts, default=0)
        yield sdk.ExponentialHistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=begun_ns,
            time_unix_nano=now_ns,
            count=value.count,
            sum=value.sum_s,
            scale=SCHEMA,
            zero_count=0,
            positive=sdk.Buckets(low - 1, [counts.get(i, 0) for i in range(low, high + 1)]),
            negative=sdk.Buckets(0, []),
            flags=0,
            min=value.buckets[0][0] if value.buckets else 0.0,
            max=value.buckets[-1][0] if value.buckets else 0.0,
        )
