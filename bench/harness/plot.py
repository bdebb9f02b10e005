"""Plots by matplotlib. Every one passes the lint (lint.py) before it is written, and may be read back (seen.py).

matplotlib is an optional dependency, imported when a plot is asked for.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from .figure import COLOURS, WITHOUT_UNIT, Figure
from .lint import outliers, problems, shows_percentiles
from .numbers import number
from .openloop import stop_in
from .seen import crowded, seen
from .table import quantity

STYLES = {"p50_us": ("-", "o"), "p99_us": ("--", "s"), "p999_us": (":", "^")}
NAMES = {"p50_us": "p50", "p90_us": "p90", "p99_us": "p99", "p999_us": "p99.9"}
CROSS = "\u00d7"  # stands where a curve stops
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LEGEND: Mapping[str, Any] = {"fontsize": 8, "frameon": False, "handlelength": 4}  # room for several dashes
LINE_IN = 0.142  # height of a line of the captions
NUMBER_IN = 1.2  # what a number behind a point takes, before the layout makes panels narrower
NAMED_MOST = 3  # arms without a curve that are named above it; of more only the number
BELOW = -21  # from a name above a point to one as far below it, in points


class NothingToPlot(CorelaneError):
    """The document has no values that one plot could show."""


class Canvas:
    """A figure under construction. `axes` are matplotlib's; `expect` names the series that must appear, `curves` the
    arms of which it must be said where they stop."""

    def __init__(
        self,
        title: str,
        *,
        message: str,
        n: int,
        panels: int = 1,
        rows: int = 1,
        size: tuple[float, float] = (9.0, 6.0),
        widths: Sequence[float] | None = None,
    ) -> None:
        plt = _pyplot()
        ratios = {"width_ratios": widths} if widths else None
        columns = math.ceil(panels / rows)
        self.figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, gridspec_kw=ratios)
        self.axes: list[Any] = list(axes.flat)[:panels]
        for spare in list(axes.flat)[panels:]:
            spare.remove()
        self.figure.suptitle(title, fontsize=13, fontweight="bold", x=0.02, ha="left")
        self.captions = [f"n = {n:,}; a message is {message}."]
        self.expect: set[str] = set()
        self.curves: set[str] = set()
        self._names: list[Any] = []
        self._legends: dict[int, list[Any]] = {}  # by panel, where a label a line would be too many
        self._some_not_drawn = False
        for axis in self.axes:
            axis.grid(True, which="major", color="#dddddd", linewidth=0.8)
            axis.grid(True, which="minor", color="#f0f0f0", linewidth=0.5)
            axis.set_axisbelow(True)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)

    def caption(self, text: str) -> None:
        """Add a sentence below the plot."""
        self.captions.append(text)

    def bars(
        self,
        labels: Sequence[str],
        values: Sequence[float],
        *,
        ylabel: str,
        panel: int = 0,
        colours: Sequence[int] | None = None,
        log: bool = False,
    ) -> None:
        """Horizontal bars with their values written at their ends; `ylabel` is the quantity and its unit.

        colours: a number for each bar; bars of one system share theirs. By default all are alike: their names say whose
        they are. log: points on a logarithmic axis, where a bar's length would say nothing.
        """
        axis = self.axes[panel]
        places = list(range(len(labels)))
        paints = [COLOURS[i % len(COLOURS)] for i in colours or [0] * len(places)]
        drawn = [value if math.isfinite(value) else 0.0 for value in values]  # the others are words at the axis
        panel_in = self.figure.get_size_inches()[0] * axis.get_position().width
        room = min(NUMBER_IN / panel_in, 0.45)
        least, most = _log_limits(drawn, room) if log else (0.0, 1.25 * max(drawn, default=0.0) or 1.0)
        if log and min(drawn, default=1.0) <= 0:
            least = min(least, 0.5)  # nothing stands far from what there is, and its number says so
        if log:
            axis.set_xscale("log")
            axis.scatter([max(value, least) for value in drawn], places, color=paints, s=60)
        else:
            axis.barh(places, drawn, color=paints, height=0.6)
        axis.set_xlim(least, most)
        axis.set_yticks(places, labels)
        axis.set_ylim(len(places) - 0.5, -0.5)  # the first is the uppermost
        axis.set_xlabel(ylabel)
        axis.set_ylabel("arm")
        for place, value in zip(places, values, strict=True):
            at = max(value, least) if math.isfinite(value) else least
            axis.annotate(quantity(float(value)), (at, place), xytext=(7, 0), textcoords="offset points", va="center")
        self.expect.update(labels)

    def curve(
        self,
        x: Sequence[float],
        y: Sequence[float],
        *,
        label: str,
        colour: int = 0,
        style: str = "-",
        marker: str = "o",
        panel: int = 0,
        arm: str | None = None,
    ) -> None:
        """A labelled line through the finite points of x, y. arm: whose it is, if that is not the label. Once all
        colours are in use, round markers become other ones."""
        if marker in ("o", ""):
            marker = MARKERS[colour // len(COLOURS) % len(MARKERS)] if colour >= len(COLOURS) else marker
        kept = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(a) and math.isfinite(b)]
        self.axes[panel].plot(
            [a for a, _ in kept],
            [b for _, b in kept],
            style,
            marker=marker,
            markersize=4,
            linewidth=1.6,
            label=label,
            color=COLOURS[colour % len(COLOURS)],
        )
        self._some_not_drawn |= len(kept) < len(x)
        self.expect.add(label)
        if style.strip():
            self.curves.add(arm or label)

    def band(
        self, x: Sequence[float], lower: Sequence[object], upper: Sequence[object], *, colour: int = 0, panel: int = 0
    ) -> None:
        """What lies between two curves, where both are numbers: the spread of what `curve` shows the middle of."""
        kept = [
            (at, float(low), float(high))
            for at, low, high in zip(x, lower, upper, strict=True)
            if isinstance(low, int | float) and isinstance(high, int | float)
        ]
        at, low, high = ([point[i] for point in kept] for i in range(3))
        self.axes[panel].fill_between(at, low, high, color=COLOURS[colour % len(COLOURS)], alpha=0.15, linewidth=0)

    def error_bars(
        self,
        x: Sequence[float],
        y: Sequence[float],
        error: Sequence[float],
        sure: Sequence[bool],
        *,
        colour: int = 0,
        marker: str = "o",
        panel: int = 0,
    ) -> None:
        """On the points of a curve: bars of y -+ error, and a hollow marker where one is not sure of it."""
        paint = COLOURS[colour % len(COLOURS)]
        ends = [[at + sign * by for at, by in zip(y, error, strict=True)] for sign in (-1, 1)]
        self.axes[panel].vlines(x, *ends, color=paint, linewidth=1)
        hollow = [(at, value) for at, value, known in zip(x, y, sure, strict=True) if not known]
        if hollow:
            self.axes[panel].scatter(
                *zip(*hollow, strict=True), s=16, marker=marker, facecolors="white", edgecolors=paint, zorder=3
            )

    def latency_curves(self, document: dict[str, Any], arms: Iterable[str] | None = None, panel: int = 0) -> None:
        """Latency against achieved load: p50, p99 and p99.9 of every arm, the canary's own delays, the stops."""
        axis = self.axes[panel]
        rows = [a for a in document["arms"] if "offered_rps" in a]
        names = list(arms) if arms is not None else list(dict.fromkeys(a["name"] for a in rows))
        for i, name in enumerate(names):
            points = sorted((a for a in rows if a["name"] == name), key=lambda a: float(a["offered_rps"]))
            x, infinite = [number(p["achieved_rps"]) for p in points], []
            for key, (style, marker) in STYLES.items():
                y = [number(p[key]) for p in points]
                if not any(math.isfinite(at) and math.isfinite(us) for at, us in zip(x, y, strict=True)):
                    infinite.append(NAMES[key])
                    continue
                label = f"{name} {NAMES[key]}"
                self.curve(x, y, label=label, colour=i, style=style, marker=marker, panel=panel, arm=name)
            if infinite:
                self.caption(f"{name}: {', '.join(infinite)} infinite at every load (unanswered requests), not drawn.")
            because = document["settings"].get("stops_because", {}).get(name, {})
            self._name_curve(axis, name, points, COLOURS[i % len(COLOURS)], because.get("resource", ""))
        delays = document["canary"]["delay_us"]
        for key, style in (("p99", "--"), ("p999", ":")):
            value = number(delays[key])
            if value > 0:
                label = f"canary alone {NAMES[key + '_us']}"
                axis.axhline(value, color="#999999", linestyle=style, linewidth=1.2, label=label)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("achieved load (requests/s)")
        axis.set_ylabel("latency from the intended send time (us)")
        for name, why in document["settings"]["stops"].items():
            self.caption(f"{name} stops ({CROSS}): {why}.")
        self._legends[panel] = _colours_and_styles(axis, names)
        self._say_missing(axis, document["settings"]["skipped"])

    def _say_missing(self, axis: Any, skipped: Mapping[str, str]) -> None:
        """Name above an axis what has no curve in it: the reasons, far below, are not seen by who does not look."""
        names = [name.removesuffix(", curve") for name in skipped]
        if names:
            told = ", ".join(names) if len(names) <= NAMED_MOST else f"{len(names)} arms"
            text = f"not measured (see below): {told}"
            axis.set_title(text, loc="right", fontsize=9, color=COLOURS[1], fontweight="bold")

    def _name_curve(self, axis: Any, name: str, points: Sequence[dict[str, Any]], colour: str, resource: str) -> None:
        """Write the arm's name at the low end of its median, and a cross and the resource at the load where it stops:
        at the last point before it where the median there is infinite."""
        places = [(number(p["achieved_rps"]), number(p["p50_us"])) for p in points]
        finite = [p for p in places if _can_be_drawn(p)]
        if not finite:
            return
        stop = ([p for p in places[: stop_in(points) + 1] if _can_be_drawn(p)] or finite)[-1]
        style = {"color": colour, "textcoords": "offset points", "fontweight": "bold"}
        self._names.append(axis.annotate(name, finite[0], xytext=(2, 7), fontsize=9, path_effects=_halo(), **style))
        axis.annotate(CROSS, stop, xytext=(0, 0), ha="center", va="center", fontsize=13, path_effects=_halo(), **style)
        if resource:
            at = {"xytext": (-6, -14), "ha": "right", "fontsize": 7, "path_effects": _halo()}
            self._names.append(axis.annotate(resource, stop, **style | at))

    def name_point(self, name: str, x: float, y: float, panel: int = 0) -> None:
        """Write a name beside a point; names that would lie on one another are lifted, in the order of these calls."""
        style = {"xytext": (7, -3), "textcoords": "offset points", "fontsize": 8}
        line = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.8, "shrinkA": 0, "shrinkB": 2}
        self._names.append(self.axes[panel].annotate(name, (x, y), arrowprops=line, path_effects=_halo(), **style))

    def _part_names(self) -> None:
        """Move names that lie on one another, on a curve or beyond their axes to the nearest place above or below where
        they do not."""
        renderer = self.figure.canvas.get_renderer()
        placed: list[Any] = []
        for text in self._names:
            x, y = text.xyann
            least = math.inf
            height = text.axes.bbox.height / self.figure.dpi * 72
            lifts = ((up, BELOW - up) for up in range(0, int(height), 6))
            for lift in itertools.chain.from_iterable(lifts):
                text.xyann = (x, y + lift)
                box = text.get_window_extent(renderer)
                crowd = 1000 * (sum(box.overlaps(other) for other in placed) + _beyond(text.axes, box))
                crowd += _curves_in(text.axes, box)
                if crowd < least:
                    least, best = crowd, (text.xyann, box)
                if not crowd:
                    break
            text.xyann = best[0]
            placed.append(best[1])

    def canary_curves(self, document: dict[str, Any], panel: int = 0) -> None:
        """How often the machine itself held a spinning thread up for at least so long, a line a core."""
        axis = self.axes[panel]
        for i, core in enumerate(document["canary"]["cores"]):
            lengths, rates, seen = [], [], 0
            for start, count, _ in reversed(core["gaps"]):
                seen += count
                lengths.append(float(start) / 1e3)
                rates.append(seen / core["seconds"])
            if lengths:
                label = f"core {core['cpu']}"
                self.curve(lengths[::-1], rates[::-1], label=label, colour=5 + i, marker="", panel=panel, arm="canary")
        self.caption("The canary ends at the longest gap that was seen.")
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("length of the gap (us)")
        axis.set_ylabel("gaps at least so long (1/s)")

    def complete(self, document: dict[str, Any]) -> Figure:
        """Add what every plot says, lay it out, and return what it shows; once. CorelaneError with the lint's findings
        if it may not be shown."""
        for panel, axis in enumerate(self.axes):
            for side in (axis.xaxis, axis.yaxis):
                if side.get_label_text() not in WITHOUT_UNIT:
                    side.set_major_formatter(_engineering)
                    _name_minors(side)
            self._add_legend(axis, self._legends.get(panel) or axis.get_legend_handles_labels()[0])
        self._standing_captions(document)
        width, tall = self.figure.get_size_inches()
        lines = [line for c in self.captions for line in textwrap.wrap(c, int(16.8 * width))]
        height = (LINE_IN * len(lines) + 0.1) / tall
        self.figure.text(0.02, 0.01, "\n".join(lines), fontsize=7.5, va="bottom", color="#444444", linespacing=1.35)
        self.figure.tight_layout(rect=(0, min(height, 0.45), 1, 0.98))
        self._name_outliers()
        self._part_names()
        found = lint(self.figure, self.expect, self.curves)
        if found:
            raise CorelaneError(f"plot {document['bench']}", f"it breaks the rules of plots: {'; '.join(found)}")
        return replace(seen(self.figure, self.expect, self.curves), texts=tuple(self.captions))

    def finish(self, path: Path, document: dict[str, Any]) -> None:
        """Lint and write the PNG. CorelaneError with the lint's findings if the plot may not be shown."""
        self.complete(document)
        self.save(path)
        self.close()

    def save(self, path: Path) -> None:
        """Write the PNG, once it is complete."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.figure.savefig(path, dpi=140)

    def close(self) -> None:
        """Let its memory go."""
        _pyplot().close(self.figure)

    def _name_outliers(self) -> None:
        for axis, panel in zip(self.axes, seen(self.figure).panels, strict=True):
            for x, y in outliers(panel):  # as numbered() does where no letters have to find a place
                style = {"xytext": (7, -3), "textcoords": "offset points", "fontsize": 8, "path_effects": _halo()}
                self._names.append(axis.annotate(quantity(y), (x, y), **style))

    def _add_legend(self, axis: Any, handles: Sequence[Any]) -> None:
        """None of one entry, within the axis of up to four, else below it: over the curves it would hide some."""
        if len(handles) <= 1:
            return
        if len(handles) <= 4:
            axis.legend(handles=handles, **LEGEND, loc="best")
            return
        panel_in = self.figure.get_size_inches()[0] * axis.get_position().width
        entry_in = 0.8 + 0.065 * max(len(handle.get_label()) for handle in handles)
        columns = max(min(int(panel_in / entry_in), math.ceil(len(handles) / len(STYLES))), 1)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 5}  # below ticks and label
        axis.legend(handles=handles, ncol=columns, **LEGEND, **place)

    def _standing_captions(self, document: dict[str, Any]) -> None:
        from .document import too_loud
        from .table import canary_line, machine_line

        if loud := too_loud(document["canary"]):
            self.caption(f"Nothing here is judged: {loud}.")
            style = {"ha": "right", "va": "top", "fontsize": 10, "fontweight": "bold", "color": COLOURS[1]}
            self.figure.text(0.99, 0.985, "not judged: the machine was too loud", **style)
        if any("offered_rps" in a for a in document["arms"]) or shows_percentiles(seen(self.figure)):
            self.caption("Percentiles by nearest rank over all requests; unanswered requests count as infinite.")
        if self._some_not_drawn:
            self.caption("Points that are infinite (unanswered requests) or not known are not drawn.")
        patient = document["settings"].get("patient")
        but = f"; {patient['left_out']} of {patient['rounds']} rounds are, beside a loud canary" if patient else ""
        self.caption(f"No outlier is left out{but}.")
        self.caption(f"{machine_line(document['machine'])}; {document['settings']['power']}.")
        text = canary_line(document["canary"])
        self.caption(f"{text[0].upper()}{text[1:]}.")
        for arm, why in document["settings"]["skipped"].items():
            self.caption(f"Not measured: {arm}: {why}")


def _log_limits(values: Sequence[float], room: float) -> tuple[float, float]:
    """A logarithmic axis for these, with room for a number behind the last one: a part of the axis."""
    positive = [value for value in values if value > 0] or [1.0]
    low, high = min(positive), max(positive)
    span = high / low if high > low else 4.0
    return low / span**0.1, high * span ** (1.1 * room / (1 - room))


def _engineering(value: float, _: object = None) -> str:
    """Tick labels that read at a glance: 20 k, 1.5 M, 0.2."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _curves_in(axis: Any, box: Any) -> int:
    """How many of an axis' curves go through a box, both in pixels."""
    count = 0
    for line in axis.lines:
        path = line.get_transform().transform_path(line.get_path())
        count += bool(len(path.vertices)) and path.intersects_bbox(box, filled=False)
    return count


