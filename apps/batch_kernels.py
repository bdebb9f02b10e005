"""The batch application's kernels: each works on its arrays until it is told to end, and counts what it has done.

words: uint64, shared with whoever reads progress: words[END] is 1 once the kernel is to end, words[at] the units done.
Importing this module imports numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..libos import batch
from ..libos.numba.atomics import load_atomic, store_atomic

END = 0
STRIDE = 8  # words from one kernel's count to the next: a cache line each


@batch
def matmul(words: Any, at: Any, a: Any, b: Any, c: Any) -> None:
    """c = a @ b, again and again; a unit is one product of two n x n matrices."""
    n, done = a.shape[0], np.uint64(0)
    while load_atomic(words, END) == 0:
        for i in range(n):
            for j in range(n):
                c[i, j] = 0.0
            for k in range(n):
                factor = a[i, k]
                for j in range(n):
                    c[i, j] += factor * b[k, j]
        done += np.uint64(1)
        store_atomic(words, at, done)


@batch
def stencil(words: Any, at: Any, a: Any, b: Any, c: Any) -> None:
    """Jacobi's five-point average (c is not used); a unit is two sweeps over an n x n grid, there and back."""
    n, done = a.shape[0], np.uint64(0)
    while load_atomic(words, END) == 0:
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                b[i, j] = 0.25 * (a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                a[i, j] = 0.25 * (b[i - 1, j] + b[i + 1, j] + b[i, j - 1] + b[i, j + 1])
        done += np.uint64(1)
        store_atomic(words, at, done)


@batch
def hash(words: Any, at: Any, a: Any, b: Any, c: Any) -> None:
    """FNV-1a over the bytes of a, 64 bits, kept in c[0, 0]'s bits as a float of its low half; a unit is one pass."""
    data, done = a.view(np.uint8).ravel(), np.uint64(0)
    while load_atomic(words, END) == 0:
        state = np.uint64(0xCBF29CE484222325)
        for i in range(data.size):
            state = (state ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
        c[0, 0] = float(state & np.uint64(0xFFFFFFFF))
        done += np.uint64(1)
        store_atomic(words, at, done)


KERNELS = {"matmul": matmul, "stencil": stencil, "hash": hash}
