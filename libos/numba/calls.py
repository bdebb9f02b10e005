"""libos calls in compiled handlers.

sleep and yield, time, locks, sockets, shared logs, the request at hand, checked loads and stores of numbers. Signatures
and results: calls.pyi, and the table in docs/handlers.md.

They return what the C function returns: 0 or a count, or -errno. Addresses are of this process: hand them over in the
handler's `state` (as uint64), since globals are constants of code that is cached on disk.
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
from numba.np.arrayobj import make_array

from .._native import ffi
from .cache import load_library
from .channels import channel_close, channel_count, channel_receive, channel_select, channel_send
from .elastic import elastic_limit, elastic_use
from .memory import addr_on_stack, bytes_at, external, peek, size_of, word_on_stack
from .scopes import (
    cancelled,
    scope_cancel,
    scope_close,
    scope_fail,
    scope_open,
    scope_spawn,
    scope_why,
    shield_enter,
    shield_leave,
)
from .state import bucket_take, counter_add, counter_read, lru_get, lru_put, lru_remove
from .streams import (
    lease_return,
    lease_view,
    poll_add,
    poll_add_tcp,
    poll_remove,
    poll_remove_tcp,
    poll_wait,
    tcp_abort,
    tcp_accept,
    tcp_close,
    tcp_connect,
    tcp_ends,
    tcp_error,
    tcp_get,
    tcp_info,
    tcp_lease,
    tcp_listen,
    tcp_open,
    tcp_peek,
    tcp_read,
    tcp_readv,
    tcp_released,
    tcp_set,
    tcp_set_congestion,
    tcp_shutdown,
    tcp_wait_open,
    tcp_wait_released,
    tcp_write,
    tcp_write_from,
    tcp_writev,
)
from .views import emit_fault

__all__ = [
    "be16",
    "be32",
    "be64",
    "bucket_take",
    "cancelled",
    "channel_close",
    "channel_count",
    "channel_receive",
    "channel_select",
    "channel_send",
    "counter_add",
    "counter_read",
    "elastic_limit",
    "elastic_use",
    "from_server",
    "le16",
    "le32",
    "le64",
    "lease_return",
    "lease_view",
    "local_port",
    "log_append",
    "log_trim",
    "lru_get",
    "lru_put",
    "lru_remove",
    "mutex_lock",
    "mutex_unlock",
    "now_ns",
    "peer_ipv4",
    "peer_port",
    "poll_add",
    "poll_add_tcp",
    "poll_remove",
    "poll_remove_tcp",
    "poll_wait",
    "put_be16",
    "put_be32",
    "put_be64",
    "put_le16",
    "put_le32",
    "put_le64",
    "rx_tsc",
    "scope_cancel",
    "scope_close",
    "scope_fail",
    "scope_open",
    "scope_spawn",
    "scope_why",
    "sem_post",
    "sem_wait",
    "shield_enter",
    "shield_leave",
    "sleep_ns",
    "stopping",
    "tcp_abort",
    "tcp_accept",
    "tcp_close",
    "tcp_connect",
    "tcp_ends",
    "tcp_error",
    "tcp_get",
    "tcp_info",
    "tcp_lease",
    "tcp_listen",
    "tcp_open",
    "tcp_peek",
    "tcp_read",
    "tcp_readv",
    "tcp_released",
    "tcp_set",
    "tcp_set_congestion",
    "tcp_shutdown",
    "tcp_wait_open",
    "tcp_wait_released",
    "tcp_write",
    "tcp_write_from",
    "tcp_writev",
    "tsc",
    "udp_connect",
    "udp_recv",
    "udp_send",
    "udp_write",
    "yield_now",
]

load_library()

_address = types.uint64
sleep_ns = external("cl_uthread_sleep_ns", types.int32, types.uint64)
stopping = external("cl_uthread_stopping", types.int32)
yield_now = external("cl_uthread_yield", types.int32)
tsc = external("cl_tsc_read", types.uint64)
mutex_lock = external("cl_mutex_lock", types.int32, _address)
mutex_unlock = external("cl_mutex_unlock", types.int32, _address)
sem_wait = external("cl_sem_wait", types.int32, _address)
sem_post = external("cl_sem_post", types.void, _address)
_sched_self = external("cl_sched_self", _address)
_sched_now_ns = external("cl_sched_now_ns", types.uint64, _address)
_sendto = external("cl_udp_sendto", types.int64, _address, _address, types.int64, _address)
_recvfrom = external("cl_udp_recvfrom", types.int64, _address, _address, types.int64, _address, types.int64)
_connect = external("cl_udp_connect", types.int32, _address, _address)
_send = external("cl_udp_send", types.int64, _address, _address, types.int64)
_append_wait = external("cl_log_append_wait", types.int32, _address, _address, types.uint32, types.uint64, _address)
_trim_wait = external("cl_log_trim_wait", types.int32, _address, types.uint64)
_current = external("cl_current_request", _address)


def _offset(struct: str, *path: str) -> int:
    return int(ffi.offsetof(struct, *path))


_PEER_IPV4 = _offset("struct cl_udp_req", "peer", "ipv4")
_PEER_PORT = _offset("struct cl_udp_req", "peer", "port")
_PORT = _offset("struct cl_udp_req", "port")
_RX_TSC = _offset("struct cl_udp_req", "rx_tsc")
assert _offset("struct cl_udp_addr", "port") == 4
assert ffi.sizeof("struct cl_udp_addr") == 8

_u16, _u32, _u64 = types.uint16, types.uint32, types.uint64


@njit
def now_ns() -> Any:
    """Nanoseconds on the scheduler's clock."""
    return _sched_now_ns(_sched_self())


