"""Atomic operations on elements of arrays, for code compiled by numba.

numba has none, and a plain loop on `array[i]` may never see what another thread writes: LLVM hoists the load. These
compile to one instruction each and are sequentially consistent.

    load_atomic(array, index) -> element
    store_atomic(array, index, value)
    atomic_add(array, index, value) -> element before; likewise atomic_sub, atomic_and, atomic_or, atomic_xor
    exchange_atomic(array, index, value) -> element before
    cmpxchg(array, index, expected, value) -> element before; the store was done if it equals `expected`
    compare_and_set(array, index, expected, value) -> whether the store was done

array: one-dimensional and contiguous, of an integer type of 8 to 64 bits, naturally aligned. index: not checked. value
and expected are converted to the element's type; mind that numba turns a mix of int64 and uint64 into float64, which is
refused here. In plain Python these raise NotImplementedError: they only exist compiled. Importing this module imports
numba.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.errors import TypingError
from numba.core.extending import intrinsic
from numba.np.arrayobj import make_array

__all__ = [
    "atomic_add",
    "atomic_and",
    "atomic_or",
    "atomic_sub",
    "atomic_xor",
    "cmpxchg",
    "compare_and_set",
    "exchange_atomic",
    "load_atomic",
    "store_atomic",
]

_ORDER = "seq_cst"


def _require(array: Any, index: Any, *values: Any) -> None:
    if not (isinstance(array, types.Array) and array.ndim == 1 and array.layout == "C"):
        raise TypingError("atomic operations take a contiguous one-dimensional array")
    if not isinstance(array.dtype, types.Integer) or not array.aligned:
        raise TypingError(f"atomic operations take an aligned array of integers, not of {array.dtype}")
    if not isinstance(index, types.Integer) or not all(isinstance(v, types.Integer) for v in values):
        raise TypingError(
            "index and values of an atomic operation are integers (int64 mixed with uint64 gives float64)"
        )


def _pointer(context: Any, builder: Any, sig: Any, args: Any) -> tuple[Any, Any, int]:
    """Address of the element, its LLVM type and its alignment."""
    arrayty, indexty = sig.args[:2]
    array = make_array(arrayty)(context, builder, args[0])
    index = context.cast(builder, args[1], indexty, types.intp)
    element = context.get_value_type(arrayty.dtype)
    return builder.gep(array.data, [index]), element, arrayty.dtype.bitwidth // 8


def _value(context: Any, builder: Any, sig: Any, args: Any, position: int) -> Any:
    return context.cast(builder, args[position], sig.args[position], sig.args[0].dtype)


@intrinsic
def load_atomic(typingctx: Any, array: Any, index: Any) -> Any:
    """Element `index` of `array`, loaded atomically."""
    _require(array, index)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer, _, align = _pointer(context, builder, sig, args)
        return builder.load_atomic(pointer, _ORDER, align)

    return array.dtype(array, index), codegen


@intrinsic
def store_atomic(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
    """Store `value` into element `index` atomically."""
    _require(array, index, value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        pointer, _, align = _pointer(context, builder, sig, args)
        builder.store_atomic(_value(context, builder, sig, args, 2), pointer, _ORDER, align)
        return context.get_dummy_value()

    return types.void(array, index, value), codegen


def _rmw(name: str, operation: str) -> Any:
    def typer(typingctx: Any, array: Any, index: Any, value: Any) -> Any:
        _require(array, index, value)

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pointer, _, _ = _pointer(context, builder, sig, args)
            return builder.atomic_rmw(operation, pointer, _value(context, builder, sig, args, 2), _ORDER)

        return array.dtype(array, index, value), codegen

    typer.__name__ = typer.__qualname__ = name
    typer.__doc__ = f"Element before `{operation}` with `value`, done atomically."
    return intrinsic(typer)


atomic_add = _rmw("atomic_add", "add")
atomic_sub = _rmw("atomic_sub", "sub")
atomic_and = _rmw("atomic_and", "and")
atomic_or = _rmw("atomic_or", "or")
atomic_xor = _rmw("atomic_xor", "xor")
exchange_atomic = _rmw("exchange_atomic", "xchg")


def _compared(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The element before, and whether the store was done."""
    pointer, element, _ = _pointer(context, builder, sig, args)
    assert isinstance(element, ir.IntType)
    expected, value = (_value(context, builder, sig, args, position) for position in (2, 3))
    return builder.cmpxchg(pointer, expected, value, _ORDER, _ORDER)


@intrinsic
def cmpxchg(typingctx: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Store `value` if the element equals `expected`; returns the element before."""
    _require(array, index, expected, value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_value(_compared(context, builder, sig, args), 0)

    return array.dtype(array, index, expected, value), codegen


@intrinsic
def compare_and_set(typingctx: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Store `value` if the element equals `expected`; returns whether it did."""
    _require(array, index, expected, value)

    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return builder.extract_value(_compared(context, builder, sig, args), 1)

    return types.boolean(array, index, expected, value), codegen
