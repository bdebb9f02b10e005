"""Scopes for Python threads: uthreads that are started together, and end before a `with` block does (docs/uthreads.md).

    with runtime.scope(timeout_s=1) as scope:
        first = scope.start(ask, 1)      # compiled functions, as for Runtime.batch
        second = scope.start(ask, 2)
    print(first.result(), second.result())

C: corelane/libos/scope.h. In compiled code: scope_open and its like (libos/numba/scopes.py).
"""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib

if TYPE_CHECKING:
    from .batch_work.work import Job
    from .channels import Channel

LOOK_S = 0.1  # between two looks whether the runtime has stopped


class Scope:
    """Uthreads that one Python thread waits for, from `Runtime.scope`.

    Leaving it waits until all have ended. An exception in one of them cancels the others, and is raised there; so does
    an exception in the block, Ctrl-C among them, and then that is raised. Of several, the one that was started first.
    When the time is over they are cancelled, and TimeoutError is raised; the time is looked at when the block is left.
    """

    def __init__(self, runtime: Any, timeout_s: float | None) -> None:
        self._runtime = runtime
        self._timeout_s = timeout_s
        self._deadline: float | None = None
        self._jobs: list[Job] = []
        self._late = False
        self._lock = threading.Lock()  # its memory goes with the runtime
        self._event = -1
        self._ptr: Any = None

    def __enter__(self) -> Self:
        if self._event >= 0:
            raise CorelaneError("enter a scope", "it was entered before", "make a new one: Runtime.scope()")
        out = ffi.new("struct cl_scope **")
        check(lib.cl_scope_new(lib.cl_runtime_sched(self._runtime.ptr), out), "open a scope")
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._ptr = out[0]
        lib.cl_scope_watch(self._ptr, ffi.addressof(lib, "cl_batch_post"), ffi.cast("void *", self._event))
        if self._timeout_s is not None:
            self._deadline = time.monotonic() + self._timeout_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.cancel()
        try:
            self._wait()
        finally:
            self._leave()
        if error is None:
            for job in self._jobs:
                job.result(0)
            if self._late:
                raise TimeoutError(f"the scope was cancelled after {self._timeout_s} s")

    def start(self, function: Any, *args: Any, **kwargs: Any) -> Job:
        """Start a function on a uthread in it, as `Runtime.batch` does; compiled ones only.

        Raises CorelaneError: it is cancelled, or was left, or what `Runtime.batch` raises.
        """
        from .batch_work.work import start

        job = start(self._runtime, function, args, kwargs, self.start_c)
        self._jobs.append(job)
        return job

    def cancel(self) -> None:
        """Calls of its uthreads that would have to wait return -ECANCELED from now on. From any thread."""
        with self._lock:
            if self._ptr is not None:
                lib.cl_scope_cancel(self._ptr)

    @property
    def cancelled(self) -> bool:
        """Whether it is, by `cancel`, an exception or its time."""
        with self._lock:
            return self._ptr is not None and lib.cl_scope_why(self._ptr) != 0

    @property
    def running(self) -> int:
        """How many of its uthreads have not ended."""
        with self._lock:
            return 0 if self._ptr is None else int(lib.cl_scope_running(self._ptr))

    def ended(self, runtime: Any) -> None:
        """Called by Runtime.close, before the memory is gone."""
        with self._lock:
            self._ptr = None

    def start_c(self, function: Any, arg: Any) -> None:
        """Start a C function, a cl_scope_fn: a cffi pointer or an address. Raises CorelaneError."""
        what, pointer = "start a uthread in a scope", ffi.cast("cl_scope_fn", function)
        with self._lock:
            if self._ptr is None:
                raise CorelaneError(what, "it is not open", "start it inside of the `with` block")
            rc = lib.cl_scope_spawn(self._ptr, pointer, ffi.cast("void *", arg))
        check(rc, what, hint="it is cancelled, and nothing more is started in it" if rc == -errno.ECANCELED else "")

    def _wait(self) -> None:
        """Until none runs, or the runtime has ended. An interrupt cancels them, and they are waited for."""
        interrupt: BaseException | None = None
        while self.running and not self._runtime.ended:
            try:
                self._look()
            except BaseException as error:  # a signal's: uthreads must not outlive the block
                interrupt = interrupt or error
                self.cancel()
        if interrupt is not None:
            raise interrupt

    def _leave(self) -> None:
        with self._lock:
            if self._ptr is not None:
                lib.cl_scope_watch(self._ptr, ffi.NULL, ffi.NULL)
                lib.cl_scope_delete(self._ptr)  # what a stop has left running in it goes with the runtime
            self._ptr = None
            os.close(self._event)
        self._runtime.scopes.discard(self)

    def _look(self) -> None:
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        left = LOOK_S if self._deadline is None or self._late else self._deadline - time.monotonic()
        if left <= 0:
            self._late = not self.cancelled
            self._deadline = None
            self.cancel()
        elif poll.poll(1000 * min(left, LOOK_S)):
            os.eventfd_read(self._event)


class Scoped:
    """What a Runtime has of scopes and channels. scopes: those that are not left yet."""

    scopes: set[Scope]
    channels: list[Channel]

    @typed("make a scope")
    def scope(self, timeout_s: float | None = None) -> Scope:
        """A scope for compiled functions on uthreads, to be used as `with runtime.scope() as scope`.

        timeout_s: they are cancelled after so long.
        """
        made = Scope(self, timeout_s)
        self.scopes.add(made)
        return made

    @typed("make a channel")
    @typed("make a channel")
    def channel(self, dtype: Any, capacity: int) -> Channel:
        """A channel for `capacity` elements of a numpy dtype, between uthreads and Python threads.

        Raises CorelaneError: elements of more than 4096 bytes, too many, or a dtype that holds Python objects.
        """
        from .channels import Channel

        made = Channel(self, dtype, capacity)
        self.channels.append(made)
        return made
