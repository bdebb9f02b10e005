"""What is made of records that another program has written as it likes: any that a reader keeps can be shown."""

from __future__ import annotations

import json
import random
import time
from itertools import islice
from typing import Any

import pytest
from maderequests import NAMES

from corelane.cli import exposition, traced
from corelane.cli.trace import requests, spans, timeline, views
from corelane.libos.trace import blame, profile
from corelane.libos.trace.others import Others, Slice
from corelane.libos.trace.stages import Table, table
from corelane.runtime._native import ffi, lib
from corelane.runtime.trace import Records, records_of

KINDS = {
    lib.CL_TRACE_MESSAGE: "cl_trace_message",
    lib.CL_TRACE_WAIT: "cl_trace_wait",
    lib.CL_TRACE_CORE: "cl_trace_core",
    lib.CL_TRACE_GAP: "cl_trace_gap",
    lib.CL_TRACE_COMMAND: "cl_trace_command",
    lib.CL_TRACE_SAMPLE: "cl_trace_sample",
    lib.CL_TRACE_BURST: "cl_trace_burst",
}
MOST = int(lib.CL_TRACE_STAMP_MOST)
EDGES = (0, 1, 2**31, 2**32 - 1, 2**32, MOST - 2**32, MOST - 1, 2**63, 2**64 - 1)
MESSAGES, OTHERS = 1500, 60
HZ = 10**6


def one(kind: int, draw: random.Random) -> bytes:
    """A record of that kind, with edges in its fields; those of a message rise, lest most be none."""
    made = ffi.new(f"struct {KINDS[kind]} *")
    for name, field in ffi.typeof(made[0]).fields:
        if field.type.kind != "primitive":
            continue  # of SAMPLE alone
        most = 2 ** (8 * ffi.sizeof(field.type)) - 1
        edge = draw.random() < 0.3
        setattr(made, name, min(draw.choice(EDGES), most) if edge else draw.randrange(min(most, 5000)))
    made.kind, made.kthread = kind, draw.randrange(3)
    if kind == lib.CL_TRACE_MESSAGE:
        made.service, made.shared = draw.randrange(3), draw.randrange(1, 3)
        made.pickup, made.start, made.end, made.sent = sorted(draw.choice((*EDGES[:4], 700)) for _ in range(4))
        made.blocked = draw.randrange(made.end - made.start + 1)
        made.ready = draw.randrange(made.end - made.start - made.blocked + 1)
    elif kind == lib.CL_TRACE_SAMPLE:
        made.n = draw.randrange(1, lib.CL_TRACE_CHAIN + 1)
        made.chain = [draw.choice(EDGES) for _ in range(lib.CL_TRACE_CHAIN)]
    elif kind in (lib.CL_TRACE_CORE, lib.CL_TRACE_GAP):
        made.begin, made.end = sorted((made.begin, made.end))
    if kind == lib.CL_TRACE_GAP:
        made.how, made.gone = draw.randrange(1, 4), min(made.gone, made.end - made.begin)
        made.waited = min(made.waited, made.gone)
    elif kind == lib.CL_TRACE_BURST:
        made.taken, made.given = sorted((made.taken, made.given))
    elif kind == lib.CL_TRACE_COMMAND:
        made.flags = draw.randrange(4)
        made.gone, made.flush, made.written, made.durable = sorted(draw.choice((*EDGES[:4], 700)) for _ in range(4))
    return bytes(ffi.buffer(made))


def kept(seed: int) -> Records:
    """Records that a reader keeps, of all kinds."""
    draw, out = random.Random(seed), []
    for kind in KINDS:
        wanted = MESSAGES if kind == lib.CL_TRACE_MESSAGE else OTHERS
        drawn = (one(kind, draw) for _ in range(40 * wanted))
        of = list(islice((raw for raw in drawn if lib.cl_trace_valid(raw)), wanted))
        assert len(of) >= wanted // 4, f"of {KINDS[kind]} too few are kept for this to say something"
        out += of
    return records_of(b"".join(out))


class Source:
    pid, name, mode, one_in, hz = 2**32 - 1, "liar", "full", 1, HZ

    @staticmethod
    def ns_of(stamp: int) -> int:
        return int(MOST) - 1 + stamp * 10**9 // HZ


@pytest.fixture(scope="module", params=range(6))
def seen(request: pytest.FixtureRequest) -> tuple[Records, Table]:
    records = kept(request.param)
    return records, table(records, NAMES, HZ)


def test_they_are_shown_and_blamed(seen: tuple[Records, Table]) -> None:
    records, found = seen
    others = Others(ran=[Slice(0, 0, MOST, "x"), Slice(1, 5, 2**63, "y")])
    document = views.document_of(Source(), records, found, 5, others)
    assert len(document["slowest"]) == 5
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert views.render(document | {"rings": []}, found, True, others)
    assert views.render(document | {"rings": []}, found, False, others)


def test_they_are_drawn(seen: tuple[Records, Table]) -> None:
    records, _ = seen
    drawn = list(timeline.events(records, NAMES, HZ, requests.first_of(records)))
    assert json.dumps(drawn, allow_nan=False)


def test_what_ran_then_is_found(seen: tuple[Records, Table]) -> None:
    records, found = seen
    sampled = profile.Sampled(profile.samples_of(records), 997, int, hex)
    for of in profile.of_table(found, sampled):
        assert profile.lines_of(of)


def test_metrics_of_others_stay_readable(seen: tuple[Records, Table]) -> None:
    _, found = seen
    metrics = exposition.Metrics()
    for service in range(len(NAMES)):
        told: list[dict[str, Any]] = traced.exemplars(found.of_service(service), Source())  # type: ignore[arg-type]
        assert all(0 <= exemplar["at_s"] <= time.time() + traced.DRIFT_S for exemplar in told)
        times = {"buckets_ns": [[0, 10, 1]], "sum_ns": 5, "exemplars": told}
        metrics.add("histogram", "h_seconds", {"service": str(service)}, exposition.histogram(times))
    for write in exposition.FORMATS.values():
        assert write(metrics)
    assert blame.of_table(found) is not None


def test_they_are_sent_as_spans(seen: tuple[Records, Table]) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="needs it: pip install 'corelane[otel]'")
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    records, _ = seen
    clock = spans.Clock(Source.ns_of)
    assert encode_spans(spans.spans(records, NAMES, Source.pid, Source.name, clock)).SerializeToString()