def _beyond(axis: Any, box: Any) -> bool:
    """Whether a box, in pixels, reaches above or below an axis' frame."""
    return bool(box.y0 < axis.bbox.y0 or box.y1 > axis.bbox.y1)


def _colours_and_styles(axis: Any, names: Sequence[str]) -> list[Any]:
    """The legend of latency curves: a colour an arm, a style a percentile, and what of the axis is not an arm's."""
    from matplotlib.lines import Line2D

    def entry(label: str, **look: Any) -> Any:
        return Line2D([], [], label=label, **look)

    arms = [entry(name, color=COLOURS[i % len(COLOURS)], linewidth=3) for i, name in enumerate(names)]
    styles = [
        entry(NAMES[key], color="#333333", linestyle=style, marker=marker, markersize=4)
        for key, (style, marker) in STYLES.items()
    ]
    others = [line for line in axis.lines if not str(line.get_label()).startswith(tuple(f"{name} p" for name in names))]
    return [*arms, *styles, *others]


def _can_be_drawn(point: tuple[float, float]) -> bool:
    """Whether a point has a place on two logarithmic axes."""
    return all(map(math.isfinite, point)) and min(point) > 0


def _halo() -> list[Any]:
    """Of a text that may lie on a line."""
    from matplotlib.patheffects import withStroke

    return [withStroke(linewidth=3, foreground="white")]


