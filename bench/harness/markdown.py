"""Markdown from documents: `corelane bench report`. Results in docs/ are made by this, never typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from .goals import GOALS
from .numbers import number
from .table import (
    LOAD_COLUMNS,
    beside,
    bound,
    by_values,
    canary_line,
    loud_line,
    machine_line,
    own_keys,
    quantity,
    verdict,
)


def figures(documents: Sequence[dict[str, Any]]) -> str:
    """One table of every promised figure, in the order of goals.py. After it a line for each figure that has
    something beside it, and the names of those that no document has."""
    have = {name: fig for d in documents for name, fig in d["figures"].items()}
    lines = ["| figure | meaning | goal | value | runs | met |", "|---|---|---|---|---|---|"]
    more = []
    missing = [f"`{name}`" for name in GOALS if name not in have]
    for name, goal in GOALS.items():
        if (fig := have.get(name)) is None:
            continue
        value, runs, met = f"not taken: {fig.get('reason')}", "", ""
        if fig["value"] is not None:
            value = f"{quantity(fig['value'])} {goal.unit if goal.unit != 'x' else ''}".rstrip()
            met = verdict(name, fig, "yes", "no")
            taken = [number(r) for r in fig["runs"]]
            runs = f"{quantity(min(taken))} .. {quantity(max(taken))}" if len(taken) > 1 else ""
        lines.append(f"| `{name}` | {goal.meaning} | {bound(goal)} | {value} | {runs} | {met} |")
        if fig.get("beside"):
            more.append(f"- `{name}`: {beside(fig)}")
    if len(missing) == len(GOALS):
        lines = ["These files have no figure."]
        missing = []
    if more:
        lines += ["", "Taken in another way in the same run, and what bounds it:", "", *more]
    if missing:
        lines += ["", f"Not in these files: {', '.join(missing)}."]
    return "\n".join(lines)


def arms(document: dict[str, Any]) -> str:
    """The arms of one document as tables: what all loads have, then each benchmark's own values of the same arms, then
    arms without a load, then series, then tables that the benchmark has made itself. A star: the canary alone explains
    half of the value or more."""
    rows = document["arms"]
    loads, others = ([r for r in rows if ("offered_rps" in r) is has] for has in (True, False))
    parts = []
    if loads:
        parts.append(_table(loads, [k for k, _ in LOAD_COLUMNS if any(k in r for r in loads)]))
    several = len({r["name"] for r in loads}) < len(loads)
    parts += [_table(t, ["offered_rps", *own_keys(t)] if several else own_keys(t)) for t in by_values(loads)]
    parts += [_table(t, own_keys(t)) for t in by_values(others)]
    parts.append(series(document))
    parts += [_told(each) for each in document["settings"].get("tables", ())]
    return "\n\n".join(p for p in parts if p)


def _table(rows: Sequence[dict[str, Any]], keys: Sequence[str]) -> str:
    titles = dict(LOAD_COLUMNS)
    keys = [k for k in keys if any(row.get(k) is not None for row in rows)]
    lines = [f"| arm | {' | '.join(titles.get(k, k) for k in keys)} |", "|---" + "|---:" * len(keys) + "|"]
    for row in rows:
        cells = []
        for key in keys:
            value = number(row[key]) if key.endswith("_us") and row.get(key) is not None else row.get(key)
            star = "\\*" if key.removesuffix("_us") in row.get("explained_by_canary", ()) else ""
            cells.append(quantity(value) + star)
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(table: dict[str, Any]) -> str:
    """A table that the benchmark made itself (Session.table)."""
    head = table["head"]
    lines = [f"{table['title']}:", "", f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += [f"| {' | '.join(map(quantity, row))} |" for row in table["rows"]]
    return "\n".join(lines)


def series(document: dict[str, Any]) -> str:
    """The lists that settings.series names, {"along": key, "of": keys}: a row for each of their places, a column for
    each arm and key."""
    told = document["settings"].get("series")
    rows = [r for r in document["arms"] if told and r.get(told["along"])]
    if not rows:
        return ""
    columns = [(f"{r['name']}: {key}", r[key]) for r in rows for key in told["of"]]
    lines = [f"| {told['along']} | {' | '.join(title for title, _ in columns)} |", "|---:" * (len(columns) + 1) + "|"]
    for i, place in enumerate(rows[0][told["along"]]):
        cells = [quantity(place), *(quantity(values[i]) if i < len(values) else "-" for _, values in columns)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def report(documents: Sequence[dict[str, Any]]) -> str:
    """Figures first, then each benchmark's arms, machine, canary, stops and notes. Above all, which is not judged."""
    parts = [*filter(None, map(loud_line, documents)), "## Figures", figures(documents)]
    for d in documents:
        settings = d["settings"]
        parts += [
            f"## {d['bench']}",
            f"{machine_line(d['machine'])}; {settings['power']}.",
            arms(d),
            canary_line(d["canary"]),
        ]
        said = [f"- {arm} stops: {why}" for arm, why in settings["stops"].items()]
        said += [f"- not measured: {arm}: {why}" for arm, why in settings["skipped"].items()]
        said += [f"- {text}" for text in settings["notes"]]
        parts.append("\n".join(said))
    return "\n\n".join(p for p in parts if p)


BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def write_into(page: Path, text: str) -> None:
    """Put a report between the result markers of a page. CorelaneError if it has none."""
    try:
        old = page.read_text()
    except OSError as e:
        raise CorelaneError(f"write into {page}", str(e.strerror)) from e
    before, begin, rest = old.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise CorelaneError(f"write into {page}", "it has no result markers", f"add the lines {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
