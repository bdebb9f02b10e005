"""What a figure of matplotlib's shows, as a `Figure`; and what lies on one another or beyond its edge, in pixels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

from .figure import COLOURS, HOLLOW, WITHOUT_UNIT, Axis, Figure, Mark, Note, Panel

CUT_PX, NAME_OVERLAP = 2.0, 0.15  # that is not seen: beyond the figure; of a name's height
DASHES = {"--": (3.7, 1.6), "-.": (6.4, 1.6, 1, 1.6), ":": (1, 1.65)}  # matplotlib's: dash and gap, by the line's width
GAPS = 3  # of a dashed line that its entry in a legend shows
LEAST_PT = 6.0  # smaller letters are not read
WHITE = "#ffffff"


def seen(figure: Any, expect: Iterable[str] = (), curves: Iterable[str] = ()) -> Figure:
    """A matplotlib figure as what it shows. expect, curves: see `Figure`."""
    title = figure.get_suptitle()
    texts = [text.get_text() for text in figure.texts if text.get_text() != title]
    return Figure(title, texts, [panel(axis) for axis in figure.axes], frozenset(expect), frozenset(curves))


def panel(axis: Any) -> Panel:
    """Its axes, marks, legend and words."""
    legend = axis.get_legend()
    marks = [*_lines(axis), *_bars(axis), *_collections(axis)]
    notes = [Note(text.get_text(), *_place(text)) for text in axis.texts]
    return Panel(
        _axis(axis.get_xlabel(), axis.get_xlim(), axis.get_xscale(), axis.xaxis),
        _axis(axis.get_ylabel(), axis.get_ylim(), axis.get_yscale(), axis.yaxis),
        marks,
        None if legend is None else [text.get_text() for text in legend.get_texts()],
        notes,
        axis.get_title(loc="left") or axis.get_title(),
    )


def _axis(label: str, limits: tuple[float, float], scale: str, side: Any) -> Axis:
    names = {}
    if label in WITHOUT_UNIT:
        ticks = zip(side.get_ticklocs(), side.get_ticklabels(), strict=False)
        names = {float(at): tick.get_text() for at, tick in ticks if tick.get_text()}
    return Axis(label, float(limits[0]), float(limits[1]), scale == "log", names)


def _place(text: Any) -> tuple[float, float]:
    x, y = getattr(text, "xy", None) or text.get_position()
    return float(x), float(y)


def _named(artist: Any) -> str:
    """Its label; empty if it has none."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _colour(colour: Any) -> str:
    from matplotlib.colors import to_hex

    return str(to_hex(colour))


def _lines(axis: Any) -> Iterator[Mark]:
    for line in axis.lines:
        x, y = ([float(value) for value in data] for data in (line.get_xdata(), line.get_ydata()))
        dash, marker = (
            "" if str(look).strip() in ("", "None", "none") else str(look)
            for look in (line.get_linestyle(), line.get_marker())
        )
        look = (_named(line), _colour(line.get_color()), dash, marker)
        # axhline and axvline span one axis in its own units, from 0 to 1.
        spans = line.get_transform() != axis.transData
        if spans and [0.0, 1.0] in (x, y):
            point = (math.nan, y[0]) if x == [0.0, 1.0] else (x[0], math.nan)
            yield Mark("rule", (point,), *look)
        else:
            yield Mark("line" if dash else "dots", tuple(zip(x, y, strict=True)), *look)


def _bars(axis: Any) -> Iterator[Mark]:
    from matplotlib.container import BarContainer

    held = [container for container in axis.containers if isinstance(container, BarContainer)]
    for container in held:
        boxes = [(bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()) for bar in container]
        colours = [_colour(bar.get_facecolor()) for bar in container]
        label = _named(container) or None
        for colour in dict.fromkeys(colours):
            these = [box for box, its in zip(boxes, colours, strict=True) if its == colour]
            ends = tuple((float(x + w), float(y + h)) for x, y, w, h in these)
            yield Mark("bars", tuple((float(x), float(y)) for x, y, _, _ in these), label, colour, ends=ends)


