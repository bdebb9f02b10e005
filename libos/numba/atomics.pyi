"""Atomic operations on elements of integer arrays (atomics.py): one instruction each, sequentially consistent.

array: contiguous, one-dimensional, of integers of 8 to 64 bits. index: not checked. The array's own memory is used.

What an editor shows; tests/libos/numba/test_calls.py compares it with the code and with docs/handlers.md. Numbers are
integers of 64 bits or less. They exist in compiled code only.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

_Int: TypeAlias = int | np.integer[Any]
_Words: TypeAlias = npt.NDArray[Any]

def load_atomic(array: _Words, index: _Int) -> int:
    """The element, loaded atomically."""

def store_atomic(array: _Words, index: _Int, value: _Int) -> None:
    """Store the element atomically."""

def atomic_add(array: _Words, index: _Int, value: _Int) -> int:
    """Store element + value atomically; the element before."""

def atomic_sub(array: _Words, index: _Int, value: _Int) -> int:
    """Store element - value atomically; the element before."""

def atomic_and(array: _Words, index: _Int, value: _Int) -> int:
    """Store element & value atomically; the element before."""

def atomic_or(array: _Words, index: _Int, value: _Int) -> int:
    """Store element | value atomically; the element before."""

def atomic_xor(array: _Words, index: _Int, value: _Int) -> int:
    """Store element ^ value atomically; the element before."""

def exchange_atomic(array: _Words, index: _Int, value: _Int) -> int:
    """Store value atomically; the element before."""

def cmpxchg(array: _Words, index: _Int, expected: _Int, value: _Int) -> int:
    """The element before, not whether it was stored, which it is if that equals expected. See compare_and_set."""

def compare_and_set(array: _Words, index: _Int, expected: _Int, value: _Int) -> bool:
    """Store value if the element equals expected. Whether it was stored."""
