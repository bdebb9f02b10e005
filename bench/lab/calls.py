"""The call of a policy's C function from code that numba compiled."""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import intrinsic

N_TABLES = 7  # view, jobs, cores, kinds, memory, future, params


@intrinsic
def call_policy(typingctx: Any, address: Any, tables: Any) -> Any:
    """Call the function at `address` (uint64) with the addresses of its tables (a tuple of N_TABLES uint64)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        from llvmlite import ir

        word = ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [word] * N_TABLES)
        words = [builder.extract_value(args[1], i) for i in range(N_TABLES)]
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), words)
        return context.get_dummy_value()

    return types.void(types.uint64, tables), codegen
