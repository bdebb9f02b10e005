"""Counters, rate limiters and LRU tables in compiled code (corelane/libos/state.h). Used as a part of calls.py.

Importing this module imports numba.
"""

from __future__ import annotations

import errno
from typing import Any

from numba import njit, types

from .cache import load_library
from .memory import bytes_at, external, size_of

__all__ = ["bucket_take", "counter_add", "counter_read", "lru_get", "lru_put", "lru_remove"]

load_library()

_address, _i32, _i64, _u32, _u64 = types.uint64, types.int32, types.int64, types.uint32, types.uint64
counter_add = external("cl_sharded_counter_add", types.void, _address, _i64)
counter_read = external("cl_sharded_counter_read", _i64, _address)
bucket_take = external("cl_token_bucket_take", _i64, _address, _u64)
_get = external("cl_lru_get", _i32, _address, _address, _address)
_put = external("cl_lru_put", _i32, _address, _address, _address)
_remove = external("cl_lru_remove", _i32, _address, _address)
_key_bytes = external("cl_lru_key_bytes", _u32, _address)
_value_bytes = external("cl_lru_value_bytes", _u32, _address)

_INVALID = -errno.EINVAL


@njit
def lru_get(table: Any, key: Any, value: Any) -> Any:
    """Copy a key's value into an array: 0, or -errno (cl_lru_get). Arrays of exactly the table's bytes."""
    if size_of(key) != _key_bytes(table) or size_of(value) != _value_bytes(table):
        return _i32(_INVALID)
    return _get(table, bytes_at(key), bytes_at(value))


@njit
def lru_put(table: Any, key: Any, value: Any) -> Any:
    """Enter or replace it: 0, 1 if another one went for it, or -errno (cl_lru_put)."""
    if size_of(key) != _key_bytes(table) or size_of(value) != _value_bytes(table):
        return _i32(_INVALID)
    return _put(table, bytes_at(key), bytes_at(value))


@njit
def lru_remove(table: Any, key: Any) -> Any:
    """0, or -errno (cl_lru_remove)."""
    return _remove(table, bytes_at(key)) if size_of(key) == _key_bytes(table) else _i32(_INVALID)
