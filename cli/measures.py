"""Statistics of an iokernel as metrics.

A counter is `corelane_GROUP_NAME_total`, a number that goes up and down `corelane_GROUP_NAME`, times
`corelane_GROUP_NAME_seconds`, a histogram. What was dropped is one metric of a group, with the reason as a label. What
an application counts of itself is `corelane_app_own_NAME`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .exposition import Labels, Metrics, histogram

_NUMBER = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def measure(stats: Mapping[str, Any]) -> Metrics:
    """What Iokernel.stats() gives."""
    out = Metrics()
    out.add("gauge", "corelane_up", {"socket": str(stats["socket"]), "mode": str(stats["mode"])}, 1)
    out.add("gauge", "corelane_uptime_seconds", {}, stats["uptime_s"])
    for index, loop in enumerate(stats["loops"]):
        _row(out, "loop", {"loop": str(index), "cpu": str(loop["cpu"])}, loop)
    for uplink in stats["uplinks"]:
        _row(out, "uplink", {"uplink": str(uplink["name"])}, uplink)
    for app in stats["apps"]:
        labels = {"app": str(app["name"])}
        if app.get("member") is not None:
            labels["member"] = str(app["member"])
        _row(out, "app", labels, app)
        if app.get("cores") is not None:
            _row(out, "app_cores", labels, app["cores"])
        if app.get("counters") is not None:
            _own(out, labels, app["counters"]["values"])
        for name, value in _numbers(app.get("deadline") or {}):
            out.add("gauge", f"corelane_app_deadline_{name}", labels, value)
        for name, value in _numbers(app.get("memory") or {}):
            out.add("gauge", f"corelane_app_elastic_{name}", labels, value)
        for service in app.get("services", ()):
            _service(out, labels, service)
    if stats.get("cores") is not None:
        for core in stats["cores"]["cpus"]:
            _row(out, "core", {"cpu": str(core["cpu"])}, core)
        for allocator in stats["cores"]["allocators"]:
            _row(out, "allocator", {"loop": str(allocator["loop"])}, allocator)
    told = dict(stats.get("deadlines", {}))
    for reason, n in told.pop("reasons", {}).items():
        out.add("counter", "corelane_deadlines_missed_by_reason_total", {"reason": reason}, n)
    for name, n in _numbers(told):
        out.add("counter", f"corelane_deadlines_{name}_total", {}, n)
    for name, n in _numbers(stats.get("memory", {})):
        out.add("counter", f"corelane_elastic_{name}_total", {}, n)
    for event, n in stats["control"].items():
        if isinstance(n, int):
            out.add("counter", "corelane_control_events_total", {"event": event}, n)
    for name, n in stats["departed"].items():
        out.add("counter", f"corelane_departed_{name}_total", {}, n)
    return out


def _numbers(row: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a row, whose names can be a metric's. True and False are 1 and 0."""
    for name, value in row.items():
        if isinstance(value, int | float) and _NUMBER.fullmatch(name):
            yield name, int(value) if isinstance(value, bool) else value


def _row(out: Metrics, group: str, labels: Labels, row: Mapping[str, Any]) -> None:
    from ..iokernel.control.report import GAUGES

    for name, value in _numbers(row):
        if name in labels or name in ("id", "pid", "uid", "slot"):
            continue
        if "dropped_" in name:
            told = {**labels, "by": "iokernel", "reason": name}
            out.add("counter", f"corelane_{group}_dropped_total", told, value)
        elif name in GAUGES or isinstance(row[name], bool):
            out.add("gauge", f"corelane_{group}_{name}", labels, value)
        else:
            out.add("counter", f"corelane_{group}_{name}_total", labels, value)
    for name, found in row.items():
        if isinstance(found, dict) and "buckets_ns" in found:
            out.add("histogram", f"corelane_{group}_{name}_seconds", labels, histogram(found))
        elif name == "actuation" and isinstance(found, dict):
            for step, times in found.items():
                told = {**labels, "step": step}
                out.add("histogram", f"corelane_{group}_{name}_seconds", told, histogram(times))


def _service(out: Metrics, labels: Labels, service: Mapping[str, Any]) -> None:
    """A service of an application: its requests, and the latency of those that were drawn."""
    told = {**labels, "service": str(service["name"])}
    out.add("counter", "corelane_service_requests_total", told, service["requests"])
    out.add("histogram", "corelane_service_latency_seconds", told, histogram(service["latency"]))


def _own(out: Metrics, labels: Labels, counted: Mapping[str, int]) -> None:
    """What an application counts of itself."""
    for name, value in counted.items():
        if "dropped_" in name:
            told = {**labels, "by": "application", "reason": name}
            out.add("counter", "corelane_app_dropped_total", told, value)
        else:
            out.add("untyped", f"corelane_app_own_{name}", labels, value)
