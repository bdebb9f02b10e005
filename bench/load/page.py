"""The page of `corelane load`: what speaks against the result, the loads, the tail, latency over time and against load.

What a page is, is told in harness/report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..harness.document import too_loud
from ..harness.figure import COLOURS, Axis, Figure, Mark, Panel, Point, around
from ..harness.lint import numbered
from ..harness.numbers import PERCENTILES, number
from ..harness.report.documents import canary, setting, whole
from ..harness.report.drawn import drawn
from ..harness.report.markup import Html, Numbered, el, items, table
from ..harness.report.page import Section
from ..harness.report.page import page as whole_page
from ..harness.table import machine_line, quantity
from .measuring import Measured
from .reporting import NAMES, report, servers
from .trust import UNANSWERED, latencies

DRAWN_MOST = 6  # loads that a drawing shows
PARTS = 100  # of a run, in the drawing of latency over time
LATENCY = "latency from the intended send time (us)"
STYLES = {"p50": "-", "p99": "--", "p999": ":"}

Loads = Sequence[tuple[str, Measured]]


def page(document: dict[str, Any], loads: Loads) -> str:
    """The page. loads: by name, those of the document."""
    ids = Numbered()
    shown = _labelled([load for load in loads if load[1].result.latency.count][-DRAWN_MOST:])
    some = f"the last {DRAWN_MOST} of {len(loads)} loads" if len(loads) > DRAWN_MOST else ""
    doubts = _doubts(document)
    drawings = [_tail(document, shown, some), _over_time(document, shown, some), _curve(document)]
    sections = [
        Section("verdict", "Verdict", [_verdict(doubts)], f"{len(doubts)} doubts" if doubts else ""),
        Section("loads", "Loads", [_table(document, ids)]),
        Section("plots", "Plots", [drawn(one, ids) for one in drawings if one] or [_nothing()]),
        Section("all", "All of it", [el("pre", report(document), tabindex="0"), canary(document, ids)]),
        Section("settings", "Machine and settings", [setting(document, ids), whole(document)]),
    ]
    target = document["settings"]["target"]
    return whole_page(f"corelane load {target}", [el("p", machine_line(document["machine"]))], sections)


def _nothing() -> Html:
    return el("p", "Nothing was answered, so there is nothing to draw.", class_="soft")


def _labelled(loads: Loads) -> Loads:
    """By server and rate; runs of the same ones by their number."""
    names = [f"{name}, {m.point.offered_rps:,.0f}/s" for name, m in loads]
    seen: dict[str, int] = {}
    out = []
    for name, (_, measured) in zip(names, loads, strict=True):
        seen[name] = seen.get(name, 0) + 1
        out.append((f"{name}, run {seen[name]}" if names.count(name) > 1 else name, measured))
    return out


def _texts(document: dict[str, Any], n: int, some: str, *more: str) -> list[str]:
    """What every plot says."""
    loud = too_loud(document["canary"])
    return [
        f"n = {n:,}; a message is a request to {servers(document['settings'])} and its answer.",
        *([f"Drawn: {some}."] if some else []),
        *more,
        "Percentiles by nearest rank over all requests; unanswered requests count as infinite. No outlier is left out.",
        *([f"Nothing here is judged: {loud}."] if loud else []),
        f"{machine_line(document['machine'])}; {document['settings']['power']}.",
    ]


def _figure(title: str, texts: Sequence[str], x: str, y: str, marks: Sequence[Mark], logs: tuple[bool, bool]) -> Figure:
    """One panel, on axes that fit what is drawn."""

    def axis(label: str, which: int) -> Axis:
        values = [point[which] for mark in marks for point in mark.points]
        return Axis(label, *around(values, logs[which]), logs[which])

    labels = [mark.label or "" for mark in marks]
    panel = numbered(Panel(axis(x, 0), axis(y, 1), marks, labels))
    return Figure(title, texts, [panel], labels, labels)


def _tail(document: dict[str, Any], loads: Loads, some: str) -> Figure | None:
    """Which part of the requests took longer: the complementary distribution."""
    marks = []
    for i, (name, m) in enumerate(loads):
        points = tuple((x / 1e3, y) for x, y in m.result.latency.ccdf(300) if y > 0 and x > 0)
        if len(points) > 1:
            marks.append(Mark("line", points, name, COLOURS[i], "-"))
    if not marks:
        return None
    n = sum(m.result.latency.count for _, m in loads)
    ends = "Each curve ends at the last latency that some exceeded: these are unanswered, or the one longest."
    texts = _texts(document, n, some, ends)
    return _figure("The tail", texts, LATENCY, "requests that took longer (part of all)", marks, (True, True))


def _over_time(document: dict[str, Any], loads: Loads, some: str) -> Figure | None:
    """Median and 99th percentile of each part of the run."""
    marks = []
    for i, (name, m) in enumerate(loads):
        for key, percent in (("p50", 50), ("p99", 99)):
            if points := tuple(_parts(m, percent)):
                marks.append(Mark("line", points, f"{name}, {key}", COLOURS[i], STYLES[key]))
    if not marks:
        return None
    n = sum(m.result.latency.count for _, m in loads)
    said = f"A point is one of {PARTS} equal parts of a run's answers. The curves end with the run."
    return _figure("Over time", _texts(document, n, some, said), "time (s)", LATENCY, marks, (False, True))


def _parts(measured: Measured, percent: float) -> Iterator[Point]:
    found = latencies(measured.result.records)
    found = found[found["latency_ns"] != UNANSWERED]
    found = found[np.argsort(found["due_ns"], kind="stable")]
    if len(found) < 2 * PARTS:
        return
    for part in np.array_split(found, PARTS):
        rank = np.percentile(part["latency_ns"], percent, method="inverted_cdf")  # nearest rank
        yield float(part["due_ns"].mean()) / 1e9, float(rank) / 1e3


def _curve(document: dict[str, Any]) -> Figure | None:
    """Latency against load, where several rates were offered."""
    settings, marks = document["settings"], []
    if not settings["stops"] and not settings["found"]:
        return None
    for i, name in enumerate(dict.fromkeys(row["name"] for row in document["arms"])):
        rows = sorted((r for r in document["arms"] if r["name"] == name), key=lambda r: float(r["offered_rps"]))
        for key, dash in STYLES.items():
            points = [(number(r["achieved_rps"]), number(r[f"{key}_us"])) for r in rows]
            kept = tuple(p for p in points if all(map(math.isfinite, p)) and min(p) > 0)
            if kept:
                marks.append(Mark("line", kept, f"{name}, {NAMES[key]}", COLOURS[i % len(COLOURS)], dash, "o"))
    if not marks:
        return None
    stops = [f"{name} stops: {why}." for name, why in settings["stops"].items()]
    said = [*stops, "The curves end at the last load whose percentile is finite."]
    n = sum(int(row["answered"]) for row in document["arms"])
    texts = _texts(document, n, "", *said)
    return _figure("Latency against load", texts, "achieved load (requests/s)", LATENCY, marks, (True, True))


def _table(document: dict[str, Any], ids: Numbered) -> Html:
    head = ["load", "offered/s", "achieved/s", *(f"{NAMES[name]} us" for name, _ in PERCENTILES), "sent", "answered"]
    rows = []
    for row in document["arms"]:
        cells = [row["name"], *(quantity(number(row[k])) for k in ("offered_rps", "achieved_rps"))]
        for name, _ in PERCENTILES:
            low, high = (quantity(number(v)) for v in row["intervals_us"][name])
            cells.append(f"{quantity(number(row[f'{name}_us']))} ({low} .. {high})")
        rows.append([*cells, quantity(row["sent"]), quantity(row["answered"])])
    return table(ids, "Every load; in brackets: the 95 % interval", head, rows)


def _doubts(document: dict[str, Any]) -> list[str]:
    told = [f"{row['name']}: {d['text']}" for row in document["arms"] for d in row["doubts"]]
    if loud := too_loud(document["canary"]):
        told.insert(0, f"this machine was taken away from the load: {loud}")
    return list(dict.fromkeys(told))


def _verdict(doubts: Sequence[str]) -> Html | None:
    if not doubts:
        return el("p", "Nothing speaks against this result.", class_="good")
    return el("div", el("p", "Do not trust this as it stands:", class_="bad"), items(doubts))