def _collections(axis: Any) -> Iterator[Mark]:
    """Points lie where their offsets say; bands and bars of errors have a shape of their own."""
    from matplotlib.collections import LineCollection, PolyCollection

    for collection in axis.collections:
        drawn: Any = collection
        label = _named(drawn) or None
        if isinstance(collection, LineCollection):
            strokes = [[(float(x), float(y)) for x, y in stroke] for stroke in drawn.get_segments()]
            starts, ends = (tuple(stroke[i] for stroke in strokes) for i in (0, -1))
            yield Mark("errors", starts, label, _first(drawn.get_colors()), ends=ends)
        elif isinstance(collection, PolyCollection):
            for path in drawn.get_paths():
                around = tuple((float(x), float(y)) for x, y in path.vertices)
                yield Mark("band", around, label, _first(drawn.get_facecolors()))
        else:
            places = [(float(x), float(y)) for x, y in drawn.get_offsets()]
            hollow = _first(drawn.get_facecolors()) == WHITE
            paints = [_colour(c) for c in (drawn.get_edgecolors() if hollow else drawn.get_facecolors())]
            if len(paints) < len(places):
                paints = (paints or [COLOURS[0]]) * len(places)
            for colour in dict.fromkeys(paints[: len(places)]):
                these = tuple(p for p, its in zip(places, paints, strict=False) if its == colour)
                yield Mark("dots", these, label, colour, "", HOLLOW if hollow else "o")


def _first(colours: Any) -> str:
    return _colour(colours[0]) if len(colours) else COLOURS[0]


def crowded(figure: Any) -> list[str]:
    """What is cut off at the figure's edge, names of arms that lie on one another, letters too small to read, and lines
    whose dashes a legend is too short to show."""
    out = []
    for axis in figure.axes:
        out += _room(figure, axis)
        out += _short_dashes(axis)
    small = [text.get_text() for text in _texts(figure) if text.get_text() and text.get_fontsize() < LEAST_PT]
    if small:
        out.append(f"{small[0]!r} is written too small to be read")
    return out


def _short_dashes(axis: Any) -> Iterator[str]:
    """Entries of the legend that are too short to show their dashes: a marker hides the gap in the middle."""
    from matplotlib.lines import Line2D

    legend = axis.get_legend()
    for line in legend.legend_handles if legend else ():
        pattern = DASHES.get(str(line.get_linestyle())) if isinstance(line, Line2D) else None
        if not pattern:
            continue
        length = legend.handlelength * legend.get_texts()[0].get_fontsize()
        if length * len(pattern) / 2 < GAPS * sum(pattern) * line.get_linewidth():
            yield f"the legend's {line.get_label()!r} is too short to show its dashes"


def _texts(figure: Any) -> Iterator[Any]:
    yield from figure.texts
    for axis in figure.axes:
        yield from (axis.xaxis.label, axis.yaxis.label, *axis.get_xticklabels(), *axis.get_yticklabels(), *axis.texts)
        if (legend := axis.get_legend()) is not None:
            yield from legend.get_texts()


def _room(figure: Any, axis: Any) -> list[str]:
    renderer = figure.canvas.get_renderer()
    box, whole = axis.get_tightbbox(renderer), figure.bbox
    out = []
    beyond = (whole.x0 - box.x0, box.x1 - whole.x1, whole.y0 - box.y0, box.y1 - whole.y1)
    cut = [side for side, by in zip(("left", "right", "bottom", "top"), beyond, strict=True) if by > CUT_PX]
    if cut:
        out.append(f"something of the axes {axis.get_xlabel()!r} lies beyond the figure ({', '.join(cut)})")
    if axis.get_ylabel() in WITHOUT_UNIT:
        names = [label.get_window_extent(renderer) for label in axis.get_yticklabels() if label.get_text()]
        names.sort(key=lambda name: float(name.y0))
        if any(upper.y0 < lower.y1 - NAME_OVERLAP * lower.height for lower, upper in itertools.pairwise(names)):
            out.append("names of arms lie on one another")
    return out
