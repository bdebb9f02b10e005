"""Stream sockets and poll sets in compiled code (corelane/libos/stream.h, poll.h, lease.h). Used as a part of calls.py.

Importing this module imports numba.
"""

from __future__ import annotations

import errno
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.extending import intrinsic

from .._native import ffi, lib
from .cache import load_library
from .memory import addr_on_stack, bytes_at, external, peek, pieces_on_stack, size_of, view_at, word_on_stack

load_library()

_address, _i32, _i64 = types.uint64, types.int32, types.int64
_listen = external("cl_stream_listen", _i32, _address, types.uint16, types.uint32, _address)
_accept = external("cl_stream_accept", _i32, _address, _i64, _address)
_connect = external("cl_stream_connect", _i32, _address, _address, _address, _i64, _address)
tcp_wait_open = external("cl_stream_wait_open", _i32, _address, _i64)
tcp_error = external("cl_stream_error", _i32, _address)
_read = external("cl_stream_read", _i64, _address, _address, _i64, _i64)
_readv = external("cl_stream_readv", _i64, _address, _address, _i64, _i64)
_peek = external("cl_stream_peek", _i64, _address, _address, _i64, _i64)
_write = external("cl_stream_write", _i64, _address, _address, _i64, _i64)
_writev = external("cl_stream_writev", _i64, _address, _address, _i64, _i64)
_lease = external("cl_stream_lease", _i32, _address, _address, _i64)
_lease_return = external("cl_lease_return", _i32, _address, _address)
tcp_write_from = external("cl_stream_write_from", _i64, _address, _address, _i64, _i64, _i64)
tcp_wait_released = external("cl_stream_wait_released", _i32, _address, _i64, _i64)
tcp_released = external("cl_stream_released", _i64, _address)
_shutdown = external("cl_stream_shutdown", _i32, _address, _i32)
_close = external("cl_stream_close", _i32, _address, _i64)
tcp_abort = external("cl_stream_abort", _i32, _address)
tcp_set = external("cl_stream_set", _i32, _address, _i32, _i64)
tcp_get = external("cl_stream_get", _i64, _address, _i32)
_ends = external("cl_stream_ends", _i32, _address, _address, _address)
_info = external("cl_stream_info", _i32, _address, _address)
poll_add = external("cl_poll_add", _i32, _address, _address, types.uint32, types.uint64)
poll_remove = external("cl_poll_remove", _i32, _address, _address)
poll_add_tcp = external("cl_poll_add_stream", _i32, _address, _address, types.uint32, types.uint32, types.uint64)
poll_remove_tcp = external("cl_poll_remove_stream", _i32, _address, _address)
_poll_wait = external("cl_poll_wait", _i32, _address, _address, _i64, _i64)

_INVALID, _AGAIN, _IN_PROGRESS = -errno.EINVAL, -errno.EAGAIN, -errno.EINPROGRESS
_BOTH_WRITE = int(lib.CL_STREAM_WRITE)
_LEASE_BYTES, _LEASE_LEN = ffi.sizeof("struct cl_lease"), ffi.offsetof("struct cl_lease", "len")
_INFO_BYTES = ffi.sizeof("struct cl_tcp_info")
assert ffi.sizeof("struct cl_tcp_addr") == ffi.sizeof("struct cl_udp_addr") == 8
assert ffi.sizeof("struct cl_iovec") == ffi.sizeof("struct cl_poll_event") == 16
_u64 = types.uint64


@njit
def tcp_listen(runtime: Any, port: Any, backlog: Any) -> Any:
    """Take connections to a port: the listener's address, or -errno (cl_stream_listen)."""
    stream = word_on_stack()
    rc = _listen(runtime, port, backlog, stream)
    return types.int64(rc) if rc else peek(stream, types.int64)


@njit
def tcp_accept(listener: Any, timeout_ns: Any) -> Any:
    """Take a connection: its address, or -errno (cl_stream_accept)."""
    stream = word_on_stack()
    rc = _accept(listener, timeout_ns, stream)
    return types.int64(rc) if rc else peek(stream, types.int64)


@njit
def tcp_connect(runtime: Any, ipv4: Any, port: Any, timeout_ns: Any, own_ipv4: Any = 0, own_port: Any = 0) -> Any:
    """Open a connection: its address, or -errno (cl_stream_connect).

    runtime: its `pointer`. timeout_ns of 0 is too short: nothing is opened then, and the result is -EAGAIN.
    """
    if timeout_ns == 0:
        return types.int64(_AGAIN)
    stream = word_on_stack()
    rc = _connect(runtime, addr_on_stack(own_ipv4, own_port), addr_on_stack(ipv4, port), timeout_ns, stream)
    return types.int64(rc) if rc else peek(stream, types.int64)


