"""The formats of metrics, read by parsers of others: Prometheus' own client library, and protocol buffers by Google's
library, from the numbers of fields in Prometheus' metrics.proto."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.cli import exposition
from corelane.cli.exposition import CLASSIC_S, OPENMETRICS, PROTOBUF, TEXT, Exemplar, Histogram, Metrics, wanted
from corelane.cli.measures import measure

from .test_metrics import STATS

GRAFANA = Path(exposition.__file__).parent / "grafana.json"
TRACE = Exemplar(3e-6, {"trace_id": "7f"}, 1_700_000_000.25)


def some() -> Metrics:
    """One metric of each kind."""
    out = Metrics()
    out.add("counter", "sent_total", {"app": 'a "b"\\\n'}, 3)
    out.add("gauge", "up", {}, 1.5)
    out.add("untyped", "own", {"app": "x"}, 7)
    out.add("histogram", "took_seconds", {"app": "x"}, Histogram([(1.1e-6, 5), (3e-6, 2), (20.0, 1)], 20.5, [TRACE]))
    out.add("histogram", "took_seconds", {"app": "y"}, Histogram([], 0.0))
    return out


def test_prometheus_own_parsers_read_the_text() -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs prometheus-client: pip install it")
    families = {family.name: family for family in parser.text_string_to_metric_families(exposition.text(some()))}
    assert {name: family.type for name, family in families.items()} == {
        "sent": "counter",
        "up": "gauge",
        "own": "unknown",
        "took_seconds": "histogram",
    }
    assert families["sent"].samples[0].labels == {"app": 'a "b"\\\n'}
    buckets = [s for s in families["took_seconds"].samples if s.name.endswith("_bucket") and s.labels["app"] == "x"]
    assert [float(s.labels["le"]) for s in buckets] == [*CLASSIC_S, math.inf]
    assert [s.value for s in buckets][-1] == 8
    assert {s.value for s in families["took_seconds"].samples if s.name.endswith("_sum")} == {20.5, 0.0}


def test_prometheus_own_parser_reads_openmetrics_with_exemplars() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="needs prometheus-client")
    told = exposition.openmetrics(some())
    families = {family.name: family for family in parser.text_string_to_metric_families(told)}
    assert families["sent"].samples[0].name == "sent_total"
    found = [sample for sample in families["took_seconds"].samples if sample.exemplar is not None]
    (sample,) = found
    assert float(sample.labels["le"]) == 5e-6
    assert (sample.exemplar.labels, sample.exemplar.value) == ({"trace_id": "7f"}, 3e-6)
    assert float(sample.exemplar.timestamp) == pytest.approx(TRACE.at_s)
    assert told.endswith("# EOF\n")


def test_all_that_an_iokernel_counts_is_read() -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="needs prometheus-client")
    whole = measure(STATS)
    read = {f.name: f.type for f in parser.text_string_to_metric_families(exposition.openmetrics(whole))}
    kinds = {name.removesuffix("_total"): family.kind for name, family in whole.families.items()}
    assert read == {name: kind.replace("untyped", "unknown") for name, kind in kinds.items()}
    assert [family.name for family in decoded(exposition.protobuf(whole))] == list(whole.families)


# metrics.proto of Prometheus' client_model, as far as it is used here: message -> (field, number, type).
DOUBLE, UINT64, STRING, MESSAGE, INT64, UINT32, ENUM, SINT32, SINT64 = 1, 4, 9, 11, 3, 13, 14, 17, 18
FIELDS: dict[str, list[tuple[Any, ...]]] = {
    "LabelPair": [("name", 1, STRING), ("value", 2, STRING)],
    "Value": [("value", 1, DOUBLE)],
    "Stamp": [("seconds", 1, INT64), ("nanos", 2, INT64)],
    "Exemplar": [("label", 1, "LabelPair"), ("value", 2, DOUBLE), ("timestamp", 3, "Stamp", 1)],
    "Bucket": [("cumulative_count", 1, UINT64), ("upper_bound", 2, DOUBLE), ("exemplar", 3, "Exemplar", 1)],
    "BucketSpan": [("offset", 1, SINT32), ("length", 2, UINT32)],
    "Histogram": [
        ("sample_count", 1, UINT64),
        ("sample_sum", 2, DOUBLE),
        ("bucket", 3, "Bucket"),
        ("schema", 5, SINT32),
        ("zero_threshold", 6, DOUBLE),
        ("zero_count", 7, UINT64),
        ("positive_span", 12, "BucketSpan"),
        ("positive_delta", 13, SINT64, 3),
        ("exemplars", 16, "Exemplar"),
    ],
    "Metric": [
        ("label", 1, "LabelPair"),
        ("gauge", 2, "Value", 1),
        ("counter", 3, "Value", 1),
        ("untyped", 5, "Value", 1),
        ("histogram", 7, "Histogram", 1),
    ],
    "MetricFamily": [("name", 1, STRING), ("type", 3, UINT64), ("metric", 4, "Metric")],
}
NAMES = {"counter": 0, "gauge": 1, "untyped": 3, "histogram": 4}


def message_class() -> Any:
    """MetricFamily. A field is (name, number, type); messages are repeated unless a fourth member says 1."""
    pool_module = pytest.importorskip("google.protobuf.descriptor_pool", reason="needs protobuf")
    from google.protobuf import descriptor_pb2, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="metrics.proto", package="t", syntax="proto2")
    for message, fields in FIELDS.items():
        made = file.message_type.add(name=message)
        for name, number, kind, *label in fields:
            refers = isinstance(kind, str)
            field = made.field.add(name=name, number=number, type=MESSAGE if refers else kind)
            field.label = label[0] if label else 3 if refers else 1
            if refers:
                field.type_name = f".t.{kind}"
    pool = pool_module.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.MetricFamily"))


def decoded(data: bytes) -> list[Any]:
    """The families, each of which stands behind its length."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    out: list[Any] = []
    kind, at = message_class(), 0
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            at, length, shift = at + 1, length | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        out.append(kind.FromString(data[at : at + length]))
        assert len(UnknownFieldSet(out[-1])) == 0
        at += length
    return out


