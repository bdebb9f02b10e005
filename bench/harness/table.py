"""The text a person reads: aligned tables of arms, figures and the canary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from . import document as doc
from .goals import GOALS, Goal
from .numbers import number

LOAD_COLUMNS = (
    ("offered_rps", "offered/s"),
    ("achieved_rps", "achieved/s"),
    ("p50_us", "p50 us"),
    ("p90_us", "p90 us"),
    ("p99_us", "p99 us"),
    ("p999_us", "p99.9 us"),
    ("sent", "sent"),
    ("answered", "answered"),
    ("late", "late"),
    ("dropped", "dropped"),
)
# In the documents, and not worth a column.
_QUIET = {"explained_by_canary", "max_us", "seconds", "runs", "busy_core_s", *(k for k, _ in LOAD_COLUMNS)}


def quantity(value: object) -> str:
    """A value for a table: grouped thousands, three or four digits, "inf", "-" for none."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if math.isnan(value):
            return "-"
        if math.isinf(value):
            return "inf"
        if abs(value) >= 10000:
            return f"{value:,.0f}"
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return " ".join(quantity(v) for v in value)
    return str(value)


def align(rows: Iterable[Sequence[str]], indent: str = "  ") -> str:
    """Columns padded to their widest cell: the first to the left, the others to the right."""
    listed = [list(r) for r in rows]
    if not listed:
        return ""
    widths = [max(len(r[i]) if i < len(r) else 0 for r in listed) for i in range(max(map(len, listed)))]
    lines = []
    for r in listed:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(r, widths, strict=False))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return "\n".join(lines)


def _cell(row: dict[str, Any], key: str) -> str:
    mark = "*" if key.removesuffix("_us") in row.get("explained_by_canary", ()) else ""
    value = row.get(key)
    if key.endswith("_us") and value is not None:
        value = number(value)
    return quantity(value) + mark


def load_table(arms: Sequence[dict[str, Any]]) -> str:
    """Arms with latencies. A star: the canary alone explains the percentile."""
    rows = [["arm", *(title for _, title in LOAD_COLUMNS)]]
    rows += [[row["name"], *(_cell(row, key) for key, _ in LOAD_COLUMNS)] for row in arms]
    return align(rows)


def own_keys(arms: Sequence[dict[str, Any]]) -> list[str]:
    """The values that any of the arms has, in the order of appearance; not names, lists, and what every load has."""
    quiet = _QUIET if any("offered_rps" in row for row in arms) else ()
    found: dict[str, None] = {}
    for row in arms:
        found |= {k: None for k, v in row.items() if k not in ("name", *quiet) and not isinstance(v, dict | list)}
    return list(found)


