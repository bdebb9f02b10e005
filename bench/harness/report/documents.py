"""The page of benchmarks' documents: what fell short and why, all figures, then each benchmark with its plots."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..figure import Figure
from ..goals import GOALS
from ..numbers import number
from ..table import (
    LOAD_COLUMNS,
    beside,
    bound,
    by_values,
    canary_line,
    loud_line,
    own_keys,
    quantity,
    verdict,
)
from .drawn import drawn
from .markup import Html, Numbered, data, el, items, table
from .page import Section, page

Document = Mapping[str, Any]


@dataclass
class Measured:
    """What a page is of. documents: by a name, the benchmark's as a rule. plots: of each, or a sentence why there is
    none. failed: benchmarks that ended with an error."""

    documents: dict[str, Document] = field(default_factory=dict)
    plots: dict[str, Figure | str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, document: Document, plot: Figure | str) -> None:
        """One more; the second of a benchmark gets a number behind its name."""
        names = (f"{document['bench']}{f'-{i}' if i > 1 else ''}" for i in itertools.count(1))
        name = next(name for name in names if name not in self.documents)
        self.documents[name], self.plots[name] = document, plot

    @property
    def figures(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        """(benchmark, figure) by the figure's name, in the order of goals.py."""
        have = {name: (bench, fig) for bench, d in self.documents.items() for name, fig in d["figures"].items()}
        return {name: have[name] for name in GOALS if name in have}


def report(measured: Measured, title: str) -> str:
    """The page."""
    ids = Numbered()
    sections = [
        Section("short", "What fell short, and why", _short(measured, ids), _count_short(measured)),
        Section("figures", "Figures", [_figures(measured, ids)]),
    ]
    for name, document in measured.documents.items():
        loud = loud_line(dict(document))
        body = benchmark(name, document, measured.plots.get(name), ids)
        sections.append(Section(f"bench-{name}", name, body, "not judged" if loud else _missed(document)))
    return page(title, [el("p", _summary(measured))], sections)


def _summary(measured: Measured) -> str:
    counts = {"met": 0, "missed": 0, "not judged": 0, "not taken": 0}
    for name, (_, fig) in measured.figures.items():
        counts[_outcome(name, fig)] += GOALS[name].goal is not None
    told = ", ".join(f"{n} {what}" for what, n in counts.items() if n) or "none with a goal"
    version = next((d["version"] for d in measured.documents.values()), "unknown")
    failed = f"; {len(measured.failed)} failed" if measured.failed else ""
    return f"corelane {version}. {len(measured.documents)} benchmarks{failed}. Figures: {told}."


def _outcome(name: str, fig: Mapping[str, Any]) -> str:
    if fig["value"] is None:
        return "not taken"
    if fig["met"] is None:
        return "not judged"
    return "met" if fig["met"] else "missed"


def _missed(document: Document) -> str:
    n = sum(_outcome(name, fig) == "missed" for name, fig in document["figures"].items())
    return f"{n} missed" if n else ""


def _count_short(measured: Measured) -> str:
    n = sum(_outcome(name, fig) == "missed" for name, (_, fig) in measured.figures.items())
    return f"{n} missed" if n else ""