@njit
def tcp_open(runtime: Any, ipv4: Any, port: Any, own_ipv4: Any = 0, own_port: Any = 0) -> Any:
    """Begin to open one, and do not wait: its address, or -errno."""
    stream = word_on_stack()
    rc = _connect(runtime, addr_on_stack(own_ipv4, own_port), addr_on_stack(ipv4, port), 0, stream)
    return types.int64(rc) if rc and rc != _IN_PROGRESS else peek(stream, types.int64)


@njit
def tcp_read(stream: Any, view: Any, timeout_ns: Any) -> Any:
    """Take what has come into a view: bytes, 0 at the end, or -errno (cl_stream_read)."""
    return _read(stream, bytes_at(view), size_of(view), timeout_ns)


@njit
def tcp_readv(stream: Any, views: Any, timeout_ns: Any) -> Any:
    """The same into the views of a tuple, one after the other (cl_stream_readv)."""
    return _readv(stream, pieces_on_stack(views), len(views), timeout_ns)


@njit
def tcp_peek(stream: Any, view: Any, timeout_ns: Any) -> Any:
    """As tcp_read, and leave it there (cl_stream_peek)."""
    return _peek(stream, bytes_at(view), size_of(view), timeout_ns)


@njit
def tcp_write(stream: Any, view: Any, timeout_ns: Any) -> Any:
    """Write the bytes of a view: their number, fewer when the time is over, or -errno (cl_stream_write)."""
    return _write(stream, bytes_at(view), size_of(view), timeout_ns)


@njit
def tcp_writev(stream: Any, views: Any, timeout_ns: Any) -> Any:
    """The same of all views of a tuple (cl_stream_writev)."""
    return _writev(stream, pieces_on_stack(views), len(views), timeout_ns)


@njit
def tcp_lease(stream: Any, lease: Any, timeout_ns: Any) -> Any:
    """Take what has come without a copy: bytes, 0 at the end, or -errno (cl_stream_lease).

    lease: a uint64 array of four words, which stands for it until lease_return.
    """
    if size_of(lease) < _LEASE_BYTES:
        return types.int64(_INVALID)
    at = bytes_at(lease)
    rc = _lease(stream, at, timeout_ns)
    return types.int64(rc) if rc else peek(at + _u64(_LEASE_LEN), types.int64)


@njit
def lease_view(lease: Any) -> Any:
    """The bytes of a lease, as a read-only view: of none if it is returned. Of no use after lease_return."""
    at = bytes_at(lease)
    if size_of(lease) < _LEASE_BYTES:
        return view_at(_u64(0), types.int64(0))
    return view_at(peek(at, _u64), peek(at + _u64(_LEASE_LEN), types.int64))


@njit
def lease_return(runtime: Any, lease: Any) -> Any:
    """Give a lease back: 0, or -errno (cl_lease_return)."""
    return _lease_return(runtime, bytes_at(lease)) if size_of(lease) >= _LEASE_BYTES else types.int32(_INVALID)


@njit
def tcp_shutdown(stream: Any, sides: Any = _BOTH_WRITE) -> Any:
    """Write no more, or read no more (1), or both (3): 0, or -errno (cl_stream_shutdown)."""
    return _shutdown(stream, sides)


@njit
def tcp_close(stream: Any, linger_ns: Any = 0) -> Any:
    """Close it: 0, or -errno (cl_stream_close). What was written is still sent."""
    return _close(stream, linger_ns)


@njit
def tcp_ends(stream: Any, ends: Any) -> Any:
    """Its own end and its peer's: 0, or -errno (cl_stream_ends)."""
    if size_of(ends) < 16:
        return types.int32(_INVALID)
    return _ends(stream, bytes_at(ends), bytes_at(ends) + _u64(8))


@njit
def tcp_info(stream: Any, numbers: Any) -> Any:
    """Its numbers, struct cl_tcp_info: 0, or -errno (cl_stream_info)."""
    return _info(stream, bytes_at(numbers)) if size_of(numbers) >= _INFO_BYTES else types.int32(_INVALID)


@intrinsic(prefer_literal=True)
def tcp_set_congestion(typingctx: Any, stream: Any, name: Any) -> Any:
    """Congestion control by name, a constant (cl_stream_set_congestion)."""
    if not isinstance(name, types.StringLiteral) or not isinstance(stream, types.Integer):
        raise TypingError("give a stream's address, and a name as a constant")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i8, i32, i64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
        text = context.insert_const_string(builder.module, name.literal_value)
        fnty = ir.FunctionType(i32, [i64, i8.as_pointer()])
        fn = cgutils.get_or_insert_function(builder.module, fnty, "cl_stream_set_congestion")
        return builder.call(fn, [context.cast(builder, args[0], sig.args[0], types.uint64), text])

    return types.int32(stream, name), codegen


@njit
def poll_wait(poll: Any, events: Any, timeout_ns: Any) -> Any:
    """Wait for sockets: how many events, 0 when the time is over, or -errno (cl_poll_wait).

    events: a uint64 array of two words an event: its data, and what is ready.
    """
    return _poll_wait(poll, bytes_at(events), size_of(events) // 16, timeout_ns)
