"""The types of `requests`, `replies` and `lengths` in compiled handlers of batches: a burst as three checked sequences.

`requests[i]` and `replies[i]` are `PacketView`s (views.py): of the payload of request i, and of the room for its reply.
`lengths[i] = n` says how long that is; 0, which it is at first, is no reply, and a negative number an error. All three
have a len(), and an index may be negative. One beyond the end reads a view without bytes, or 0, writes nothing, and
marks every request of the burst as faulted: nobody knows which was meant. A view marks only its own
(cl_handler_fault_at). `requests.from_server(i)` is as `calls.from_server()` of a handler that has one request.

Importing this module imports numba.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel.models import StructModel
from numba.core.extending import intrinsic, lower_builtin, overload_method, register_model, type_callable
from numba.core.typing.templates import AbstractTemplate, infer_global, signature

from .._native import ffi
from .views import emit_fault, reply_view_t, request_view_t, view_value

__all__ = ["BurstView", "lengths_t", "make_burst", "replies_t", "requests_t"]

_BYTES = ffi.sizeof("struct cl_udp_req")
_AT = {name: field.offset for name, field in ffi.typeof("struct cl_udp_req").fields}
_PEER_PORT = _AT["peer"] + dict(ffi.typeof("struct cl_udp_addr").fields)["port"].offset
_RESERVED = 1024  # ports below are services'


class BurstView(types.Type):
    """numba type of one of the three. element: of what an index gives."""

    def __init__(self, name: str, element: types.Type) -> None:
        self.element = element
        super().__init__(name=f"burst_{name}")


requests_t = BurstView("requests", request_view_t)
replies_t = BurstView("replies", reply_view_t)
lengths_t = BurstView("lengths", types.int64)


@register_model(BurstView)
class _Model(StructModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("first", types.voidptr), ("n", types.int64)])


@infer_global(operator.getitem)
class _GetItem(AbstractTemplate):
    key = operator.getitem

    def generic(self, args: Any, kws: Any) -> Any:
        if len(args) == 2 and isinstance(args[0], BurstView) and isinstance(args[1], types.Integer):
            return signature(args[0].element, args[0], args[1])
        return None


@infer_global(operator.setitem)
class _SetItem(AbstractTemplate):
    key = operator.setitem

    def generic(self, args: Any, kws: Any) -> Any:
        numbers = all(isinstance(arg, types.Integer) for arg in args[1:])
        if len(args) == 3 and args[0] is lengths_t and numbers:
            return signature(types.none, *args)
        return None


@type_callable(len)
def _type_len(context: Any) -> Any:
    def typer(burst: Any) -> Any:
        return types.intp if isinstance(burst, BurstView) else None

    return typer


@lower_builtin(len, BurstView)
def _len(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0]).n


def _at(builder: Any, request: Any, offset: int, of: Any) -> Any:
    """A pointer to a field of a request."""
    at = builder.gep(request, [ir.Constant(ir.IntType(64), offset)])
    return builder.bitcast(at, of.as_pointer())


def _load(builder: Any, request: Any, name: str, of: Any) -> Any:
    return builder.load(_at(builder, request, _AT[name], of))


def _request(context: Any, builder: Any, burst: Any, value: Any, kind: Any, index: Any) -> tuple[Any, Any]:
    """The request at an index, and whether there is one."""
    i64 = ir.IntType(64)
    view = cgutils.create_struct_proxy(burst)(context, builder, value)
    index = context.cast(builder, index, kind, types.int64 if kind.signed else types.uint64)
    if kind.signed:
        negative = builder.icmp_signed("<", index, ir.Constant(i64, 0))
        index = builder.select(negative, builder.add(index, view.n), index)
    inside = builder.icmp_unsigned("<", index, view.n)
    offset = builder.mul(index, ir.Constant(i64, _BYTES))
    return builder.gep(view.first, [offset]), inside


def _nowhere() -> Any:
    return ir.Constant(ir.IntType(8).as_pointer(), None)


def _packet_view(data: str, length: str) -> Any:
    """What an index of `requests` or `replies` gives."""

    def getitem(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i64, i8p = ir.IntType(64), ir.IntType(8).as_pointer()
        request, inside = _request(context, builder, sig.args[0], args[0], sig.args[1], args[1])
        at = cgutils.alloca_once_value(builder, _nowhere())
        size = cgutils.alloca_once_value(builder, ir.Constant(i64, 0))
        with builder.if_else(inside, likely=True) as (then, otherwise):
            with then:
                builder.store(_load(builder, request, data, i8p), at)
                builder.store(_load(builder, request, length, i64), size)
            with otherwise:
                emit_fault(builder, _nowhere())
        return view_value(context, builder, sig.return_type, builder.load(at), builder.load(size))

    return getitem


lower_builtin(operator.getitem, requests_t, types.Integer)(_packet_view("data", "len"))
lower_builtin(operator.getitem, replies_t, types.Integer)(_packet_view("reply", "room"))


@lower_builtin(operator.getitem, lengths_t, types.Integer)
def _length(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    i64 = ir.IntType(64)
    request, inside = _request(context, builder, sig.args[0], args[0], sig.args[1], args[1])
    result = cgutils.alloca_once_value(builder, ir.Constant(i64, 0))
    with builder.if_else(inside, likely=True) as (then, otherwise):
        with then:
            builder.store(_load(builder, request, "reply_len", i64), result)
        with otherwise:
            emit_fault(builder, _nowhere())
    return builder.load(result)


@lower_builtin(operator.setitem, lengths_t, types.Integer, types.Integer)
def _set_length(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    request, inside = _request(context, builder, sig.args[0], args[0], sig.args[1], args[1])
    value = context.cast(builder, args[2], sig.args[2], types.int64)
    with builder.if_else(inside, likely=True) as (then, otherwise):
        with then:
            builder.store(value, _at(builder, request, _AT["reply_len"], ir.IntType(64)))
        with otherwise:
            emit_fault(builder, _nowhere())
    return context.get_dummy_value()


@intrinsic
def _ports(typingctx: Any, requests: Any, index: Any) -> Any:
    """The source port of a request, and ours; (0, 0) beyond the end, which faults."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        i16 = ir.IntType(16)
        request, inside = _request(context, builder, sig.args[0], args[0], sig.args[1], args[1])
        found = [cgutils.alloca_once_value(builder, ir.Constant(i16, 0)) for _ in range(2)]
        with builder.if_else(inside, likely=True) as (then, otherwise):
            with then:
                for to, offset in zip(found, (_PEER_PORT, _AT["port"]), strict=True):
                    builder.store(builder.load(_at(builder, request, offset, i16)), to)
            with otherwise:
                emit_fault(builder, _nowhere())
        return context.make_tuple(builder, sig.return_type, [builder.load(at) for at in found])

    return types.UniTuple(types.uint16, 2)(requests, index), codegen


