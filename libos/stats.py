"""Counters of a runtime: those that C has, and those of the application's own that an iokernel shows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..runtime.errors import check
from ._native import ffi, lib

_log = logging.getLogger("corelane.libos")


@dataclass(frozen=True, slots=True)
class RuntimeStats:
    """Counters, summed over the kthreads or of one. Names are those of the C structs, where each is explained.

    net: struct cl_net_stats (corelane/libos/reasons.h), without `dropped`. dropped: frames by reason, all reasons.
    sched: struct cl_sched_stats (corelane/libos/sched.h).
    """

    net: dict[str, int]
    dropped: dict[str, int]
    sched: dict[str, int]

    @property
    def balanced(self) -> bool:
        """Whether every received frame is accounted for: received = delivered + answered + handed_on + dropped.

        Sure of a runtime that is idle or stopped; while frames move the counters are of different instants.
        """
        net = self.net
        return net["rx_frames"] == net["delivered"] + net["answered"] + net["handed_on"] + sum(self.dropped.values())


def read(runtime: Any, kthread: int | None) -> RuntimeStats:
    """Counters of one kthread of a `struct cl_runtime *`, or of all. Raises CorelaneError: it has no such kthread."""
    k = -1 if kthread is None else kthread
    net, sched = ffi.new("struct cl_net_stats *"), ffi.new("struct cl_sched_stats *")
    check(lib.cl_runtime_net_stats(runtime, k, net), f"statistics of kthread {k}")
    check(lib.cl_runtime_sched_stats(runtime, k, sched), f"statistics of kthread {k}")
    names = [ffi.string(lib.cl_drop_name(r)).decode() for r in range(lib.CL_DROP_REASONS)]
    return RuntimeStats(
        net={n: int(getattr(net, n)) for n, _ in ffi.typeof("struct cl_net_stats").fields if n != "dropped"},
        dropped={n: int(net.dropped[r]) for r, n in enumerate(names) if r},
        sched={n: int(getattr(sched, n)) for n, _ in ffi.typeof("struct cl_sched_stats").fields},
    )


def published(numbers: Callable[[], Mapping[str, int]]) -> Any:
    """A `cl_counters_fn *` that fills in these numbers. If they cannot be had, it logs that once and fills in none."""
    told = False

    def fill(_arg: Any, out: Any, room: int) -> int:
        nonlocal told
        try:
            found = [(name.encode("ascii"), int(value)) for name, value in numbers().items() if value >= 0]
            for i, (name, value) in enumerate(found[:room]):
                out[i].name = name[:31]
                out[i].value = value
        except Exception:
            if not told:
                _log.exception("the numbers that are to be published cannot be had")
            told = True
            return 0
        return min(len(found), room)

    return ffi.callback("cl_counters_fn", fill)
