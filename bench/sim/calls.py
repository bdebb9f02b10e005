"""Calls of the iokernel's C functions, a policy and what settles its grants, from code that numba compiled."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic


@intrinsic
def call_policy(typingctx: Any, address: Any, view: Any, apps: Any) -> Any:
    """Call the function at `address`, a cl_policy_fn, with the addresses of its two tables (all uint64)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir

        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word, word])
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1], args[2]])
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.uint64), codegen


@intrinsic
def settle(typingctx: Any, address: Any, view: Any, apps: Any) -> Any:
    """Call cl_policy_settle at `address`; returns how many grants it changed."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir

        word = ir.IntType(64)
        kind = ir.FunctionType(ir.IntType(32), [word, word])
        out = builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1], args[2]])
        return builder.zext(out, word)

    return types.int64(types.uint64, types.uint64, types.uint64), codegen
