"""The end of a runtime, for whoever waits for it: by `stop`, `fail` or a signal, or not at all.

with runtime.ended_by_signals(), runtime.ends_in_time():
    runtime.start()
    runtime.wait()
    runtime.stop()
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from ..runtime.ending import Ending, exit_address
from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib
from .member import CLOSE_TIMEOUT_S, DRAIN_TIMEOUT_S, Member

STOP_TIMEOUT_S = 1.0  # for uthreads, unless `stop` is told otherwise
_LATE_S = 1.0  # after a stop should have said that a kthread does not come back


class Awaited(Member):
    """What a Runtime says of its end. `_done` is set by `stop`; `_stop_s`: how long a stop waits for a kthread."""

    _done: Ending
    _stop_s: float
    _failure: CorelaneError | None = None

    @contextlib.contextmanager
    def ends_in_time(self) -> Iterator[None]:
        """While this is open, the process ends with status 1 if it is asked to end and a kthread does not come back.

        Asked: by `stop`, `fail` or a signal. Inside of `ended_by_signals` on the main thread; elsewhere it does
        nothing. For a program that serves and does nothing else. `stop` raises where it can. It cannot where a handler
        keeps the interpreter's lock for ever.
        """
        if self._done.descriptors[1] < 0:
            yield
            return
        config, out = ffi.new("struct cl_deadline_config *"), ffi.new("struct cl_deadline **")
        config.end_fd, config.signal_fd = self._done.descriptors
        drain_s = 0.0 if self.member is None else DRAIN_TIMEOUT_S + CLOSE_TIMEOUT_S
        config.after_ns = int((drain_s + self._stop_s + STOP_TIMEOUT_S + _LATE_S) * 1e9)
        config.report_fd = 2
        config.end = ffi.cast("void (*)(int)", exit_address())  # a thread without the interpreter's lock calls it
        check(lib.cl_deadline_new(self.ptr, config, out), "watch the end of the runtime")
        try:
            yield
        finally:
            lib.cl_deadline_delete(out[0])

    @typed("wait for the end of the runtime")
    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until `stop` is called, or another member of its group has taken over, or on the main thread until
        SIGINT or SIGTERM; then True.

        False: time is over. Raises what `fail` was given.
        """
        with self.ended_by_signals():
            ended = self._done.wait(timeout_s)
        if self._failure is not None:
            raise self._failure
        return ended

    @property
    def end_fileno(self) -> int:
        """A descriptor that is readable once `wait` would return: for loops that wait for more. Never to be read."""
        return self._done.descriptors[0]

    @typed("fail the runtime")
    def fail(self, error: CorelaneError) -> None:
        """Have `wait` raise this, now or when it is called: what is served cannot go on. Of several, the first.

        From any thread. It stops nothing by itself.
        """
        self._failure = self._failure or error
        self._done.set()

    def ended_by_signals(self) -> AbstractContextManager[None]:
        """On the main thread SIGINT and SIGTERM end `wait`, or keep it from waiting if they come before it."""
        return self._done.by_signals()
