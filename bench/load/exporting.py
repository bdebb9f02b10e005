"""Files: the HdrHistogram log, recorded arrivals, the PNG.

The log is HdrHistogram's own (HdrHistogramVisualizer and the other readers take it): a line a load, with start, length
and largest value in seconds and ms, and the histogram as base64 of its compressed V2 encoding. That format knows no
infinity: unanswered requests are in it as the largest value that it can track, and a comment line says how many.
"""

from __future__ import annotations

import csv
import io
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runtime.errors import CorelaneError
from ...runtime.files import write_whole
from ...runtime.hist import Hist
from ..harness.numbers import number
from .measuring import Measured
from .reporting import servers
from .sockload.sockload import OPERATIONS
from .trust import UNANSWERED, latencies

if TYPE_CHECKING:
    from ..harness.plot import Canvas

INSTALL = "pip install 'corelane[load]'"


def hdr_lines(named: Iterable[tuple[str, Measured]], started_s: float) -> list[str]:
    """The log, as lines. started_s: seconds since 1970. CorelaneError without the library."""
    lines = [
        "#[Logged with corelane load]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {started_s:.3f} (seconds since epoch), {time.ctime(started_s)}]",
        "#[values are nanoseconds from the intended send time]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    at = 0.0
    for name, measured in named:
        hist, seconds = measured.result.latency, measured.result.seconds
        if hist.infinite:
            lines.append(f"#[{name}: {hist.infinite} unanswered requests are recorded as {hist.limit} ns]")
        tag = name.translate(str.maketrans(",= ", "___"))
        largest = min(float(hist.max), float(hist.limit)) / 1e6  # in ms, as readers have it
        lines.append(f"Tag={tag},{at:.3f},{seconds:.3f},{largest:.3f},{encoded(hist)}")
        at += seconds
    return lines


def encoded(hist: Hist) -> str:
    """A histogram in HdrHistogram's base64 text."""
    made = hdr_histogram(hist)
    text: bytes | str = made.encode()
    return text.decode() if isinstance(text, bytes) else text


def hdr_histogram(hist: Hist) -> Any:
    """The same values in the library's histogram: each at its bucket's upper end."""
    try:
        from hdrh.histogram import HdrHistogram
    except ImportError as error:
        raise CorelaneError("write an HdrHistogram log", "hdrhistogram is not installed", INSTALL) from error
    out = HdrHistogram(1, hist.limit, hist.digits)
    for _, high, count in hist.buckets():
        out.record_value(min(max(high, 1), hist.limit), count)
    if hist.infinite:
        out.record_value(hist.limit, hist.infinite)
    return out


def write_hdr(named: Iterable[tuple[str, Measured]], started_s: float, path: Path) -> None:
    """Write the log. started_s: as of `hdr_lines`."""
    write_whole(path, ("\n".join(hdr_lines(named, started_s)) + "\n").encode())


def recorded(loads: Iterable[Measured]) -> str:
    """Arrivals and what became of them, a line a request: seconds after the start, operation, latency in us (empty:
    unanswered), and how late it was sent. Of several loads each begins where the one before ends. What --arrivals
    replay:FILE takes."""
    out = io.StringIO()
    out.write("# seconds,operation,latency_us,sent_late_us\n")
    table = csv.writer(out, lineterminator="\n")
    begun = due_ns = 0
    for measured in loads:
        found = latencies(measured.result.records)
        for due, latency, lag, _, op in sorted(found.tolist()):
            due_ns = begun + due
            told = "" if latency == UNANSWERED else f"{latency / 1e3:.3f}"
            table.writerow([f"{due_ns / 1e9:.9f}", OPERATIONS[op], told, f"{lag / 1e3:.3f}"])
        begun = due_ns
    return out.getvalue()


def canvas(document: dict[str, Any]) -> Canvas:
    """Latency against load where there are several rates, else percentiles of each load as bars."""
    from ..harness.plot import Canvas

    arms = document["arms"]
    message = f"a request to {servers(document['settings'])} and its answer"
    out = Canvas(f"load: {document['settings']['target']}", message=message, n=sum(row["answered"] for row in arms))
    if document["settings"]["stops"] or document["settings"]["found"]:
        out.latency_curves(document)
        return out
    labels, values, colours = [], [], []
    names = list(dict.fromkeys(row["name"] for row in arms))
    for arm, name in enumerate(names):
        rows = [row for row in arms if row["name"] == name]
        for key, shown in (("p50_us", "p50"), ("p90_us", "p90"), ("p99_us", "p99"), ("p999_us", "p99.9")):
            labels.append(f"{shown}, {name}" if len(names) > 1 else shown)
            values.append(statistics.median(number(row[key]) for row in rows))
            colours.append(arm)
        runs = f", the median of {len(rows)} runs" if len(rows) > 1 else ""
        out.caption(f"{name}: {number(rows[0]['offered_rps']):,.0f} requests/s offered{runs}.")
    out.bars(labels, values, ylabel="latency from the intended send time (us)", colours=colours, log=True)
    return out
