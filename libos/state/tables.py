"""Counters, rate limiters and LRU tables that handlers share (corelane/libos/state.h).

    hits, limit = libos.ShardedCounter(), libos.TokenBucket(1000, burst=50)
    seen = libos.LruTable(10_000, key=np.uint64, value=np.uint32)
    state = np.array([hits.address, limit.address, seen.address], np.uint64)

Each lives as long as its object: keep that as long as handlers use it, in a global, say. All methods may be called from
any thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...runtime.closing import Single
from ...runtime.dtypes import copied
from ...runtime.errors import CorelaneError, check
from ...runtime.typed import typed
from .._native import ffi, lib


class _Owned(Single):
    """What C has made. address: for compiled code, as uint64 in a handler's state."""

    _ptr: Any = None
    _delete: Any = None

    @property
    def address(self) -> int:
        """For compiled code."""
        return int(ffi.cast("uintptr_t", self._ptr))

    def __del__(self) -> None:
        if self._ptr is not None:
            self._delete(self._ptr)


class ShardedCounter(_Owned):
    """A number that many threads add to and few read: an add touches no cache line of another kthread."""

    _delete = staticmethod(lib.cl_sharded_counter_delete)

    def __init__(self) -> None:
        out = ffi.new("struct cl_sharded_counter **")
        check(lib.cl_sharded_counter_new(out), "make a counter")
        self._ptr = out[0]

    @typed("add to a counter")
    def add(self, n: int = 1) -> None:
        """Negative numbers subtract."""
        lib.cl_sharded_counter_add(self._ptr, n)

    def __int__(self) -> int:
        """The sum."""
        return int(lib.cl_sharded_counter_read(self._ptr))


class TokenBucket(_Owned):
    """A rate limiter: per_second tokens come in a second, `burst` can be there at most, and are at first.

    Raises CorelaneError: per_second is not 1 to 10^9, or burst not 1 to 2^32 - 1, or of more than a year's tokens.
    """

    _delete = staticmethod(lib.cl_token_bucket_delete)

    @typed("make a token bucket")
    def __init__(self, per_second: int, burst: int) -> None:
        out = ffi.new("struct cl_token_bucket **")
        rates = 1 <= per_second <= 10**9 and 1 <= burst < 2**32
        rc = lib.cl_token_bucket_new(per_second, burst, out) if rates else -1
        if rc == -1 or rc == -22:
            why = f"{per_second} tokens a second and a burst of {burst}"
            hint = "give 1 to 10^9 a second, and a burst of 1 to 2^32 - 1 that comes within a year"
            raise CorelaneError("make a token bucket", why, hint)
        check(rc, "make a token bucket")
        self._ptr = out[0]

    @typed("take tokens")
    def take(self, n: int = 1) -> float:
        """0: they are taken. Else none is, and they will be there in so many seconds, if nobody takes others.

        Raises CorelaneError: n is more than the burst.
        """
        rc = lib.cl_token_bucket_take(self._ptr, n)
        return check(rc, "take tokens", hint="take no more at a time than the burst") / 1e9

    @property
    def counters(self) -> dict[str, int]:
        """`taken`: tokens; `refused`: requests for them that were."""
        taken, refused = lib.cl_token_bucket_taken(self._ptr), lib.cl_token_bucket_refused(self._ptr)
        return {"taken": int(taken), "refused": int(refused)}


class LruTable(_Owned):
    """A table of at most `capacity` keys and values of numpy dtypes; one more takes the place of the least recent.

    shards: spinlocks, a power of two, each with its part of the entries; None: one for 64 entries, 16 at most. With 1
    it is the least recent of all that goes. Raises CorelaneError: too large (state.h), a dtype that holds
    Python objects, or shards that cannot be.
    """

    _delete = staticmethod(lib.cl_lru_delete)

    @typed("make an LRU table")
    def __init__(self, capacity: int, key: Any, value: Any, *, shards: int | None = None) -> None:
        self.key, self.value = (copied("make an LRU table", kind) for kind in (key, value))
        out = ffi.new("struct cl_lru **")
        sizes = (self.key.itemsize, self.value.itemsize, shards or 0)
        fits = 1 <= capacity <= lib.CL_LRU_CAPACITY and 0 <= sizes[2] <= lib.CL_LRU_SHARDS
        hint = "at most 2^28 entries of 256 bytes for a key and 4096 for a value, and shards a power of two, up to 256"
        check(lib.cl_lru_new(capacity, *sizes, out) if fits else -22, "make an LRU table", hint=hint)
        self._ptr = out[0]

    def __len__(self) -> int:
        return int(lib.cl_lru_count(self._ptr))

    def get(self, key: Any, default: Any = None) -> Any:
        """Its value, which becomes the most recent; `default` if there is none."""
        value = np.zeros(1, self.value)
        rc = lib.cl_lru_get(self._ptr, self._bytes(key, self.key), ffi.cast("void *", value.ctypes.data))
        return value[0] if rc == 0 else default

    def put(self, key: Any, value: Any) -> bool:
        """Enter or replace it. Whether another one has gone for it."""
        return bool(lib.cl_lru_put(self._ptr, self._bytes(key, self.key), self._bytes(value, self.value)))

    def remove(self, key: Any) -> bool:
        """Whether it was there."""
        return bool(lib.cl_lru_remove(self._ptr, self._bytes(key, self.key)) == 0)

    @property
    def counters(self) -> dict[str, int]:
        """`hits`, `misses`, `inserted`, `replaced`, `evicted`, `removed`."""
        stats = ffi.new("struct cl_lru_stats *")
        lib.cl_lru_stats(self._ptr, stats)
        return {name: int(getattr(stats, name)) for name, _ in ffi.typeof("struct cl_lru_stats").fields}

    @staticmethod
    def _bytes(value: Any, dtype: Any) -> bytes:
        one = np.zeros(1, dtype)
        one[0] = value
        return one.tobytes()
