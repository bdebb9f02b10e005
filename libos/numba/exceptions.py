"""Exceptions that end in C: they are told (libos/raised.h), and what they have of memory is given back.

An exception that is made of values (`raise ValueError(n)`) is two pieces of memory, which numba frees where it makes
Python's exception of them (numba/core/callconv.py, unpack_dynamic_exception). Where an entry point turns an exception
into a number, nobody makes one. Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.callconv import ALLOC_FLAG_IDX, HASH_BUF_IDX, PICKLE_BUF_IDX

_VALUES = HASH_BUF_IDX  # of such an exception the same field points to its values


def tell(context: Any, builder: Any, status: Any, what: str, function: Any) -> None:
    """Say what was raised, if the status is an exception. what: is compiled, as in "handler". function: Python's."""
    i8p, code = ir.IntType(8).as_pointer(), function.__code__
    place = f'File "{code.co_filename}", line {code.co_firstlineno}, in {code.co_name}'
    with builder.if_then(status.is_error, likely=False):
        words = cgutils.alloca_once_value(builder, ir.Constant(i8p, None))
        with builder.if_then(status.is_user_exc):
            builder.store(builder.extract_value(builder.load(status.excinfoptr), PICKLE_BUF_IDX), words)
        raised = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [i8p] * 3), "cl_raised")
        names = [_constant(builder, text) for text in (f"{what} {code.co_qualname}", place)]
        builder.call(raised, [*names, builder.load(words)])


def _constant(builder: Any, text: str) -> Any:
    """Where a string lies."""
    data = cgutils.make_bytearray(text.encode(errors="replace") + b"\0")
    return builder.bitcast(cgutils.global_constant(builder, "cl_text", data), ir.IntType(8).as_pointer())


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
