"""The machine's side of the comparison: the same requests, each served once and for its length."""

from __future__ import annotations

import time

import numpy as np
import pytest

from corelane.bench.sim.box import on_the_box, requests, simulated
from corelane.bench.sim.model import App, Costs, Exponential
from corelane.runtime.topology import Topology

APP = App("a", rate_rps=20_000, service=Exponential(20_000.0), guaranteed=1)


def test_requests_are_the_engines():
    seen, at, length = simulated(APP, 1, 5000, seed=3, costs=Costs())
    assert (np.diff(at.astype(np.int64)) >= 0).all()
    # The mean wait by Lindley's recursion on these requests is the simulator's: they are the same requests.
    wait, waits = 0, []
    for gap, took in zip(np.diff(at.astype(np.int64)), length.astype(np.int64)[:-1], strict=True):
        waits.append(wait)
        wait = max(wait + took - gap, 0)
    assert np.mean(waits) / 1e3 == pytest.approx(seen.mean_wait_us, rel=0.02)


@pytest.mark.parametrize("kthreads", [1, 2])
def test_each_request_is_served_once_and_for_its_length(kthreads):
    cpu = Topology.read().usable[0]
    at, length = np.arange(300, dtype=np.uint64) * np.uint64(1000), np.full(300, 500, np.uint64)
    before = time.perf_counter()
    seen = on_the_box((cpu,) * kthreads, at, length)
    assert all(p >= 0.5 for p in seen.percentiles_us)
    # One that began before it was due, or never, would have waited for centuries in unsigned arithmetic.
    assert seen.mean_wait_us < 1e6 * (time.perf_counter() - before)


@pytest.mark.parametrize("kthreads", [1, 2])
def test_a_kthread_serves_one_request_at_a_time(kthreads):
    """All are due at once, so each waits for the whole length of those that its kthread serves first."""
    n = 300
    seen = on_the_box((Topology.read().usable[0],) * kthreads, np.zeros(n, np.uint64), np.full(n, 500, np.uint64))
    assert seen.mean_wait_us >= (n / kthreads - 1) / 2 * 0.5


def test_draws_do_not_depend_on_how_many_are_taken():
    from corelane.bench.sim.model import Simulation

    few = requests(*Simulation([APP], 1, seed=9).draws("a"), 10)
    many = requests(*Simulation([APP], 1, seed=9).draws("a"), 100)
    for a, b in zip(few, many, strict=True):
        assert (a == b[:10]).all()
