"""Why a curve stops: which resource is used up at the load that is not carried, by counters.

    load.counts = rig.counts                # who can be read: see Counts
    point = load.explain(1.2e6, 0.6)        # a load, with its counters read near its begin and near its end
    stop_of(point)                          # Stop("worker busy", "worker 100 % busy, loop 64 % busy")

Reading counters takes one of the measured cores for some 0.1 ms. So no point of a curve is measured like that: the load
at which the curve stops is offered once more (openloop.Sweep does it), and the document has what was read then.

The resources, in the order in which they are asked:

    worker busy       the server's core: it ran for at least BUSY of the time, without looks that found nothing
    loop busy         the iokernel's core: rounds that did something took at least BUSY of the time
    disk busy         the block device had requests in flight for at least BUSY of the time
    core taken        the server was ready to run and had no core for at least TAKEN of the time
    ring full         a ring, pool or socket in front of the server refused frames, and neither core was busy
    generator late    at least LATE of the requests were sent late or never, or answers found the generator's ring
                      full, and nothing above held them up
    carried when repeated  the load was carried when it was offered again: the machine stopped for a moment before
    clients waiting   none of these, and each client waits for its answer before it asks again: what a request takes
                      from end to end bounds them, and no resource is used up
    not in the counters  none of these

Who is asked for the highest load that there is and carries it ends at what is used up there, by the same rules. How
busy each one was is said in any case.

Of worker, loop and disk the busiest one is named. A generator that is the loop's uplink runs in the loop: who is late
there is the loop. Full rings are named last of what is in the server: a ring in front of a busy core is full, too.

A server that polls always runs. How many of its looks found something says little of its time: a look that brings 64
frames, and answers them by a system call, takes a thousand times as long as one that brings none. So what a look takes
that finds nothing (`idle_look_s`) is learnt at a light load, where there is little else, and the time that the server
ran less all such looks is the time for which it was busy. Where that was not learnt, the share of looks that found
something stands for it, which is too low.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

WORKER, LOOP, DISK, TAKEN_CORE, RING = "worker busy", "loop busy", "disk busy", "core taken", "ring full"
GENERATOR, NOTHING, UNKNOWN = "generator late", "carried when repeated", "not in the counters"
CLIENTS = "clients waiting"
RESOURCES = (WORKER, LOOP, DISK, TAKEN_CORE, RING, GENERATOR, NOTHING, CLIENTS, UNKNOWN)
BUSY, TAKEN, LATE = 0.9, 0.1, 0.5
GENERATORS = "generator_"  # counters of the generator's end of the link begin so
IDLE_LOOKS_LEAST = 0.5  # of all looks, to tell what one takes
FIRST_LOOK, LATEST_LOOK, LAST_LOOK = 0.2, 0.5, 0.95  # of the time of a load: its counters are read then
EXPLAIN_S = 0.6  # counters of another process are published every quarter of a second: two such times lie in it
PUBLISHED_WAIT_S = 0.01

T = TypeVar("T")


@dataclass(frozen=True)
class Counts:
    """Counters so far, of what stands between a generator and its answers. None, 0: not known of this server.

    looks, found: times that the worker looked for work, and found some. worker_s: time in which it ran, looks that
    find nothing included. waited_s: time in which it was ready to run and had no CPU. decisions, waiting: of who
    divides the cores, and those that found something waiting in the server. loop_s: time of the loop's rounds that did
    something. disk_s: time in which the device had requests in flight. full: frames that rings and pools refused, by
    the counter's name; those of the generator's end begin with GENERATORS. published_s: when `looks` and `found` were
    written down, time.monotonic(); None: now.
    """

    looks: int = 0
    found: int = 0
    worker_s: float | None = None
    waited_s: float = 0.0
    decisions: int = 0
    waiting: int = 0
    loop_s: float | None = None
    disk_s: float | None = None
    full: Mapping[str, int] = field(default_factory=dict)
    published_s: float | None = None


@dataclass(frozen=True)
class Evidence:
    """What counters gained while a load lasted. worker, loop, disk: busy, 0 to 1; None: not known. taken: the worker
    ready to run and without a CPU, 0 to 1. full: frames refused, by counter; only those that grew. looks_found: of the
    worker's looks, 0 to 1; None: it does not count them."""

    worker: float | None = None
    loop: float | None = None
    disk: float | None = None
    taken: float = 0.0
    full: Mapping[str, int] = field(default_factory=dict)
    looks_found: float | None = None


