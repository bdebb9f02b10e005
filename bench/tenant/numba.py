"""The batch job of loops.h as a numba function: the same product of the same matrices.

One function is compiled twice: by numba alone, for a plain thread, and by `libos.batch`, which adds probes to its
loops. Importing this module imports numba.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from ...libos import batch
from ...libos.batch_work.compile import default_target, probed_compiler
from ...libos.numba.atomics import load_atomic, store_atomic
from ...runtime.errors import CorelaneError
from .._native import ffi, lib

SIDE = 32
PAGE_BYTES = 4096
SKEW_BYTES = 1344  # rows of different matrices are then not in the same place of a page


def products(a: Any, b: Any, c: Any, work: Any, turn: Any, mine: Any) -> None:
    """c = a * b, again and again, while turn[0] is `mine`; each is counted in work[0]."""
    done = np.uint64(load_atomic(work, 0))
    while load_atomic(turn, 0) == mine:
        for i in range(a.shape[0]):
            for n in range(b.shape[1]):
                c[i, n] = 0.0
            for k in range(b.shape[0]):
                x = a[i, k]
                for n in range(b.shape[1]):
                    c[i, n] += x * b[k, n]
        a[0, 0] = c[-1, -1] * 1e-3  # so that each product needs the one before
        done += np.uint64(1)
        store_atomic(work, 0, done)


probed = batch(products)
plain = numba.njit(nogil=True)(products)


def matrices() -> tuple[Any, Any, Any]:
    """a, b and c as the C job has them, in the same places of a page in every process: numpy's own memory begins
    anywhere, and where rows of c and of b share the low bits of their addresses the code took 2.6 times as long."""
    bytes_each = SIDE * SIDE * 8
    memory = np.zeros(3 * (bytes_each + SKEW_BYTES) + PAGE_BYTES, dtype=np.uint8)
    start = -memory.ctypes.data % PAGE_BYTES
    starts = [start + n * (bytes_each + SKEW_BYTES) for n in range(3)]
    a, b, c = (memory[at : at + bytes_each].view(np.float64).reshape(SIDE, SIDE) for at in starts)
    i, k = np.indices((SIDE, SIDE))
    a[:], b[:] = 1.0 / (1 + i + k), 1.0 / (1 + i * k)
    return a, b, c


def arguments(page: Any) -> tuple[Any, ...]:
    """Of `products` without the last: the matrices, and the page's words as arrays of one."""
    return *matrices(), *words_of(page)


def words_of(page: Any) -> list[Any]:
    """`work` and `turn` of a page or board, as arrays of one."""
    return [np.frombuffer(ffi.buffer(ffi.addressof(page[0], name), 8), dtype=np.uint64) for name in ("work", "turn")]


def in_a_thread(page: Any) -> Callable[[Any], None]:
    """The job as a function of the page, for a turn; compiled when this returns."""
    args = arguments(page)
    plain(*args, np.uint64(lib.CL_TENANT_END - 2))

    def run(page: Any) -> None:
        turn = int(page.turn)
        if turn % 2:
            plain(*args, np.uint64(turn))

    return run


def handing_over(board: Any) -> Callable[[], None]:
    """The job as a function, for a turn of raw hand-overs (bench/colocate/raw.h), compiled when this returns: with
    the probes of `libos.batch`, but for what they call. Raises CorelaneError if the code has none."""
    target = dataclasses.replace(default_target(), slow="cl_raw_cede")
    probed = numba.njit(nogil=True, pipeline_class=probed_compiler(target))(products)
    args = *matrices(), *words_of(board)
    probed(*args, np.uint64(int(board.turn) + 1))
    report = probed.overloads[probed.signatures[0]].library.report
    if report.missing:
        raise CorelaneError("raw hand-overs", f"the batch job has no probes: {report.missing}")

    def run() -> None:
        turn = int(board.turn)
        if turn % 2:
            probed(*args, np.uint64(turn))

    return run


class OnRuntime:
    """The job on uthreads of a runtime, one a turn; compiled when this is made."""

    def __init__(self, runtime: Any, page: Any) -> None:
        self._runtime, self._page = runtime, page
        self._args = arguments(page)
        self._job: Any = None
        self._spawn(lib.CL_TENANT_END - 2)

    def _spawn(self, turn: int) -> None:
        if self._job is not None:
            self._job.result(10)  # of the turn before: it has ended, or is about to
        self._job = self._runtime.batch(probed, *self._args, np.uint64(turn))

    def spawn(self) -> None:
        """For this turn."""
        turn = int(self._page.turn)
        if turn % 2:
            self._spawn(turn)
