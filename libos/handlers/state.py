"""What all calls of a compiled handler share: an array, or an object of compiled code (numba's jitclass or structref,
or a tuple of all of these).

Importing this module imports numba.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numba.core.extending import intrinsic
from numba.core.imputils import impl_ret_borrowed
from numba.core.registry import cpu_target

from ...runtime.errors import CorelaneError, plain_text
from ..numba.views import array_at

_SHARED = "a C-contiguous numpy array, a jitclass or structref object, or a tuple of these and of numbers"


@dataclass(frozen=True, slots=True)
class State:
    """kind: numba's type. at: an intrinsic that makes it of the address that C hands to the handler. address: that.
    stable: whether code for it holds in any process. keep: what must live as long as C may use the address."""

    kind: Any
    at: Any
    address: int
    stable: bool
    keep: tuple[object, ...]


def state_of(state: Any) -> State:
    """Raises CorelaneError for what compiled code cannot share."""
    try:
        kind = numba.typeof(state)
    except (ValueError, NumbaError) as error:
        why = f"its state cannot be typed: {plain_text(error)}"
        raise CorelaneError("compile a handler", why, f"give {_SHARED}") from error
    if isinstance(kind, types.Array):
        if kind.layout != "C":
            raise CorelaneError("compile a handler", f"its state is {kind}", f"give {_SHARED}")
        return State(kind, array_at(kind, state.shape), int(state.ctypes.data), True, (state,))
    if not _holds(kind) or isinstance(kind, types.Number):
        raise CorelaneError("compile a handler", f"its state is {kind}", f"give {_SHARED}")
    held = _Held(kind, state)
    return State(kind, _value_at(kind), held.address, False, (state, held))


def _holds(kind: Any) -> bool:
    if isinstance(kind, types.Array):
        return bool(kind.layout == "C")
    if isinstance(kind, types.BaseTuple):
        return all(_holds(member) for member in kind)
    return isinstance(kind, (types.ClassInstanceType, types.StructRef, types.Number, types.Boolean))


class _Held:
    """The words that compiled code knows an object by, with a reference of our own to all that they point to."""

    def __init__(self, kind: Any, state: Any) -> None:
        context = cpu_target.target_context
        context.refresh()
        n = -(-context.get_abi_sizeof(context.get_value_type(kind)) // 8)
        words = np.zeros(n, np.uint64)
        self.address = int(words.ctypes.data)
        _keep(state, np.uint64(self.address))
        weakref.finalize(self, _let_go, _release(kind), words).atexit = False


@intrinsic
def _store(typingctx: Any, value: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        at = builder.inttoptr(args[1], context.get_value_type(sig.args[0]).as_pointer())
        builder.store(args[0], at, align=8)
        context.nrt.incref(builder, sig.args[0], args[0])
        return context.get_dummy_value()

    return types.void(value, types.uint64), codegen


@numba.njit
def _keep(state: Any, address: Any) -> None:
    _store(state, address)


def _release(kind: Any) -> Any:
    """A compiled function that gives the reference back that `_keep` took. It is compiled here: the garbage collector
    will call it."""
    at = _value_at(kind)

    @numba.njit(types.void(types.uint64))
    def release(address: Any) -> None:
        _drop(at(address))

    return release


def _let_go(release: Any, words: Any) -> None:
    release(np.uint64(words.ctypes.data))


@intrinsic
def _drop(typingctx: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        context.nrt.decref(builder, sig.args[0], args[0])
        return context.get_dummy_value()

    return types.void(value), codegen


def _value_at(kind: Any) -> Any:
    """An intrinsic: the object whose words lie at an address (an integer, or C's pointer)."""

    @intrinsic
    def at(typingctx: Any, pointer: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            of_value = context.get_value_type(kind).as_pointer()
            is_number = isinstance(sig.args[0], types.Integer)
            where = builder.inttoptr(args[0], of_value) if is_number else builder.bitcast(args[0], of_value)
            return impl_ret_borrowed(context, builder, kind, builder.load(where, align=8))

        return kind(pointer), codegen

    return at
