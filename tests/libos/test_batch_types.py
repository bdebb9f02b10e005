"""What a job gives is what the function gives that is called: kinds of arguments and results, each both ways."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import numpy as np
import pytest

from corelane import libos
from corelane.drivers.memory import memory_link
from corelane.libos import Runtime
from corelane.runtime.errors import CorelaneError


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kind="batch", address="10.0.0.1/24") as made:
        yield made.start()


@libos.batch
def find(a, x):
    for i in range(len(a)):
        if a[i] == x:
            return i
    return None


@libos.batch
def from_where(a, x):
    for i in range(len(a)):
        if a[i] == x:
            return a[i:].copy()
    return None


def test_a_loop_that_returns_what_it_found_may_end_without(runtime):
    a = np.arange(10_000)
    for x in (0, 7_000, -1):
        assert runtime.batch(find, a, x).result(60) == find(a, x) == find.function(a, x)


def test_an_array_or_none_comes_back(runtime):
    a = np.arange(100)
    for _ in range(3):  # its memory is counted
        assert np.array_equal(runtime.batch(from_where, a, 90).result(60), a[90:])
        assert runtime.batch(from_where, a, 100).result(60) is None


@numba.njit(parallel=True)
def add_up(a):
    s = 0.0
    for i in numba.prange(len(a)):
        s += a[i]
    return s


def test_a_parallel_function_is_refused_where_it_is_called(runtime):
    @libos.batch
    def through_another(a):
        return add_up(a)

    for _ in range(2):  # it was compiled by then
        with pytest.raises(CorelaneError, match=r"compile batch function through_another: .*parallel=True.*one job"):
            runtime.batch(through_another, np.ones(10))
