"""Requests that are handled together: what a handler says of it (libos/net/batched.h, docs/handlers.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib

MOST = int(lib.CL_UDP_BURST)
QUEUE = int(lib.CL_UDP_BATCH_QUEUE)
_US = 2**32 - 1
_DOING = "handle requests in batches"


@dataclass(frozen=True, slots=True)
class Batching:
    """batch: requests at a time, at most. limit_us: from a request's arrival to its answer; None: there is no limit.
    wait_us: how long one waits for others while a kthread is free. queue: requests that may wait; None: as many as
    libos gives. early_drop: of those that cannot be answered within the limit."""

    batch: int
    limit_us: int | None = None
    wait_us: int = 0
    queue: int | None = None
    early_drop: bool = True


def batching_of(
    batch: int | None,
    limit_us: int | None = None,
    wait_us: int | None = None,
    queue: int | None = None,
    early_drop: bool | None = None,
) -> Batching | None:
    """Checked; None if nothing is given. Raises CorelaneError for what cannot be."""
    others = {"limit_us": limit_us, "wait_us": wait_us, "queue": queue, "early_drop": early_drop}
    given: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
    if batch is None:
        if given:
            why = f"{next(iter(given))} was given without batch"
            raise CorelaneError(_DOING, why, f"say how many at a time: batch={MOST}")
        return None
    _check_number("batch", batch, 1, MOST)
    for name, least, most in (("limit_us", 1, _US), ("wait_us", 0, _US), ("queue", batch, QUEUE)):
        if name in given:
            _check_number(name, given[name], least, most)
    if early_drop is not None and limit_us is None:
        raise CorelaneError(
            _DOING, "early_drop was given without a limit", "give limit_us, too: nothing is late without"
        )
    return Batching(batch, **given)


def _check_number(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise CorelaneError(_DOING, f"{name} is {value!r}", f"give a whole number from {least} to {most}")


def as_c(how: Batching) -> Any:
    """`struct cl_udp_batching *`."""
    return ffi.new(
        "struct cl_udp_batching *",
        {
            "batch": how.batch,
            "limit_us": how.limit_us or 0,
            "wait_us": how.wait_us,
            "queue": how.queue or 0,
            "flags": 0 if how.early_drop else lib.CL_UDP_BATCH_KEEP_LATE,
        },
    )


@dataclass(frozen=True, slots=True)
class BatchProfile:
    """What was measured of a handler of batches: one of n requests takes about fixed_us + n * each_us, by sizes that
    were seen takes_us[n - 1], and usually spread_us more or less. batches: so many were measured; waiting: requests,
    now."""

    batches: int
    waiting: int
    fixed_us: float
    each_us: float
    spread_us: float
    takes_us: tuple[float, ...]

    def batch_us(self, n: int) -> float:
        """What a batch of n takes."""
        return self.takes_us[n - 1]
