"""What applications write down of their requests, beside an iokernel's statistics: for `top` why a service is slow, for
`metrics` exemplars, which name a request.

Of those applications alone that the caller may look into: its own, or as root all. Others have none of it, and nothing
is said. A request has the same name here and as a span (trace/spans.py).
"""

from __future__ import annotations

import bisect
import time
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..runtime.closing import Closing
from ..runtime.errors import CorelaneError
from .exposition import CLASSIC_S

if TYPE_CHECKING:
    from ..libos.trace.stages import Table
    from ..runtime.trace import Raw, Segment

HELD_S = 10.0  # that blame is of
SHARE = 0.002  # of a CPU that blame has, of an application: what costs 20 ms is asked again after 10 s
HELD = 50_000  # records of an application, at most
DRIFT_S = 60.0  # by which stamps may be ahead of the clock
AGAIN_S = 10.0  # after which one that could not be read is tried again


def trace_id(pid: int, number: int) -> str:
    """The name of a request among all of a machine: 32 digits, as OpenTelemetry has it."""
    return f"{pid:016x}{number:016x}"


class Traces(Closing):
    """Of all applications that are attached, from one look to the next."""

    def __init__(self) -> None:
        self._apps: dict[int, _App] = {}

    def close(self) -> None:
        """Let go of them. May be called twice."""
        for app in self._apps.values():
            app.close()
        self._apps.clear()

    def begin(self, stats: Mapping[str, Any]) -> None:
        """Read what there is, and say nothing of it yet."""
        for app in stats["apps"]:
            self._of(app).read(time.monotonic())

    def _of(self, app: Mapping[str, Any]) -> _App:
        return self._apps.setdefault(int(app["pid"]), _App(int(app["pid"])))

    def add_to(self, stats: Mapping[str, Any]) -> None:
        """Say in Iokernel.stats() why services are slow ("why"), and give their latencies exemplars."""
        pids = {int(app["pid"]) for app in stats["apps"]}
        for pid in self._apps.keys() - pids:
            self._apps.pop(pid).close()
        for app in stats["apps"]:
            told = self._of(app).look(time.monotonic())
            if told:
                app["why"] = max(told.values(), key=lambda one: one[0])[1]
            for service in app.get("services") or ():
                if (found := told.get(_key(service["name"]))) is not None:
                    service["why"] = found[1]
                    service["latency"]["exemplars"] = found[2]


Told = tuple[float, str, list[dict[str, Any]]]
"""Of a service: its p99 in us, why, exemplars."""


class _App:
    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._segment: Segment | None = None
        self._next_try = self._due = float("-inf")
        self._last: dict[str, Told] = {}
        self._parts: deque[tuple[float, Raw]] = deque()

    def close(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def look(self, now: float) -> dict[str, Told]:
        """By the names of services, as `_key` has them; empty: it cannot be read, or has nothing to tell. What was told
        before, while it is too early to look closely again (SHARE): whoever looks on shall not take the CPU that what
        is looked at runs on."""
        from ..libos.trace import faults
        from ..libos.trace.stages import table
        from ..runtime.trace import records_of

        segment = self.read(now)
        if segment is None:
            return {}
        if now >= self._due:
            begun = time.thread_time()
            held = b"".join(raw.data for _, raw in self._parts)
            seen = table(records_of(held), segment.services(), segment.hz, faults.cost_us())
            self._last = _told(seen, segment)
            self._due = now + (time.thread_time() - begun) / SHARE
        return self._last

    def read(self, now: float) -> Segment | None:
        """What has come since the last time, of which the newest is held. None: it cannot be read."""
        segment = self._opened(now)
        if segment is None:
            return None
        self._parts.append((now, segment.read_raw(HELD)))
        n = sum(raw.records for _, raw in self._parts)
        while len(self._parts) > 1 and (self._parts[0][0] < now - HELD_S or n > HELD):
            n -= self._parts.popleft()[1].records
        return segment

    def _opened(self, now: float) -> Segment | None:
        from ..runtime.trace import Segment

        if self._segment is None and now >= self._next_try:
            self._next_try = now + AGAIN_S
            try:
                self._segment = Segment.of_process(self._pid)
            except CorelaneError:
                return None
        return self._segment


def _key(name: str) -> str:
    """As applications tell of their services: udp:9000 of "UDP 9000"."""
    return name.lower().replace(" ", ":")


def _told(seen: Table, segment: Segment) -> dict[str, Told]:
    from ..libos.trace import blame

    out: dict[str, Told] = {}
    for found in blame.of_table(seen, quantiles=(0.99,)):
        why = found.cause.word if found.cause is not None else blame.name_of(found.first)
        service = seen.names.index(found.service) if found.service in seen.names else -1
        out[_key(found.service)] = (found.value_us, why, exemplars(seen.of_service(service), segment))
    return out


def exemplars(one: Table, segment: Segment) -> list[dict[str, Any]]:
    """Of a service, the last request of each bucket of Prometheus', as exposition.histogram takes them. A time that has
    not been is none: whoever scrapes would refuse the other applications' metrics with it."""
    begins, now_s, wall_s = one.messages["begin"], time.monotonic(), time.time()
    last: dict[int, int] = {}
    for row in begins.argsort(kind="stable").tolist():
        last[bisect.bisect_left(CLASSIC_S, float(one.total[row]) / 1e6)] = row
    found = [_exemplar(one, last[bucket], segment, wall_s - now_s) for bucket in sorted(last)]
    return [exemplar for exemplar in found if 0 <= exemplar["at_s"] <= wall_s + DRIFT_S]


def _exemplar(one: Table, row: int, segment: Segment, epoch_s: float) -> dict[str, Any]:
    """epoch_s: the wall's time of the monotonic clock's 0."""
    message = one.messages[row]
    ns = segment.ns_of(int(message["begin"]))
    labels = {"trace_id": trace_id(segment.pid, int(message["id"]))}
    return {"value_s": float(one.total[row]) / 1e6, "labels": labels, "at_s": ns / 1e9 + epoch_s}
