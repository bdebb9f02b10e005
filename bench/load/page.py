"""One HTML page with everything in it: the table, the doubts, the distribution of latency, latency over time.

Self-contained: styles and drawings (SVG) are in it, and so is the JSON document; it asks no server for anything and has
no script. Colours follow the reader's light or dark setting.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..harness.numbers import PERCENTILES, number
from ..harness.table import quantity
from .measuring import Measured
from .reporting import NAMES, report
from .trust import UNANSWERED, latencies

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 760, 300, 64, 44, 12, 16
COLOURS = ("#0b6e99", "#d1495b", "#3c8d40", "#7b4ea3", "#c77d0a", "#17a2a2")
DRAWN_MOST = 6  # loads that a drawing shows
PARTS = 100  # of a run, in the drawing of latency over time

STYLE = """
:root { color-scheme: light dark; --line: #8884; --text: #222; --soft: #666; --bad: #b3261e; --good: #2e7d32; }
@media (prefers-color-scheme: dark) { :root { --text: #e8e8e8; --soft: #aaa; --bad: #ff8a80; --good: #81c784; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
.doubt { color: var(--bad); } .fine { color: var(--good); } .soft { color: var(--soft); }
pre { overflow-x: auto; font-size: 12px; } svg { max-width: 100%; height: auto; } svg text { fill: var(--soft); }
figure { margin: 1.5rem 0; } figcaption { color: var(--soft); }
"""


class Drawing:
    """Lines on two axes, as SVG. Both axes are logarithmic unless said; ticks are powers of ten, or five of a linear
    one."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], labels: tuple[str, str], log_x: bool) -> None:
        self.x, self.y, self.log_x = x, y, log_x
        self.parts: list[str] = []
        self._axes(labels)

    def _at_x(self, value: float) -> float:
        low, high = self.x
        part = math.log(value / low) / math.log(high / low) if self.log_x else (value - low) / (high - low)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def _at_y(self, value: float) -> float:
        low, high = self.y
        return HEIGHT - BOTTOM - math.log(value / low) / math.log(high / low) * (HEIGHT - BOTTOM - TOP)

    def _axes(self, labels: tuple[str, str]) -> None:
        for value in _powers(*self.y):
            at = self._at_y(value)
            self._line(LEFT, at, WIDTH - RIGHT, at)
            self._text(LEFT - 6, at + 4, quantity(value), "end")
        ticks = _powers(*self.x) if self.log_x else [self.x[0] + (self.x[1] - self.x[0]) * i / 5 for i in range(6)]
        for value in ticks:
            at = self._at_x(value)
            self._line(at, TOP, at, HEIGHT - BOTTOM)
            self._text(at, HEIGHT - BOTTOM + 16, quantity(value), "middle")
        self._text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, labels[0], "middle")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        turned = f'transform="rotate(-90 14 {middle:.0f})"'
        self.parts.append(
            f'<text x="14" y="{middle:.0f}" font-size="12" text-anchor="middle" {turned}>{labels[1]}</text>'
        )

    def _line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="#8884"/>')

    def _text(self, x: float, y: float, text: str, anchor: str) -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" text-anchor="{anchor}">{text}</text>')

    def curve(self, points: Sequence[tuple[float, float]], colour: int, dashed: bool = False) -> None:
        """A line through points that lie within both axes."""
        placed = [(self._at_x(x), self._at_y(y)) for x, y in points if y > 0]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        paint = COLOURS[colour % len(COLOURS)]
        if placed:
            self.parts.append(f'<path d="M{path}" fill="none" stroke="{paint}" stroke-width="1.8"{dash}/>')

    def svg(self) -> str:
        return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(self.parts)}</svg>'


def _powers(low: float, high: float) -> list[float]:
    found = [10.0**e for e in range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)]
    return found or [low, high]


def _around(values: Sequence[float]) -> tuple[float, float]:
    """Powers of ten around all of them."""
    kept = [v for v in values if math.isfinite(v) and v > 0] or [1.0]
    low, high = 10 ** math.floor(math.log10(min(kept))), 10 ** math.ceil(math.log10(max(kept)))
    return float(low), float(high if high > low else 10 * low)


