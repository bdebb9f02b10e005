"""What handlers share besides arrays: objects of jitclasses, structrefs, and tuples of these."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import types
from numba.experimental import jitclass, structref

from corelane import libos
from corelane.libos.handlers.state import state_of
from corelane.libos.numba import atomics, calls
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]


@jitclass([("seen", types.uint64[::1]), ("scale", types.int64)])  # type: ignore[untyped-decorator]
class Tally:
    """An array inside, a number that changes, and a method."""

    def __init__(self, scale: int) -> None:
        self.seen = np.zeros(2, np.uint64)
        self.scale = scale

    def add(self, n: int) -> int:
        self.scale += 1
        return atomics.atomic_add(self.seen, 0, n * self.scale)


@structref.register
class PairType(types.StructRef):  # type: ignore[misc]
    """A structref's type."""

    def preprocess_fields(self, fields: Any) -> Any:
        """Fields by their plain types, as numba's manual has it."""
        return tuple((name, types.unliteral(kind)) for name, kind in fields)


class Pair(structref.StructRefProxy):  # type: ignore[misc]
    """What Python has of it."""


structref.define_proxy(Pair, PairType, ["words", "factor"])


class Both(NamedTuple):
    """A tuple of an array, a jitclass object and a number."""

    words: Any
    tally: Any
    most: int


def test_an_object_of_a_jitclass(serve: Serve) -> None:
    tally = Tally(1)

    @libos.udp(9000, state=tally)
    def add(request: Any, reply: Any, state: Any) -> int:
        calls.put_le64(reply, 0, state.add(len(request)))
        return 8

    served = serve(add, kthreads=2)
    assert [int.from_bytes(served.ask(b"x" * n, sport=n), "little") for n in (3, 5, 7)] == [0, 6, 21]
    assert (tally.seen.tolist(), tally.scale) == ([49, 0], 4)


def test_a_structref(serve: Serve) -> None:
    pair = Pair(np.zeros(1, np.uint64), 3)

    @libos.udp(9000, state=pair)
    def add(request: Any, reply: Any, state: Any) -> int:
        calls.put_le64(reply, 0, atomics.atomic_add(state.words, 0, state.factor))
        return 8

    served = serve(add)
    assert [int.from_bytes(served.ask(b"x"), "little") for _ in range(3)] == [0, 3, 6]


def test_a_tuple(serve: Serve) -> None:
    both = Both(np.zeros(1, np.uint64), Tally(0), 2)

    @libos.udp(9000, state=both)
    def add(request: Any, reply: Any, state: Any) -> int:
        if atomics.atomic_add(state.words, 0, 1) >= state.most:
            return 0
        calls.put_le64(reply, 0, state.tally.add(1))
        return 8

    served = serve(add)
    assert [len(served.ask(b"x")) for _ in range(2)] == [8, 8]


def test_nothing_is_kept_once_nobody_holds_the_handler() -> None:
    """The words that code knows an object by have a reference to all that they point to, and give it back."""
    words = np.zeros(1000, np.uint64)
    before = sys.getrefcount(words)
    held = state_of((words, Tally(1)))
    gc.collect()
    assert sys.getrefcount(words) > before
    del held
    gc.collect()
    assert sys.getrefcount(words) == before


@pytest.mark.parametrize("state", [5, [1, 2], {"a": 1}, (1, [2]), np.zeros((4, 4))[::2, ::2], (np.zeros((4, 4)).T,)])
def test_what_cannot_be_shared(state: Any) -> None:
    with pytest.raises(CorelaneError, match=r"its state .* \(give a C-contiguous numpy array, a jitclass"):
        state_of(state)