@njit
def peer_ipv4() -> Any:
    """The sender's IPv4 address, host byte order; 0 outside a handler."""
    request = _current()
    return peek(request + _u64(_PEER_IPV4), _u32) if request else _u32(0)


@njit
def peer_port() -> Any:
    """The sender's port; 0 outside a handler."""
    request = _current()
    return peek(request + _u64(_PEER_PORT), _u16) if request else _u16(0)


@njit
def local_port() -> Any:
    """The port that the request came to; 0 outside a handler."""
    request = _current()
    return peek(request + _u64(_PORT), _u16) if request else _u16(0)


@njit
def from_server() -> Any:
    """Whether the request comes from a server: its source port is the server's own, or below 1024.

    A handler that answers whatever it gets returns 0 then (corelane/libos/udp.h). False outside a handler.
    """
    port = peer_port()
    return port != 0 and (port == local_port() or port < 1024)


@njit
def rx_tsc() -> Any:
    """Time stamp counter when the request was taken from the NIC; 0 outside a handler."""
    request = _current()
    return peek(request + _u64(_RX_TSC), _u64) if request else _u64(0)


@njit
def udp_send(socket: Any, ipv4: Any, port: Any, view: Any) -> Any:
    """Send the bytes of a view as one datagram: their number, or -errno (cl_udp_sendto)."""
    return _sendto(socket, bytes_at(view), len(view), addr_on_stack(ipv4, port))


@njit
def udp_connect(socket: Any, ipv4: Any, port: Any) -> Any:
    """Connect a socket: 0, or -errno (cl_udp_connect)."""
    return _connect(socket, addr_on_stack(ipv4, port))


@njit
def udp_write(socket: Any, view: Any) -> Any:
    """Send the bytes of a view to whom the socket is connected to: their number, or -errno (cl_udp_send)."""
    return _send(socket, bytes_at(view), len(view))


@njit
def udp_recv(socket: Any, view: Any, timeout_ns: Any) -> Any:
    """Receive a datagram into a view: its length, or -errno (cl_udp_recvfrom). Blocks the uthread."""
    return _recvfrom(socket, bytes_at(view), len(view), _u64(0), timeout_ns)


_NO_LOG, _TOO_LONG = -errno.EINVAL, -errno.EMSGSIZE
_RECORD_MOST = (1 << 32) - 1  # bytes that C can be told of; no log takes so many


@njit
def log_append(log: Any, view: Any, tag: Any = 0) -> Any:
    """Append the bytes of a view as a record: its index once it is durable, or -errno (cl_log_append_wait).

    Blocks the uthread, while others go on: what they append shares a flush. tag: a number that is kept with the record.
    -ENOSPC: trim. -EMSGSIZE. -EROFS. -EINVAL: log is 0. -EDEADLK: not on a uthread of the log's runtime. The device's
    error: the log has failed and takes no more; whether this record is in it the next opening finds out.
    """
    size = size_of(view)
    if not log:
        return types.int64(_NO_LOG)
    if size > _RECORD_MOST:
        return types.int64(_TOO_LONG)
    index = word_on_stack()
    rc = _append_wait(log, bytes_at(view), size, tag, index)
    return types.int64(rc) if rc else peek(index, types.int64)


