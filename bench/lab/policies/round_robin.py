"""Round robin: who waits longest gets the cores that it asks for at least, for a quantum, and then goes to the end."""

from __future__ import annotations

from typing import Any

from ..acts import take_all, waits_longest, wake_at
from ..mechanisms.ranking import again, begin
from ..table import QUANTUM

SOURCE = "a baseline: time slices, gangs as a whole (Ousterhout, 1982)"
SWEEP: dict[str, tuple[float, ...]] = {"quantum_us": (10, 50, 200, 1000)}
HOLDS = {"settings": {"quantum_us": 1.0}, "waits_ns": 1_000}  # a quantum for each job that is there


def round_robin(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, quantum_us: Any = 100.0) -> None:
    """At the end of a quantum a job leaves its cores if anybody waits. Nobody overtakes in the queue."""
    if view.event == QUANTUM:
        if view.n_waiting == 0:
            again(view, cores)
            return
        take_all(view, jobs, cores, view.job)
    elif view.n_waiting:
        job = waits_longest(view, jobs)
        if not begin(view, jobs, cores, job, kinds[jobs[job].kind].min_cores, int(quantum_us * 1000.0)):
            return
    wake_at(view, view.now_ns)
