"""The type of `request` and `reply` in compiled handlers: a checked uint8 view that neither raises nor allocates.

numba's own array would do the job, but (a) `reply[:n] = request` compiles to an overlap test, a temporary from the heap
and a byte loop (54 ns for 64 bytes), (b) a wrong length raises, which takes the GIL, and (c) an index beyond the end
reads or writes whatever lies there. A `PacketView` is laid out like the array, is accepted wherever an array is, and
has its own code for indexing and slice assignment:

* `view[i]` and `view[i] = x` are checked. Beyond the end a read gives 0, a write does nothing, and the request is
  marked as faulted: its reply is not sent, and it is counted under `handler_faults`.
* `view[a:b] = other` is one `memmove` (so overlap is right), after one comparison; lengths that differ fault.
* `view[a:b] = scalar` is one `memset`.
* `view[a:b]` is a `PacketView` again; slices clamp as in Python.

Importing this module imports numba.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import ArrayModel
from numba.core.errors import LoweringError
from numba.core.extending import intrinsic, lower_builtin, register_model
from numba.core.imputils import impl_ret_borrowed
from numba.np.arrayobj import make_array, populate_array

__all__ = ["PacketView", "array_at", "make_view", "reply_view_t", "request_view_t", "view_value"]


class PacketView(types.Array):
    """numba type of a contiguous one-dimensional uint8 view of packet memory; see the module's docstring."""

    def __init__(self, readonly: bool) -> None:
        name = "packet_view(readonly)" if readonly else "packet_view"
        super().__init__(types.uint8, 1, "C", readonly=readonly, name=name)

    def copy(self, dtype: Any = None, ndim: Any = None, layout: Any = None, readonly: Any = None) -> types.Array:
        """The type of a slice (a PacketView again) or of another view of the same bytes (a plain array)."""
        same = (dtype in (None, types.uint8)) and ndim in (None, 1) and layout in (None, "C")
        if same:
            return PacketView(not self.mutable if readonly is None else readonly)
        return super().copy(dtype, ndim, layout, readonly)


request_view_t = PacketView(readonly=True)
reply_view_t = PacketView(readonly=False)

register_model(PacketView)(ArrayModel)


def emit_fault(builder: Any, where: Any) -> None:
    """Call cl_handler_fault_at(): the request being handled is marked, nothing is raised. where: the view's data, which
    tells which it is of several."""
    i8p = ir.IntType(8).as_pointer()
    fn = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [i8p]), "cl_handler_fault_at")
    fn.attributes.add("cold")
    builder.call(fn, [builder.bitcast(where, i8p)])


def _length(builder: Any, view: Any) -> Any:
    return cgutils.unpack_tuple(builder, view.shape, 1)[0]


def _checked(context: Any, builder: Any, view: Any, idxty: Any, idx: Any) -> tuple[Any, Any]:
    """The index as intp with Python's negative indices resolved, and whether it is inside."""
    intp = context.get_value_type(types.intp)
    idx = context.cast(builder, idx, idxty, types.int64 if idxty.signed else types.uint64)
    length = _length(builder, view)
    if idxty.signed:
        negative = builder.icmp_signed("<", idx, ir.Constant(intp, 0))
        idx = builder.select(negative, builder.add(idx, length), idx)
    # One unsigned comparison: an index that is still negative is a huge one.
    return idx, builder.icmp_unsigned("<", idx, length)


@lower_builtin(operator.getitem, PacketView, types.Integer)
def _getitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    viewty, idxty = sig.args
    view = make_array(viewty)(context, builder, args[0])
    idx, inside = _checked(context, builder, view, idxty, args[1])
    byte = context.get_value_type(types.uint8)
    result = cgutils.alloca_once_value(builder, ir.Constant(byte, 0))
    with builder.if_else(inside, likely=True) as (then, otherwise):
        with then:
            builder.store(builder.load(builder.gep(view.data, [idx])), result)
        with otherwise:
            emit_fault(builder, view.data)
    return impl_ret_borrowed(context, builder, sig.return_type, builder.load(result))


@lower_builtin(operator.setitem, PacketView, types.Integer, types.Any)
def _setitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    viewty, idxty, valty = sig.args
    view = make_array(viewty)(context, builder, args[0])
    idx, inside = _checked(context, builder, view, idxty, args[1])
    value = context.cast(builder, args[2], valty, types.uint8)
    with builder.if_else(inside, likely=True) as (then, otherwise):
        with then:
            builder.store(value, builder.gep(view.data, [idx]))
        with otherwise:
            emit_fault(builder, view.data)
    return context.get_dummy_value()