def _tail(loads: Sequence[tuple[str, Measured]]) -> str:
    """Which part of the requests took longer: the complementary distribution."""
    curves = [(name, m.result.latency.ccdf(300)) for name, m in loads]
    values = [(x / 1e3, y) for _, c in curves for x, y in c if y > 0]
    if len(values) < 2:
        return ""
    drawing = Drawing(
        _around([x for x, _ in values]),
        _around([y for _, y in values] + [1.0]),
        ("latency from the intended send time (us)", "part of requests that took longer"),
        log_x=True,
    )
    for colour, (_, c) in enumerate(curves):
        drawing.curve([(x / 1e3, y) for x, y in c if y > 0], colour)
    return _figure(drawing, loads, "A curve that ends above the axis at the right has unanswered requests behind it.")


def _over_time(loads: Sequence[tuple[str, Measured]]) -> str:
    """Median and 99th percentile of each part of the run."""
    curves = [(_parts(m, 50), _parts(m, 99)) for _, m in loads]
    points = [p for pair in curves for c in pair for p in c]
    if len(points) < 4:
        return ""
    end = max(x for x, _ in points)
    drawing = Drawing(
        (0.0, end), _around([y for _, y in points]), ("time (s)", "latency (us): p50, p99 dashed"), log_x=False
    )
    for colour, (median, tail) in enumerate(curves):
        drawing.curve(median, colour)
        drawing.curve(tail, colour, dashed=True)
    return _figure(drawing, loads, "A latency that wanders belongs to no one rate.")


def _parts(measured: Measured, percent: float) -> list[tuple[float, float]]:
    found = latencies(measured.result.records)
    found = found[found["latency_ns"] != UNANSWERED]
    found = found[np.argsort(found["due_ns"], kind="stable")]
    if len(found) < 2 * PARTS:
        return []
    parts = np.array_split(found, PARTS)
    return [(float(p["due_ns"].mean()) / 1e9, float(np.percentile(p["latency_ns"], percent)) / 1e3) for p in parts]


def _figure(drawing: Drawing, loads: Sequence[tuple[str, Measured]], caption: str) -> str:
    keys = " ".join(
        f'<span style="color:{COLOURS[i % len(COLOURS)]}">&#9632; {html.escape(name)}, '
        f"{m.point.offered_rps:,.0f}/s</span>"
        for i, (name, m) in enumerate(loads)
    )
    return f"<figure>{drawing.svg()}<figcaption>{keys}<br>{caption}</figcaption></figure>"


def _table(document: dict[str, Any]) -> str:
    head = ["load", "offered/s", "achieved/s", *(f"{NAMES[name]} us" for name, _ in PERCENTILES), "sent", "answered"]
    rows = []
    for row in document["arms"]:
        cells = [row["name"], *(quantity(number(row[k])) for k in ("offered_rps", "achieved_rps"))]
        for name, _ in PERCENTILES:
            low, high = (quantity(number(v)) for v in row["intervals_us"][name])
            cells.append(f"{quantity(number(row[f'{name}_us']))} ({low} .. {high})")
        cells += [quantity(row["sent"]), quantity(row["answered"])]
        rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
    return (
        f"<table><tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>"
        f"{''.join(f'<tr>{row}</tr>' for row in rows)}</table><p class=soft>in brackets: the 95 % interval</p>"
    )


def _doubts(document: dict[str, Any]) -> str:
    told = [f"{row['name']}: {d['text']}" for row in document["arms"] for d in row["doubts"]]
    if not told:
        return "<p class=fine>Nothing speaks against this result.</p>"
    return f"<ul class=doubt>{''.join(f'<li>{html.escape(text)}</li>' for text in dict.fromkeys(told))}</ul>"


def page(document: dict[str, Any], loads: Sequence[tuple[str, Measured]]) -> str:
    """The page. loads: by name, those of the document."""
    shown = [load for load in loads if load[1].result.latency.count][-DRAWN_MOST:]
    title = html.escape(f"corelane load {document['settings']['target']}")
    data = json.dumps(document, allow_nan=False).replace("<", "\\u003c")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style>'
        f"<h1>{title}</h1>{_doubts(document)}{_table(document)}<h2>The tail</h2>{_tail(shown)}"
        f"<h2>Over time</h2>{_over_time(shown)}<h2>All of it</h2><pre>{html.escape(report(document))}</pre>"
        f'<script type="application/json" id="document">{data}</script></html>\n'
    )
