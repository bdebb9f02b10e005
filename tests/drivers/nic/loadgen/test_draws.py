"""The tables drawn beforehand have the distributions that they claim. Fixed seeds: a failure is a change, not luck."""

from __future__ import annotations

import math

import pytest

from corelane.drivers._native import ffi, lib

N = 200_000


def gaps(arrivals: int, seed: int, burst: int = 1, duty: float = 0.0, n: int = N) -> list[float]:
    out = ffi.new("double[]", n)
    assert lib.cl_load_draw_gaps(arrivals, seed, burst, duty, out, n) == 0
    return list(out)


def zipf(seed: int, exponent: float, keys: int, n: int = N) -> list[int]:
    out = ffi.new("uint32_t[]", n)
    assert lib.cl_load_draw_zipf(seed, exponent, keys, out, n) == 0
    return list(out)


def chi_square(counts: list[int], expected: list[float]) -> float:
    """Standard deviations that the chi-square statistic lies above its mean."""
    assert min(expected) >= 5, "cells too small for the statistic"
    assert sum(counts) == pytest.approx(sum(expected), rel=1e-9)
    chi2 = sum((c - e) ** 2 / e for c, e in zip(counts, expected, strict=True))
    free = len(counts) - 1
    return (chi2 - free) / math.sqrt(2 * free)


def exponential_cells(values: list[float], mean: float, cells: int = 100) -> float:
    counts = [0] * cells
    for v in values:
        counts[min(cells - 1, int(-math.expm1(-v / mean) * cells))] += 1
    return chi_square(counts, [len(values) / cells] * cells)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_are_exponential(seed):
    drawn = gaps(lib.CL_ARRIVALS_POISSON, seed)
    assert exponential_cells(drawn, 1.0) < 4
    assert sum(drawn) / N == pytest.approx(1, abs=5 / math.sqrt(N))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_are_independent(seed):
    drawn = gaps(lib.CL_ARRIVALS_POISSON, seed)
    for lag in (1, 2, 7):
        covariance = sum((a - 1) * (b - 1) for a, b in zip(drawn, drawn[lag:], strict=False)) / (N - lag)
        assert abs(covariance) < 5 / math.sqrt(N)


def test_poisson_counts_of_an_interval_are_poisson():
    """Counts in windows of mean 10: mean and variance agree, and the distribution passes chi-square."""
    edge, count, counts = 10.0, 0, []
    t = 0.0
    for gap in gaps(lib.CL_ARRIVALS_POISSON, 4):
        t += gap
        while t >= edge:
            counts.append(count)
            count, edge = 0, edge + 10
        count += 1
    cells = [sum(1 for c in counts if c <= 3), *(counts.count(k) for k in range(4, 18))]
    cells.append(len(counts) - sum(cells))
    p = [math.exp(-10) * 10**k / math.factorial(k) for k in range(18)]
    expected = [sum(p[:4]), *p[4:18]]
    expected.append(1 - sum(expected))
    assert chi_square(cells, [e * len(counts) for e in expected]) < 4


def test_uniform_gaps_are_constant():
    assert set(gaps(lib.CL_ARRIVALS_UNIFORM, 1, n=100)) == {1.0}


@pytest.mark.parametrize(("burst", "duty"), [(1, 0.0), (8, 0.0), (8, 0.25), (64, 0.5), (16, 1.0)])
def test_bursty_gaps(burst, duty):
    drawn = gaps(lib.CL_ARRIVALS_BURSTY, 5, burst, duty)
    spread = math.sqrt(sum((g - 1) ** 2 for g in drawn) / N)
    assert sum(drawn) / N == pytest.approx(1, abs=5 * spread / math.sqrt(N))
    if duty == 0:
        ends = [g for g in drawn if g > 0]
        assert len(ends) == pytest.approx(N / burst, abs=5 * math.sqrt(N / burst))
        assert exponential_cells(ends, burst) < 4
        lengths: dict[int, int] = {}
        run = 0
        for g in drawn:
            run += 1
            if g > 0:
                lengths[run] = lengths.get(run, 0) + 1
                run = 0
        if burst > 1:  # geometric
            p = 1 / burst
            cells = [lengths.get(k, 0) for k in range(1, 20)]
            cells.append(sum(lengths.values()) - sum(cells))
            expected = [len(ends) * p * (1 - p) ** (k - 1) for k in range(1, 20)]
            expected.append(sum(cells) - sum(expected))
            assert chi_square(cells, expected) < 4
    if duty == 1:
        assert exponential_cells(drawn, 1.0) < 4


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.99, 1.0, 1.3, 3.0])
@pytest.mark.parametrize("keys", [2, 50, 100_000])
def test_zipf_frequencies(exponent, keys):
    """Chi-square over the popular ranks one by one and the others in cells of equal probability."""
    drawn = zipf(11, exponent, keys)
    assert 0 <= min(drawn) <= max(drawn) < keys
    weights = [(k + 1) ** -exponent for k in range(keys)]
    scale = N / math.fsum(weights)
    counts = [0] * keys
    for rank in drawn:
        counts[rank] += 1
    cells: list[int] = []
    expected: list[float] = []
    count, mass = 0, 0.0
    for k in range(keys):
        count, mass = count + counts[k], mass + weights[k] * scale
        if mass >= N / 500:
            cells.append(count)
            expected.append(mass)
            count, mass = 0, 0.0
    if mass:
        if mass < 5:
            cells[-1] += count
            expected[-1] += mass
        else:
            cells.append(count)
            expected.append(mass)
    assert chi_square(cells, expected) < 4


def test_seeds_make_the_tables():
    for draw in (lambda seed: gaps(lib.CL_ARRIVALS_POISSON, seed, n=1000), lambda seed: zipf(seed, 0.99, 1000, 1000)):
        assert draw(1) == draw(1)
        assert draw(1) != draw(2)


def test_impossible_parameters_are_refused():
    out = ffi.new("double[1]")
    assert lib.cl_load_draw_gaps(9, 1, 1, 0, out, 1) < 0
    assert lib.cl_load_draw_gaps(lib.CL_ARRIVALS_BURSTY, 1, 0, 0, out, 1) < 0
    assert lib.cl_load_draw_gaps(lib.CL_ARRIVALS_BURSTY, 1, 1, 1.5, out, 1) < 0
    ranks = ffi.new("uint32_t[1]")
    assert lib.cl_load_draw_zipf(1, -1, 10, ranks, 1) < 0
    assert lib.cl_load_draw_zipf(1, math.nan, 10, ranks, 1) < 0
    assert lib.cl_load_draw_zipf(1, 1, 0, ranks, 1) < 0
