"""Plots, and the lint that every one of them passes before it is written.

A plot says how many requests stand behind it, what a message is, what its axes are in which unit, how percentiles were
taken, what became of outliers, which cores and canary it was measured with, and where each curve stops and why. `lint`
checks what a program can check: that all of this is said, labels and units, a legend over several series that can be
told apart, what bands and error bars are, every compared arm present, axes that fit the data, nothing that is cut off.

matplotlib is an optional dependency, imported when a plot is asked for.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from .numbers import number
from .openloop import stop_in
from .table import quantity

COLOURS = ("#0b6e99", "#d1495b", "#3c8d40", "#7b4ea3", "#c77d0a", "#4a4a4a", "#17a2a2", "#a33b20")
STYLES = {"p50_us": ("-", "o"), "p99_us": ("--", "s"), "p999_us": (":", "^")}
NAMES = {"p50_us": "p50", "p90_us": "p90", "p99_us": "p99", "p999_us": "p99.9"}
WITHOUT_UNIT = ("arm",)  # axes of names
PERCENTILE = re.compile(r"\bp(50|9[09]?|99\.?9)\b")
MACHINE = re.compile(r"Linux .*, cores [\d,]+ of \d+")
ALL_CURVES = re.compile(r"(?:^|[.,;:] )(?:(?:all|the|each|a) )?curves? (?:stop|end)s?\b", re.I)  # speaks for all
CROSS = "\u00d7"  # stands where a curve stops
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINE_IN = 0.142  # height of a line of the captions
NUMBER_IN = 1.2  # what a number behind a point takes, before the layout makes panels narrower
CUT_PX, NAME_OVERLAP = 2.0, 0.15  # that is not seen: beyond the figure; of a name's height
NAMED_MOST = 3  # arms without a curve that are named above it; of more only the number
BELOW = -21  # from a name above a point to one as far below it, in points
LEAST_FILL = 0.3  # part of an axis that the data must span


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

    def finish(self, path: Path, document: dict[str, Any]) -> None:
        """Lint and write the PNG. CorelaneError with the lint's findings if the plot may not be shown."""
        for panel, axis in enumerate(self.axes):
            for side in (axis.xaxis, axis.yaxis):
                if side.get_label_text() not in WITHOUT_UNIT:
                    side.set_major_formatter(_engineering)
                    _name_minors(side)
            self._add_legend(axis, self._legends.get(panel) or axis.get_legend_handles_labels()[0])
        self._standing_captions(document)
        width, tall = self.figure.get_size_inches()
        lines = [line for c in self.captions for line in textwrap.wrap(c, int(17.5 * width))]
        height = (LINE_IN * len(lines) + 0.1) / tall
        self.figure.text(0.02, 0.01, "\n".join(lines), fontsize=7.5, va="bottom", color="#444444", linespacing=1.35)
        self.figure.tight_layout(rect=(0, min(height, 0.45), 1, 0.98))
        self._part_names()
        found = lint(self.figure, self.expect, self.curves)
        if found:
            raise CorelaneError(f"plot {document['bench']}", f"it breaks the rules of plots: {'; '.join(found)}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.figure.savefig(path, dpi=140)
        _pyplot().close(self.figure)

    def _add_legend(self, axis: Any, handles: Sequence[Any]) -> None:
        """None of one entry, within the axis of up to four, else below it: over the curves it would hide some."""
        if len(handles) <= 1:
            return
        if len(handles) <= 4:
            axis.legend(handles=handles, fontsize=8, frameon=False, loc="best")
            return
        panel_in = self.figure.get_size_inches()[0] * axis.get_position().width
        entry_in = 0.6 + 0.065 * max(len(handle.get_label()) for handle in handles)
        columns = max(min(int(panel_in / entry_in), math.ceil(len(handles) / len(STYLES))), 1)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0), "borderaxespad": 5}  # below ticks and label
        axis.legend(handles=handles, fontsize=8, frameon=False, ncol=columns, **place)

    def _standing_captions(self, document: dict[str, Any]) -> None:
        from .document import too_loud
        from .table import canary_line, machine_line

        if loud := too_loud(document["canary"]):
            self.caption(f"Nothing here is judged: {loud}.")
            style = {"ha": "right", "va": "top", "fontsize": 10, "fontweight": "bold", "color": COLOURS[1]}
            self.figure.text(0.99, 0.985, "not judged: the machine was too loud", **style)
        if any("offered_rps" in a for a in document["arms"]) or _shows_percentiles(self.figure):
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


def _shows_percentiles(figure: Any) -> bool:
    """Whether an axis or a series is one of percentiles."""
    said = [text for axis in figure.axes for text in (axis.get_xlabel(), axis.get_ylabel())]
    said += [label for axis in figure.axes for label in axis.get_legend_handles_labels()[1]]
    return any(PERCENTILE.search(text) for text in said)


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
        raise CorelaneError(f"{document['bench']} has nothing to plot: no value that all its arms share")
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
    """What is wrong with a matplotlib figure; empty if nothing is.

    expect: labels of series (or names of bars) that must appear in it. curves: arms of which it must say where their
    curves stop: "NAME stops", "NAME ends", or a sentence about all curves.
    """
    out: list[str] = []
    texts = [t.get_text() for t in figure.texts] + [figure.get_suptitle()]
    shown: set[str] = set()
    if not figure.get_suptitle():
        out.append("it has no title")
    if not any(re.search(r"\bn = [\d,]+", t) for t in texts):
        out.append("it does not say n")
    if not any("message is" in t for t in texts):
        out.append("it does not say what a message is")
    if any("ignore" in t.lower() for t in texts):
        out.append("a caption asks to ignore something")
    said = " ".join(" ".join(texts).split())  # captions are wrapped
    out += _unsaid(figure, said)
    if not ALL_CURVES.search(said):
        without = [name for name in sorted(curves) if not _ends(name, said)]
        out += [f"it does not say where {name!r} stops" for name in without]
    if not figure.axes:
        out.append("it has no axes")
    for axis in figure.axes:
        out += _lint_axis(axis, shown)
        out += _lint_room(figure, axis)
    out += [f"series {name!r} is missing" for name in sorted(set(expect) - shown)]
    return out


