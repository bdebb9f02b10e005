"""The bound of the `probes` benchmark counts the turns around innermost loops, and changes no result."""

from __future__ import annotations

import numba
import numpy as np

from corelane.bench.probes.bound import BoundLibrary
from corelane.bench.probes.kernels import saxpy, spmv
from corelane.libos.batch_work.compile import default_target, probed_compiler


def bound_of(function, *args):
    """A function with counts, called once, and the number of places that count."""
    made = numba.njit(nogil=True, pipeline_class=probed_compiler(default_target(), BoundLibrary))(function)
    made(*args)
    (overload,) = made.overloads.values()
    return made, str(overload.library._final_module).count("ud2")


def test_rows_are_counted_and_come_out_the_same():
    rng = np.random.default_rng(3)
    start = np.cumsum(np.r_[0, rng.integers(0, 30, 400)])
    column, value, x = rng.integers(0, 60, start[-1]), rng.random(start[-1]), rng.random(60)
    plain, counted = np.zeros(400), np.zeros(400)
    numba.njit(spmv)(start, column, value, x, plain)
    _, places = bound_of(spmv, start, column, value, x, counted)
    assert places == 1
    assert plain.any()
    assert (plain == counted).all()


def test_loops_around_nothing_are_not_counted():
    x, y = np.arange(50.0), np.ones(50)
    _, places = bound_of(saxpy, 2.0, x, y)
    assert places == 0
    assert (y == 1 + 2 * np.arange(50.0)).all()
