"""What an iokernel counts, as it goes into JSON. Each function reads one thing while the loops run."""

from __future__ import annotations

import errno
import re
import struct
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

from ...drivers.nic.nic import Nic
from ...runtime.errors import check
from ...runtime.hist import Hist, rank_of
from .._native import ffi, lib
from .moves import STEP_NAMES

STEPS = tuple(STEP_NAMES.values())  # how a kthread got its core

_MARKS = {"p50_us": 50, "p90_us": 90, "p99_us": 99, "p999_us": 99.9}
_COUNTER = struct.Struct("=32sQ")  # struct cl_counter
_SERVICE = re.compile(rb"[A-Za-z0-9_.:-]{1,31}")
_COUNTER_NAME = re.compile(rb"[a-z][a-z0-9_]{0,30}")

# Numbers of the statistics that are no counters: what is so at the moment, what something is, what was set.
GAUGES = frozenset(
    {
        *("id", "pid", "uid", "loop", "cpu", "kthread", "kthreads", "slot", "member", "age_s", "share"),
        *("guaranteed", "maximum", "weight", "deadline_us", "quantum_us", "quantum_signal"),
        *("cores", "waiting", "packet_age_ns", "thread_age_ns", "timer_age_ns", "storage_age_ns"),
        *("buffers_free", "buffers_lent", "out_staged"),
    }
)


def fields(ptr: Any, kind: str) -> dict[str, int]:
    """The integer fields of a flat C struct."""
    return {name: int(getattr(ptr, name)) for name, _ in ffi.typeof(kind).fields}


def _read(kind: str, call: Callable[[Any], int], what: str) -> dict[str, int]:
    out = ffi.new(f"struct {kind} *")
    check(call(out), what)
    return fields(out, f"struct {kind}")


def loop_stats(io: Any, loop: int, cpu: int, hz: int) -> dict[str, Any]:
    """`struct cl_io_loop_stats` with cpu and busy_s."""
    counted = _read("cl_io_loop_stats", lambda out: lib.cl_io_loop_stats(io, loop, out), "read a loop's statistics")
    return {"cpu": cpu, "busy_s": counted["busy_ticks"] / hz, **counted}


def app_stats(io: Any, app: int, name: str) -> dict[str, int]:
    """`struct cl_io_app_stats`."""
    return _read("cl_io_app_stats", lambda out: lib.cl_io_app_stats(io, app, out), f"read the statistics of {name}")


def app_counters(io: Any, app: int, name: str) -> dict[str, Any] | None:
    """What an application says that it counts: {"published_s": CLOCK_MONOTONIC, "values": {name: number}}.

    Names that it may not use are left out. None: it has said nothing yet.
    """
    out = ffi.new("struct cl_arena_counters *")
    check(lib.cl_io_app_counters(io, app, out), f"read what {name} counts")
    if not out.published_ns:
        return None
    values = {}
    for raw, value in _COUNTER.iter_unpack(ffi.buffer(out.counter, int(out.n) * _COUNTER.size)):
        key, zero, _ = raw.partition(b"\0")
        if zero and _COUNTER_NAME.fullmatch(key):
            values[key.decode()] = value
    return {"published_s": int(out.published_ns) / 1e9, "values": values}


def app_services(io: Any, app: int, name: str) -> list[dict[str, Any]]:
    """What an application says of its services: {"name", "requests", "latency": summary} of each that it has named as
    it may, the first of a name alone: two of one name are one metric twice, for which whoever collects them may refuse
    all. Of the requests a sample is in the histogram."""
    out, found = ffi.new("struct cl_io_service *"), dict[str, dict[str, Any]]()
    for number in range(int(lib.CL_LATENCY_SERVICES)):
        rc = lib.cl_io_app_service(io, app, number, out)
        if rc == -errno.ENOENT:
            break
        check(rc, f"read the services of {name}")
        service = ffi.string(out.name)
        if _SERVICE.fullmatch(service) and (told_as := service.decode()) not in found:
            told = _latency(ffi.unpack(out.counts, lib.CL_LATENCY_BUCKETS)) | {"sum_ns": int(out.sum_ns)}
            found[told_as] = {"name": told_as, "requests": int(out.requests), "latency": told}
    return list(found.values())


def _latency(counts: list[int]) -> dict[str, Any]:
    """The summary of counts by bucket; a value is taken for its bucket's upper end."""
    hist = Hist(lib.CL_LATENCY_DIGITS, lib.CL_LATENCY_LIMIT_NS)
    for bucket, n in enumerate(counts):
        if n:
            lib.cl_hist_add(hist.ptr, lib.cl_hist_bucket_high(hist.ptr, bucket), n)
    return summary(hist.ptr)


def uplink_stats(nic: Nic) -> dict[str, Any]:
    """Name, state and counters of an uplink, summed over its queues."""
    stats = nic.stats()
    counted = {name: getattr(stats, name) for name in type(stats).__dataclass_fields__}
    return {"name": nic.name, "mac": nic.mac, "gone": nic.gone, "buffers_free": nic.buffers_free, **counted}


