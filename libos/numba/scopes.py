"""Scopes in compiled code (corelane/libos/scope.h). Used as a part of calls.py.

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

from .._native import lib
from .cache import load_library
from .exceptions import let_go, tell
from .memory import external, peek, word_on_stack

__all__ = [
    "cancelled",
    "scope_cancel",
    "scope_close",
    "scope_fail",
    "scope_open",
    "scope_spawn",
    "scope_why",
    "shield_enter",
    "shield_leave",
]

load_library()

_address, _i32, _i64, _u64 = types.uint64, types.int32, types.int64, types.uint64
RAISED = -errno.ENOTRECOVERABLE  # what a uthread that raised an exception returns
_FOREVER = int(lib.CL_SCOPE_FOREVER)

_open = external("cl_scope_open", _i32, _u64, _address)
_sched_self = external("cl_sched_self", _address)
_sched_now_ns = external("cl_sched_now_ns", _u64, _address)
scope_close = external("cl_scope_close", _i32, _address)
scope_cancel = external("cl_scope_cancel", types.void, _address)
scope_fail = external("cl_scope_fail", types.void, _address, _i32)
scope_why = external("cl_scope_why", _i32, _address)
cancelled = external("cl_uthread_cancelled", _i32)
shield_enter = external("cl_shield_enter", types.void)
shield_leave = external("cl_shield_leave", types.void)


@njit
def scope_open(timeout_ns: Any) -> Any:
    """Open a scope: its address, or -errno (cl_scope_open). timeout_ns < 0: without a deadline."""
    scope = word_on_stack()
    deadline_ns = _u64(_FOREVER)
    if timeout_ns >= 0:
        deadline_ns = _sched_now_ns(_sched_self()) + _u64(timeout_ns)
    rc = _open(deadline_ns, scope)
    if rc:
        return _i64(rc)
    return peek(scope, _i64)


def _unpack(context: Any, builder: Any, layout: Any, kinds: tuple[Any, ...], at: Any) -> list[Any]:
    """The arguments that lie there."""
    pointer = builder.bitcast(at, layout.as_pointer())
    values = []
    for i, kind in enumerate(kinds):
        data = builder.load(cgutils.gep_inbounds(builder, pointer, 0, i))
        values.append(context.data_model_manager[kind].from_data(builder, data))
    return values


def _main(context: Any, builder: Any, function: Any, signature: Any, layout: Any) -> Any:
    """A C function (cl_scope_fn) in this module that calls the compiled one with what lies at its argument."""
    kinds = signature.args
    i64, i8p = ir.IntType(64), ir.IntType(8).as_pointer()
    module = builder.module
    main = ir.Function(module, ir.FunctionType(i64, [i8p]), module.get_unique_name("scope_main"))
    main.linkage = "internal"
    inner = ir.IRBuilder(main.append_basic_block("entry"))
    args = _unpack(context, inner, layout, kinds, main.args[0])
    overload = function.dispatcher.overloads[kinds]
    status, result = context.call_internal_no_propagate(inner, overload.fndesc, signature, args)
    tell(context, inner, status, "uthread", function.dispatcher.py_func)
    let_go(context, inner, status)
    if context.enable_nrt:
        for kind, value in zip(kinds, args, strict=True):
            context.nrt.decref(inner, kind, value)
    returned = ir.Constant(i64, 0)
    if isinstance(signature.return_type, types.Integer):
        returned = context.cast(inner, result, signature.return_type, _i64)
    inner.ret(inner.select(status.is_error, ir.Constant(i64, RAISED), returned))
    return main


@intrinsic
def scope_spawn(typingctx: Any, scope: Any, function: Any, *args: Any) -> Any:
    """Start function(*args) on a uthread of the scope: 0, or -errno (cl_scope_spawn_copy)."""
    star = types.StarArgTuple | types.StarArgUniTuple
    kinds = tuple(args[0].types if len(args) == 1 and isinstance(args[0], star) else args)
    if not isinstance(function, types.Dispatcher):
        raise TypingError("give a function that numba.njit or libos.batch has wrapped")
    if not isinstance(scope, types.Integer):
        raise TypingError("the scope is what scope_open has returned")
    signature = function.get_call_type(typingctx, kinds, {})
    if tuple(signature.args) != kinds:
        raise TypingError("give all arguments of the function, in order, of the types that it was compiled for")
    if not isinstance(signature.return_type, types.Integer | types.NoneType):
        raise TypingError(f"it returns {signature.return_type}: return nothing, or an integer, negative for an error")

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        overload = function.dispatcher.overloads[kinds]
        context.add_linking_libs((overload.library,))
        layout = ir.LiteralStructType([context.get_data_type(kind) for kind in kinds])
        main = _main(context, builder, function, signature, layout)
        slot = cgutils.alloca_once(builder, layout)
        given = cgutils.unpack_tuple(builder, values[2], len(kinds))
        for i, kind in enumerate(kinds):
            if context.enable_nrt:
                context.nrt.incref(builder, kind, given[i])
            data = context.data_model_manager[kind].as_data(builder, given[i])
            builder.store(data, cgutils.gep_inbounds(builder, slot, 0, i))
        i8p, i32, i64 = ir.IntType(8).as_pointer(), ir.IntType(32), ir.IntType(64)
        fnty = ir.FunctionType(i32, [i64, i8p, i8p, i32])
        spawn = cgutils.get_or_insert_function(builder.module, fnty, "cl_scope_spawn_copy")
        where = context.cast(builder, values[0], sig.args[0], _u64)
        size = ir.Constant(i32, context.get_abi_sizeof(layout))
        rc = builder.call(spawn, [where, builder.bitcast(main, i8p), builder.bitcast(slot, i8p), size])
        if context.enable_nrt:
            with builder.if_then(builder.icmp_signed("!=", rc, ir.Constant(i32, 0)), likely=False):
                for kind, value in zip(kinds, given, strict=True):
                    context.nrt.decref(builder, kind, value)
        return rc

    return types.int32(scope, function, types.StarArgTuple.from_types(kinds)), codegen
