"""Memory of batch work that can be given back while it is used (corelane/libos/elastic.h, docs/batch-memory.md).

cache = runtime.elastic(1 << 30, least=1 << 24)
have = cache.use(1 << 30)
while work_on(cache.data[:have]):
    if cache.limit != have:
        have = cache.use(1 << 30)
"""

from __future__ import annotations

import weakref
from typing import Any

from ..runtime.errors import CorelaneError, check
from ..runtime.typed import typed
from ._native import ffi, lib


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
        weakref.finalize(self._memory, lib.cl_elastic_delete, self._ptr).atexit = False
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
