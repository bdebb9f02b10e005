"""The worst load and its best setting, without luck."""

import random
import statistics

import pytest

from corelane.bench.log import log
from corelane.bench.log.heldout import worst_held_out
from corelane.bench.log.names import FIXED


def noisy(rng: random.Random, level: float) -> list[float]:
    return [level * rng.gauss(1, 0.1) for _ in range(log.SWEEP_ROUNDS)]


@pytest.mark.parametrize("worse", [1.0, 0.7], ids=["equal", "worse at one load"])
def test_the_worst_load_is_neither_unlucky_nor_spared(worse: float, seed: int) -> None:
    rng = random.Random(seed)
    found, naive, at_16 = [], [], 0
    for _ in range(400):
        adaptive = {str(load): noisy(rng, worse if load == 16 else 1.0) for load in log.LOADS}
        fixed = {str(load): {name: noisy(rng, 1.0) for name in FIXED} for load in log.LOADS}
        halves = worst_held_out(adaptive, fixed)
        found += [h.ratio for h in halves]
        best = {load: max(statistics.median(fixed[str(load)][name]) for name in FIXED) for load in log.LOADS}
        naive.append(min(statistics.median(adaptive[str(load)]) / best[load] for load in log.LOADS))
        at_16 += sum(h.load == "16" for h in halves)
    assert at_16 > 0.95 * len(found) or worse == 1
    assert statistics.mean(found) == pytest.approx(worse, abs=0.02)
    assert statistics.mean(naive) < worse - 0.02, "the naive way is not what this guards against"