@njit
def log_trim(log: Any, first_kept: Any) -> Any:
    """Free the space of the records before first_kept: 0 once that is durable, or -errno (cl_log_trim_wait).

    Blocks the uthread. -ERANGE: beyond what is durable. Else as log_append.
    """
    return types.int32(_trim_wait(log, first_kept)) if log else types.int32(_NO_LOG)


def _inside(context: Any, builder: Any, view: Any, sig: Any, args: Any, width: int) -> tuple[Any, Any]:
    """Pointer to `width` bytes at the index, and whether they lie in the view."""
    index = context.cast(builder, args[1], sig.args[1], types.int64)
    length = cgutils.unpack_tuple(builder, view.shape, 1)[0]
    i64 = ir.IntType(64)
    last = builder.sub(length, ir.Constant(i64, width))
    inside = builder.and_(builder.icmp_signed(">=", index, ir.Constant(i64, 0)), builder.icmp_signed("<=", index, last))
    return builder.gep(view.data, [index]), inside


def _require(view: Any, index: Any, *values: Any) -> None:
    if not (isinstance(view, types.Array) and view.dtype == types.uint8 and view.ndim == 1 and view.layout == "C"):
        raise TypingError("give a contiguous one-dimensional uint8 array or packet view")
    if not all(isinstance(v, types.Integer) for v in (index, *values)):
        raise TypingError("index and value are integers")


def _loader(bits: int, big: bool) -> Any:
    kind = getattr(types, f"uint{bits}")

    def load(typingctx: Any, view: Any, index: Any) -> Any:
        _require(view, index)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            array = make_array(sig.args[0])(context, builder, args[0])
            pointer, inside = _inside(context, builder, array, sig, args, bits // 8)
            word = ir.IntType(bits)
            result = cgutils.alloca_once_value(builder, ir.Constant(word, 0))
            with builder.if_else(inside, likely=True) as (then, otherwise):
                with then:
                    value = builder.load(builder.bitcast(pointer, word.as_pointer()), align=1)
                    builder.store(builder.bswap(value) if big else value, result)
                with otherwise:
                    emit_fault(builder, array.data)
            return builder.load(result)

        return kind(view, index), codegen

    load.__name__ = load.__qualname__ = f"{'be' if big else 'le'}{bits}"
    load.__doc__ = f"{bits}-bit {'big' if big else 'little'}-endian number at an index."
    return intrinsic(load)


def _storer(bits: int, big: bool) -> Any:
    kind = getattr(types, f"uint{bits}")

    def store(typingctx: Any, view: Any, index: Any, value: Any) -> Any:
        _require(view, index, value)
        if not view.mutable:
            raise TypingError("the request is read-only")

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            array = make_array(sig.args[0])(context, builder, args[0])
            pointer, inside = _inside(context, builder, array, sig, args, bits // 8)
            word = context.cast(builder, args[2], sig.args[2], kind)
            with builder.if_else(inside, likely=True) as (then, otherwise):
                with then:
                    at = builder.bitcast(pointer, ir.IntType(bits).as_pointer())
                    builder.store(builder.bswap(word) if big else word, at, align=1)
                with otherwise:
                    emit_fault(builder, array.data)
            return context.get_dummy_value()

        return types.void(view, index, value), codegen

    store.__name__ = store.__qualname__ = f"put_{'be' if big else 'le'}{bits}"
    store.__doc__ = f"Store a {bits}-bit {'big' if big else 'little'}-endian number at an index."
    return intrinsic(store)


be16, be32, be64 = (_loader(bits, True) for bits in (16, 32, 64))
le16, le32, le64 = (_loader(bits, False) for bits in (16, 32, 64))
put_be16, put_be32, put_be64 = (_storer(bits, True) for bits in (16, 32, 64))
put_le16, put_le32, put_le64 = (_storer(bits, False) for bits in (16, 32, 64))
