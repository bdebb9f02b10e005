"""The machine's side of the comparison: the same requests, each served once and for its length."""

from __future__ import annotations

import time

import numpy as np
import pytest

from corelane.bench.sim.box import Ran, drawn, on_the_box, requests, simulated
from corelane.bench.sim.model import App, Exponential, Simulation
from corelane.bench.sim.recorded import Recorded
from corelane.runtime.topology import Topology

APP = App("a", rate_rps=20_000, service=Exponential(20_000.0), guaranteed=1)
FREE = {"request_ns": 0.0, "steal_ns": 0.0}


def lindley(load: Recorded, cost: int = 0) -> np.ndarray:
    """Latencies of one server."""
    wait, found = 0, []
    for gap, took in zip(np.diff(load.at_ns, append=0), load.service_ns + cost, strict=True):
        found.append(wait + took)
        wait = max(wait + took - gap, 0)
    return np.array(found)


@pytest.mark.parametrize("request_ns", [0, 700])
def test_the_simulator_serves_the_given_requests(request_ns: int) -> None:
    load = drawn(APP.rate_rps, APP.service, 5000, seed=3)
    assert (simulated(load, 1, FREE | {"request_ns": float(request_ns)}) == lindley(load, request_ns)).all()


def test_it_stands_still_as_the_machine_did() -> None:
    load = Recorded([1000, 50_000, 90_000], [2000, 2000, 2000])
    gaps = [[2000, 0, 10_000], [49_000, 0, 5000], [80_000, 0, 3000]]  # while it serves, while it idles, in vain
    assert simulated(load, 1, FREE, gaps).tolist() == [12_000, 6000, 2000]


@pytest.mark.parametrize("cores", [1, 2])
def test_every_request_is_done_however_long_the_machine_stood(cores: int) -> None:
    load = Recorded([1000, 50_000], [2000, 2000])
    gaps = [[49_000, core, 10**9] for core in range(cores)]
    assert simulated(load, cores, FREE, gaps).tolist() == [2000, 10**9 - 1000 + 2000]


def test_every_request_is_done_where_they_come_faster_than_they_are_served() -> None:
    load = Recorded(np.arange(1, 1001), np.full(1000, 10**6))
    assert simulated(load, 1, FREE).tolist() == lindley(load).tolist()


def test_who_did_not_receive_a_request_needs_longer() -> None:
    load = Recorded([1000, 1500, 20_000, 20_500], [5000] * 4)
    # The second core takes the second request, and has the queue from then on.
    assert simulated(load, 2, FREE | {"steal_ns": 400.0}).tolist() == [5000, 5400, 5000, 5400]


@pytest.mark.parametrize("kthreads", [1, 2])
def test_each_request_is_served_once_and_for_its_length(kthreads: int) -> None:
    cpu = Topology.read().usable[0]
    load = Recorded(1000 * np.arange(1, 301), np.full(300, 500))
    before = time.perf_counter()
    ran = on_the_box((cpu,) * kthreads, load)
    assert (ran.ended_ns - ran.begun_ns >= 500).all()
    # One that began before it was due, or never, would have waited for centuries in unsigned arithmetic.
    assert 0 <= (ran.begun_ns - load.at_ns).mean() < 1e9 * (time.perf_counter() - before)


@pytest.mark.parametrize("kthreads", [1, 2])
def test_a_kthread_serves_one_request_at_a_time(kthreads: int) -> None:
    """All are due at once, so each waits for the whole length of those that its kthread serves first."""
    n = 300
    ran = on_the_box((Topology.read().usable[0],) * kthreads, Recorded(np.ones(n), np.full(n, 500)))
    assert (ran.begun_ns - 1).mean() >= (n / kthreads - 1) / 2 * 500


def test_gaps_are_of_the_run_and_apart() -> None:
    """Two kthreads on one CPU: each is stopped while the other runs."""
    ran = on_the_box((Topology.read().usable[0],) * 2, Recorded(np.arange(1, 40) * 1_000_000, np.full(39, 400_000)))
    assert len(ran.gaps)
    assert (ran.gaps[:, 2] >= 1000).all()
    for kthread in (0, 1):
        at, _, length = ran.gaps[ran.gaps[:, 1] == kthread].T
        assert (at[1:] >= (at + length)[:-1]).all()
    assert ran.stopped <= 2


def test_a_gap_that_outlasts_the_run_counts_to_its_end() -> None:
    at_ns, gaps = np.array([1, 1000]), np.array([[100, 0, 200], [1400, 0, 5000], [1600, 1, 9000], [0, 1, 500]])
    ran = Ran(Recorded(at_ns, np.full(2, 100)), at_ns, np.array([100, 1500]), gaps)
    assert ran.stopped == (200 + 100 + 0 + 500) / 1500


def test_draws_do_not_depend_on_how_many_are_taken() -> None:
    few = requests(*Simulation([APP], 1, seed=9).draws("a"), 10)
    many = requests(*Simulation([APP], 1, seed=9).draws("a"), 100)
    for a, b in zip(few, many, strict=True):
        assert (a == b[:10]).all()