def by_values(arms: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Arms by the values that they have, a table each: an arm goes where it has at least half of the values of both in
    common, so that a table has few empty cells. In the order of appearance; arms without a value are left out."""
    tables: list[tuple[set[str], list[dict[str, Any]]]] = []
    for row in arms:
        keys = {k for k in own_keys([row]) if row[k] is not None}
        for have, rows in tables:
            if keys and 2 * len(keys & have) >= len(keys | have):
                have |= keys
                rows.append(row)
                break
        else:
            tables += [(keys, [row])] if keys else []
    return [rows for _, rows in tables]


def value_tables(arms: Sequence[dict[str, Any]]) -> list[str]:
    """Every value of `own_keys`, in tables of arms that have the same ones."""
    parts = []
    for rows in by_values(arms):
        keys = [k for k in own_keys(rows) if any(row.get(k) is not None for row in rows)]
        parts.append(align([["arm", *keys], *([row["name"], *(quantity(row.get(k)) for k in keys)] for row in rows)]))
    return parts


def beside(figure: dict[str, Any]) -> str:
    """What was put beside a figure, as "what: value; ..."; empty if nothing was."""
    return "; ".join(f"{what}: {quantity(number(v))}" for what, v in figure.get("beside", {}).items())


def bound(goal: Goal) -> str:
    """A figure's goal, as "at most 4"."""
    return "none" if goal.goal is None else f"{goal.sense} {quantity(goal.goal)}"


def verdict(name: str, fig: dict[str, Any], met: str, missed: str) -> str:
    """Whether a figure meets its goal; of how many of its runs that is so, where they are on both sides of it."""
    if fig["met"] is None:
        return "no goal" if GOALS[name].goal is None else "not judged"
    told, runs = met if fig["met"] else missed, [number(r) for r in fig["runs"]]
    agree = sum(GOALS[name].met(r) is fig["met"] for r in runs)
    return told if agree == len(runs) else f"{told}, {'met' if fig['met'] else 'missed'} in {agree} of {len(runs)} runs"


def figure_table(figures: dict[str, dict[str, Any]]) -> str:
    """Every figure with its goal; the lowest and highest of its runs where there are several. What was put beside it
    stands in a line of its own below."""
    rows = [["figure", "value", "runs", "goal", "", "meaning"]]
    for name, fig in figures.items():
        goal = GOALS[name]
        if fig["value"] is None:
            rows.append([name, "-", "", bound(goal), "not taken", fig["reason"]])
            continue
        runs = [number(r) for r in fig["runs"]]
        spread = f"{quantity(min(runs))} .. {quantity(max(runs))}" if len(runs) > 1 else ""
        said = verdict(name, fig, "met", "NOT MET")
        rows.append([name, quantity(fig["value"]), spread, bound(goal), said, goal.meaning])
    widths = [max(len(r[i]) for r in rows) for i in range(5)]
    lines = []
    for row, fig in zip(rows, [{}, *figures.values()], strict=True):
        lines.append(("  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[5]])).rstrip())
        if told := beside(fig):
            lines.append(f"      {told}")
    return "\n".join(lines)


def loud_line(document: dict[str, Any]) -> str:
    """The first line about a run of which nothing is judged; empty if it is judged."""
    why = doc.too_loud(document["canary"])
    advice = "repeat it on a quieter machine, or let it wait for quieter rounds with --patient SECONDS"
    virtual = " (but for what is in virtual time)" if any(GOALS[name].virtual for name in document["figures"]) else ""
    return f"{document['bench']} is not judged{virtual}: {why}; {advice}" if why else ""


def canary_line(canary: dict[str, Any]) -> str:
    """The canary in one line."""
    cores = ", ".join(f"core {c['cpu']} lost {100 * c['lost_fraction']:.2g} %" for c in canary["cores"])
    d = canary["delay_us"]
    tail = " / ".join(quantity(number(d[k])) for k in ("p50", "p90", "p99", "p999"))
    return (
        f"canary ({canary['seconds']:.2g} core seconds in {canary['slices']} slices): {cores}; longest gap "
        f"{quantity(float(canary['max_us']))} us; the machine alone delays p50/p90/p99/p99.9 by {tail} us"
    )


def machine_line(machine: dict[str, Any]) -> str:
    """The machine in one line."""
    line = machine.get("cacheline_roundtrip_ns")
    trip = f", cache-line round trip {line['median']:.0f} ns ({line['min']:.0f} .. {line['max']:.0f})" if line else ""
    virtual = " (virtual machine)" if machine["virtualised"] else ""
    cores = ",".join(map(str, machine["cores_used"]))
    return (
        f"{machine['cpu_model']}{virtual}, Linux {machine['kernel']}, cores {cores} of {machine['logical_cpus']}, "
        f"clock {machine['clock_source']}{trip}"
    )


def report(document: dict[str, Any]) -> str:
    """The whole document as text."""
    settings = document["settings"]
    parts = [loud] if (loud := loud_line(document)) else []
    parts += [f"{document['bench']}: {machine_line(document['machine'])}", f"power: {settings['power']}"]
    loads = [a for a in document["arms"] if "offered_rps" in a]
    others = [a for a in document["arms"] if "offered_rps" not in a]
    if loads:
        parts.append(load_table(loads))
        parts += value_tables(loads)
        if any(a.get("explained_by_canary") for a in loads):
            parts.append(
                "  * the gaps that the canary saw make half of this value or more: it says little of the program"
            )
    parts += value_tables(others)
    for told in settings.get("tables", ()):
        parts.append(f"{told['title']}:")
        parts.append(align([told["head"], *([quantity(cell) for cell in row] for row in told["rows"])]))
    parts.append(canary_line(document["canary"]))
    parts += [f"{arm}: stops at: {why}" for arm, why in settings["stops"].items()]
    parts += [f"skipped {arm}: {why}" for arm, why in settings["skipped"].items()]
    parts += [f"note: {text}" for text in settings["notes"]]
    if document["figures"]:
        parts.append(figure_table(document["figures"]))
    return "\n".join(parts)