def _short(measured: Measured, ids: Numbered) -> list[Html | None]:
    """Figures that miss their goals, with what stands beside them; those not judged or not taken, with the reason;
    benchmarks that failed, arms that were left out."""
    groups: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {"missed": [], "not judged": [], "not taken": []}
    for name, (bench, fig) in measured.figures.items():
        if (outcome := _outcome(name, fig)) in groups and GOALS[name].goal is not None:
            groups[outcome].append((name, bench, fig))
    parts: list[Html | None] = []
    if groups["missed"]:
        head = ["figure", "value", "goal", "runs", "benchmark", "beside it, and what bounds it"]
        rows = [
            [
                el("code", name),
                _value(name, fig),
                bound(GOALS[name]),
                _runs(fig),
                _link(bench),
                _why(measured.documents[bench], fig),
            ]
            for name, bench, fig in groups["missed"]
        ]
        parts.append(table(ids, "Figures that miss their goals", head, rows, words=(0, 2, 4, 5)))
    for outcome in ("not judged", "not taken"):
        rows = [[el("code", n), str(fig.get("reason") or "no reason given"), _link(b)] for n, b, fig in groups[outcome]]
        if rows:
            head = ["figure", "why", "benchmark"]
            parts.append(table(ids, f"Figures that were {outcome}", head, rows, words=range(3)))
    if measured.failed:
        rows = [[name, why] for name, why in measured.failed.items()]
        parts.append(table(ids, "Benchmarks that failed", ["benchmark", "why"], rows, words=range(2)))
    skipped = [
        [_link(bench), arm, why]
        for bench, document in measured.documents.items()
        for arm, why in document["settings"]["skipped"].items()
    ]
    if skipped:
        parts.append(table(ids, "Arms that were left out", ["benchmark", "arm", "why"], skipped, words=range(3)))
    return parts or [el("p", "Nothing: every figure was taken, and meets its goal.", class_="good")]


def _link(bench: str) -> Html:
    return el("a", bench, href=f"#bench-{bench}")


def _why(document: Document, fig: Mapping[str, Any]) -> list[Html | str]:
    """What the run itself says: the same taken in another way, and where the benchmark's curves stopped."""
    told: list[Html | str] = [beside(dict(fig))] if fig.get("beside") else []
    stops: dict[str, list[str]] = {}
    for arm, why in document["settings"].get("stops_because", {}).items():
        stops.setdefault(why["resource"], []).append(arm)
    because = [f"{resource} stops {', '.join(arms)}" for resource, arms in stops.items()]
    if because:
        told.append(el("span", f"{'; ' if told else ''}{'; '.join(because)}", class_="soft"))
    return told or ["see the benchmark"]


def _value(name: str, fig: Mapping[str, Any]) -> str:
    unit = GOALS[name].unit
    return f"{quantity(fig['value'])}{f' {unit}' if unit != 'x' else ''}"


def _runs(fig: Mapping[str, Any]) -> str:
    taken = [number(r) for r in fig["runs"]]
    return f"{quantity(min(taken))} to {quantity(max(taken))}" if len(taken) > 1 else ""


def _figures(measured: Measured, ids: Numbered) -> Html:
    head = ["figure", "meaning", "value", "runs", "goal", "outcome"]
    rows = []
    for name, (bench, fig) in measured.figures.items():
        outcome = _outcome(name, fig)
        said = verdict(name, dict(fig), "met", "missed") if fig["value"] is not None else "not taken"
        look = {"met": "good", "missed": "bad"}.get(outcome, "soft")
        value = "-" if fig["value"] is None else _value(name, fig)
        goal = bound(GOALS[name])
        link = el("a", el("code", name), href=f"#bench-{bench}")
        rows.append([link, GOALS[name].meaning, value, _runs(fig), goal, el("span", said, class_=look)])
    return table(ids, "Every figure of these benchmarks, in the order of their goals", head, rows, words=(0, 1, 4, 5))


def benchmark(name: str, document: Document, plot: Figure | str | None, ids: Numbered) -> list[Html | None]:
    """The parts of one benchmark: machine and settings, plots, arms, canary, where curves stop, what was noticed, the
    document itself."""
    settings, loud = document["settings"], loud_line(dict(document))
    drawing = el("p", plot, class_="soft") if isinstance(plot, str) else drawn(plot, ids) if plot else None
    stops = [[arm, why] for arm, why in settings["stops"].items()]
    skipped = [[arm, why] for arm, why in settings["skipped"].items()]
    return [
        el("p", loud, class_="bad") if loud else None,
        drawing,
        *_arms(name, document, ids),
        *_told(document, ids),
        table(ids, f"Where curves of {name} stop", ["arm", "why"], stops, words=range(2)) if stops else None,
        table(ids, f"What {name} left out", ["arm", "why"], skipped, words=range(2)) if skipped else None,
        _noticed(settings["notes"]),
        canary(document, ids),
        setting(document, ids),
        whole(document, f"document-{name}"),
    ]


def _noticed(notes: Sequence[str]) -> Html | None:
    return el("div", el("h3", "Noticed"), items(notes)) if notes else None


