"""A plot as a part of a page: data for plots.js, a legend, what the plot says, and its numbers as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from ....runtime.errors import CorelaneError
from ..figure import COLOURS, Axis, Figure, Mark, Panel
from ..lint import problems
from ..table import quantity
from .markup import Html, Numbered, data, el, items, table

NEUTRAL = "pn"
KEYS = "Arrow keys move, plus and minus zoom, 0 shows all. The numbers are in the table below."
POINTS_MOST = 2000  # of a mark: more are not seen


def paint(colour: str) -> str:
    """The class of a colour in style.css, which has a light and a dark one for each."""
    return f"p{COLOURS.index(colour)}" if colour in COLOURS else NEUTRAL


def drawn(figure: Figure, ids: Numbered) -> Html:
    """The plot. CorelaneError with the lint's findings if it may not be shown."""
    if found := problems(figure):
        raise CorelaneError(f"plot {figure.title}", f"it breaks the rules of plots: {'; '.join(found)}")
    ident = ids("plot")
    return el(
        "figure",
        el("h3", figure.title, id=ident),
        [_panel(panel, ids) for panel in figure.panels],
        el("figcaption", items(figure.texts, class_="said")),
        aria_labelledby=ident,
        class_="plots",
    )


def _panel(panel: Panel, ids: Numbered) -> Html:
    labels = panel.labels
    named = f"{panel.y.label} by {panel.x.label}" if not panel.y.names else panel.x.label
    about = f"{panel.title + ': ' if panel.title else ''}{named}"
    svg = el("svg", role="img", aria_label=f"{about}; {_extent(panel)}")
    view = el("div", svg, class_="view", tabindex="0", role="group", aria_label=f"{about}. {KEYS}")
    buttons = [
        el("button", text, type="button", data_do=word)
        for word, text in (("in", "Zoom in"), ("out", "Zoom out"), ("all", "Show all"))
    ]
    return el(
        "div",
        el("h4", panel.title) if panel.title else None,
        el("p", panel.y.label, class_="axis") if not panel.y.names else None,
        view,
        el("p", panel.x.label, class_="axis x"),
        el("p", buttons, el("output", Html("&nbsp;")), class_="tools"),
        _legend(panel),
        el("noscript", el("p", "Without a script nothing is drawn here; the numbers are in the table.")),
        el("details", el("summary", "The numbers of this plot"), _numbers(panel, about, ids)),
        data("", json.dumps(_data(panel, labels), allow_nan=False, separators=(",", ":"))),
        class_="plot",
    )


def _extent(panel: Panel) -> str:
    """How many series, and from where to where they reach."""
    ys = [y for mark in panel.marks for _, y in mark.drawn if math.isfinite(y)]
    if panel.y.names:
        return f"{len(panel.y.names)} bars"
    series = len(panel.labels)
    reach = f" from {quantity(min(ys))} to {quantity(max(ys))}" if ys else ""
    return f"{series} series{reach}"


def _legend(panel: Panel) -> Html | None:
    """A switch for each series, in its own look."""
    looks = {mark.label: mark for mark in reversed(panel.marks) if mark.label}
    if len(looks) < 2:
        return None
    switches = [
        el("button", _swatch(looks[label]), label, type="button", aria_pressed="true", data_series=str(i))
        for i, label in enumerate(panel.labels)
    ]
    return items(switches, class_="legend")


def _swatch(mark: Mark) -> Html:
    """A stroke in the series' colour and line."""
    thick = "10" if mark.kind in ("bars", "band") else "2"
    dash = f' stroke-dasharray="{dashes}"' if (dashes := DASHES[mark.dash]) else ""
    dot = '<circle cx="14" cy="6" r="3" class="fill"/>' if mark.marker else ""
    line = f'<path d="M0 6H28" class="stroke" stroke-width="{thick}"{dash}/>' if mark.dash else ""
    return Html(f'<svg class="{paint(mark.colour)}" width="28" height="12" aria-hidden="true">{line}{dot}</svg>')


DASHES = {"-": "", "--": "6 4", ":": "2 3", "-.": "8 3 2 3", "": ""}


def _data(panel: Panel, labels: list[str]) -> dict[str, Any]:
    return {
        "x": _axis(panel.x),
        "y": _axis(panel.y),
        "marks": [
            {
                "kind": mark.kind,
                "series": labels.index(mark.label) if mark.label else None,
                "label": mark.label or "",
                "paint": paint(mark.colour),
                "dash": DASHES[mark.dash],
                "marker": mark.marker,
                "points": [[_short(x), _short(y)] for x, y in mark.points[:POINTS_MOST]],
                "ends": [[_short(x), _short(y)] for x, y in mark.ends[:POINTS_MOST]],
            }
            for mark in panel.marks
        ],
        "notes": [
            {"text": note.text, "x": _short(note.x), "y": _short(note.y)}
            for note in panel.notes
            if not any(label.startswith(note.text) for label in labels)  # the legend names them
        ],
    }


def _axis(axis: Axis) -> dict[str, Any]:
    names = sorted(axis.names.items())
    return {"label": axis.label, "low": axis.low, "high": axis.high, "log": axis.log, "names": names}


def _short(value: float) -> float | None:
    """Six digits, which are more than are seen."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _numbers(panel: Panel, about: str, ids: Numbered) -> Html:
    """The points of all series in a table; bars with their names."""
    if panel.y.names:
        rows = list(_bars(panel))
        return table(ids, f"{about}: the numbers", [panel.y.label, panel.x.label], rows)
    head = ["series", panel.x.label, panel.y.label]
    rows = [
        [mark.label or "", *("all" if math.isnan(v) else quantity(v) for v in point)]
        for mark in panel.marks
        if mark.kind in ("line", "dots", "rule") and mark.label
        for point in mark.points
    ]
    return table(ids, f"{about}: the numbers", head, rows)


def _bars(panel: Panel) -> Iterator[list[str]]:
    """Each name with what stands at its height: the number written there, else where its marks are."""
    for place, name in sorted(panel.y.names.items()):
        told = [note.text for note in panel.notes if abs(note.y - place) < 0.5]
        found = [
            quantity(x)
            for mark in panel.marks
            if mark.kind in ("bars", "dots", "line")
            for x, y in (mark.ends or mark.points)
            if abs(y - place) <= 0.5
        ]
        yield [name, ", ".join(told or found) or "-"]