class Outcome(Protocol):
    """What became of a load: an openloop.Point. late: of those sent, after their time; dropped: never sent."""

    sent: int
    late: int
    dropped: int
    evidence: Evidence | None

    @property
    def carried(self) -> bool: ...


@dataclass(frozen=True)
class Stop:
    """resource: one of RESOURCES. said: the numbers that say so. evidence: None where nothing was read."""

    resource: str
    said: str
    evidence: Evidence | None = None

    def document(self) -> dict[str, Any]:
        """As a member of settings.stops_because."""
        return {
            "resource": self.resource,
            "said": self.said,
            "evidence": asdict(self.evidence) if self.evidence else None,
        }

    def __str__(self) -> str:
        return f"{self.resource} ({self.said})"


def between(first: Counts, last: Counts, seconds: float, idle_look_s: float | None = None) -> Evidence:
    """What two readings that are `seconds` apart come to. idle_look_s: what a look takes that finds nothing."""

    def share(before: float | None, after: float | None) -> float | None:
        return None if before is None or after is None else min(max((after - before) / seconds, 0.0), 1.0)

    ran, waited = share(first.worker_s, last.worker_s), share(first.waited_s, last.waited_s) or 0.0
    looks, idle, looked_s = _looks(first, last, seconds)
    if looks <= 0:
        worker = ran
    elif idle_look_s is None:
        worker = (1.0 if ran is None else ran) * (1 - idle / looks)
    else:
        worker = max((1.0 - waited if ran is None else ran) - idle * idle_look_s / looked_s, 0.0)
    decisions = last.decisions - first.decisions
    without = (last.waiting - first.waiting) / decisions - (ran or 0.0) if decisions > 0 else 0.0
    grown = {name: n - first.full.get(name, 0) for name, n in last.full.items()}
    return Evidence(
        worker,
        share(first.loop_s, last.loop_s),
        share(first.disk_s, last.disk_s),
        max(waited, without),
        {name: n for name, n in grown.items() if n > 0},
        1 - idle / looks if looks > 0 else None,
    )


def idle_look_s(first: Counts, last: Counts, seconds: float) -> float | None:
    """What a look takes that finds nothing: of readings at a load so light that the worker does little else. None: it
    does not count its looks, or sleeps instead."""
    looks, idle, looked_s = _looks(first, last, seconds)
    if looks <= 0 or idle < IDLE_LOOKS_LEAST * looks:
        return None
    ran = None if first.worker_s is None or last.worker_s is None else (last.worker_s - first.worker_s) / seconds
    return looked_s * (1.0 if ran is None else min(ran, 1.0)) / idle


def _looks(first: Counts, last: Counts, seconds: float) -> tuple[int, int, float]:
    """Looks between two readings, those that found nothing, and the time that they were counted in."""
    looks = last.looks - first.looks
    if first.published_s is not None and last.published_s is not None:
        seconds = last.published_s - first.published_s
    return (looks, looks - (last.found - first.found), seconds) if seconds > 0 else (0, 0, 0.0)


def stop_of(point: Outcome, missed: bool | None = None) -> Stop:
    """The resource at which a load ended that was offered once more. missed: whether it failed again; None: whether it
    was not carried."""
    evidence = point.evidence or Evidence()
    due = point.sent + point.dropped
    late = (point.late + point.dropped) / due if due else 0.0
    at_generator = [name for name in evidence.full if name.startswith(GENERATORS)]
    told = _told(evidence, late, due)
    busy = {WORKER: evidence.worker or 0.0, LOOP: evidence.loop or 0.0, DISK: evidence.disk or 0.0}
    busiest = max(busy, key=lambda name: busy[name])
    if not missed if missed is not None else point.carried:
        resource = NOTHING
    elif busy[busiest] >= BUSY:
        resource = busiest
    elif evidence.taken >= TAKEN:
        resource = TAKEN_CORE
    elif len(evidence.full) > len(at_generator):
        resource = RING
    elif late >= LATE or at_generator:
        resource = GENERATOR
    else:
        resource = UNKNOWN
    return Stop(resource, told, point.evidence)


