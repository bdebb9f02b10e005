"""What of a histogram goes into the statistics."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from corelane.iokernel.control.report import summary
from corelane.runtime.hist import Hist


def test_the_buckets_of_a_histogram_are_those_that_have_something_in_them() -> None:
    hist = Hist(2, 10**10)
    for ns in (5, 5, 1000, 123_456):
        hist.record(ns)
    told = summary(hist.ptr)
    assert (told["n"], told["p50_us"], told["p99_us"], told["max_us"]) == (4, 0.005, 123.456, 123.456)
    assert (told["p999_us"], told["sum_ns"]) == (123.456, 124_466)
    assert [n for _, _, n in told["buckets_ns"]] == [2, 1, 1]
    bounds = [(low, high) for low, high, _ in told["buckets_ns"]]
    for ns, (low, high) in zip((5, 1000, 123_456), bounds, strict=True):
        assert low <= ns <= high
        assert high - low <= ns / 64


@given(st.lists(st.integers(0, 10**10), max_size=300), st.integers(0, 3))
def test_percentiles_are_those_of_the_histogram(values: list[int], infinite: int) -> None:
    hist = Hist(2, 10**9)
    hist.record_all(values)
    hist.record_infinite(infinite)
    told = summary(hist.ptr)
    assert told["n"] == hist.count
    for name, percent in (("p50_us", 50), ("p90_us", 90), ("p99_us", 99), ("p999_us", 99.9)):
        ns = hist.percentile(percent)
        assert told[name] == (round(ns / 1e3, 3) if math.isfinite(ns) else None)
    assert told["max_us"] == (round(hist.max / 1e3, 3) if values and not infinite else None)
    assert told["buckets_ns"] == hist.buckets()


def test_an_empty_histogram_and_none_are_told_alike() -> None:
    empty = {"n": 0, "sum_ns": 0, "buckets_ns": []} | dict.fromkeys(("p50_us", "p90_us", "p99_us", "p999_us", "max_us"))
    assert summary(Hist(2, 10**10).ptr) == summary(None) == empty
