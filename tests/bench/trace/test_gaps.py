"""Which gaps lie over a request, and which are named; and the canary that makes them."""

from __future__ import annotations

import os

import numpy
import pytest

from corelane.bench._native import ffi, lib
from corelane.bench.trace.gaps import judge, overlaps
from corelane.runtime.layout import dtype


@pytest.mark.parametrize("seed", range(20))
def test_overlaps_are_what_looking_at_each_pair_says(seed: int) -> None:
    random = numpy.random.default_rng(seed)
    n, m = (int(random.integers(0, 12)) for _ in range(2))
    begin, other = (random.integers(0, 100, k).astype(numpy.uint64) for k in (n, m))
    end = begin + random.integers(1, 20, n).astype(numpy.uint64)
    other_end = other + random.integers(1, 20, m).astype(numpy.uint64)
    expected = [
        any(b < oe and e > ob for ob, oe in zip(other, other_end, strict=True)) for b, e in zip(begin, end, strict=True)
    ]
    assert list(overlaps(begin, end, other, other_end)) == expected


def test_a_gap_is_named_by_a_record_over_it_that_says_enough() -> None:
    messages = numpy.zeros(2, dtype(ffi, "struct cl_trace_message"))
    messages["begin"], messages["sent"] = [1000, 5000], [500, 500]
    gaps = numpy.zeros(3, dtype(ffi, "struct cl_trace_gap"))
    gaps["begin"], gaps["end"], gaps["gone"] = [900, 5000, 8000], [1600, 5600, 9000], [100, 40, 500]
    taken = numpy.array([[1200, 1400], [5100, 5200], [8100, 8300], [1490, 1700]], numpy.uint64)
    # the first: half of it is gone by the record over it; the second: less; the third lies over no request.
    assert list(judge(taken, messages, gaps)) == [True, False, False]
    assert list(judge(taken[2:3], messages, gaps)) == []


def test_the_canary_takes_the_core_for_as_long_as_it_says() -> None:
    out, err = ffi.new("struct cl_bench_taker **"), ffi.new("char[256]")
    cpu = min(os.sched_getaffinity(0))
    assert lib.cl_bench_taker_start(cpu, 7, 20_000, 30_000, 3, out, err) == 0, ffi.string(err)
    room = ffi.new("struct cl_bench_taken[]", 3)
    n = lib.cl_bench_taker_stop(out[0], room, 3)  # after one at least
    assert 1 <= n <= 3
    clock = lib.cl_clock_default()
    for i in range(n):
        assert lib.cl_clock_ticks_to_ns(clock, room[i].end - room[i].begin) >= 19_990
    assert lib.cl_bench_taker_start(10**6, 7, 20_000, 30_000, 3, out, err) < 0
    assert b"out of range" in ffi.string(err)
