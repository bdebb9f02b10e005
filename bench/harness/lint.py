"""The rules that every plot keeps, whatever draws it: a plot that breaks one is not written.

They are what reviewers missed in plots of others (docs/critique.md, the evaluation's side). A plot says

- how many requests stand behind it (n), what a message is, which machine and cores it was measured on;
- what its axes are, in which unit, and of a cumulative distribution in which direction it counts;
- how percentiles are taken, what became of outliers, what bands and error bars are;
- where each curve stops, and why;

and shows every arm that is compared, each in the legend, no two alike, on axes that fit the data. A value far from all
others, and a bar too short to be seen, have their number beside them. Nothing asks the reader to ignore something.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from .figure import WITHOUT_UNIT, Axis, Figure, Note, Panel, Point
from .table import quantity

PERCENTILE = re.compile(r"\bp(50|9[09]?|99\.?9)\b")
MACHINE = re.compile(r"Linux .*, cores [\d,]+ of \d+")
ALL_CURVES = re.compile(r"(?:^|[.,;:] )(?:(?:all|the|each|a) )?curves? (?:stop|end)s?\b", re.I)  # speaks for all
ASKS_TO_IGNORE = re.compile(r"\b(ignor|disregard|pay no attention)", re.I)
CUMULATIVE = re.compile(r"\bC?CDF\b|\bcumulative\b|^(part|share|fraction) of (requests|messages|answers)", re.I)
DIRECTION = re.compile(r"\b(at (least|most)|or (less|more)|(more|less) than|longer|shorter|above|below|up to)\b", re.I)
LEAST_FILL = 0.3  # part of an axis that the data must span
LONE = 0.5  # part of an axis between a value and all others, from which on it is an outlier
FEW = 6  # of fewer values none is
FLAT = 0.01  # part of an axis: a shorter bar is not seen


def problems(figure: Figure) -> list[str]:
    """What is wrong with a plot; empty if nothing is."""
    out: list[str] = []
    texts = [*figure.texts, figure.title]
    if not figure.title:
        out.append("it has no title")
    if not any(re.search(r"\bn = [\d,]+", t) for t in texts):
        out.append("it does not say n")
    if not any("message is" in t for t in texts):
        out.append("it does not say what a message is")
    if any(ASKS_TO_IGNORE.search(t) for t in texts):
        out.append("a caption asks to ignore something")
    out += _unsaid(figure)
    if not ALL_CURVES.search(figure.said):
        without = [name for name in sorted(figure.curves) if not _ends(name, figure.said)]
        out += [f"it does not say where {name!r} stops" for name in without]
    if not figure.panels:
        out.append("it has no axes")
    shown: set[str] = set()
    for panel in figure.panels:
        out += _of_panel(panel)
        shown |= {*panel.labels, *panel.x.names.values(), *panel.y.names.values()}
    return out + [f"series {name!r} is missing" for name in sorted(set(figure.expect) - shown)]


def _ends(name: str, said: str) -> bool:
    return re.search(rf"(?:^|\W){re.escape(name)} (?:stops|ends)\b", said) is not None


def shows_percentiles(figure: Figure) -> bool:
    """Whether an axis or a series is one of percentiles."""
    said = [axis.label for panel in figure.panels for axis in (panel.x, panel.y)]
    said += [label for panel in figure.panels for label in panel.labels]
    return any(PERCENTILE.search(text) for text in said)


def _unsaid(figure: Figure) -> list[str]:
    """What a plot must say of how it was measured, and does not."""
    kinds, said = {mark.kind for panel in figure.panels for mark in panel.marks}, figure.said
    wanted = {
        "which machine and cores it was measured on": MACHINE.search(said),
        "what became of outliers": "outlier" in said,
        "how percentiles are taken": "nearest rank" in said or not shows_percentiles(figure),
        "what its bands are": "band" not in kinds or re.search(r"\b[Bb]ands?\b", said),
        "what its error bars are": "errors" not in kinds or re.search(r"\b[Bb]ars\b", said),
    }
    return [f"it does not say {what}" for what, there in wanted.items() if not there]


def _of_panel(panel: Panel) -> Iterator[str]:
    for which, axis in (("x", panel.x), ("y", panel.y)):
        if not axis.label:
            yield f"the {which} axis has no label"
        elif not re.search(r"\(.+\)", axis.label) and axis.label not in WITHOUT_UNIT:
            yield f"the {which} axis {axis.label!r} has no unit"
        elif CUMULATIVE.search(axis.label) and not DIRECTION.search(axis.label):
            yield f"the {which} axis {axis.label!r} does not say whether it counts what is below or above"
    if unlabelled := [mark for mark in panel.marks if mark.label == ""]:
        yield f"{len(unlabelled)} line(s) without a label"
    if not panel.marks:
        yield "an axis without data"
    for mark in panel.marks:
        if not mark.points and mark.label is not None:
            yield f"series {mark.label!r} is empty"
    yield from _alike(panel)
    yield from _not_in_legend(panel)
    yield from _misfit(panel, "x")
    yield from _misfit(panel, "y")
    for x, y in outliers(panel):
        if not _is_noted(panel, x, y):
            yield f"an outlier at {x:g}, {y:g} has no number beside it"
    flat = _flat_bars(panel)
    if flat:
        yield f"{flat} bar(s) too short to be seen have no number"


def _alike(panel: Panel) -> Iterator[str]:
    """Series that nobody can tell apart: of one colour, line and marker."""
    seen: dict[tuple[str, ...], str] = {}
    for mark in panel.marks:
        if mark.label is None or mark.kind not in ("line", "dots", "rule"):
            continue
        look = (mark.colour, mark.dash, mark.marker)
        if look in seen:
            yield f"series {seen[look]!r} and {mark.label!r} look alike"
        seen[look] = mark.label


def _not_in_legend(panel: Panel) -> Iterator[str]:
    """Series without an entry of their own, or one of their arm and one of their percentile."""
    if len(panel.labels) < 2:
        return
    if panel.legend is None:
        yield "several series and no legend"
        return
    entries = {*panel.legend, *(f"{arm} {style}" for arm in panel.legend for style in panel.legend)}
    for label in panel.labels:
        if label not in entries:
            yield f"series {label!r} is not in the legend"


def _misfit(panel: Panel, which: str) -> Iterator[str]:
    """The data must lie within the axis and fill a fair part of it (one value alone fits any axis)."""
    axis, index = (panel.x, 0) if which == "x" else (panel.y, 1)
    values = [point[index] for mark in panel.marks for point in mark.drawn]
    places = [at for at in map(axis.at, values) if math.isfinite(at)]
    if not places:
        return
    if min(places) < -1e-6 or max(places) > 1 + 1e-6:
        yield f"data lies outside of the {which} axis"
    span = max(places) - min(places)
    if 0 < span < LEAST_FILL:
        yield f"the data fills {100 * span:.0f} % of the {which} axis"


def outliers(panel: Panel) -> list[Point]:
    """Points of series whose height is far from that of all others: they alone make the axis as long as it is."""
    points = [p for mark in panel.marks if mark.kind in ("line", "dots") for p in mark.points]
    placed = sorted((at, p) for p in points if math.isfinite(at := panel.y.at(p[1])))
    if len(placed) < FEW or panel.y.names:
        return []
    low, high = placed[1][0] - placed[0][0], placed[-1][0] - placed[-2][0]
    return [p for gap, (_, p) in ((low, placed[0]), (high, placed[-1])) if gap > LONE]


def numbered(panel: Panel) -> Panel:
    """The panel, with a number beside each outlier that has none."""
    bare = [Note(quantity(y), x, y) for x, y in outliers(panel) if not _is_noted(panel, x, y)]
    return replace(panel, notes=[*panel.notes, *bare])


def _is_noted(panel: Panel, x: float, y: float) -> bool:
    return any(_same(panel.x, note.x, x) and _same(panel.y, note.y, y) for note in _numbers(panel))


def _numbers(panel: Panel) -> Iterator[Note]:
    return (note for note in panel.notes if re.search(r"\d|\binf\b|^-$", note.text))


def _same(axis: Axis, one: float, other: float) -> bool:
    """Also where neither has a place: on the other axis it has one."""
    return not abs(axis.at(one) - axis.at(other)) > 1e-6


def _flat_bars(panel: Panel) -> int:
    """How many bars are too short to be seen, and have no number at their height. On a logarithmic axis no length
    says anything."""
    if panel.x.log:
        return 0
    count = 0
    for mark in panel.marks:
        for (x0, y0), (x1, y1) in zip(mark.points, mark.ends, strict=True) if mark.kind == "bars" else ():
            short = abs(panel.x.at(x1) - panel.x.at(x0)) < FLAT
            low, high = sorted((y0, y1))
            count += short and not any(low <= note.y <= high for note in _numbers(panel))
    return count