def _name_minors(side: Any) -> None:
    """Ticks between the powers of ten, where matplotlib finds that they need names, in the same words."""
    from matplotlib.ticker import LogFormatter

    class Minor(LogFormatter):
        def __call__(self, x: float, pos: Any = None) -> str:
            return _engineering(x) if super().__call__(x, pos) else ""

    if side.get_scale() == "log":
        side.set_minor_formatter(Minor(labelOnlyBase=False))


def _pyplot() -> Any:
    """matplotlib.pyplot on the Agg backend; CorelaneError if it is not installed."""
    try:
        import matplotlib
    except ImportError as e:
        raise CorelaneError("plots need matplotlib, which is not installed: pip install 'corelane[plot]'") from e
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def check() -> None:
    """CorelaneError if there are no plots here, for want of matplotlib."""
    _pyplot()


def searched_curves(document: dict[str, Any], title: str) -> Canvas:
    """Latency against load of the arms whose peak was searched (Session.curves); other arms are in the table."""
    named = list(document["settings"]["stops"])
    n = sum(int(a["sent"]) for a in document["arms"] if a["name"] in named)
    canvas = Canvas(title, message=document["settings"]["message"], n=n, size=(11, 7))
    canvas.latency_curves(document, named)
    return canvas


def default_plot(document: dict[str, Any]) -> Canvas:
    """Latency curves where arms have loads, else bars of the first value that all arms share."""
    arms = document["arms"]
    loads = [a for a in arms if "offered_rps" in a]
    message = document["settings"].get("message", "one request and its reply")
    if loads:
        canvas = Canvas(
            f"{document['bench']}: latency against load", message=message, n=sum(int(a["sent"]) for a in loads)
        )
        canvas.latency_curves(document)
        return canvas
    shared = [
        k
        for k in (arms[0] if arms else {})
        if all(isinstance(a.get(k), int | float) for a in arms) and k not in ("n", "runs")
    ]
    if not shared:
        raise NothingToPlot(f"{document['bench']} has nothing to plot: no value that all its arms share")
    canvas = Canvas(
        f"{document['bench']}: {shared[0]}", message=message, n=sum(int(a.get("n", 1)) for a in arms), size=(9, 5)
    )
    canvas.bars([a["name"] for a in arms], [float(a[shared[0]]) for a in arms], ylabel=_with_unit(shared[0]))
    return canvas


def _with_unit(key: str) -> str:
    """An axis label from a key whose last word is its unit: yield_ns -> "yield (ns)"."""
    words = key.split("_")
    units = {"ns": "ns", "us": "us", "s": "s", "rps": "requests/s", "mops": "million/s", "bytes": "bytes", "mib": "MiB"}
    if words[-1] in units and len(words) > 1:
        return f"{' '.join(words[:-1])} ({units[words[-1]]})"
    return f"{' '.join(words)} ({units.get(words[-1], '1')})"


def lint(figure: Any, expect: Iterable[str] = (), curves: Iterable[str] = ()) -> list[str]:
    """What is wrong with a matplotlib figure; empty if nothing is. expect, curves: see `Figure`."""
    return [*problems(seen(figure, expect, curves)), *crowded(figure)]
