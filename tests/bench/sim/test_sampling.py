"""How long a point is simulated: on streams whose tail is known, and on a queue whose tail is Erlang's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from corelane.bench.sim import sampling
from corelane.bench.sim import state as e
from corelane.bench.sim.model import App, Constant, Exponential, Result, Simulation, Slow

MEAN_NS = 10_000.0
TAIL_US = MEAN_NS * math.log(1000) / 1e3  # the p99.9 of exponential latencies


class Stream:
    """In a simulation's place: latencies that are exponential, in runs of `run` requests alike; a request is so many
    events."""

    def __init__(self, seed: int, run: int, served: float = 1.0, per_request: int = 2) -> None:
        self.events = self.now_ns = 0
        self._random = np.random.default_rng(seed)
        self._run, self._served, self._per_request = run, served, per_request
        self._ahead = np.empty(0)
        self.warmed_ns = 0
        self.reset()

    def reset(self) -> None:
        self.warmed_ns = self.now_ns
        self._histogram = np.zeros(e.N_BUCKETS, np.int64)
        self._n = 0

    def run(self, events: int = 0, until_ns: int = 0) -> None:
        n = events // self._per_request if events else (until_ns - self.now_ns) // 1000
        while len(self._ahead) < n:
            self._ahead = np.append(self._ahead, np.repeat(self._random.exponential(MEAN_NS, 10_000), self._run))
        taken, self._ahead = self._ahead[:n], self._ahead[n:]
        ns = np.maximum(taken.astype(np.int64), 64)
        shift = np.frexp(ns.astype(np.float64))[1] - 1 - e.SUB_BITS
        bucket = ((shift + 1) << e.SUB_BITS) + (ns >> shift) - (1 << e.SUB_BITS)
        np.add.at(self._histogram, bucket, 1)
        self._n += int(n)
        self.now_ns += int(n) * 1000
        self.events += self._per_request * int(n)

    def result(self) -> Result:
        done = int(self._n * self._served)
        rest = {"mean_wait_ns": 0.0, "mean_latency_ns": 0.0, "cores_held": 0.0, "cores_worked": 0.0, "cores_extra": 0.0}
        counts = {"arrived": self._n, "done": done, "dropped": 0, "moves": 0, "violations": 0, "cores_moving": 0.0}
        kept: dict[str, Any] = {"histogram": self._histogram.copy(), "slowdowns": self._histogram * 0, "slow": Slow()}
        return Result("a", self.now_ns / 1e9, preemptions=0, **rest, **counts, **kept)


def sampled(stream: Stream, events: float, memory_ns: float = 0.0, least_ns: int = 0) -> tuple[float, sampling.Sampled]:
    world: Any = stream
    result, seen = sampling.sample(world, stream.result, events, memory_ns, least_ns)
    return result.percentile_us(99.9), seen


@pytest.mark.parametrize("run", [1, 40, pytest.param(400, marks=pytest.mark.soak(takes_s=4))])
def test_the_error_is_that_of_the_estimate(run: int, seed: int) -> None:
    """Of as many streams whose tail is known: it is off by what is said, in the root mean square; and a stream of
    which fewer requests are independent takes that many more."""
    off, took = [], []
    for i in range(24):
        value, seen = sampled(Stream(seed + i, run), 40e6)
        assert seen.known
        assert seen.error <= sampling.GOAL
        off.append((value / TAIL_US - 1) / max(seen.error, 0.01))
        took.append(seen.simulated_ms)
    assert 0.4 < float(np.sqrt(np.mean(np.square(off)))) < 2.5
    least_ms = 2 * sampling.BATCHES * sampling.FIRST_EVENTS / 2 * 1000 / 1e6
    assert min(took) == pytest.approx(2 * least_ms) if run == 1 else np.mean(took) > least_ms * run / 10


def test_a_tail_that_is_not_known_in_its_events_is_marked(seed: int) -> None:
    value, seen = sampled(Stream(seed, 4000), 200_000)
    assert not seen.known
    assert seen.error > sampling.GOAL
    assert math.isfinite(value)


@pytest.mark.parametrize("run", [1, 4000])
@pytest.mark.parametrize("events", [300_000, 2_000_000, 2_100_000])
def test_a_run_takes_no_more_than_its_events(events: int, run: int, seed: int) -> None:
    """And more than half of them, unless it is known before: looks are at twice as much each."""
    stream = Stream(seed, run)
    _, seen = sampled(stream, events)
    assert stream.events <= events
    assert seen.known or stream.events > events / 2


def test_the_least_that_is_looked_at_is_taken_even_without_events(seed: int) -> None:
    stream = Stream(seed, 1)
    assert not sampled(stream, 0)[1].known
    assert stream.events == 2 * sampling.BATCHES * sampling.FIRST_EVENTS + sampling.WARM_UP_NS / 1000 * 2


def test_batches_have_requests_enough_for_a_tail(seed: int) -> None:
    """Where most events are decisions, a batch of as many events has the slowest of few requests as its p99.9."""
    per_request = 20
    few = Stream(seed, 1, per_request=per_request)
    assert sampled(few, 0)[1].error == math.inf
    stream = Stream(seed, 1, per_request=per_request)
    _, seen = sampled(stream, 1e9)
    assert seen.known
    assert stream.result().arrived >= 2 * sampling.BATCHES * sampling.LEAST_REQUESTS


def test_a_run_that_is_short_beside_the_queue_s_memory_knows_nothing(seed: int) -> None:
    """However little its batches differ; and with the events to outlast it, it does."""
    memory_ns = 1e6  # 1000 requests
    _, short = sampled(Stream(seed, 1), 400_000, memory_ns)
    assert short.error <= sampling.GOAL
    assert not short.known
    _, enough = sampled(Stream(seed, 1), 40e6, memory_ns)
    assert enough.known
    assert enough.simulated_ms * 1e6 >= sampling.LEAST_MEMORIES * memory_ns


def test_the_warm_up_is_forgotten_and_lasts_as_the_memory_does(seed: int) -> None:
    for memory_ns, least_ns, warm_ns in (
        (0.0, 0, sampling.WARM_UP_NS),
        (1e7, 0, sampling.WARM_UP_MEMORIES * 1e7),
        (0.0, 10**9, 1e8),
    ):
        stream = Stream(seed, 1)
        _, seen = sampled(stream, 1000, memory_ns, least_ns)
        assert stream.warmed_ns == warm_ns
        assert seen.simulated_ms == (stream.now_ns - stream.warmed_ns) / 1e6
        assert seen.simulated_ms * 1e6 >= least_ns


def test_what_is_not_carried_is_given_up_early(seed: int) -> None:
    stream = Stream(seed, 4000, served=0.9)
    _, seen = sampled(stream, 1e9)
    assert not seen.known
    assert stream.events < 1e6


def test_where_requests_are_dropped_nothing_is_said() -> None:
    """Twice what one core can do: the queue overflows, and p99.9 is infinite."""
    app = App("a", rate_rps=2e9 / MEAN_NS, service=Constant(MEAN_NS), guaranteed=1)
    world = Simulation([app], 1, interval_ns=0, seed=3)
    result, seen = sampling.sample(world, lambda: world.result("a"), 1e6, 0.0)
    assert not sampling.carried(result)
    assert (seen.error, seen.known, result.percentile_us(99.9)) == (math.inf, False, math.inf)


def test_a_queue_s_tail_is_erlangs() -> None:
    """M/M/1 at 0.9: the latency is exponential with a mean of service / (1 - load). Two seeds in one answer."""
    load = 0.9
    memory_ns = sampling.memory_ns(load, 1, MEAN_NS)
    assert memory_ns == pytest.approx(MEAN_NS / (1 - math.sqrt(load)) ** 2)
    tail_us = TAIL_US / (1 - load)
    for seed in (1, 2):
        app = App("a", rate_rps=load * 1e9 / MEAN_NS, service=Exponential(MEAN_NS), guaranteed=1)
        world = Simulation([app], 1, interval_ns=0, seed=seed)

        def result(world: Simulation = world) -> Result:
            return world.result("a")

        seen, how = sampling.sample(world, result, 60e6, memory_ns)
        assert how.known
        assert how.simulated_ms * 1e6 >= sampling.LEAST_MEMORIES * memory_ns
        assert abs(seen.percentile_us(99.9) / tail_us - 1) < 3 * max(how.error, 0.02)
