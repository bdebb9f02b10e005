"""A load from what was seen of applications. Neither names nor addresses nor what was computed are in it.

From an application's trace (libos/trace): each request is a job. It comes when it was taken from the wire, and its work
is the time for which its handler ran. What the handler waited for, and what its kthread stood still for, is no work. A
class is a service, by the work of all its requests.

From an iokernel's moves of cores: each stretch for which an application had a core is a job. It comes when the iokernel
decided so, and its work is the time that it had. A class is an application.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...libos.trace.stages import RUNS, STALLED, Table, shared
from ...runtime.errors import CorelaneError
from . import loads
from .table import MAX_CLASSES

_CALLS = ("Raft", "RESP", "blocking")  # services whose messages are parts of others, and have no handler


@dataclass(frozen=True)
class Stretch:
    """at_ns: when it was decided; length_ns: for how long the core was had; owner: whose, by any word."""

    at_ns: float
    length_ns: float
    owner: str


def load_of(stretches: Sequence[Stretch], seconds: float) -> loads.Load:
    """The load that they are. CorelaneError if there are none."""
    kept = [one for one in stretches if one.length_ns >= 1]
    if not kept:
        hint = "record while applications come and go, or share cores"
        raise CorelaneError("record a load", f"no core changed hands in {seconds:g} s", hint)
    at, work, owner = zip(*((one.at_ns, one.length_ns, one.owner) for one in kept), strict=True)
    said = {"recorded": "moves of cores", "seconds": seconds, "applications": len(set(owner))}
    return _load(np.array(at), np.array(work), owner, said)


def load_of_requests(seen: Table, seconds: float) -> loads.Load:
    """The requests of an application that writes down all of them. CorelaneError if there are none.

    Its `said` has what became of them there: p50_us and p99_us of their latency, besides_ns (what a request takes
    besides its handler where nothing is in its way: the first percentile), waited (part of the time in handlers in
    which they waited), kthreads."""
    calls = [i for i, name in enumerate(seen.names) if name.startswith(_CALLS)]
    left_out = shared(seen.messages) | ((seen.messages["flags"] & STALLED) != 0)
    rows = np.flatnonzero(~left_out & ~np.isin(seen.messages["service"], calls))
    if not len(rows):
        raise CorelaneError("record a load", f"no request was answered in {seconds:g} s", "record while it is asked")
    messages, us, ns = seen.messages[rows], seen.total[rows], 1e9 / seen.hz
    waited = (messages["blocked"].astype(float) + messages["ready"]) * ns
    runs = np.maximum(seen.stages[RUNS][rows] * 1e3, 1.0)
    handled = (messages["end"].astype(float) - messages["start"]) * ns
    said = {
        "recorded": "requests",
        "seconds": seconds,
        "kthreads": len(np.unique(messages["kthread"])),
        "p50_us": float(np.percentile(us, 50)),
        "p99_us": float(np.percentile(us, 99)),
        "besides_ns": round(float(np.percentile(us * 1e3 - handled, 1))),
        "waited": float(waited.sum() / max(handled.sum(), 1.0)),
    }
    at = (messages["begin"] - messages["begin"].min()).astype(float) * ns
    return _load(at, runs, messages["service"], said)


def _load(at: Any, work: Any, owner: Any, said: dict[str, Any]) -> loads.Load:
    """Jobs by their arrival, from 0 on; a class is an owner, the one with most work first."""
    order = np.argsort(at, kind="stable")
    owners, whose = np.unique(owner, return_inverse=True)
    place = np.empty(len(owners), np.int64)
    place[np.argsort(-np.bincount(whose, work), kind="stable")] = np.arange(len(owners))
    cls = np.minimum(place, MAX_CLASSES - 1)[whose]
    kinds = tuple(loads.Kind(cls=i) for i in range(int(cls.max()) + 1))
    return loads.Load(kinds, loads.jobs((at - at.min()).astype(np.int64)[order], work[order], cls[order]), said)
