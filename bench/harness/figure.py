"""What a plot shows, whatever draws it: matplotlib into a PNG (plot.py), or a browser out of a page (report/).

`lint.py` judges it. `seen.py` reads it from a figure of matplotlib's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

COLOURS = ("#0b6e99", "#d1495b", "#3c8d40", "#7b4ea3", "#c77d0a", "#4a4a4a", "#17a2a2", "#a33b20")
WITHOUT_UNIT = ("arm",)  # axes of names
HOLLOW = "hollow"  # a marker that is not filled

Kind = Literal["line", "dots", "bars", "band", "errors", "rule"]
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """One axis. label: the quantity with its unit in brackets. names: of an axis of names, by their places."""

    label: str
    low: float
    high: float
    log: bool = False
    names: Mapping[float, str] = field(default_factory=dict)

    def at(self, value: float) -> float:
        """A value's place on the axis: 0 at the lower end, 1 at the upper one. nan: it has none."""
        low, high = min(self.low, self.high), max(self.low, self.high)
        if self.log:
            if value <= 0 or low <= 0:
                return math.nan
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return (value - low) / (high - low) if high > low else math.nan


@dataclass(frozen=True)
class Mark:
    """Something drawn on two axes.

    kind: "line" through points, or "dots"; "bars" and "errors" from `points` to `ends` (corners of a box, the ends of a
    stroke); "band" around the polygon of its points; "rule", across the whole panel at the one finite number of its
    point. label: empty: it should have one and has none; None: it belongs to another mark, or to a name on an axis.
    dash: "-", "--", ":", "-." or empty. marker: matplotlib's word for it, HOLLOW, or empty.
    """

    kind: Kind
    points: tuple[Point, ...]
    label: str | None = None
    colour: str = COLOURS[0]
    dash: str = "-"
    marker: str = ""
    ends: tuple[Point, ...] = ()

    @property
    def drawn(self) -> Iterator[Point]:
        """All points of it, whatever they are of it."""
        yield from self.points
        yield from self.ends


@dataclass(frozen=True)
class Note:
    """Words at a point."""

    text: str
    x: float
    y: float


@dataclass(frozen=True)
class Panel:
    """Two axes and what is on them. legend: its entries; None: there is no legend."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    legend: Sequence[str] | None = None
    notes: Sequence[Note] = ()
    title: str = ""

    @property
    def labels(self) -> list[str]:
        """Of the series, each once."""
        return list(dict.fromkeys(mark.label for mark in self.marks if mark.label))


@dataclass(frozen=True)
class Figure:
    """Panels under one title, with the sentences below them.

    expect: labels of series, or names on an axis, that must appear. curves: arms of which it must say where their
    curves stop.
    """

    title: str
    texts: Sequence[str]
    panels: Sequence[Panel]
    expect: Iterable[str] = ()
    curves: Iterable[str] = ()

    @property
    def said(self) -> str:
        """Everything below the panels, on one line."""
        return " ".join(" ".join(self.texts).split())


def around(values: Iterable[float], log: bool) -> Point:
    """The ends of an axis that these fit: a little beyond the outermost, from 0 on a linear one of positive values."""
    kept = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    if not kept:
        return (1.0, 10.0) if log else (0.0, 1.0)
    low, high = min(kept), max(kept)
    if log:
        room = (high / low) ** 0.05 if high > low else 2.0
        return low / room, high * room
    if low >= 0 and low < high / 2:
        low = 0.0
    room = 0.05 * (high - low) or abs(high) or 1.0
    return (low if low == 0 else low - room), high + room