def _ends(name: str, said: str) -> bool:
    return re.search(rf"(?:^|\W){re.escape(name)} (?:stops|ends)\b", said) is not None


def _any(drawn: Iterable[object], kind: type) -> bool:
    return any(isinstance(one, kind) for one in drawn)


def _unsaid(figure: Any, said: str) -> list[str]:
    """What a plot must say of how it was measured, and does not."""
    from matplotlib.collections import LineCollection, PolyCollection

    drawn = [collection for axis in figure.axes for collection in axis.collections]
    wanted = {
        "which machine and cores it was measured on": MACHINE.search(said),
        "what became of outliers": "outlier" in said,
        "how percentiles are taken": "nearest rank" in said or not _shows_percentiles(figure),
        "what its bands are": not _any(drawn, PolyCollection) or re.search(r"\b[Bb]ands?\b", said),
        "what its error bars are": not _any(drawn, LineCollection) or re.search(r"\b[Bb]ars\b", said),
    }
    return [f"it does not say {what}" for what, there in wanted.items() if not there]


def _lint_axis(axis: Any, shown: set[str]) -> list[str]:
    out = []
    for which, label in (("x", axis.get_xlabel()), ("y", axis.get_ylabel())):
        if not label:
            out.append(f"the {which} axis has no label")
        elif not re.search(r"\(.+\)", label) and label not in WITHOUT_UNIT:
            out.append(f"the {which} axis {label!r} has no unit")
    labels = axis.get_legend_handles_labels()[1]
    shown.update(labels)
    shown.update(t.get_text() for t in (*axis.get_yticklabels(), *axis.get_xticklabels()))
    unlabelled = [line for line in axis.lines if str(line.get_label()).startswith("_")]
    if unlabelled:
        out.append(f"{len(unlabelled)} line(s) without a label")
    out += _alike(axis.lines)
    if len(labels) > 1 and axis.get_legend() is None:
        out.append("several series and no legend")
    if not axis.lines and not axis.patches and not axis.collections:
        out.append("an axis without data")
    for line in axis.lines:
        if len(line.get_xdata()) == 0:
            out.append(f"series {line.get_label()!r} is empty")
    out += _lint_fit(axis, "x", axis.get_xlim(), axis.get_xscale())
    out += _lint_fit(axis, "y", axis.get_ylim(), axis.get_yscale())
    return out


def _alike(lines: Iterable[Any]) -> list[str]:
    """Series that nobody can tell apart: of one colour, line and marker."""
    seen: dict[tuple[str, ...], str] = {}
    out = []
    for line in lines:
        look = tuple(str(part) for part in (line.get_color(), line.get_linestyle(), line.get_marker()))
        if look in seen:
            out.append(f"series {seen[look]!r} and {line.get_label()!r} look alike")
        seen[look] = str(line.get_label())
    return out


def _lint_room(figure: Any, axis: Any) -> list[str]:
    """What is cut off at the figure's edge, and names of arms that lie on one another."""
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


def _lint_fit(axis: Any, which: str, limits: tuple[float, float], scale: str) -> list[str]:
    """The data must lie within the axis and fill a fair part of it (one value alone fits any axis)."""
    from matplotlib.collections import LineCollection, PolyCollection

    values: list[float] = []
    for line in axis.lines:
        data = line.get_xdata() if which == "x" else line.get_ydata()
        # axhline and axvline span one axis in its own units, from 0 to 1.
        spans = line.get_transform() != axis.transData
        if not (spans and list(data) == [0, 1]):
            values += [float(v) for v in data]
    for bar in axis.patches:
        values += (
            [bar.get_x(), bar.get_x() + bar.get_width()]
            if which == "x"
            else [bar.get_y(), bar.get_y() + bar.get_height()]
        )
    for drawn in axis.collections:
        # Points lie where their offsets say; bands and bars have a shape of their own.
        band = isinstance(drawn, (PolyCollection, LineCollection))
        points = [p for path in drawn.get_paths() for p in path.vertices] if band else drawn.get_offsets()
        values += [float(p[0 if which == "x" else 1]) for p in points]
    low, high = min(limits), max(limits)
    if scale == "log":
        values = [math.log10(v) for v in values if v > 0]
        low, high = math.log10(low), math.log10(high)
    if not values:
        return []
    out = []
    slack = (high - low) * 1e-6
    if min(values) < low - slack or max(values) > high + slack:
        out.append(f"data lies outside of the {which} axis")
    span = max(values) - min(values)
    if span > 0 and span < LEAST_FILL * (high - low):
        out.append(f"the data fills {100 * span / (high - low):.0f} % of the {which} axis")
    return out
