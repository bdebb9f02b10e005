"""The C kernels of the `probes` benchmark compute what the Python ones do, and look, in every way of probing."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from corelane.bench._native import ffi, lib
from corelane.bench.probes import c as probes_c
from corelane.bench.probes.kernels import kernels

pytestmark = pytest.mark.skipif(probes_c.compiler() is None, reason="no C compiler: apt-get install gcc")

SMALL = {
    "matmul": lambda rng: (rng.random((40, 40)), rng.random((40, 40)), np.zeros((40, 40))),
    "matmul_blocked": lambda rng: (
        rng.random((2, 32, 2, 32)),
        rng.random((2, 32, 2, 32)),
        np.zeros((2, 32, 2, 32)),
    ),
    "stencil": lambda rng: (rng.random((50, 50)), np.zeros((50, 50))),
    "fnv": lambda rng: (rng.integers(0, 256, 3000).astype(np.uint8),),
    "walk": lambda rng: (
        np.array([3, 1, 5, 0]),
        np.array([1, 3, -1, -1]),
        np.array([2, -1, -1, -1]),
        rng.integers(0, 8, 700),
    ),
    "spmv": lambda rng: (
        np.cumsum(np.r_[0, rng.integers(0, 5, 400)]),
        rng.integers(0, 60, 2000),
        rng.random(2000),
        rng.random(60),
        np.zeros(400),
    ),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    return {way: probes_c.build(way, folder, noting=way != "plain") for way in probes_c.WAYS}


def test_every_c_kernel_has_a_python_one():
    assert set(probes_c.NAMES) == set(SMALL) <= {kernel.name for kernel in kernels()}


@functools.cache
def by_python(name):
    """What a kernel in Python returns, and leaves in its arguments."""
    function = next(kernel.function for kernel in kernels() if kernel.name == name)
    arguments = SMALL[name](np.random.default_rng(5))
    with np.errstate(over="ignore"):
        return function(*arguments), arguments


@pytest.mark.parametrize("way", probes_c.WAYS)
@pytest.mark.parametrize("name", probes_c.NAMES)
def test_results_and_looks(name, way, built):
    ours = SMALL[name](np.random.default_rng(5))
    nothing = int(ffi.cast("uintptr_t", lib.cl_probe_word()))
    kept = ffi.new("uint32_t[1]")
    probes_c.look_at(built[way], probes_c.ALWAYS)
    try:
        lib.cl_bench_gaps_begin(kept, 1)
        result = probes_c.call(built[way], name, ours)()
        looks = lib.cl_bench_gaps_end()
    finally:
        probes_c.look_at(built[way], nothing)
    expected, python = by_python(name)
    if expected is not None:
        assert result == expected
    for a, b in zip(ours, python, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert (looks > 0) == (way != "plain")
