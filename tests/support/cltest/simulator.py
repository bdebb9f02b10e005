"""The simulator's loop, which numba compiles in ten seconds and keeps beside its source: one process does, for all."""

from __future__ import annotations

import fcntl

from .cbuild import ROOT


def compile_once() -> None:
    """Compile it, both ways, or wait for who does: several workers would each take the ten seconds."""
    from corelane.bench.sim.model import App, Constant, Simulation

    app = App("a", rate_rps=1e5, service=Constant(1000.0), guaranteed=1)
    with (ROOT / "build" / "simulator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for slow_ns in (0, 1):  # the loop that notes slow requests is another one
            Simulation([app], 1, slow_ns=slow_ns).run(events=1)
