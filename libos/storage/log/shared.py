"""A log in the hands of a runtime's uthreads (corelane/libos/log_shared.h), which append to it from compiled handlers.

Made by Runtime.share. Whose the log is: its opener's until then, the runtime's until that has stopped, and its opener's
again, who closes it. The C struct stays until the runtime is closed: a uthread that was left behind may wait on it.
"""

from __future__ import annotations

from typing import Any

from ....runtime.errors import CorelaneError, check
from ..._native import ffi, lib
from .log import Log


class SharedLog:
    """A log that compiled handlers append to by its `address` (numba_calls.log_append). Made by Runtime.share."""

    def __init__(self, log: Log, sched: Any) -> None:
        """sched: the `struct cl_sched *`. Raises CorelaneError if the log cannot be used, or not be watched."""
        self._log, self._lent = log, True
        self._pointer = ffi.new("struct cl_log_shared *")
        err = ffi.new("char[256]")
        log._lend(lambda opened: check(lib.cl_log_share(self._pointer, opened, sched, err), "share the log", err))

    @property
    def address(self) -> int:
        """The `struct cl_log_shared *` as a number. Give it to a compiled handler in its state, never as a global.

        C functions may append and trim by it, and may not close the log. Raises CorelaneError once the runtime has
        stopped.
        """
        if not self._lent:
            raise CorelaneError("use a shared log", "its runtime has stopped", "share it with another one")
        return int(ffi.cast("uintptr_t", self._pointer))

    def give_back(self) -> None:
        """The log is its opener's again. Of a runtime that has stopped, or never started. Twice is allowed."""
        if self._lent:
            self._lent = False
            lib.cl_log_unshare(self._pointer)
            self._log._take_back()

    def settle(self) -> None:
        """After `give_back`, before the stacks of uthreads that were left behind go: what they appended is done."""
        self._log._settle()
