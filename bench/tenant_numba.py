"""The batch job of tenant_loops.h as a numba function without probes: the same product of the same matrices."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ._native import ffi

SIDE = 32
ROUND = 1000  # products between two looks at `stop`
PAUSE_S = 0.03


def products(a: Any, b: Any, c: Any, words: Any, rounds: int) -> None:
    """c = a * b, `rounds` times; each is counted in words[0]."""
    for _ in range(rounds):
        for i in range(a.shape[0]):
            for n in range(b.shape[1]):
                c[i, n] = 0.0
            for k in range(b.shape[0]):
                x = a[i, k]
                for n in range(b.shape[1]):
                    c[i, n] += x * b[k, n]
        a[0, 0] = c[-1, -1] * 1e-3  # so that each product needs the one before
        words[0] += 1


def matrices() -> tuple[Any, Any, Any]:
    """a, b and c as the C job has them."""
    i, k = np.indices((SIDE, SIDE))
    return 1.0 / (1 + i + k), 1.0 / (1 + i * k), np.zeros((SIDE, SIDE))


def _words(page: Any) -> Any:
    """The page's counter as an array of one element."""
    return np.frombuffer(ffi.buffer(ffi.addressof(page[0], "work"), 8), dtype=np.uint64)


def compiled() -> Callable[[Any], None]:
    """The job as a function of the page, which it works on until page.stop; compiled when this returns."""
    plain = numba.njit(nogil=True)(products)
    a, b, c = matrices()
    plain(a, b, c, np.zeros(1, dtype=np.uint64), 0)

    def run(page: Any) -> None:
        words = _words(page)
        while not page.stop:
            plain(a, b, c, words, 0 if page.pause else ROUND)
            if page.pause:
                time.sleep(PAUSE_S)

    return run