@overload_method(BurstView, "from_server")
def _from_server(burst: Any, i: Any) -> Any:
    if burst is not requests_t:
        return None

    def from_server(burst: Any, i: Any) -> bool:
        theirs, ours = _ports(burst, i)
        return bool(theirs == ours or theirs < _RESERVED)

    return from_server


@intrinsic
def make_burst(typingctx: Any, reqs: Any, n: Any) -> Any:
    """make_burst(pointer to the requests, how many) -> (requests, replies, lengths)."""
    kinds = (requests_t, replies_t, lengths_t)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = []
        for kind in kinds:
            view = cgutils.create_struct_proxy(kind)(context, builder)
            view.first = args[0]
            view.n = builder.zext(args[1], ir.IntType(64))
            made.append(view._getvalue())
        return context.make_tuple(builder, sig.return_type, made)

    return types.Tuple(kinds)(reqs, n), codegen


@intrinsic
def all_raised(typingctx: Any, reqs: Any, n: Any) -> Any:
    """Make all of them errors (cl_handler_raised)."""

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        fnty = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), ir.IntType(32)])
        builder.call(cgutils.get_or_insert_function(builder.module, fnty, "cl_handler_raised"), list(args))
        return context.get_dummy_value()

    return types.void(reqs, n), codegen