def stop_of_missed(evidence: Evidence) -> Stop:
    """The resource at which a load ended that was not carried; who sent it was never late."""
    return stop_of(_Missed(evidence), missed=True)


def stop_of_closed(evidence: Evidence) -> Stop:
    """The resource at which clients that wait for their answers ended: they are never late, and no load is refused."""
    found = stop_of_missed(evidence)
    return replace(found, resource=CLIENTS) if found.resource == UNKNOWN else found


@dataclass
class _Missed:
    """The outcome of a load of which nothing but the counters is known."""

    evidence: Evidence | None
    sent: int = 0
    late: int = 0
    dropped: int = 0
    carried: bool = False


def _told(evidence: Evidence, late: float, due: int) -> str:
    said = [
        f"{who} {100 * busy:.0f} % busy"
        for who, busy in (("worker", evidence.worker), ("loop", evidence.loop), ("disk", evidence.disk))
        if busy is not None
    ]
    if evidence.worker is not None and evidence.looks_found is not None:
        said[0] += f" (work at {100 * evidence.looks_found:.0f} % of its looks)"
    if evidence.taken >= TAKEN / 10:
        said.append(f"worker without a CPU for {100 * evidence.taken:.0f} %")
    said += [f"{name} {n:,}" for name, n in sorted(evidence.full.items())]
    if due:
        said.append(f"{100 * late:.3g} % sent late or never")
    return ", ".join(said) or "no counter was read"


class Watch:
    """A context around the time of a load that takes `seconds`, which reads the counters twice meanwhile.

    Entering lasts for nearly as long. The first reading waits until what was published came after the load had begun,
    for as long as it leaves half of the time to the second one. Where nothing came by then, looks are not known, nor
    for how much of its time a server worked that polls; the rest is. read: None: there is nothing to read. evidence: by
    `idle_look_s`, see `between`. idle: what such a look took, if the load was a light one.
    """

    def __init__(self, read: Callable[[], Counts] | None, seconds: float, idle_look_s: float | None = None) -> None:
        self._read = read or Counts
        self._seconds = seconds
        self._idle_look_s = idle_look_s
        self.evidence: Evidence | None = None
        self.idle: float | None = None

    def __enter__(self) -> Self:
        began = time.monotonic()
        end = began + LAST_LOOK * self._seconds
        settled, latest = (began + part * self._seconds for part in (FIRST_LOOK, LATEST_LOOK))
        time.sleep(max(settled - time.monotonic(), 0))
        first, at = self._read(), time.monotonic()
        while _is_old(first, began) and time.monotonic() < latest:
            time.sleep(min(PUBLISHED_WAIT_S, 0.1 * self._seconds))
            first, at = self._read(), time.monotonic()
        time.sleep(max(end - at, 0))
        last, took = self._read(), max(time.monotonic() - at, 1e-9)
        if _is_old(first, began):
            first, last = _without_looks(first), _without_looks(last)
        self.evidence = between(first, last, took, self._idle_look_s)
        self.idle = idle_look_s(first, last, took)
        return self

    def __exit__(self, *why: object) -> None:
        pass


def _is_old(counts: Counts, began_s: float) -> bool:
    """Whether what was published is of a time before the load."""
    return counts.published_s is not None and counts.published_s < began_s


def _without_looks(counts: Counts) -> Counts:
    """What is known if nothing was published: without looks the time that the server ran does not tell whether it
    worked."""
    return replace(counts, looks=0, found=0, worker_s=None, published_s=None)


def watched(call: Callable[[float], T], read: Callable[[], Counts], seconds: float) -> tuple[T, Evidence]:
    """What `call` gives, which keeps its thread for `seconds`, and what counters gained meanwhile, read by another."""
    watch = Watch(read, seconds)
    beside = threading.Thread(target=watch.__enter__)
    beside.start()
    found = call(seconds)
    beside.join()
    return found, watch.evidence or Evidence()


def refusals(counters: Mapping[str, Any], prefix: str = "") -> dict[str, int]:
    """Of counters those of rings and pools that had no room, by name."""
    return {
        f"{prefix}{name}": int(value)
        for name, value in counters.items()
        if name.endswith(("_full", "_no_buffer")) and isinstance(value, int) and value
    }
