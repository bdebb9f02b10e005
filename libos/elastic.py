"""Memory of batch work that can be given back while it is used (corelane/libos/elastic.h, docs/batch-memory.md).

cache = runtime.elastic(1 << 30, least=1 << 24)
have = cache.use(1 << 30)
while work_on(cache.data[:have]):
    if cache.limit != have:
        have = cache.use(1 << 30)

Or a function chooses what goes, when less may be held:

cache.on_shrink(lambda limit: keep_the_best_of(cache.data, limit))  # returns how many bytes it keeps
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable
from typing import Any

from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib

_log = logging.getLogger(__name__)


class Elastic:
    """Made by Runtime.elastic. It lives as long as any view of its bytes, also after the runtime.

    data: all its bytes, a memoryview that can be written to; np.frombuffer makes an array of it. What lies beyond what
    is used reads as zeros. address: for compiled code (calls.elastic_limit, calls.elastic_use). Public attributes.
    """

    def __init__(self, runtime: Any, most: int, least: int) -> None:
        out, err = ffi.new("struct cl_elastic **"), ffi.new("char[256]")
        check(lib.cl_elastic_new(runtime, most, least, out, err), "reserve elastic memory", err)
        self._ptr = out[0]
        self._memory = ffi.buffer(lib.cl_elastic_base(self._ptr), most)  # which each view of it keeps
        self._calls: list[Any] = []  # what the thread that shrinks calls: as long as that may do so
        weakref.finalize(self._memory, _delete, self._ptr, self._calls).atexit = False
        self.data = memoryview(self._memory)
        self.address = int(ffi.cast("uintptr_t", self._ptr))

    def __len__(self) -> int:
        return len(self.data)

    @property
    def limit(self) -> int:
        """Bytes that it may hold at this moment."""
        return int(lib.cl_elastic_limit(self._ptr))

    @property
    def held(self) -> int:
        """Bytes that are used, as was said last."""
        return int(lib.cl_elastic_held(self._ptr))

    @typed("use elastic memory")
    def use(self, n_bytes: int) -> int:
        """Use the first n_bytes from now on, or as many as are allowed; returns how many. What lies beyond is given
        back to Linux, and its contents are gone. By one thread at a time, where the work can do with it."""
        if not 0 <= n_bytes < 2**63:
            raise CorelaneError("use elastic memory", f"{n_bytes} bytes cannot be", "give a number from 0 on")
        return int(lib.cl_elastic_use(self._ptr, n_bytes))

    @typed("have a function shrink elastic memory")
    def on_shrink(self, shrink: Callable[[int], int] | None) -> None:
        """Have shrink(limit) called from now on when less may be held than is: it moves what it wants to keep into the
        first bytes and returns how many these are, `limit` at most; what lies beyond is given back. If it returns more,
        or raises, which is logged, it is asked again. None: no longer, and once the runtime is closed. It is called on
        a thread of its own: it keeps the work from the bytes by a lock, under which the work calls `use`, too, which
        gives nothing back then but what it is told to. Raises CorelaneError, also where `shrink` calls this."""
        callback = ffi.callback("cl_elastic_shrink", _called(shrink), error=_KEPT) if shrink else ffi.NULL
        err = ffi.new("char[256]")
        check(lib.cl_elastic_on_shrink(self._ptr, callback, ffi.NULL, err), "have a function shrink memory", err)
        self._calls[:] = [callback]

    def end_calls(self) -> None:
        """The runtime is closed: there is no limit any more, and what `on_shrink` was given is let go."""
        with contextlib.suppress(CorelaneError):  # it is that function that closes the runtime
            self.on_shrink(None)


_KEPT = 2**64 - 1  # more than any limit: it has not shrunk


def _delete(pointer: Any, calls: list[Any]) -> None:
    lib.cl_elastic_delete(pointer)
    calls.clear()


def _called(shrink: Callable[[int], int]) -> Callable[[Any, int], int]:
    def call(_: Any, limit: int) -> int:
        try:
            kept = shrink(limit)
            if not isinstance(kept, int) or kept < 0:
                raise CorelaneError("shrink elastic memory", f"the function returned {kept!r}", "return bytes kept")
        except Exception as error:
            _log.error("the function that shrinks memory failed, and is called again", exc_info=error)
            return _KEPT
        return min(kept, _KEPT)

    return call