def native_of(histogram: Any) -> dict[int, int]:
    """Counts by index, from spans and deltas."""
    indices: list[int] = []
    end = 0
    for span in histogram.positive_span:
        begin = end + span.offset
        indices += range(begin, begin + span.length)
        end = begin + span.length
    return dict(zip(indices, itertools.accumulate(histogram.positive_delta), strict=True))


def test_protocol_buffers_have_both_kinds_of_histograms() -> None:
    families = {family.name: family for family in decoded(exposition.protobuf(some()))}
    assert [family.type for family in families.values()] == [NAMES[f.kind] for f in some().families.values()]
    assert families["sent_total"].metric[0].counter.value == 3
    assert families["up"].metric[0].gauge.value == 1.5
    assert families["own"].metric[0].untyped.value == 7
    full, empty = (metric.histogram for metric in families["took_seconds"].metric)
    assert (full.sample_count, full.sample_sum, full.schema) == (8, 20.5, 3)
    assert [b.cumulative_count for b in full.bucket][-2:] == [7, 8]
    assert full.bucket[-1].upper_bound == math.inf
    assert native_of(full) == {math.ceil(8 * math.log2(v)): n for v, n in ((1.1e-6, 5), (3e-6, 2), (20.0, 1))}
    assert [e.timestamp.nanos for e in full.exemplars] == [250_000_000]
    assert [(s.offset, s.length) for s in empty.positive_span] == [(0, 0)], "a native one, of nothing"


COUNTS = st.dictionaries(st.integers(1, 10**11), st.integers(1, 10**6), max_size=40)


@given(COUNTS)
def test_buckets_keep_every_value_where_it_belongs(counts: dict[int, int]) -> None:
    values = sorted((ns / 1e9, n) for ns, n in counts.items())
    histogram = Histogram(values, sum(v * n for v, n in values))
    for bound, seen, _ in histogram.classic():
        assert seen == sum(n for v, n in values if v <= bound)
    native = histogram.native()
    assert sum(native.values()) == histogram.count
    for index in native:
        low, high = 2 ** ((index - 1) / 8), 2 ** (index / 8)
        assert native[index] == sum(n for v, n in values if low * (1 + 1e-12) < v <= high * (1 + 1e-12))
    metrics = Metrics()
    metrics.add("histogram", "h_seconds", {}, histogram)
    (family,) = decoded(exposition.protobuf(metrics))
    told = native_of(family.metric[0].histogram)
    assert {index: n for index, n in told.items() if n} == native


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, TEXT),
        ("", TEXT),
        ("text/html", TEXT),
        ("*/*", TEXT),
        (f"{PROTOBUF};q=0.7,{OPENMETRICS};q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", PROTOBUF),
        ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", TEXT),
        ("application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5", OPENMETRICS),
        ("application/openmetrics-text;version=2.0.0;q=0.8,text/plain;version=0.0.4;q=0.5", TEXT),
        ("application/openmetrics-text;q=0, text/plain", TEXT),
        ("application/openmetrics-text;q=nan, text/plain;q=0.1", TEXT),
        ("text/plain, application/openmetrics-text", OPENMETRICS),
    ],
)
def test_a_scraper_gets_what_it_likes_best(accept: str | None, kind: str) -> None:
    assert wanted(accept) == kind


def expressions() -> Iterator[str]:
    for panel in json.loads(GRAFANA.read_text())["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def test_the_dashboard_asks_for_what_is_served() -> None:
    families = measure(STATS | {"cores": STATS["cores"] | {"allocators": [ALLOCATOR]}}).families
    served = {f"{name}{suffix}" for name in families for suffix in ("", "_bucket")}
    asked = {name for text in expressions() for name in re.findall(r"\bcorelane_\w+", text)}
    assert len(asked) > 8
    assert asked - served == KNOWN_ELSEWHERE


# What the statistics of these tests leave out, and real ones have: tests/cli/test_managed_cores.py.
ALLOCATOR = STATS["cores"]["allocators"][0] | {"violations": 1, "blocked": 2}
ACTUATION = "corelane_app_cores_actuation_seconds"
KNOWN_ELSEWHERE = {"corelane_app_tx_taken_total", ACTUATION, f"{ACTUATION}_bucket"}


def test_the_dashboard_is_one_by_grafanas_schema() -> None:
    """Grafana's own types, which it generates from its schema, know every member of it, and give it back as it is."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="needs grafana-foundation-sdk")
    from grafana_foundation_sdk.cog import plugins
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    plugins.register_default_plugins()
    ours = json.loads(GRAFANA.read_text())
    theirs = json.loads(JSONEncoder(sort_keys=True).encode(models.Dashboard.from_json(ours)))
    assert list(missing(ours, theirs, "dashboard")) == []


def missing(ours: Any, theirs: Any, where: str) -> Iterator[str]:
    """What of ours is not in theirs, or is other there."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            if not isinstance(theirs, dict) or key not in theirs:
                yield f"{where}.{key}"
            else:
                yield from missing(value, theirs[key], f"{where}.{key}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(theirs) != len(ours):
            yield where
        else:
            for i, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from missing(one, other, f"{where}[{i}]")
    elif ours != theirs:
        yield f"{where} is {theirs!r}"


def test_the_dashboards_panels_do_not_overlap_and_have_units() -> None:
    dashboard = json.loads(GRAFANA.read_text())
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["description"]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