def _arms(name: str, document: Document, ids: Numbered) -> Iterator[Html]:
    """Tables as `table.report` has them: loads, then values of arms that have the same ones."""
    rows = document["arms"]
    loads, others = ([r for r in rows if ("offered_rps" in r) is has] for has in (True, False))
    if loads:
        keys = [k for k, _ in LOAD_COLUMNS if any(k in r for r in loads)]
        starred = any(r.get("explained_by_canary") for r in loads)
        more = "; a star: the canary's gaps make half of it or more" if starred else ""
        yield _values(loads, keys, f"Loads of {name}{more}", ids)
    for i, rows in enumerate([*by_values(loads), *by_values(others)]):
        keys = own_keys(rows)
        yield _values(rows, keys, f"Values of the arms of {name}{f', part {i + 1}' if i else ''}", ids)


def _told(document: Document, ids: Numbered) -> Iterator[Html]:
    """Tables that the benchmark made itself."""
    for each in document["settings"].get("tables", ()):
        rows = [[quantity(cell) for cell in row] for row in each["rows"]]
        yield table(ids, each["title"], each["head"], rows, words=_words_of(each["rows"]))


def _values(rows: Sequence[Mapping[str, Any]], keys: Iterable[str], caption: str, ids: Numbered) -> Html:
    titles = dict(LOAD_COLUMNS)
    kept = [key for key in keys if any(row.get(key) is not None for row in rows)]
    head = ["arm", *(titles.get(key, key.replace("_", " ")) for key in kept)]
    words = _words_of([[row["name"], *(row.get(key) for key in kept)] for row in rows])
    return table(ids, caption, head, ([row["name"], *(_cell(row, key) for key in kept)] for row in rows), words)


def _words_of(rows: Sequence[Sequence[object]]) -> set[int]:
    """Columns that are read as words: the first, and those with text in them."""
    return {0} | {i for row in rows for i, cell in enumerate(row) if isinstance(cell, str) and cell != "inf"}


def _cell(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if key.endswith("_us") and value is not None and not isinstance(value, list | dict):
        value = number(value)
    star = "*" if key.removesuffix("_us") in row.get("explained_by_canary", ()) else ""
    return f"{quantity(value)}{star}"


def canary(document: Document, ids: Numbered) -> Html:
    """What the machine did to threads that only spun, on each core that was measured on."""
    found = document["canary"]
    rows = [
        [f"core {c['cpu']}", f"{100 * c['lost_fraction']:.2g} %", quantity(float(c["max_us"])), quantity(c["seconds"])]
        for c in found["cores"]
    ]
    head = ["core", "taken by others", "longest gap (us)", "watched (s)"]
    said = canary_line(dict(found))
    return el("div", el("h3", "Canary"), el("p", f"{said[0].upper()}{said[1:]}."), table(ids, "Canary", head, rows))


def setting(document: Document, ids: Numbered) -> Html:
    """The machine, and what the run was told."""
    machine = [[key.replace("_", " "), _words(value)] for key, value in document["machine"].items()]
    quiet = ("stops", "stops_because", "skipped", "notes", "series", "tables")
    told = [[key.replace("_", " "), _words(v)] for key, v in document["settings"].items() if key not in quiet]
    return el(
        "details",
        el("summary", "Machine and settings"),
        table(ids, "The machine", ["of the machine", "value"], machine, words=range(2)),
        table(ids, "Settings of the run", ["setting", "value"], told, words=range(2)),
    )


def _words(value: object) -> str:
    """A value of any shape, in a cell."""
    if isinstance(value, Mapping):
        return "; ".join(f"{key}: {_words(each)}" for key, each in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value)) or "none"
    return quantity(value)


def whole(document: Document, ident: str = "document") -> Html:
    """The document itself, in an element of that id, and a button that saves it."""
    name = f"{document['bench'].replace(' ', '-')}.json"
    text = json.dumps(document, allow_nan=False)
    button = el("button", f"Save {name}", type="button", hidden=True, data_save=ident, data_name=name)
    return el("div", el("p", button), data(ident, text))
