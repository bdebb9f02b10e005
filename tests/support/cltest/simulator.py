"""The simulators' loops, which numba compiles in twenty seconds and keeps beside their source: one process, for all."""

from __future__ import annotations

import fcntl

from .cbuild import ROOT


def compile_once() -> None:
    """Compile it, or wait for who does: several workers would each take the twenty seconds."""
    from corelane.bench.sim.model import App, Constant, Simulation

    app = App("a", rate_rps=1e5, service=Constant(1000.0), guaranteed=1)
    with (ROOT / "build" / "simulator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Simulation([app], 1).run(events=1)


def lab_cache() -> str:
    """Where tests keep the code of the laboratory's own policies: of all processes, and not in anybody's home."""
    return str(ROOT / "build" / "lab-cache")


def compile_lab_once() -> None:
    """The same of the laboratory's."""
    from corelane.bench.lab import world

    with (ROOT / "build" / "lab.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        world.compile_loop()
