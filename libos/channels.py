"""Channels: queues between uthreads and Python threads (docs/uthreads.md; C: corelane/libos/channel.h).

jobs = runtime.channel(np.uint64, capacity=128)
jobs.send(7)                       # on a Python thread
channel_receive(state[0], ...)     # in compiled code: state[0] = jobs.address
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..runtime.dtypes import copied
from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib

_AGAIN, _CANCELED, _CLOSED = -errno.EAGAIN, -errno.ECANCELED, -errno.EPIPE


class Channel:
    """A channel of elements of a numpy dtype, from `Runtime.channel`. It lives as long as the runtime.

    address: for compiled code, as uint64 in a handler's state. Iterating receives until it is closed and empty.
    """

    def __init__(self, runtime: Any, dtype: Any, capacity: int) -> None:
        self._runtime = runtime
        self.dtype = copied("make a channel", dtype)
        out = ffi.new("struct cl_channel **")
        most = f"capacity * {self.dtype.itemsize} bytes are at most 1 GiB, and an element has 1 to 4096 bytes"
        check(lib.cl_channel_new(capacity, self.dtype.itemsize, out), "make a channel", hint=most)
        self._ptr: Any = out[0]

    @property
    def ptr(self) -> Any:
        """The `struct cl_channel *`. Raises CorelaneError once the runtime is closed."""
        if self._ptr is None:
            raise CorelaneError("use a channel", "its runtime is closed")
        return self._ptr

    @property
    def address(self) -> int:
        """For compiled code."""
        return int(ffi.cast("uintptr_t", self.ptr))

    def __len__(self) -> int:
        """Elements that wait in it."""
        return int(lib.cl_channel_count(self.ptr))

    @property
    def closed(self) -> bool:
        """Whether nothing more is sent."""
        return bool(lib.cl_channel_closed(self.ptr))

    @property
    def counters(self) -> dict[str, int]:
        """`sent`, `received`, `waits` (calls that had to wait), `refused` (calls that ended without an element)."""
        stats = ffi.new("struct cl_channel_stats *")
        lib.cl_channel_stats(self.ptr, stats)
        return {name: int(getattr(stats, name)) for name in ("sent", "received", "waits", "refused")}

    @typed("send to a channel")
    def send(self, value: Any, timeout_s: float | None = None) -> None:
        """Put a value in, waiting for room.

        Raises TimeoutError after timeout_s; CorelaneError (EPIPE): it is closed.
        """
        element = np.zeros(1, self.dtype)
        element[0] = value
        self._do(lib.CL_CHANNEL_SEND, element, timeout_s, "send to a channel")

    @typed("receive from a channel")
    def receive(self, timeout_s: float | None = None) -> Any:
        """Take a value out, waiting for one.

        Raises TimeoutError after timeout_s; CorelaneError (EPIPE): it is closed and empty.
        """
        element = np.zeros(1, self.dtype)
        self._do(lib.CL_CHANNEL_RECEIVE, element, timeout_s, "receive from a channel")
        return element[0]

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                value = self.receive()
            except CorelaneError as error:
                if error.errno == errno.EPIPE:
                    return
                raise
            yield value

    def close(self) -> None:
        """Nothing more is sent; what is in it can be received. May be called twice."""
        lib.cl_channel_close(self.ptr)

    def ended(self, runtime: Any) -> None:
        """Called by Runtime.close when no uthread runs any more."""
        ptr, self._ptr = self._ptr, None
        lib.cl_channel_delete(ptr)  # -EBUSY: a uthread that was left behind waits on it, and it stays

    def _do(self, how: int, element: Any, timeout_s: float | None, what: str) -> None:
        call = ffi.new("struct cl_channel_case *", {"channel": self.ptr, "how": how})
        stopped = -errno.ESHUTDOWN
        call.element = ffi.cast("void *", element.ctypes.data)
        rc = lib.cl_channel_select(call, 1, ffi.NULL, 0)
        if rc == _AGAIN and (timeout_s is None or timeout_s > 0):
            call.rc = stopped
            with contextlib.suppress(TimeoutError), self._runtime.scope(timeout_s) as scope:
                scope.start_c(ffi.addressof(lib, "cl_channel_outside"), call)  # an interrupt cancels it
            rc = _AGAIN if call.rc == _CANCELED else call.rc  # done at the last moment is done
        else:
            rc = call.rc if rc == 0 else rc
        if rc == _AGAIN:
            raise TimeoutError(f"{what}: it is {'full' if how == lib.CL_CHANNEL_SEND else 'empty'}")
        check(rc, what, hint={_CLOSED: "it is closed", stopped: "the runtime has stopped"}.get(rc, ""))
