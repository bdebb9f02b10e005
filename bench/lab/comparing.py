"""From runs to a document: a row for each policy and number of cores, means over seeds with intervals, and where each
policy's curve ends and why."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..harness.session import Session
from ..harness.table import align, quantity
from . import measures, policy, runs
from .runs import Done, Task

BROKEN = 2.0  # the p99 slowdown over the least on fewer cores, from which on a policy no longer scales
BUSY = 0.3  # of its loop's time, from which on that is the reason: else the load differs, as by its gangs
COLUMNS = (
    ("mean_completion_us", "mean us"),
    ("p50_completion_us", "p50 us"),
    ("p99_completion_us", "p99 us"),
    ("p99_slowdown", "p99 slowdown"),
    ("utilisation", "at work"),
    ("jain_kinds", "Jain"),
    ("deadlines_kept", "deadlines"),
    ("refused", "refused"),
    ("gifts", "gifts/job"),
)


def name_of(task: Task) -> str:
    """A policy with the settings that it was given."""
    given = ", ".join(f"{key}={value:g}" for key, value in sorted(task.settings.items()))
    return f"{task.policy} ({given})" if given else task.policy


def fill(session: Session, done: Sequence[Done]) -> None:
    """Add rows, notes, settings and ends of curves to a session."""
    oracles = {task.policy: policy.load(task.policy, task.settings).oracle for task in (d.task for d in done)}
    groups: dict[tuple[str, int], list[Done]] = {}
    for one in done:
        groups.setdefault((name_of(one.task), one.task.machine.cores), []).append(one)
    for (name, cores), mine in groups.items():
        numbers = measures.over_seeds([d.numbers for d in mine])
        row = {"policy": name, "cores": cores, "oracle": oracles[mine[0].task.policy], "seeds": len(mine)}
        shape = {key: _mean([d.shape[key] for d in mine]) for key in mine[0].shape}
        session.arm(f"{name}, {cores} cores", modelled=True, **row, **numbers, **shape)
    for name in dict.fromkeys(name for name, _ in groups):
        session.stop_uncounted(name, _end([row for row in session.arms if row["policy"] == name]))
    if named := [name for name, oracle in oracles.items() if oracle]:
        session.note(f"{', '.join(named)} is given what is to come: an oracle, no policy for a machine")
    wrong = {row["policy"]: row["gifts_refused"] for row in session.arms if row["gifts_refused"]}
    for name, count in wrong.items():
        session.note(f"{name} gave {count:g} cores a run to jobs that could not have them (see `fits`, max_cores)")
    first = done[0].task
    session.settings |= {
        "message": "one simulated job, from its arrival to its end",
        "simulated": True,
        "load": first.load.path or {"generator": first.load.name, **first.load.settings},
        "lab_seeds": sorted({d.task.seed for d in done}),
        "interval_us": first.interval_ns / 1e3,
        "lab_machine": _machine(first),
        "build": runs.stamp(),
    }


def _machine(task: Task) -> dict[str, Any]:
    machine = task.machine
    costs = {key: value for key, value in vars(machine.costs).items() if value}
    return {
        "speeds": list(machine.speeds),
        "pairs": machine.pairs,
        "pair_speed": machine.pair_speed,
        "loops": machine.loops,
        "seats": machine.seats,
        "capacity": list(machine.capacity),
        "costs_ns": costs or "none",
    }


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    """Place by place, over seeds."""
    least = min(map(len, rows))
    return [sum(row[i] for row in rows) / len(rows) for i in range(least)]


def _end(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where a policy's curve ends, and why."""
    rows = sorted(rows, key=lambda row: int(row["cores"]))
    for i, row in enumerate(rows):
        if why := measures.why_it_stops(row):
            return f"at {row['cores']} cores: {why}"
        least = min(rows[:i], key=_tail, default=row)
        if row.get("p99_slowdown", 0.0) > BROKEN * _tail(least) and float(row["loop_busy"]) >= BUSY:
            why = f"its p99 slowdown is over {BROKEN:g} times that on {least['cores']}; of the loop"
            return f"between {rows[i - 1]['cores']} and {row['cores']} cores: {why} {measures.loop_told(row)}"
    return f"at {rows[-1]['cores']} cores, the most that were asked for"


def _tail(row: Mapping[str, Any]) -> float:
    """inf: it ended no job, or some seed did not."""
    return float(row.get("p99_slowdown", math.inf))


def table(document: Mapping[str, Any]) -> str:
    """Rows for a person, with intervals where there are several seeds."""
    rows = document["arms"]
    kept = [(key, title) for key, title in COLUMNS if any(row.get(key) is not None for row in rows)]
    lines = [["policy", "cores", *(title for _, title in kept)]]
    for row in sorted(rows, key=lambda row: (row["cores"], row.get("mean_completion_us") or math.inf)):
        mark = " (oracle)" if row["oracle"] else ""
        lines.append([row["policy"] + mark, str(row["cores"]), *(_cell(row, key) for key, _ in kept)])
    settings = document["settings"]
    seeds = ", ".join(map(str, settings["lab_seeds"]))
    said = [f"simulated; seeds {seeds}; build {settings['build']}; +-: 95 % interval of the mean over seeds"]
    said += [f"{name} ends {why}" for name, why in settings["stops"].items()]
    return "\n".join([align(lines), "", *said, *settings["notes"]])


def _cell(row: Mapping[str, Any], key: str) -> str:
    half = row.get(f"{key}_pm")
    more = f" +-{quantity(float(half))}" if half is not None else ""
    return quantity(row.get(key)) + more


def pairs(done: Sequence[Done], baseline: str) -> list[dict[str, Any]]:
    """Mean completion of each policy over that of the policy `baseline`, whatever its settings, on the same cores and
    loads: the geometric mean over seeds, and its 95 % interval; None: only one seed. Without who ended no job; none if
    the baseline did not run."""
    groups: dict[tuple[str, int], dict[int, float]] = {}
    base: dict[int, dict[int, float]] = {}
    for one in done:
        name, cores = name_of(one.task), one.task.machine.cores
        held = base.setdefault(cores, {}) if one.task.policy == baseline else groups.setdefault((name, cores), {})
        held[one.task.seed] = one.numbers.get("mean_completion_us", math.inf)
    rows = []
    for (name, cores), means in groups.items():
        if cores not in base:
            continue
        logs = [math.log(mean) - math.log(base[cores][seed]) for seed, mean in means.items()]
        middle = sum(logs) / len(logs)
        if math.isfinite(middle):
            half = measures.interval(logs) if len(logs) > 1 else None
            low, high = (None if half is None else math.exp(middle + sign * half) for sign in (-1, 1))
            rows.append({"policy": name, "cores": cores, "over": math.exp(middle), "from": low, "to": high})
    return rows
