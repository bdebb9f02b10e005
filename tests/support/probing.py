"""Functions compiled with probes that always call the slow path, which counts the looks."""

from __future__ import annotations

import dataclasses
import functools

import numba

from corelane.bench._native import ffi
from corelane.bench._native import lib as bench
from corelane.libos.batch_work import cost as batch_cost
from corelane.libos.batch_work import refill as batch_refill
from corelane.libos.batch_work.compile import default_target, probed_compiler

LOOKS = dataclasses.replace(default_target(), slow="cl_bench_gap", always=True)


def tiny(monkeypatch):
    """Next to no fuel, for every place."""
    monkeypatch.setattr(batch_refill, "FIRST_FUEL", 16)
    monkeypatch.setattr(batch_refill, "MOST_FUEL", 24)
    monkeypatch.setattr(batch_cost, "FEW", 0)


def probed(function, target=LOOKS):
    """njit with probes that always call the slow path, and a copy of it without. Made once of each function: compiling
    takes longest."""
    fuel = batch_refill.FIRST_FUEL, batch_refill.LEAST_FUEL, batch_refill.MOST_FUEL, batch_cost.FEW  # see tiny
    return _probed(function, target, fuel), _plain(function)


@functools.cache
def _probed(function, target, fuel):
    return numba.njit(nogil=True, pipeline_class=probed_compiler(target))(function)


@functools.cache
def _plain(function):
    return numba.njit(nogil=True)(function)


def looks(call):
    """How often probes looked during a call."""
    kept = ffi.new("uint32_t[1]")
    bench.cl_bench_gaps_begin(kept, 1)
    call()
    return bench.cl_bench_gaps_end()
