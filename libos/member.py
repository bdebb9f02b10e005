"""A runtime as a member of a group: several processes under one name and address (docs/groups.md)."""

from __future__ import annotations

from typing import Any

from ..runtime.errors import check
from ..runtime.typed import typed
from ._native import ffi, lib
from .awaited import DRAIN_TIMEOUT_S


class Member:
    """What a Runtime tells the iokernel of itself."""

    @property
    def ptr(self) -> Any:
        """The `struct cl_runtime *`."""
        raise NotImplementedError

    @typed("say that the runtime is ready")
    def ready(self, *, replace: bool = False) -> int:
        """As a member of a group (docs/groups.md): its ports are bound, new flows may come. `serve` says it by itself.

        replace: and the other members of the same user get none from then on, and are told to drain. Returns how many.
        Of no group: nothing, 0. Raises CorelaneError.
        """
        err = ffi.new("char[256]")
        return check(lib.cl_runtime_ready(self.ptr, replace, err), "say that the runtime is ready", err)

    @typed("drain the runtime")
    def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """As a member of a group: have new flows go to the others, and wait until what has come is being handled.

        Then `stop` lets that come to its end. Of no group: nothing. Raises CorelaneError (errno ETIMEDOUT) if something
        still waits for a handler after timeout_s.
        """
        err = ffi.new("char[256]")
        check(lib.cl_runtime_drain(self.ptr, int(timeout_s * 1e9), err), "drain the runtime", err)

    @property
    def member(self) -> int | None:
        """Which one of its group it is, from 0 on; None: it is of none."""
        info = ffi.new("struct cl_runtime_info *")
        lib.cl_runtime_info(self.ptr, info)
        number = int(info.member)
        return number - 1 if number else None
