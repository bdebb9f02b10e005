"""Calling a compiled function with arguments that lie in memory: how a job gets from Python onto a uthread and back.

A frame holds the function's address, its arguments, and room for result and status. Three small compiled functions go
with a signature:

    store(frame, *args)   on a Python thread: numba unboxes the arguments, they are copied into the frame
    entry(frame)          on a uthread, a C function: calls, keeps result and status, and writes to the frame's eventfd;
                          it returns 0, or in a scope (scope.h) the error that an exception is
    fetch(frame)          on a Python thread: the result, or the exception as if the function had been called here

Arrays are counted (NRT) from store to entry's end, the result from there to fetch. Importing this module imports numba.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core.extending import intrinsic
from numba.core.imputils import fix_returning_optional
from numba.core.registry import cpu_target

from ..numba.cache import load_library
from ..numba.scopes import RAISED

_FUNCTION, _EVENT, _CODE, _EXCINFO, _RESULT, _ARGS = range(6)
_FAILED = 1 << 32  # beside the number of a descriptor


@dataclass(frozen=True)
class Calls:
    """The compiled functions of a signature. bytes: of a frame. entry: address of a C function, a cl_scope_fn."""

    bytes: int
    store: Any
    entry: int
    fetch: Any
    keep: tuple[object, ...]


def _layout(context: Any, returns: Any, argtypes: tuple[Any, ...]) -> Any:
    i64 = ir.IntType(64)
    values = [context.get_data_type(t) for t in (returns, *argtypes)]
    return ir.LiteralStructType([i64, i64, ir.IntType(32), ir.IntType(8).as_pointer(), *values])


def _at(builder: Any, frame: Any, layout: Any, field: int) -> Any:
    i32 = ir.IntType(32)
    pointer = builder.inttoptr(frame, layout.as_pointer())
    return builder.gep(pointer, [ir.Constant(i32, 0), ir.Constant(i32, field)])


def _storer(returns: Any, argtypes: tuple[Any, ...]) -> Any:
    @intrinsic
    def store(typingctx: Any, frame: Any, args: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            layout = _layout(context, returns, argtypes)
            for at, kind in enumerate(argtypes):
                value = builder.extract_value(values[1], at)
                if context.enable_nrt:
                    context.nrt.incref(builder, kind, value)
                data = context.data_model_manager[kind].as_data(builder, value)
                builder.store(data, _at(builder, values[0], layout, _ARGS + at))
            return context.get_dummy_value()

        return types.void(types.uint64, types.Tuple(argtypes)), emit

    return store


def _caller(returns: Any, argtypes: tuple[Any, ...]) -> Any:
    @intrinsic
    def call(typingctx: Any, frame: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            layout, frame_value = _layout(context, returns, argtypes), values[0]
            args = []
            for at, kind in enumerate(argtypes):
                data = builder.load(_at(builder, frame_value, layout, _ARGS + at))
                args.append(context.data_model_manager[kind].from_data(builder, data))
            signature = context.call_conv.get_function_type(returns, argtypes)
            address = builder.load(_at(builder, frame_value, layout, _FUNCTION))
            function = builder.inttoptr(address, signature.as_pointer())
            status, result = context.call_conv.call_function(builder, function, returns, argtypes, args)
            result = fix_returning_optional(context, builder, returns(*argtypes), status, result)
            builder.store(status.code, _at(builder, frame_value, layout, _CODE))
            info = builder.bitcast(status.excinfoptr, ir.IntType(8).as_pointer())
            builder.store(info, _at(builder, frame_value, layout, _EXCINFO))
            with builder.if_then(status.is_ok):
                data = context.data_model_manager[returns].as_data(builder, result)
                builder.store(data, _at(builder, frame_value, layout, _RESULT))
            if context.enable_nrt:
                for kind, value in zip(argtypes, args, strict=True):
                    context.nrt.decref(builder, kind, value)
            event = builder.load(_at(builder, frame_value, layout, _EVENT))
            failed = builder.select(status.is_error, ir.Constant(event.type, _FAILED), ir.Constant(event.type, 0))
            return builder.or_(event, failed)

        return types.int64(types.uint64), emit

    return call


def _fetcher(returns: Any, argtypes: tuple[Any, ...]) -> Any:
    @intrinsic
    def fetch(typingctx: Any, frame: Any) -> Any:
        def emit(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            layout = _layout(context, returns, argtypes)
            code = builder.load(_at(builder, values[0], layout, _CODE))
            info = builder.load(_at(builder, values[0], layout, _EXCINFO))
            kind = context.call_conv.get_function_type(types.none, ()).args[1].pointee
            status = context.call_conv._get_return_status(builder, code, builder.bitcast(info, kind))
            with builder.if_then(status.is_error, likely=False):
                context.call_conv.return_status_propagate(builder, status)
            data = builder.load(_at(builder, values[0], layout, _RESULT))
            return context.data_model_manager[returns].from_data(builder, data)

        return returns(types.uint64), emit

    return fetch


@functools.lru_cache(maxsize=256)
def calls(returns: Any, argtypes: tuple[Any, ...]) -> Calls:
    """Compile the functions for a signature, of numba types."""
    load_library()
    keep, call, take = _storer(returns, argtypes), _caller(returns, argtypes), _fetcher(returns, argtypes)
    post = types.ExternalFunction("eventfd_write", types.int32(types.int32, types.uint64))

    @numba.njit
    def store(frame: Any, *args: Any) -> None:
        keep(numba.uint64(frame), args)

    @numba.cfunc(types.int64(types.uint64))
    def entry(frame: Any) -> int:
        made = call(frame)  # the frame may go with the post
        post(numba.int32(made & (_FAILED - 1)), numba.uint64(1))
        return RAISED if made & _FAILED else 0

    @numba.njit
    def fetch(frame: Any) -> Any:
        return take(numba.uint64(frame))

    layout = _layout(cpu_target.target_context, returns, argtypes)
    size = cpu_target.target_context.get_abi_sizeof(layout)
    return Calls(size, store, entry.address, fetch, (entry, post, keep, call, take))
