"""Code that numba compiles for tests is kept under build/, for all processes of a run and for the next run.

Handlers and the laboratory's policies lie where CORELANE_CACHE_DIR says, each keyed by all that it was made of (see
libos/numba/folder.py). The simulators' loops, which take twenty seconds, lie beside their source.
"""

from __future__ import annotations

import fcntl
import os
import shutil

from .cbuild import ROOT

CACHE = ROOT / "build" / "compiled"


def keep_compiled() -> None:
    """Let this process, and those that it starts, keep compiled handlers and policies there."""
    os.environ["CORELANE_CACHE_DIR"] = str(CACHE)


def drop_of_other_builds() -> None:
    """Remove what was compiled for another build of the C library: nobody finds it again."""
    folders = list(CACHE.glob("*/*"))
    if folders:
        from corelane.libos.numba.folder import build_id

        for folder in folders:
            if folder.name != build_id():
                shutil.rmtree(folder, ignore_errors=True)


def compile_once() -> None:
    """Compile the simulator's loop, or wait for who does: several workers would each take the twenty seconds."""
    from corelane.bench.sim.model import App, Constant, Simulation

    app = App("a", rate_rps=1e5, service=Constant(1000.0), guaranteed=1)
    with (ROOT / "build" / "simulator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Simulation([app], 1).run(events=1)


def compile_lab_once() -> None:
    """The same of the laboratory's."""
    from corelane.bench.lab import world

    with (ROOT / "build" / "lab.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        world.compile_loop()
