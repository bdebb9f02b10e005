"""A runtime as a member of a group: several processes under one name and address (docs/groups.md)."""

from __future__ import annotations

import errno
import logging
from typing import Any

from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib

_log = logging.getLogger("corelane.libos")

DRAIN_TIMEOUT_S = 1.0  # for what waits in rings and queues, unless `drain` is told otherwise
CLOSE_TIMEOUT_S = 10.0  # for connections to end, unless `wait_closed` is told otherwise


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

    @typed("wait for the end of the connections")
    def wait_closed(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait until no TCP connection is open any more: after `drain`, and before `stop`, which cuts them off.

        Nothing ends them: handlers or peers do. Raises CorelaneError (errno ETIMEDOUT) if some are still open.
        """
        err = ffi.new("char[256]")
        rc = lib.cl_runtime_wait_closed(self.ptr, int(timeout_s * 1e9), err)
        check(rc, "wait for the end of the connections", err)

    @property
    def connections(self) -> int:
        """TCP connections that exist: half open ones and those that are being closed, too, but for TIME_WAIT."""
        return int(lib.cl_runtime_connections(self.ptr))

    def _leave_group(self) -> None:
        """Drain, and wait for the connections; what takes too long is logged, and cut off by `stop`."""
        if self.member is None:
            return
        for step in (self.drain, self.wait_closed):
            try:
                step()
            except CorelaneError as error:
                if error.errno != errno.ETIMEDOUT:
                    raise
                _log.warning("%s", error)

    @property
    def member(self) -> int | None:
        """Which one of its group it is, from 0 on; None: it is of none."""
        info = ffi.new("struct cl_runtime_info *")
        lib.cl_runtime_info(self.ptr, info)
        number = int(info.member)
        return number - 1 if number else None