def summary(hist: Any) -> dict[str, Any]:
    """{"n", "p50_us", "p90_us", "p99_us", "p999_us", "max_us", "sum_ns", "buckets_ns"} of a `const struct cl_hist *` of
    ns.

    buckets_ns: [low, high, count] of each bucket with something in it, both bounds included, upwards; the counts add up
    to n. Percentiles are None in an empty one.
    """
    buckets = Hist.view(hist).buckets() if hist else []  # read once, for C goes on writing it
    infinite = int(hist.infinite) if hist else 0
    upto = list(accumulate([count for _, _, count in buckets]))
    n = (upto[-1] if upto else 0) + infinite

    def us(percent: float) -> float | None:
        at = bisect_left(upto, rank_of(percent, n))
        return round(buckets[at][1] / 1e3, 3) if at < len(upto) else None  # beyond: infinite, or there is none

    marks = {name: us(percent) for name, percent in (*_MARKS.items(), ("max_us", 100.0))}
    return {"n": n, **marks, "sum_ns": int(hist.sum) if n else 0, "buckets_ns": buckets}


def app_cores(io: Any, app: int, name: str, age_s: float, managed: int) -> dict[str, Any]:
    """`struct cl_io_app_cores` with core_s, share (of the `managed` cores, since it came) and two histograms: how long
    work had waited when a core was given for it, and from there to the kthread's beginning."""
    counted = _read("cl_io_app_cores", lambda out: lib.cl_io_app_cores(io, app, out), f"read the cores of {name}")
    core_s = counted["core_ns"] / 1e9
    share = core_s / (age_s * managed) if age_s > 0 and managed else 0.0
    times = {"detection": lib.cl_io_detection(io, app), "actuation": lib.cl_io_app_actuation(io, app)}
    return {**counted, "core_s": core_s, "share": share, **{name: summary(hist) for name, hist in times.items()}}


def app_core_time(io: Any, app: int, name: str) -> tuple[float, float]:
    """Core time in seconds that an application had, and that it was promised while it had work."""
    counted = _read("cl_io_app_cores", lambda out: lib.cl_io_app_cores(io, app, out), f"read the cores of {name}")
    return counted["core_ns"] / 1e9, counted["promised_ns"] / 1e9


def late_s(io: Any, loop: int) -> float:
    """Seconds in which a loop was kept from deciding, all together."""
    hist = lib.cl_io_late_decision(io, loop)
    return int(hist.sum) / 1e9 if hist else 0.0


def _moves(io: Any, loop: int) -> dict[str, int]:
    return _read("cl_io_cores_stats", lambda out: lib.cl_io_cores_stats(io, loop, out), "read a loop's moves")


def allocator(io: Any, loop: int) -> dict[str, Any]:
    """`struct cl_io_cores_stats` of a loop, its policy host's, and the times of decisions and of moves by step."""
    counted = _moves(io, loop)
    steps = {name: summary(lib.cl_io_actuation(io, loop, step)) for step, name in enumerate(STEPS)}
    out: dict[str, Any] = {"loop": loop, **counted, "decision": summary(lib.cl_io_decision_time(io, loop))}
    out["reading"] = summary(lib.cl_io_reading_time(io, loop))
    out |= {"actuation": steps, "policy": None}
    host = lib.cl_io_policy_host(io, loop)
    if host:
        stats = ffi.new("struct cl_policy_stats *")
        lib.cl_policy_host_stats(host, stats)
        out["policy"] = fields(stats, "struct cl_policy_stats")
    return out


def bound_elsewhere(io: Any, loops: int) -> int:
    """How often kthreads were found bound to a CPU by somebody else."""
    return sum(_moves(io, loop)["affinities_changed"] for loop in range(loops))


def evicted(io: Any, app: int) -> int:
    """How often kthreads of an application had to be demoted to free a core."""
    counted = _read("cl_io_app_cores", lambda out: lib.cl_io_app_cores(io, app, out), f"read the cores of {app}")
    return counted["evicted"]


def core(io: Any, index: int, names: Mapping[int, str]) -> dict[str, Any]:
    """One worker CPU: {"cpu", "loop", "owner": an application's name or None, "kthread", "busy", "moves", "busy_s"}."""
    counted = _read("cl_io_core_stats", lambda out: lib.cl_io_core_stats(io, index, out), f"read core {index}")
    owned = counted["owner"] != 0
    return {
        "cpu": counted["cpu"],
        "loop": counted["loop"],
        "owner": names.get(counted["app"]) if owned else None,
        "kthread": counted["kthread"] if owned else None,
        "busy": bool(counted["busy"]),
        "moves": counted["moves"],
        "busy_s": counted["busy_ns"] / 1e9,
    }
