"""What Pollux and Optimus fit to the rates that they see, on points which no job had: numbers of cores with batches
between those that are chosen.

    print(check(seed=1))

They fit a line in the serial part and in what each further core costs (bench/lab/mechanisms/trace.py). Papers of such
fits show how well they go through the points that they were made of. Here those are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..lab import engine, policy, state
from ..lab.mechanisms import gain, trace
from ..lab.world import Machine, World
from .claim_loads import training

BATCHES = (2.0, 3.0, 5.0, 7.0, 12.0, 20.0)  # that none of these jobs runs with
_BASE = 1  # where pollux has what it fits, in its memory


@dataclass(frozen=True)
class Found:
    """median, p90: of the relative errors of the goodput that is foretold; without: the median with nothing fitted, as
    if jobs scaled perfectly. points: of all kinds."""

    points: int
    median: float
    p90: float
    without: float

    def __str__(self) -> str:
        return (
            f"{self.points} points that no job had: off by {100 * self.median:.2g} % at the median, "
            f"{100 * self.p90:.2g} % at p90; {100 * self.without:.2g} % with nothing fitted"
        )


def check(seed: int, cores: int = 16) -> Found:
    """Run pollux on the training load of that seed, and ask what it knows then."""
    load = training(np.random.default_rng(seed), cores)
    chosen = policy.load("pollux")
    run, tables, keep = World(load, Machine(cores), room=8192, seed=seed).prepared(chosen)
    engine.run(1 << 60, state.FAR - 1, np.uint64(chosen.address), tables, run)
    memory, off, without = keep[4], [], []
    for i, kind in enumerate(load.kinds):
        serial, sync = (float(part(run.kinds, memory, _BASE, i)) for part in (trace.serial, trace.sync))
        for k in range(1, min(kind.max_cores, cores) + 1):
            for batch in (b for b in BATCHES if b < kind.max_batch):
                true = gain.goodput(k, batch, kind.serial, kind.sync, kind.noise)
                off.append(abs(gain.goodput(k, batch, serial, sync, kind.noise) / true - 1.0))
                without.append(abs(gain.goodput(k, batch, 0.0, 0.0, kind.noise) / true - 1.0))
    return Found(len(off), float(np.median(off)), float(np.percentile(off, 90)), float(np.median(without)))
