"""Slots of an arm whose requests, gaps and bursts are drawn from a seed."""

from __future__ import annotations

import random

import numpy as np

from corelane.bench.harness.openloop import Point
from corelane.bench.harness.tails import Slot
from corelane.runtime.hist import Hist

REQUESTS, SLOT_S = 600, 0.2
HOST_GAP_S = 0.008


def slot(
    rng: random.Random,
    level_us: float = 10.0,
    *,
    host: float = 0.0,
    burst: float = 0.0,
    burst_s: float = 0.004,
    requests: int = REQUESTS,
) -> Slot:
    """Latencies about `level_us`. host: how likely the host takes the CPU once, for HOST_GAP_S, and the guest's clocks
    tell; burst: how likely somebody in the guest has it once, for burst_s, and they do not, but the threads that wait
    do. What comes meanwhile waits for the end of it."""
    gaps = [gap for gap, likely in ((HOST_GAP_S, host), (burst_s, burst)) if rng.random() < likely]
    draw = np.random.RandomState(rng.getrandbits(32))  # whose draws are the same in each version of numpy
    at, waits_s = draw.uniform(0, SLOT_S, requests), np.zeros(requests)
    for gap in gaps:
        begin = rng.uniform(0, SLOT_S - gap)
        waits_s = np.maximum(waits_s, np.where(at > begin, begin + gap - at, 0.0))
    level_ns = 1e3 * level_us * rng.lognormvariate(0, 0.05)
    hist = Hist()
    hist.record_all((level_ns * draw.lognormal(0, 0.4, requests) + 1e9 * waits_s).astype(int).tolist())
    rate = requests / SLOT_S
    point = Point(rate, rate, requests, requests, seconds=SLOT_S, hist=hist)
    point.set_percentiles(hist)
    return Slot(point, HOST_GAP_S if HOST_GAP_S in gaps else 0.0, burst_s if burst_s in gaps else 0.0)
