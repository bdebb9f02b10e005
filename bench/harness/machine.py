"""What a measurement ran on: the "machine" member of every document."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _cpuinfo(field: str) -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == field:
            return value.strip()
    return None


def steal_seconds() -> float:
    """Seconds that the hypervisor has run something else instead of us, all cores, since boot (/proc/stat)."""
    words = (_read("/proc/stat") or "cpu 0").splitlines()[0].split()
    return int(words[8]) / os.sysconf("SC_CLK_TCK") if len(words) > 8 else 0.0


def allowed_cpus() -> list[int]:
    """The logical CPUs that this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0))


def describe(cores: Sequence[int]) -> dict[str, Any]:
    """CPU model, kernel, cores, clock source, SMT, NUMA and virtualisation."""
    siblings = {c: _read(f"/sys/devices/system/cpu/cpu{c}/topology/thread_siblings_list") for c in cores}
    nodes = sorted(p.name for p in Path("/sys/devices/system/node").glob("node[0-9]*"))
    return {
        "cpu_model": _cpuinfo("model name") or platform.machine(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "logical_cpus": os.cpu_count(),
        "allowed_cpus": allowed_cpus(),
        "cores_used": list(cores),
        "smt": _read("/sys/devices/system/cpu/smt/active") == "1",
        "siblings": {str(c): s for c, s in siblings.items()},
        "numa_nodes": len(nodes) or 1,
        "clock_source": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "virtualised": "hypervisor" in (_cpuinfo("flags") or "").split(),
        "hypervisor": _read("/sys/hypervisor/type") or _read("/sys/class/dmi/id/sys_vendor"),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": os.getloadavg()[0],
    }


LONGEST_S = 5.0


def longer(seconds: float) -> tuple[float, ...]:
    """Times to try in turn where two threads have to run together: on a busy machine they may not in the first."""
    return tuple(min(s, LONGEST_S) for s in (seconds, 10 * seconds, 1.0, LONGEST_S))


def cacheline_roundtrip_ns(cpu_a: int, cpu_b: int, seconds: float = 0.1) -> list[float]:
    """Round trips of one cache line between two cores: the mean of each batch of 500, in ns, for `seconds`.

    Take the median: a batch that a timer tick fell into is longer. On a busy machine the two may not run together in
    that time: then it tries longer, up to some seconds. CorelaneError if they never did.
    """
    batches = 4000
    out = ffi.new("double[]", batches)
    err = ffi.new("char[256]")
    for limit_s in longer(seconds):
        n = lib.cl_cacheline_roundtrip(cpu_a, cpu_b, 500, batches, int(limit_s * 1e9), out, err)
        if n > 0:
            break
    if n < 0:
        raise CorelaneError(f"no cache-line round trip: {ffi.string(err).decode()}")
    return [out[i] for i in range(n)]


def summary(values: Sequence[float]) -> dict[str, float]:
    """min, median and max of what was measured."""
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}
