"""Requests in queues by type: what a handler is told about them (libos/net/typed.h, docs/handlers.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from .c_functions import address_of_function, is_c_function

MOST = int(lib.CL_UDP_TYPES)


@dataclass(frozen=True, slots=True)
class Types:
    """A classifier and a target for each type.

    classify: a Python function `classify(request) -> type`, compiled by numba, or a C function cl_udp_classifier as
    `c_handler` takes functions. targets_us: how long requests of each type should wait at most; as many types as
    targets, numbered from 0.
    """

    classify: Any
    targets_us: tuple[int, ...]


def types_of(classify: Any, targets_us: Sequence[int] | None) -> Types | None:
    """Checked; None if neither is given. Raises CorelaneError for anything that is not so."""
    if classify is None and targets_us is None:
        return None
    if classify is None or targets_us is None:
        lacks = "classify" if classify is None else "targets_us"
        raise CorelaneError(
            "sort requests by type", f"{lacks} is missing", "give both: classify(request) -> type, targets_us=(10, 500)"
        )
    targets = tuple(targets_us) if isinstance(targets_us, Sequence) else ()
    if not 1 <= len(targets) <= MOST:
        raise CorelaneError("sort requests by type", f"targets_us is {targets_us!r}", f"give 1 to {MOST} numbers")
    for target in targets:
        if isinstance(target, bool) or not isinstance(target, int) or not 1 <= target < 2**32:
            raise CorelaneError(
                "sort requests by type", f"the target {target!r}", "microseconds, a whole number of 1 or more"
            )
    return Types(classify, targets)


def as_c(types: Types) -> tuple[Any, tuple[object, ...]]:
    """`struct cl_udp_types *`, and what must live as long as it is used. Compiles a Python classifier."""
    if is_c_function(types.classify):
        address, keep = address_of_function(types.classify), (types.classify,)
    elif callable(types.classify):
        from .kept import compiled

        made = compiled("classifier", types.classify)
        address, keep = made.address, (made,)
    else:
        raise CorelaneError("sort requests by type", f"{types.classify!r} cannot be called", "give a function")
    fields = {
        "n": len(types.targets_us),
        "target_us": list(types.targets_us),
        "classify": ffi.cast("cl_udp_classifier", address),
    }
    return ffi.new("struct cl_udp_types *", fields), keep
