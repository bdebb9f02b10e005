"""The kernels of the `probes` benchmark: plain Python functions for numba, and arguments of a few milliseconds' work.

Those marked held out were not looked at while the costs of libos/batch_work/probes.py were chosen. Importing this
imports numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit


def matmul(a: Any, b: Any, c: Any) -> None:
    """Row by row, which LLVM vectorises."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                c[i, j] += a[i, k] * b[k, j]


def matmul_naive(a: Any, b: Any, c: Any) -> None:
    """Dot products down a column: strided loads, nothing to vectorise."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            s = 0.0
            for k in range(a.shape[1]):
                s += a[i, k] * b[k, j]
            c[i, j] = s


def matmul_blocked(a: Any, b: Any, c: Any) -> None:
    """Blocks of 32 x 32, of matrices in the shape (rows of blocks, 32, columns of blocks, 32): innermost loops of four
    vectors. Indexed from 0 on in each dimension: any other index may be negative, as numba sees it, and is not
    vectorised."""
    for i0 in range(a.shape[0]):
        for k0 in range(a.shape[2]):
            for j0 in range(b.shape[2]):
                for i in range(a.shape[1]):
                    for k in range(a.shape[3]):
                        x = a[i0, i, k0, k]
                        for j in range(b.shape[3]):
                            c[i0, i, j0, j] += x * b[k0, k, j0, j]


def stencil(x: Any, y: Any) -> None:
    """Five points in two dimensions."""
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            y[i, j] = 0.5 * x[i, j] + 0.125 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


def fnv(data: Any) -> Any:
    """FNV-1a: a chain of multiplications, byte by byte."""
    h = np.uint64(0xCBF29CE484222325)
    for byte in data:
        h = (h ^ np.uint64(byte)) * np.uint64(0x100000001B3)
    return h


def find(text: Any, needle: Any) -> int:
    """First place of a substring: a scan for its first byte, with early exits within."""
    n, m = len(text), len(needle)
    for i in range(n - m + 1):
        if text[i] == needle[0]:
            for j in range(1, m):
                if text[i + j] != needle[j]:
                    break
            else:
                return i
    return -1


def scan(text: Any, byte: Any) -> int:
    """memchr as a `while`."""
    i = 0
    while i < len(text) and text[i] != byte:
        i += 1
    return i


def walk(key: Any, left: Any, right: Any, wanted: Any) -> int:
    """Look keys up in a binary search tree that is held in arrays."""
    found = 0
    for w in wanted:
        node = 0
        while node >= 0:
            if key[node] == w:
                found += 1
                break
            node = left[node] if w < key[node] else right[node]
    return found


@njit(nogil=True)
def _depth(left: Any, right: Any, node: int) -> Any:
    if node < 0:
        return 0
    return max(_depth(left, right, left[node]), _depth(left, right, right[node])) + 1


def tree_depth(left: Any, right: Any, root: int) -> Any:
    """By recursion."""
    return _depth(left, right, root)


def saxpy(a: float, x: Any, y: Any) -> None:
    for i in range(len(x)):
        y[i] += a * x[i]


def total(x: Any) -> float:
    """A reduction in order: numba may not reorder additions of floats."""
    s = 0.0
    for v in x:
        s += v
    return s


def total_int(x: Any) -> int:
    """A reduction that LLVM vectorises."""
    s = 0
    for v in x:
        s += v
    return s


def merge_sort(x: Any, spare: Any) -> None:
    """Bottom up."""
    n, width = len(x), 1
    while width < n:
        for low in range(0, n, 2 * width):
            mid, high = min(low + width, n), min(low + 2 * width, n)
            i, j = low, mid
            for k in range(low, high):
                if i < mid and (j >= high or x[i] <= x[j]):
                    spare[k] = x[i]
                    i += 1
                else:
                    spare[k] = x[j]
                    j += 1
        x[:] = spare
        width *= 2


def mandelbrot(out: Any, turns: int) -> None:
    """A `while` that ends early, at each point."""
    h, w = out.shape
    for i in range(h):
        for j in range(w):
            cr, ci = 3.0 * j / w - 2.0, 2.0 * i / h - 1.0
            zr = zi = 0.0
            n = 0
            while n < turns and zr * zr + zi * zi < 4.0:
                zr, zi = zr * zr - zi * zi + cr, 2.0 * zr * zi + ci
                n += 1
            out[i, j] = n


def nbody(p: Any, v: Any, steps: int) -> None:
    """Held out: short loops with square roots."""
    n = len(p)
    for _ in range(steps):
        for i in range(n):
            for j in range(n):
                if i != j:
                    dx, dy, dz = p[j, 0] - p[i, 0], p[j, 1] - p[i, 1], p[j, 2] - p[i, 2]
                    d = dx * dx + dy * dy + dz * dz + 1e-9
                    f = 1e-4 / (d * np.sqrt(d))
                    v[i, 0] += f * dx
                    v[i, 1] += f * dy
                    v[i, 2] += f * dz
        for i in range(n):
            for k in range(3):
                p[i, k] += v[i, k] * 1e-3


def edit_distance(a: Any, b: Any, row: Any) -> Any:
    """Held out: dynamic programming, a chain through the innermost loop."""
    for j in range(len(b) + 1):
        row[j] = j
    for i in range(len(a)):
        corner = row[0]
        row[0] = i + 1
        for j in range(len(b)):
            best = min(row[j] + 1, row[j + 1] + 1, corner + (a[i] != b[j]))
            corner = row[j + 1]
            row[j + 1] = best
    return row[len(b)]


def sieve(composite: Any) -> Any:
    """Held out: primes, by strides that get longer."""
    composite[:] = 0
    n, found = len(composite), 0
    for i in range(2, n):
        if not composite[i]:
            found += 1
            for j in range(i * i, n, i):
                composite[j] = 1
    return found


def spmv(start: Any, column: Any, value: Any, x: Any, y: Any) -> None:
    """A sparse matrix times a vector, rows of any length, loads that miss."""
    for i in range(len(start) - 1):
        s = 0.0
        for k in range(start[i], start[i + 1]):
            s += value[k] * x[column[k]]
        y[i] = s


def pairs(p: Any, q: Any, out: Any) -> None:
    """Squared distances of all pairs of points: innermost loops of three turns, which only the array knows."""
    for i in range(p.shape[0]):
        for j in range(q.shape[0]):
            s = 0.0
            for k in range(p.shape[1]):
                z = p[i, k] - q[j, k]
                s += z * z
            out[i, j] = s


def row_sums(x: Any, out: Any) -> None:
    """Of short rows: of integers LLVM vectorises them, floats are added in order."""
    for i in range(x.shape[0]):
        s = x.dtype.type(0)
        for j in range(x.shape[1]):
            s += x[i, j]
        out[i] = s


def row_updates(k: float, x: Any, out: Any) -> None:
    """Of short rows: two vectors a turn."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] += k * x[i, j]


