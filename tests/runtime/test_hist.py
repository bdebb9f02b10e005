"""Histograms against sorted lists."""

from __future__ import annotations

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime._native import lib
from corelane.runtime.errors import CorelaneError
from corelane.runtime.hist import Hist

LIMIT = 100_000_000_000
values_ns = st.one_of(st.integers(0, 5000), st.integers(0, LIMIT), st.integers(1, 40).map(lambda e: (1 << e) % LIMIT))
samples = st.lists(values_ns, min_size=1, max_size=200)
percents = st.one_of(st.sampled_from([0.0, 50.0, 99.0, 99.9, 99.99, 100.0]), st.floats(0, 100))


def nearest_rank(ordered: list[float], percent: float) -> float:
    """The model: the smallest of `ordered` that at least percent % are not above."""
    rank = math.ceil(percent * len(ordered) / 100 - 1e-6)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


@given(samples, st.integers(0, 50), percents, st.integers(1, 5))
def test_percentiles_match_a_sorted_list(values, infinite, percent, digits):
    h = Hist(digits)
    h.record_all(values)
    h.record_infinite(infinite)
    true = nearest_rank(sorted(values) + [math.inf] * infinite, percent)
    got = h.percentile(percent)
    assert true <= got <= true * (1 + 10.0**-digits) + 1e-9
    assert got <= h.max


@given(samples)
def test_exact_totals(values):
    h = Hist()
    h.record_all(values)
    assert (h.count, h.min, h.max) == (len(values), min(values), max(values))
    assert h.mean == pytest.approx(sum(values) / len(values))
    assert sum(n for _, _, n in h.buckets()) == len(values)
    assert all(any(low <= v <= high for low, high, _ in h.buckets()) for v in values)


def test_a_bucket_that_was_counted_before_the_max_was_noted_is_one():
    h = Hist()
    h.record_all(range(1, 2000))
    h.ptr.max = 5
    rows = h.buckets()
    assert all(low <= high for low, high, _ in rows)
    assert sum(n for _, _, n in rows) == 1999


@given(st.integers(0, LIMIT), st.integers(1, 5))
def test_buckets_tile_the_range(value, digits):
    h = Hist(digits)
    b = lib.cl_hist_bucket(h.ptr, value)
    low, high = lib.cl_hist_bucket_low(h.ptr, b), lib.cl_hist_bucket_high(h.ptr, b)
    assert low <= value <= high
    if b:
        assert lib.cl_hist_bucket_high(h.ptr, b - 1) == low - 1
    if b < h.ptr.n_buckets - 1:
        assert high - low <= low * 10.0**-digits
    else:
        assert high > LIMIT


@given(samples, samples, st.integers(0, 9))
def test_merge_and_since(first, second, infinite):
    a, b, both = Hist(), Hist(), Hist()
    a.record_all(first)
    b.record_all(second)
    b.record_infinite(infinite)
    both.record_all(first + second)
    both.record_infinite(infinite)
    merged = a.snapshot().merge(b)
    assert merged == both
    back = merged.since(a)
    assert [n for *_, n in back.buckets()] == [n for *_, n in b.buckets()]
    assert (back.count, back.infinite) == (b.count, b.infinite)
    assert back.min <= b.min
    assert back.max >= b.max


@given(st.lists(values_ns, max_size=100), st.integers(0, 2**40))
def test_serialisation_is_lossless(values, infinite):
    h = Hist(2, 10**12)
    h.record_all(values)
    h.record_infinite(infinite)
    assert Hist.from_bytes(h.to_bytes()) == h
    assert Hist.from_dict(json.loads(json.dumps(h.to_dict()))) == h


@given(samples, st.binary(max_size=8), st.integers(0, 10**6))
def test_damaged_bytes_are_refused_or_harmless(values, noise, where):
    h = Hist()
    h.record_all(values)
    data = bytearray(h.to_bytes())
    at = where % len(data)
    data[at : at + len(noise)] = noise
    with contextlib.suppress(CorelaneError):  # anything else is a failure
        damaged = Hist.from_bytes(bytes(data))
        assert damaged.count == 0 or damaged.percentile(0) <= damaged.percentile(100)


def test_truncated_bytes_are_refused():
    h = Hist()
    h.record_all(range(0, 10**6, 999))
    data = h.to_bytes()
    for end in range(0, len(data), 7):
        with pytest.raises(CorelaneError):
            Hist.from_bytes(data[:end])
    with pytest.raises(CorelaneError, match="1 bytes too many"):
        Hist.from_bytes(data + b"\0")


def test_unanswered_requests_are_slower_than_all_others():
    h = Hist()
    h.record(1000, 98)
    h.record_infinite(2)
    assert h.percentile(98) == 1000
    assert h.percentile(98.1) == math.inf
    assert h.max == h.mean == math.inf
    assert h.summary()["p99"] is None
    assert h.ccdf()[-1] == (1000.0, 0.02)


def test_beyond_the_limit_stays_finite_and_counted():
    h = Hist(3, 1000)
    h.record(10**9)
    h.record(10)
    assert h.count == 2
    assert h.percentile(100) == 10**9
    assert h.count_upto(10) == 1


def test_empty():
    h = Hist()
    assert h.count == h.min == h.max == 0
    assert math.isnan(h.mean)
    assert math.isnan(h.percentile(50))
    assert h.buckets() == h.ccdf() == []
    assert h.summary()["p50"] is None


def test_reset_and_layouts():
    h = Hist()
    h.record(5)
    h.reset()
    assert h == Hist()
    with pytest.raises(CorelaneError, match="digits and limit must be equal"):
        h.merge(Hist(2))
    for digits, limit in [(0, 100), (6, 100), (3, 1), (3, 2**63)]:
        with pytest.raises(CorelaneError, match="digits is 1 to 5"):
            Hist(digits, limit)
    with pytest.raises(CorelaneError, match="not between 0 and 100"):
        h.percentile(101)


def test_readers_while_it_runs(c_program):
    assert "consistent" in c_program("tests/runtime/c/hist_race.c", ["runtime/hist.c"])(400_000)