def _slice_bounds(context: Any, builder: Any, view: Any, slicety: Any, value: Any) -> tuple[Any, Any]:
    """Start and length of a slice of step 1, clamped as Python does."""
    intp = context.get_value_type(types.intp)
    zero = ir.Constant(intp, 0)
    length = _length(builder, view)
    part = context.make_helper(builder, slicety, value)

    def clamp(v: Any) -> Any:
        v = builder.select(builder.icmp_signed("<", v, zero), builder.add(v, length), v)
        v = builder.select(builder.icmp_signed("<", v, zero), zero, v)
        return builder.select(builder.icmp_signed(">", v, length), length, v)

    start, stop = clamp(part.start), clamp(part.stop)
    size = builder.sub(stop, start)
    return start, builder.select(builder.icmp_signed("<", size, zero), zero, size)


@lower_builtin(operator.setitem, PacketView, types.SliceType, types.Array)
def _setslice(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    viewty, slicety, srcty = sig.args
    if slicety.has_step or srcty.ndim != 1 or srcty.layout != "C" or srcty.dtype != types.uint8:
        raise LoweringError(
            "a slice assignment to a packet view takes a contiguous one-dimensional uint8 array and no step"
        )
    view = make_array(viewty)(context, builder, args[0])
    src = make_array(srcty)(context, builder, args[2])
    start, size = _slice_bounds(context, builder, view, slicety, args[1])
    same = builder.icmp_signed("==", size, _length(builder, src))
    with builder.if_else(same, likely=True) as (then, otherwise):
        with then:
            cgutils.raw_memmove(builder, builder.gep(view.data, [start]), src.data, size, 1)
        with otherwise:
            emit_fault(builder, view.data)
    return context.get_dummy_value()


@lower_builtin(operator.setitem, PacketView, types.SliceType, types.Integer)
def _fillslice(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    viewty, slicety, valty = sig.args
    if slicety.has_step:
        raise LoweringError("a slice assignment to a packet view takes no step")
    view = make_array(viewty)(context, builder, args[0])
    start, size = _slice_bounds(context, builder, view, slicety, args[1])
    value = context.cast(builder, args[2], valty, types.uint8)
    cgutils.memset(builder, builder.gep(view.data, [start]), size, value)
    return context.get_dummy_value()


def view_value(context: Any, builder: Any, viewty: Any, pointer: Any, length: Any) -> Any:
    """A PacketView of that type on memory that somebody else owns."""
    intp = context.get_value_type(types.intp)
    ary = make_array(viewty)(context, builder)
    one = ir.Constant(intp, 1)
    populate_array(
        ary,
        data=builder.bitcast(pointer, ary.data.type),
        shape=cgutils.pack_array(builder, [length]),
        strides=cgutils.pack_array(builder, [one]),
        itemsize=one,
        meminfo=None,
    )
    return impl_ret_borrowed(context, builder, viewty, ary._getvalue())


@intrinsic
def make_view(typingctx: Any, pointer: Any, length: Any, readonly: Any) -> Any:
    """make_view(pointer, length, readonly literal) -> PacketView on memory that somebody else owns."""
    if not isinstance(readonly, types.BooleanLiteral):
        return None
    viewty = PacketView(readonly.literal_value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return view_value(context, builder, viewty, args[0], args[1])

    return viewty(pointer, types.intp, readonly), codegen


def array_value(context: Any, builder: Any, kind: Any, shape: tuple[int, ...], data: Any) -> Any:
    """The C-contiguous array of that numba type and shape that lies at a pointer; nobody counts references to it."""
    intp = context.get_value_type(types.intp)
    item = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [item * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    array = make_array(kind)(context, builder)
    populate_array(
        array,
        data=builder.bitcast(data, array.data.type),
        shape=cgutils.pack_array(builder, [ir.Constant(intp, n) for n in shape], intp),
        strides=cgutils.pack_array(builder, [ir.Constant(intp, n) for n in strides], intp),
        itemsize=ir.Constant(intp, item),
        meminfo=None,
    )
    return array._getvalue()


def array_at(kind: Any, shape: tuple[int, ...]) -> Any:
    """An intrinsic: the C-contiguous array of that numba type and shape that lies at an address. Raises nothing."""

    @intrinsic
    def at(typingctx: Any, pointer: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return impl_ret_borrowed(context, builder, kind, array_value(context, builder, kind, shape, args[0]))

        return kind(pointer), codegen

    return at