@dataclass(frozen=True)
class Kernel:
    """A function and its arguments. held_out: not looked at while tuning. share: of the measuring time; more for those
    whose loads miss, since their runs differ by 10 to 25 % from one to the next, the others' by a few. of: what sort of
    arguments, where a function has several."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    held_out: bool = False
    share: int = 1
    of: str = ""

    @property
    def name(self) -> str:
        return f"{self.function.__name__}_{self.of}" if self.of else self.function.__name__


@njit
def _insert(key: Any, left: Any, right: Any) -> None:
    for i in range(1, len(key)):
        node = 0
        while True:
            side = left if key[i] < key[node] else right
            if side[node] < 0:
                side[node] = i
                break
            node = side[node]


def _tree(rng: Any, n: int) -> tuple[Any, Any, Any]:
    """Keys and children of a tree that n random keys were put in, in the order of insertion: loads that miss."""
    key = rng.permutation(n)
    left, right = np.full(n, -1), np.full(n, -1)
    _insert(key, left, right)
    return key, left, right


def kernels(seed: int = 1) -> list[Kernel]:
    """All of them, with arguments from a seed."""
    rng = np.random.default_rng(seed)
    a, b = rng.random((192, 192)), rng.random((192, 192))
    blocks = tuple(m.reshape(6, 32, 6, 32) for m in (a, b, np.zeros_like(a)))
    grid = rng.random((700, 700))
    text = rng.integers(0, 250, 4_000_000).astype(np.uint8)
    long = rng.random(1_500_000)
    tree = _tree(rng, 200_000)
    letters = rng.integers(0, 4, (2, 1500)).astype(np.uint8)
    start = np.concatenate(([0], np.cumsum(rng.integers(0, 40, 20_000))))
    entries = int(start[-1])
    return [
        Kernel(matmul, (a, b, np.zeros_like(a))),
        Kernel(matmul_naive, (a, b, np.zeros_like(a))),
        Kernel(matmul_blocked, blocks),
        Kernel(stencil, (grid, np.zeros_like(grid))),
        Kernel(fnv, (text[:1_500_000],)),
        Kernel(find, (text, np.array([7, 8, 9, 251], np.uint8))),
        Kernel(scan, (text, np.uint8(251))),
        Kernel(walk, (*tree, rng.integers(0, 200_000, 10_000)), share=3),
        Kernel(tree_depth, (*tree[1:], 0)),
        Kernel(saxpy, (0.5, long, np.zeros_like(long))),
        Kernel(total, (long,)),
        Kernel(total_int, ((long * 1e6).astype(np.int64),)),
        Kernel(merge_sort, (rng.random(60_000), np.zeros(60_000))),
        Kernel(mandelbrot, (np.zeros((150, 150), np.int64), 200)),
        Kernel(nbody, (rng.random((40, 3)), np.zeros((40, 3)), 300), held_out=True),
        Kernel(edit_distance, (letters[0], letters[1], np.zeros(1501, np.int64)), held_out=True),
        Kernel(sieve, (np.zeros(2_000_000, np.uint8),), held_out=True),
        Kernel(
            spmv,
            (start, rng.integers(0, len(long), entries), rng.random(entries), long, np.zeros(20_000)),
            share=6,
        ),
        Kernel(pairs, (rng.random((400, 3)), rng.random((400, 3)), np.zeros((400, 400)))),
        Kernel(row_sums, (rng.integers(0, 9, (60_000, 16)), np.zeros(60_000, np.int64)), of="int"),
        Kernel(row_sums, (rng.random((60_000, 8)), np.zeros(60_000)), of="float"),
        Kernel(row_updates, (0.5, rng.random((40_000, 16)), np.zeros((40_000, 16)))),
    ]
