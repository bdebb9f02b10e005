"""All policies of the laboratory on the same jobs: one table.

    print(table(every(seeds=range(1, 6))))

Each runs as it is, with its defaults, on the same machine and the same loads. A policy that packs jobs onto a core runs
on cores with SEATS besides, and so do the baselines beside it: what seats alone give, they have, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..harness.table import align, quantity
from ..lab import measures, policy, runs
from ..lab.world import Costs, Machine

CORES, SEATS = 16, 4
COSTS = Costs(switch_ns=1000)  # about what the box takes (`box_costs_ns` of corelane bench lab)
PACKS = ("gandiva", "antman", "liquid", "fifo", "fair")  # and the baselines beside them
# Of a cluster's mix with deadlines, of jobs of one core and any length, of requests of two types.
LOADS: Mapping[str, Mapping[str, float]] = {
    "cluster": {"jobs": 2000, "load": 0.8},
    "poisson": {"jobs": 4000, "load": 0.8, "mean_us": 200, "sigma": 2, "slack": 5},
    "bimodal": {"jobs": 5000, "load": 0.7, "short_us": 5, "long_us": 500, "long_share": 0.02},
}
COLUMNS = (
    ("mean_completion_us", "mean us"),
    ("p99_completion_us", "p99 us"),
    ("p99_slowdown", "p99 slowdown"),
    ("deadlines_kept", "deadlines kept"),
    ("refused", "refused"),
    ("jain_kinds", "Jain"),
    ("gifts", "gifts a job"),
)


@dataclass(frozen=True)
class Row:
    """numbers: means over seeds, with half their 95 % intervals as NAME_pm, as of measures.over_seeds."""

    load: str
    policy: str
    seats: int
    oracle: bool
    seeds: int
    numbers: Mapping[str, float | None]


def every(seeds: Sequence[int], processes: int = 1, say: Callable[[str], None] = lambda text: None) -> list[Row]:
    """Each policy on each load, by load and mean completion."""
    out = []
    for load, settings in LOADS.items():
        speeds = runs.speeds_of(load)
        for seats in (1, SEATS):
            names = policy.names() if seats == 1 else PACKS
            machine = Machine(CORES, speeds=speeds, seats=seats, costs=COSTS)
            wanted = runs.Wanted(load, settings)
            tasks = runs.tasks_of([(name, {}) for name in names], wanted, [machine], 0, 8192, seeds)
            done = runs.every(tasks, processes, say)
            for i, name in enumerate(names):
                mine = done[i * len(seeds) : (i + 1) * len(seeds)]
                numbers = measures.over_seeds([one.numbers for one in mine])
                out.append(Row(load, name, seats, policy.known(name).oracle, len(seeds), numbers))
    order = {load: i for i, load in enumerate(LOADS)}
    return sorted(out, key=lambda row: (order[row.load], row.numbers.get("mean_completion_us") or float("inf")))


def cells(row: Row) -> list[str]:
    """What a table shows of a row."""
    half = row.numbers.get("mean_completion_us_pm")
    shown = [quantity(row.numbers.get(key)) for key, _ in COLUMNS]
    shown[0] += f" +-{quantity(half)}" if half is not None else ""
    name = row.policy + (" (oracle)" if row.oracle else "") + (f", {row.seats} seats" if row.seats > 1 else "")
    return [row.load, name, *shown]


def table(rows: Sequence[Row]) -> str:
    """For a person."""
    return align([["load", "policy", *(title for _, title in COLUMNS)], *map(cells, rows)])
