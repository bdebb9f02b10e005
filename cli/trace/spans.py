"""Requests as spans, to a collector of OpenTelemetry, by OTLP over HTTP, through its official SDK (an optional
dependency).

A request is a span, its stages are spans below it, its waits events of its handler's. The spans are made of the SDK's
own class and given to its exporter: a tracer of the SDK would stamp them itself, and draw ids of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...libos.trace import bursts
from ...libos.trace.commands import NEVER
from ...libos.trace.stages import windows
from ...runtime.errors import CorelaneError
from ...runtime.trace import WAITS, Records
from ..telemetry import INSTALL, endpoint
from ..traced import trace_id

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Event, ReadableSpan

PATH = "/v1/traces"  # OTLP/HTTP, "Endpoint URLs for OTLP/HTTP"
AT_ONCE = 512  # spans of a request to the collector


class Clock:
    """Times since 1970 in ns of stamps: what the machine's clock says now, and no step of it in between. Stamps that
    cannot be have the first or the last time that OTLP can tell (fixed64). ns_of: CLOCK_MONOTONIC at a stamp."""

    def __init__(self, ns_of: Callable[[int], int]) -> None:
        self._ns_of = ns_of
        self._epoch_ns = time.time_ns() - time.monotonic_ns()

    def ns(self, tsc: int) -> int:
        return min(max(self._epoch_ns + self._ns_of(tsc), 0), 2**64 - 1)


def send(url: str, records: Records, names: Sequence[str], pid: int, app: str, clock: Clock) -> int:
    """Send them all; returns how many requests that were. CorelaneError without the SDK, or if they cannot be sent."""
    where = endpoint(url, PATH)
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError as error:
        raise CorelaneError(f"send spans to {where}", "OpenTelemetry's SDK is not installed", INSTALL) from error
    logging.getLogger("opentelemetry").addHandler(logging.NullHandler())  # what fails is told once, by us
    logging.getLogger("opentelemetry").propagate = False
    made = spans(records, names, pid, app, clock)
    exporter = OTLPSpanExporter(endpoint=where, timeout=10)
    try:
        for first in range(0, len(made), AT_ONCE):
            if exporter.export(made[first : first + AT_ONCE]) is not SpanExportResult.SUCCESS:
                raise OSError("it was refused, or nobody answered")
    except OSError as error:
        hint = "is a collector there, and takes OTLP over HTTP?"
        raise CorelaneError(f"send spans to {where}", str(error), hint) from error
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK's
    return len(records.messages)


def spans(records: Records, names: Sequence[str], pid: int, app: str, clock: Clock) -> list[ReadableSpan]:
    """Of all requests, each followed by its stages."""
    from opentelemetry.sdk.resources import Resource

    resource = Resource({"service.name": app or "corelane", "process.pid": pid})
    waits: dict[int, list[Any]] = {}
    for wait in records.waits:
        waits.setdefault(int(wait["id"]), []).append(wait)
    commands = {int(command["id"]): command for command in records.commands}
    out: list[ReadableSpan] = []
    behind = (ticks.tolist() for ticks in bursts.behind(records))
    for message, in_ring, given in zip(records.messages, *behind, strict=True):
        number, service = int(message["id"]), int(message["service"])
        name = names[service] if service < len(names) else f"service {service}"
        stages = windows(message, in_ring, given)
        out += _request(message, name, pid, resource, stages, waits.get(number, ()), commands.get(number), clock)
    return out


def _reached(command: Any, clock: Clock) -> list[Event]:
    """The stages of a group's command, as events where it reached them."""
    from opentelemetry.sdk.trace import Event

    begin, entry = int(command["begin"]), {"corelane.entry": int(command["index"])}
    at = {stage: int(command[stage]) for stage in ("gone", "sent", "flush", "written", "durable", "others", "agreed")}
    return [Event(stage, entry, clock.ns(begin + ticks)) for stage, ticks in at.items() if ticks != NEVER]


def _request(
    m: Any,
    name: str,
    pid: int,
    resource: Any,
    stages: Sequence[tuple[str, int, int]],
    waits: Sequence[Any],
    command: Any,
    clock: Clock,
) -> list[ReadableSpan]:
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

    number, begin = int(m["id"]), int(m["begin"])
    trace = int(trace_id(pid, number), 16)

    def context(of: int) -> SpanContext:
        return SpanContext(trace, of, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))

    def span(title: str, of: int, since: int, until: int, **more: Any) -> ReadableSpan:
        begun, ended = clock.ns(since), clock.ns(until)
        return ReadableSpan(title, context(of), resource=resource, start_time=begun, end_time=ended, **more)

    told = {"corelane.kthread": int(m["kthread"]), "corelane.bytes": int(m["bytes"]), "corelane.id": f"{number:#x}"}
    # Ids of spans: the request's own, and below it by the stage. Bits 0 to 47 count messages (libos/trace/trace.c).
    out = [span(name, number, begin, begin + stages[-1][2], attributes=told, kind=SpanKind.SERVER)]
    for row, (stage, first, last) in enumerate(stages, 1):
        since, until = begin + first, begin + last
        if until > since:
            events = [
                Event(
                    f"wait: {WAITS.get(int(w['what']), 'other')}",
                    {"corelane.us": 1e-3 * (clock.ns(int(w["begin"]) + int(w["blocked"])) - clock.ns(int(w["begin"])))},
                    clock.ns(int(w["begin"])),
                )
                for w in (waits if stage == "handler" else ())
            ]
            events += _reached(command, clock) if stage == "handler" and command is not None else []
            out.append(span(stage, number | row << 60, since, until, parent=context(number), events=events))
    return out
