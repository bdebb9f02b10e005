"""Channels in compiled code (corelane/libos/channel.h). Used as a part of calls.py.

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

from .._native import ffi, lib
from .cache import load_library
from .memory import bytes_at, external, peek, size_of

__all__ = ["channel_close", "channel_count", "channel_receive", "channel_select", "channel_send"]

load_library()

_address, _i32, _i64, _u32, _u64 = types.uint64, types.int32, types.int64, types.uint32, types.uint64
_send = external("cl_channel_send", _i32, _address, _address, _i64)
_receive = external("cl_channel_receive", _i32, _address, _address, _i64)
_select = external("cl_channel_select", _i32, _address, _u32, _address, _i64)
_bytes = external("cl_channel_element_bytes", _u32, _address)
channel_close = external("cl_channel_close", _i32, _address)
channel_count = external("cl_channel_count", _u32, _address)

_INVALID = -errno.EINVAL
CLOSED = 1000  # of channel_select: the channel of case i is closed: -CLOSED - i
_CASE, _RC = ffi.sizeof("struct cl_channel_case"), ffi.offsetof("struct cl_channel_case", "rc")
_MOST = int(lib.CL_CHANNEL_CASES)
assert ffi.offsetof("struct cl_channel_case", "element") == 8
assert ffi.offsetof("struct cl_channel_case", "how") == 16


@njit
def channel_send(channel: Any, element: Any, timeout_ns: Any) -> Any:
    """Put an element in: 0, or -errno (cl_channel_send). element: an array of exactly its bytes."""
    if size_of(element) != _bytes(channel):
        return _i32(_INVALID)
    return _send(channel, bytes_at(element), timeout_ns)


@njit
def channel_receive(channel: Any, element: Any, timeout_ns: Any) -> Any:
    """Take one out, into such an array: 0, or -errno (cl_channel_receive)."""
    if size_of(element) != _bytes(channel):
        return _i32(_INVALID)
    return _receive(channel, bytes_at(element), timeout_ns)


@intrinsic
def _cases_on_stack(typingctx: Any, channels: Any, elements: Any, senders: Any) -> Any:
    """Address of a struct cl_channel_case for each, in the caller's frame."""
    if not isinstance(channels, types.BaseTuple) or not isinstance(elements, types.BaseTuple):
        raise TypingError("give a tuple of channels, and one of arrays for their elements")
    if not 0 < len(channels) == len(elements) <= _MOST:
        raise TypingError(f"give as many arrays as channels, 1 to {_MOST}")
    if not all(isinstance(channel, types.Integer) for channel in channels):
        raise TypingError("a channel is its address")
    if not all(isinstance(element, types.Array) and element.layout == "C" for element in elements):
        raise TypingError("an element is a contiguous array")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64, i32 = ir.IntType(64), ir.IntType(32)
        slot = cgutils.alloca_once(builder, ir.ArrayType(i64, 3 * len(channels)))
        send = context.cast(builder, args[2], sig.args[2], _u64)
        for i, (kind, element) in enumerate(zip(channels, elements, strict=True)):
            channel = context.cast(builder, builder.extract_value(args[0], i), kind, _u64)
            array = make_array(element)(context, builder, builder.extract_value(args[1], i))
            bit = builder.and_(builder.lshr(send, ir.Constant(i64, i)), ir.Constant(i64, 1))
            how = builder.xor(bit, ir.Constant(i64, 1))  # CL_CHANNEL_SEND is 0; little-endian, as `how` is a half
            for k, word in enumerate((channel, builder.ptrtoint(array.data, i64), how)):
                builder.store(word, builder.gep(slot, [ir.Constant(i32, 0), ir.Constant(i32, 3 * i + k)]))
        return builder.ptrtoint(slot, i64)

    return types.uint64(channels, elements, senders), codegen


@intrinsic
def _all_fit(typingctx: Any, channels: Any, elements: Any) -> Any:
    """Whether each array has as many bytes as an element of its channel."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64, i32, fits = ir.IntType(64), ir.IntType(32), ir.Constant(ir.IntType(1), 1)
        bytes_of = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(i32, [i64]), "cl_channel_element_bytes"
        )
        for i, (kind, element) in enumerate(zip(channels, elements, strict=True)):
            channel = context.cast(builder, builder.extract_value(args[0], i), kind, _u64)
            array = make_array(element)(context, builder, builder.extract_value(args[1], i))
            wanted = builder.zext(builder.call(bytes_of, [channel]), i64)
            has = builder.mul(array.nitems, array.itemsize)
            fits = builder.and_(fits, builder.icmp_unsigned("==", wanted, has))
        return fits

    return types.boolean(channels, elements), codegen


@njit
def channel_select(channels: Any, elements: Any, senders: Any, timeout_ns: Any) -> Any:
    """Send to or receive from one of several channels: the index of the case that was done (cl_channel_select).

    Case i sends if bit i of `senders` is set, else it receives. -1000 - i: its channel is closed. Else -errno.
    """
    cases = _cases_on_stack(channels, elements, senders)
    if not _all_fit(channels, elements):
        return _i64(_INVALID)
    done = _i64(_select(cases, len(channels), _u64(0), timeout_ns))
    if done >= 0 and peek(cases + _u64(done * _CASE + _RC), _i32):
        return -CLOSED - done
    return done
