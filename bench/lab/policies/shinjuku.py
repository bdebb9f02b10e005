"""Short quanta, and queues by class: the class whose first job has waited longest by its limit goes first."""

from __future__ import annotations

from typing import Any

from ..acts import take_all, wake_at
from ..mechanisms.ranking import again, begin
from ..table import QUANTUM

SOURCE = "Shinjuku, NSDI 2019: preemption by quanta, a queue a class, chosen by waited time over the class's limit"
SWEEP: dict[str, tuple[float, ...]] = {"quantum_us": (5, 10, 50)}


def shinjuku(view: Any, jobs: Any, cores: Any, kinds: Any, memory: Any, quantum_us: Any = 5.0) -> None:
    """At the end of a quantum a job goes to the end of its class's queue, if anybody waits. A class without a limit has
    one of 1 ms."""
    if view.event == QUANTUM:
        if view.n_waiting == 0:
            again(view, cores)
            return
        take_all(view, jobs, cores, view.job)
        wake_at(view, view.now_ns)
        return
    best, most = -1, -1.0
    for cls in range(view.n_classes):
        j = view.waiting[cls]
        if j >= 0:
            limit = kinds[jobs[j].kind].limit_ns
            waited = (view.now_ns - jobs[j].since_ns) / (limit if limit > 0 else 1e6)
            if waited > most:
                best, most = j, waited
    if best >= 0 and begin(view, jobs, cores, best, kinds[jobs[best].kind].min_cores, int(quantum_us * 1000.0)):
        wake_at(view, view.now_ns)
