"""Memory in compiled code: numbers at addresses, and addresses of views and of words on the stack.

Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from .views import PacketView

__all__ = ["addr_on_stack", "bytes_at", "external", "peek", "pieces_on_stack", "size_of", "view_at", "word_on_stack"]


def external(name: str, returns: Any, *args: Any) -> Any:
    """A function of the C library."""
    return types.ExternalFunction(name, returns(*args))


@intrinsic
def peek(typingctx: Any, address: Any, kind: Any) -> Any:
    """peek(address, a numba type): the value that lies there."""
    if not isinstance(kind, types.NumberClass):
        raise TypingError("the second argument is a type")
    returns = kind.instance_type

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = context.cast(builder, args[0], sig.args[0], types.uint64)
        pointer = builder.inttoptr(at, context.get_value_type(returns).as_pointer())
        return builder.load(pointer, align=1)

    return returns(address, kind), codegen


@intrinsic
def bytes_at(typingctx: Any, view: Any) -> Any:
    """Address of an array's first byte."""
    if not isinstance(view, types.Array) or view.layout != "C":
        raise TypingError("give a contiguous array or packet view")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        data = make_array(sig.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.uint64))

    return types.uint64(view), codegen


@intrinsic
def size_of(typingctx: Any, view: Any) -> Any:
    """How many bytes an array has."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array = make_array(sig.args[0])(context, builder, args[0])
        return builder.mul(array.nitems, array.itemsize)

    return types.int64(view), codegen


@intrinsic
def word_on_stack(typingctx: Any) -> Any:
    """Address of eight bytes in the caller's frame."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.ptrtoint(cgutils.alloca_once(builder, ir.IntType(64)), ir.IntType(64))

    return types.uint64(), codegen


@intrinsic
def addr_on_stack(typingctx: Any, ipv4: Any, port: Any) -> Any:
    """Address of a struct cl_udp_addr in the caller's frame."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        slot = cgutils.alloca_once(builder, ir.ArrayType(i32, 2))
        ip = context.cast(builder, args[0], sig.args[0], types.uint32)
        number = context.cast(builder, args[1], sig.args[1], types.uint16)
        zero = ir.Constant(i32, 0)
        builder.store(ip, builder.gep(slot, [zero, zero]))
        # port and padding as one word: little-endian machines only, as are all that corelane supports
        builder.store(builder.zext(number, i32), builder.gep(slot, [zero, ir.Constant(i32, 1)]))
        return builder.ptrtoint(slot, i64)

    return types.uint64(ipv4, port), codegen


@intrinsic
def pieces_on_stack(typingctx: Any, views: Any) -> Any:
    """Address of a struct cl_iovec for each view of a tuple, in the caller's frame."""
    if not isinstance(views, types.BaseTuple) or not len(views):
        raise TypingError("give a tuple of contiguous arrays or packet views")
    if not all(isinstance(view, types.Array) and view.layout == "C" for view in views):
        raise TypingError("give a tuple of contiguous arrays or packet views")

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64, i32 = ir.IntType(64), ir.IntType(32)
        slot = cgutils.alloca_once(builder, ir.ArrayType(i64, 2 * len(views)))
        for i, view in enumerate(views):
            array = make_array(view)(context, builder, builder.extract_value(args[0], i))
            words = (builder.ptrtoint(array.data, i64), builder.mul(array.nitems, array.itemsize))
            for k, word in enumerate(words):
                builder.store(word, builder.gep(slot, [ir.Constant(i32, 0), ir.Constant(i32, 2 * i + k)]))
        return builder.ptrtoint(slot, i64)

    return types.uint64(views), codegen


@intrinsic
def view_at(typingctx: Any, address: Any, length: Any) -> Any:
    """A read-only packet view of so many bytes that lie there."""
    view = PacketView(readonly=True)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        array, intp = make_array(view)(context, builder), context.get_value_type(types.intp)
        populate_array(
            array,
            data=builder.inttoptr(args[0], array.data.type),
            shape=cgutils.pack_array(builder, [args[1]]),
            strides=cgutils.pack_array(builder, [ir.Constant(intp, 1)]),
            itemsize=ir.Constant(intp, 1),
            meminfo=None,
        )
        return array._getvalue()

    return view(types.uint64, types.int64), codegen
