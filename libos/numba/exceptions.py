"""Exceptions that end in C: what they have of memory is given back.

An exception that is made of values (`raise ValueError(n)`) is two pieces of memory, which numba frees where it makes
Python's exception of them (numba/core/callconv.py, unpack_dynamic_exception). Where an entry point turns an exception
into a number, nobody makes one. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core.callconv import ALLOC_FLAG_IDX, HASH_BUF_IDX

_VALUES = HASH_BUF_IDX  # of such an exception the same field points to its values


def let_go(context: Any, builder: Any, status: Any) -> None:
    """Give back what the exception of a status has, if it is one. What its values refer to (arrays) is not."""
    if not context.enable_nrt:
        return
    with builder.if_then(status.is_user_exc, likely=False):
        info = builder.load(status.excinfoptr)
        flag = builder.extract_value(info, ALLOC_FLAG_IDX)
        with builder.if_then(builder.icmp_signed(">", flag, ir.Constant(flag.type, 0))):
            context.nrt.free(builder, builder.extract_value(info, _VALUES))
            context.nrt.free(builder, builder.bitcast(status.excinfoptr, ir.IntType(8).as_pointer()))
