"""Buffer pools: against a set, across threads, and when misused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime._native import ffi, lib

ops = st.lists(st.tuples(st.sampled_from(["get", "put"]), st.integers(0, 3), st.integers(0, 200)), max_size=80)


class Pool:
    """A pool that frees itself."""

    def __init__(self, first: int, capacity: int, caches: int) -> None:
        self.ptr = ffi.gc(lib.cl_pool_new(first, capacity, caches), lib.cl_pool_delete)

    def get(self, cache: int, n: int) -> list[int]:
        out = ffi.new("uint32_t[]", max(n, 1))
        return list(out[0 : lib.cl_pool_get(self.ptr, cache, out, n)])

    def put(self, cache: int, indices: list[int]) -> None:
        lib.cl_pool_put(self.ptr, cache, ffi.new("uint32_t[]", indices), len(indices))

    @property
    def available(self) -> int:
        return int(lib.cl_pool_available(self.ptr))


@given(st.integers(0, 2**20), st.integers(0, 700), st.integers(1, 4), ops)
def test_every_index_has_one_owner(first, capacity, caches, ops):
    pool = Pool(first, capacity, caches)
    held: list[int] = []
    for op, cache, n in ops:
        if op == "get":
            got = pool.get(cache % caches, n)
            assert not set(got) & set(held)
            assert len(set(got)) == len(got) <= n
            assert all(first <= i < first + capacity for i in got)
            held += got
        else:
            back, held = held[:n], held[n:]
            pool.put(cache % caches, back)
        assert pool.available + len(held) == capacity, "in the pool + held = capacity"
    pool.put(0, held)
    assert pool.available == capacity
    assert lib.cl_pool_errors(pool.ptr) == 0


@given(st.integers(8, 2000), st.integers(2, 8))
def test_idle_caches_keep_no_more_than_half(capacity, caches):
    """Buffers that come back through other threads' caches stay reachable for the one that needs them."""
    pool = Pool(0, capacity, caches)
    everything = pool.get(0, capacity)
    assert len(everything) == capacity
    for i, index in enumerate(everything):
        pool.put(1 + i % (caches - 1), [index])
    floor = 2 * caches if capacity < 4 * caches else capacity / 2
    assert len(pool.get(0, capacity)) >= min(capacity - floor, capacity / 2)


def test_a_steady_flow_stays_warm():
    pool = Pool(0, 4096, 1)
    used = set()
    for _ in range(1000):
        burst = pool.get(0, 32)
        used |= set(burst)
        pool.put(0, burst)
    assert len(used) == 32, "the same buffers again and again; the others are never touched"
    assert used == set(range(32)), "low indices first"


def test_overflow_by_double_frees_is_refused():
    pool = Pool(0, 256, 1)
    held = pool.get(0, 256)
    for _ in range(4):
        pool.put(0, held)
    assert lib.cl_pool_errors(pool.ptr) > 0
    assert pool.available <= 256 + 128, "the depot ends at its capacity; only a cache holds doubles"


def test_impossible_pools_are_refused():
    assert lib.cl_pool_new(2**32 - 10, 20, 1) == ffi.NULL


@pytest.mark.parametrize(("capacity", "threads"), [(64, 4), (1024, 2), (8192, 4)])
def test_threads_share_without_loss(c_program, capacity, threads, seed):
    run = c_program("tests/runtime/c/pool_stress.c", ["runtime/pool.c"])
    rounds = min(300 * capacity, 100_000)  # few buffers run out often: beside another program that takes its time slice
    assert f"all {capacity} back" in run(capacity, threads, rounds, seed)


def test_debug_builds_find_double_frees(c_program):
    assert "12 refused" in c_program("tests/runtime/c/pool_debug.c", sources=[])()
