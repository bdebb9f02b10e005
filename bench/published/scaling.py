"""Up to how many simulated cores each policy goes, and what ends it: `python -m corelane.bench.published.scaling`.

Requests of two lengths come for each core as often on 256 cores as on 4, so what grows is the iokernel's: it decides,
looks at jobs, and moves cores, at costs that are round figures of two-core machines. One loop does all of it, or four
share the moves; decisions are the first one's. The same as `corelane lab run --policy all --cores 4..256` with these
settings, which draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..harness.session import Session
from ..lab import comparing, policy, runs
from ..lab.world import Costs, Machine

CORES = (4, 8, 16, 32, 64, 128, 256)
LOOPS = (1, 4)
LOAD = runs.Wanted("bimodal", {"jobs": 20_000, "load": 0.7, "short_us": 5, "long_us": 500, "long_share": 0.02})
COSTS = Costs(decide_ns=100, look_ns=2, actuate_ns=100, switch_ns=1000, move_ns=500, loop_ns=1000)
ROOM = 32_768
SEEDS = (1, 2, 3)


def stops(
    names: Sequence[str], loops: int, processes: int = 1, say: Callable[[str], None] = lambda text: None
) -> dict[str, str]:
    """Of each policy, where its curve ends and why."""
    machines = [Machine(cores, loops=loops, costs=COSTS) for cores in CORES]
    tasks = runs.tasks_of([(name, {}) for name in names], LOAD, machines, 0, ROOM, SEEDS)
    session = Session("lab", seconds=0.1)
    comparing.fill(session, runs.every(tasks, processes, say))
    return dict(session.stops)


def table(names: Sequence[str], processes: int = 1, say: Callable[[str], None] = lambda text: None) -> str:
    """In Markdown."""
    columns = [stops(names, loops, processes, say) for loops in LOOPS]
    head = ["policy", *(f"{loops} loop{'s' if loops > 1 else ''}: it ends" for loops in LOOPS)]
    rows = [[f"`{name}`", *(column[name] for column in columns)] for name in names]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    print(table(policy.names()))
    print(f"\nbuild {runs.stamp()}")
