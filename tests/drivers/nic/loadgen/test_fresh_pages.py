"""No request of a measured phase waits for a fresh page of its histogram: all are there when the run begins."""

from __future__ import annotations

import mmap
from contextlib import closing
from typing import Any

import pytest
from cltest import pages

from corelane.drivers._native import ffi, lib
from corelane.drivers.nic.loadgen.loadgen import Echo, Loadgen
from corelane.drivers.nic.tcpload.tcpload import TcpLoad


def missing_pages(hist: Any) -> int:
    """Pages of a histogram's counts, of which it has some dozens, that have no memory."""
    counts = int(ffi.cast("uintptr_t", lib.cl_hist_counts(hist)))
    assert 8 * hist.n_buckets > 12 * mmap.PAGESIZE
    return pages.missing(counts, 8 * hist.n_buckets)


@pytest.mark.parametrize("windows", [1, 3])
def test_of_udp(windows: int) -> None:
    with closing(Loadgen(Echo())) as load:
        load.begin(1000.0, 0.1, 0.1, windows)
        assert [missing_pages(lib.cl_loadgen_latency(load.ptr, i + 1)) for i in range(windows)] == [0] * windows


@pytest.mark.parametrize("windows", [1, 3])
def test_of_tcp(windows: int) -> None:
    with closing(TcpLoad("ask")) as load:
        load.begin(1000.0, 0.1, 0.1, windows)
        assert [missing_pages(lib.cl_tcpload_latency(load.ptr, i + 1)) for i in range(windows)] == [0] * windows
