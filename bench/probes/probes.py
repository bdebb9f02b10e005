"""What probes cost in numeric kernels, and how far apart two polls of the flag are.

Every kernel runs plain and probed in turn, and the figure is the median of the rounds' ratios. Where code happens to
lie can matter more than probes do: the same short loop takes up to twice as long when it straddles cache lines. So the
plain arm and the probed one get the same choice: both are compiled for each of PLACES (batch_probes.place), all of
which run in the first rounds, and each arm is taken at its best place there, that of the lowest median. The rounds that
count come after those, of one place an arm: kernels that wait for memory need many. `plain_places` is how far apart the
plain arm's places are (slowest over fastest). Beside it is a control: the plain kernel compiled a second time, which
has the same choice of places and should take as long; how far it does not is what a ratio of that run may be off by.
The worst of many ratios is one that chance has raised, too: so once all kernels were measured, the rest of the time
goes to whichever's probes seem dearest then, in more rounds, which count with those before. The mean is over the rounds
that every kernel had, but those whose probed code comes out faster than the plain code by more than the control of any
kernel differs from it: there LLVM's choices made the difference, which say nothing of probes. Beside it stands the mean
in which they count as even. What is faster by less counts as even in both: probes save nothing.

Arms: numba's kernels (kernels.py) by `@libos.batch`, for which the goals are; the same with a probe at every
loop's end before the optimiser runs, the obvious way, to show what paying for whole loops saves; and C (c.py)
with CL_PROBE by hand and with the compiler's trace-pc callback, over plain C. Kernels whose innermost loops are short
(BOUNDED), where probes cost most, have one arm more, in the same rounds: a raw count of the turns around those loops
(bound.py), which is what any probe that counts them costs at least. Gaps are those of a build whose probes
always call a function that notes when (gaps.h); what noting takes is within them, and is given as `noting_ns`. The
first two calls of each kernel, in which intervals are still being found, are left out of times and gaps alike.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from .._native import ffi, lib
from ..harness.numbers import Ratio, pairwise, percentile
from ..harness.plot import Canvas
from ..harness.session import Session
from . import c as probes_c

SUMMARY = "run time of probed kernels over plain ones, and the time between two looks"
FIGURES = ("probes.overhead_geomean", "probes.overhead_worst", "probes.gap_p99_us")

ROOM = 1 << 20  # gaps kept of a kernel
PAIRS_AT_LEAST = 5
# Where functions begin, in bytes behind a cache line's begin; and whether innermost loops begin at one.
PLACES = ((0, False), (32, False), (0, True), (32, True))
CLOSER = 0.25  # of the time: for the kernels that seem dearest
CLOSER_LOOKS = 12  # into so many parts that is cut
SHORT_S = 5.0  # a run shorter than this compiles for the first place only
CANARY_S = 0.05  # before each kernel
BATCH, NAIVE, BOUND, CONTROL = "batch", "every turn", "bound", "control"
BOUNDED = ("matmul_blocked", "spmv", "pairs", "row_sums_int", "row_sums_float", "row_updates")
C_WAYS = (probes_c.HAND, probes_c.TRACE)
GAP_GOAL_US = 2.0
FASTER_LEAST = 0.97  # probed over plain: below that LLVM's choices made the difference, whatever the control says

Call = Callable[[], Any]
Place = tuple[int, bool]
Times = dict[tuple[str, Place], list[int]]  # an arm's name and its place: what its runs took, in ns


def _ns(call: Call) -> int:
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start


def _compile(
    kernel: Any, target: Any, places: tuple[Place, ...], arms: tuple[str, ...]
) -> dict[tuple[str, Place], Call]:
    """All arms in all places; the naive way in one."""
    import numba

    from ...libos.batch_work.compile import NaiveLibrary, PlainLibrary, ProbedLibrary, probed_compiler
    from .bound import BoundLibrary

    libraries = {
        "plain": PlainLibrary,
        CONTROL: PlainLibrary,
        BATCH: ProbedLibrary,
        NAIVE: NaiveLibrary,
        BOUND: BoundLibrary,
    }
    wanted = [(arm, libraries[arm], at) for arm in arms for at in (places[:1] if arm == NAIVE else places)]

    def compiled(library: Any, at: Place) -> Call:
        pipeline = probed_compiler(dataclasses.replace(target, pad=at[0], align=at[1]), library)
        made = numba.njit(nogil=True, no_cfunc_wrapper=True, pipeline_class=pipeline)(kernel.function)
        return lambda: made(*kernel.args)

    return {(name, at): compiled(library, at) for name, library, at in wanted}


def _in_turn(calls: dict[tuple[str, Place], Call], seconds: float, least: int = PAIRS_AT_LEAST) -> Times:
    """Times of all arms in turn, the order turned round each time, for about so long, and at least so many rounds."""
    for call in calls.values():
        call()
        call()
    took: Times = {name: [] for name in calls}
    order = list(calls)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(took[order[0]]) < least:
        for name in order:
            took[name].append(_ns(calls[name]))
        order.reverse()
    return took


def _medians(took: Times, arm: str) -> dict[Place, float]:
    return {at: statistics.median(times) for (name, at), times in took.items() if name == arm}


def _best(took: Times, arm: str) -> Place:
    """The place where an arm is fastest."""
    medians = _medians(took, arm)
    return min(medians, key=medians.__getitem__)


def _times(took: Times, arm: str) -> list[int]:
    """Of an arm that ran at one place."""
    (times,) = (times for (name, _), times in took.items() if name == arm)
    return times


def _noting_ticks() -> float:
    """What noting a gap takes: the median of gaps of calls back to back."""
    kept = ffi.new("uint32_t[]", 10_000)
    lib.cl_bench_gaps_begin(kept, 10_000)
    for _ in range(3):
        lib.cl_bench_gaps_repeat(3_000)
    lib.cl_bench_gaps_end()
    return float(statistics.median(kept[0:8_000]))


def _gaps(call: Call, seconds: float) -> tuple[list[int], int]:
    """Gaps in ticks, sorted, and how many there were."""
    kept = ffi.new("uint32_t[]", ROOM)
    call()
    call()
    end = time.monotonic() + seconds
    lib.cl_bench_gaps_begin(kept, ROOM)
    while True:  # once at least: in a short run all of its time may be gone by now
        call()
        lib.cl_bench_gaps_pause()
        if time.monotonic() >= end:
            break
    taken = lib.cl_bench_gaps_end()
    return sorted(kept[0 : min(taken, ROOM)]), taken


def _gap_values(kernel: str, gaps: tuple[list[int], int], ticks_per_us: float) -> dict[str, float]:
    kept, taken = gaps
    if not kept:
        raise CorelaneError(f"probes: {kernel} never looked at the flag")
    quantiles = (("p1", 0.01), ("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    values = {f"gap_{q}_us": percentile(kept, x) / ticks_per_us for q, x in quantiles}
    return {"gaps": taken, **values, "gap_max_us": kept[-1] / ticks_per_us}


def _spread(ratio: Ratio) -> dict[str, float]:
    pairs = sorted(ratio.pairs)
    return {
        "probed_over_plain": ratio.median,
        "ratio_p10": percentile(pairs, 0.1),
        "ratio_p90": percentile(pairs, 0.9),
        "n": len(pairs),
    }


@dataclasses.dataclass
class Measured:
    """A kernel of numba's: its arms at their best places, what their runs took, and what the row has besides."""

    kernel: Any
    calls: dict[tuple[str, Place], Call]
    took: Times
    places: float
    values: dict[str, Any]
    first: float = 0.0  # probed over plain in the rounds that every kernel had

    def __post_init__(self) -> None:
        self.first = self.over_plain(BATCH).median

    def over_plain(self, arm: str) -> Ratio:
        return pairwise(_times(self.took, arm), _times(self.took, "plain"))

    def more(self, seconds: float) -> None:
        """More rounds, of at least one each."""
        for place, times in _in_turn(self.calls, seconds, 1).items():
            self.took[place] += times


def _numba_kernel(session: Session, kernel: Any, target: Any, places: tuple[Place, ...], seconds: float) -> Measured:
    """One kernel: by @libos.batch, the control, a probe at every turn, and the bound."""
    import numba

    from ...libos.batch_work.compile import probed_compiler

    bounded = (BOUND,) if kernel.name in BOUNDED else ()
    arms = ("plain", BATCH, CONTROL, *bounded, *((NAIVE,) if session.baseline else ()))
    noting = dataclasses.replace(target, slow="cl_bench_gap", always=True)
    noted = numba.njit(nogil=True, no_cfunc_wrapper=True, pipeline_class=probed_compiler(noting))(kernel.function)
    calls = _compile(kernel, target, places, arms)
    tried = _in_turn(calls, (0.25 if len(places) > 1 else 0.8) * seconds)
    took, best = tried, calls
    if len(places) > 1:  # else there is nothing to choose
        best = {(arm, at): calls[arm, at] for arm in arms for at in [_best(tried, arm)]}
        took = _in_turn(best, 0.55 * seconds)
    gaps = _gap_values(kernel.name, _gaps(lambda: noted(*kernel.args), 0.2 * seconds), target.ticks_per_us)
    report = noted.overloads[noted.signatures[0]].library.report
    by_place = _medians(tried, "plain").values()
    values = {**gaps, "held_out": int(kernel.held_out), "strips": report.strips, "countdowns": report.countdowns}
    return Measured(kernel, best, took, max(by_place) / min(by_place), values)


def _look_closer(measured: list[Measured], seconds: float) -> None:
    """More rounds of the kernel whose probes seem dearest at the time, a slice each."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        dearest = max(measured, key=lambda m: m.over_plain(BATCH).median)
        dearest.more(min(left, seconds / CLOSER_LOOKS))


def _numba_row(session: Session, measured: Measured) -> dict[str, Any]:
    """Its rows in the document; the one by @libos.batch."""
    name = measured.kernel.name
    row = session.arm(
        name,
        way=BATCH,
        **_spread(measured.over_plain(BATCH)),
        first_rounds=measured.first,
        control=measured.over_plain(CONTROL).median,
        plain_us=statistics.median(_times(measured.took, "plain")) / 1e3,
        plain_places=measured.places,
        **measured.values,
    )
    arms = [arm for arm, _ in measured.calls]
    if BOUND in arms:
        bound = _spread(measured.over_plain(BOUND))
        session.arm(f"{name}, bound: a raw count of its rows", way=BOUND, **bound)
        session.note(
            f"{name}: with a decrement and a branch a row and no look it takes "
            f"{bound['probed_over_plain']:.3f} of the plain time, with probes {row['probed_over_plain']:.3f}"
        )
    if NAIVE in arms:
        session.arm(f"{name}, a probe every turn", way=NAIVE, **_spread(measured.over_plain(NAIVE)))
    return row


def _c_kernels(session: Session, every: list[Any], ticks_per_us: float, seconds: float) -> None:
    """Rows of the C kernels: by hand, and by the compiler."""
    if probes_c.compiler() is None:
        session.skip("C", "there is no C compiler: apt-get install gcc")
        return
    nothing = int(ffi.cast("uintptr_t", lib.cl_probe_word()))
    with tempfile.TemporaryDirectory(prefix="corelane-probes-") as folder:
        made = {way: probes_c.build(way, Path(folder)) for way in probes_c.WAYS}
        noting = {way: probes_c.build(way, Path(folder), noting=True) for way in C_WAYS}
        for kernel in every:
            session.say(f"C {kernel.name}")
            probes_c.look_at(made["plain"], nothing)
            calls = {(way, PLACES[0]): probes_c.call(made[way], kernel.name, kernel.args) for way in made}
            took = _in_turn(calls, 0.8 * seconds)
            probes_c.look_at(made["plain"], probes_c.ALWAYS)
            for way in C_WAYS:
                noted = probes_c.call(noting[way], kernel.name, kernel.args)
                session.arm(
                    f"C {kernel.name}, {way}",
                    way=way,
                    **_spread(pairwise(took[way, PLACES[0]], took["plain", PLACES[0]])),
                    plain_us=statistics.median(took["plain", PLACES[0]]) / 1e3,
                    **_gap_values(kernel.name, _gaps(noted, 0.1 * seconds), ticks_per_us),
                )
        probes_c.look_at(made["plain"], nothing)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark alone."""
    parser.add_argument("--kernels", metavar="A,B", help="only these kernels, and no figures (default: all)")


def _chosen(every: list[Any], names: str | None) -> list[Any]:
    """The kernels of these names. CorelaneError if there is none of a name."""
    if names is None:
        return every
    wanted, known = names.split(","), [kernel.name for kernel in every]
    for name in wanted:
        if name not in known:
            raise CorelaneError(
                "probes: choose kernels", f"there is no {name!r}", f"those there are: {', '.join(known)}"
            )
    return [kernel for kernel in every if kernel.name in wanted]


def run(session: Session) -> None:
    """Compile, then measure kernel by kernel for about session.seconds in all."""
    import os

    from ...libos.batch_work.compile import default_target
    from .kernels import kernels

    os.sched_setaffinity(0, {session.cores[-1]})
    target = default_target()
    places = PLACES if session.seconds >= SHORT_S else PLACES[:1]
    noting_ns = _noting_ticks() / target.ticks_per_us * 1e3
    names = getattr(session.options, "kernels", None)
    every = _chosen(kernels(), names)
    in_c = [kernel for kernel in every if kernel.name in probes_c.NAMES]
    closer_s = CLOSER * session.seconds if len(every) > 1 else 0.0
    slice_s = (session.seconds - closer_s) / (sum(kernel.share for kernel in every) + 0.5 * len(in_c))
    measured = []
    for kernel in every:
        session.say(kernel.name)
        session.take_canary(CANARY_S)
        measured.append(_numba_kernel(session, kernel, target, places, kernel.share * slice_s))
    session.say("the dearest ones")
    _look_closer(measured, closer_s)
    rows = [_numba_row(session, one) for one in measured]
    _c_kernels(session, in_c, target.ticks_per_us, 0.5 * slice_s)
    if names is None:
        _figures(session, rows)
    session.settings["noting_ns"] = noting_ns
    session.settings["held_out"] = [kernel.name for kernel in every if kernel.held_out]
    session.settings["places"] = [{"pad_bytes": pad, "align_loops": align} for pad, align in places]
    session.note(f"noting a gap takes {noting_ns:.0f} ns of it")


def _faster(rows: list[dict[str, Any]]) -> list[str]:
    """The kernels whose probed code is faster than the plain one by more than any control differs from it."""
    spread = max(abs(row["control"] - 1) for row in rows)
    return [row["name"] for row in rows if row["probed_over_plain"] < max(1 - spread, FASTER_LEAST)]


def _figures(session: Session, rows: list[dict[str, Any]]) -> None:
    ratios = {row["name"]: row["probed_over_plain"] for row in rows}
    firsts = {row["name"]: max(row["first_rounds"], 1.0) for row in rows}
    p99s = {row["name"]: row["gap_p99_us"] for row in rows}
    faster = _faster(rows)
    control = [max(row["control"], 1.0) for row in rows]
    beside = {"plain code compiled again": statistics.geometric_mean(control) - 1}
    if faster:
        beside[f"with {', '.join(faster)} as even"] = statistics.geometric_mean(firsts.values()) - 1
    others = [first for name, first in firsts.items() if name not in faster]
    mean = statistics.geometric_mean(others) - 1 if others else None
    why = "the probed code of every kernel came out faster than the plain one"
    session.figure("probes.overhead_geomean", mean, reason=why, beside=beside)
    worst_again = {"plain code compiled again": max(control) - 1}
    session.figure("probes.overhead_worst", max(*ratios.values(), 1.0) - 1, beside=worst_again)
    session.figure("probes.gap_p99_us", max(p99s.values()), beside={"least of the kernels": min(p99s.values())})
    worst, widest = max(ratios, key=ratios.__getitem__), max(p99s, key=p99s.__getitem__)
    session.note(f"worst overhead: {worst}; widest p99 of gaps: {widest}")
    if faster:
        session.note(f"{', '.join(faster)}: probed code came out faster than plain code; not in the mean")


COLOUR = {BATCH: 0, NAIVE: 5, BOUND: 3, probes_c.HAND: 2, probes_c.TRACE: 1}
LABEL = {
    BATCH: "@libos.batch",
    NAIVE: "numba, a probe every turn",
    BOUND: "bound: numba, a raw count of rows",
    probes_c.HAND: "C, CL_PROBE",
    probes_c.TRACE: "C, trace-pc",
}


Lines = list[tuple[str, list[dict[str, Any]]]]


def _lines(rows: list[dict[str, Any]]) -> Lines:
    """Rows by kernel and language, in the order of the plot."""
    out: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        kernel = row["name"].split(",")[0]
        out.setdefault(kernel + (" (held out)" if row.get("held_out") else ""), []).append(row)
    merged: dict[str, list[dict[str, Any]]] = {}
    for name, some in out.items():
        merged.setdefault(next((k for k in merged if k.split(" (")[0] == name), name), []).extend(some)
    return list(merged.items())


def plot(document: dict[str, Any]) -> Canvas:
    """Overheads with their spread, and the distribution of gaps, by kernel."""
    lines = _lines(document["arms"])
    rows = document["arms"]
    canvas = Canvas(
        "probes: what they cost, and how often they look",
        message="one run of a kernel, plain and probed",
        n=sum(row["n"] for row in rows),
        panels=2,
        size=(14, 0.42 * _centres(lines)[-1] + 3.6),
    )
    _plot_overheads(canvas, lines)
    _plot_gaps(canvas, lines)
    canvas.caption(
        "Left: median of the ratios of runs one after the other, error bars from the 10th to the 90th percentile; 1: "
        "probes cost nothing. Each arm of numba's is taken at the best of the same "
        f"{len(document['settings']['places'])} places. "
        "Right: time between two looks at the flag, from the 1st to the 99th percentile, with the median; noting a gap "
        f"takes {document['settings']['noting_ns']:.0f} ns of it."
    )
    return canvas


def _centres(lines: Lines) -> list[float]:
    """Heights of the kernels: each has room for its bars, of 0.38 each, and for a gap."""
    ends = list(itertools.accumulate(0.38 * len(some) + 0.24 for _, some in lines))
    return [end - 0.19 * len(some) - 0.12 for end, (_, some) in zip(ends, lines, strict=True)]


def _places(lines: Lines, way: str) -> tuple[list[float], list[dict[str, Any]]]:
    """Heights and rows of one way of probing; the ways of a kernel are side by side."""
    heights, found = [], []
    for centre, (_, some) in zip(_centres(lines), lines, strict=True):
        for i, row in enumerate(some):
            if row["way"] == way:
                heights.append(centre + (i - (len(some) - 1) / 2) * 0.38)
                found.append(row)
    return heights, found


def _plot_overheads(canvas: Canvas, lines: Lines) -> None:
    from ..harness.figure import COLOURS

    axis = canvas.axes[0]
    for way, colour in COLOUR.items():
        heights, rows = _places(lines, way)
        if not rows:
            continue
        values = [row["probed_over_plain"] for row in rows]
        axis.barh(
            heights,
            [value - 1 for value in values],
            left=1,
            height=0.34,
            color=COLOURS[colour],
            label=LABEL[way],
        )
        ends = [row["ratio_p10"] for row in rows], [row["ratio_p90"] for row in rows]
        axis.hlines(heights, *ends, color="#444444", linewidth=1)
        canvas.expect.add(LABEL[way])
        for height, value, row in zip(heights, values, rows, strict=True):
            end = max(value, row["ratio_p90"], 1)
            axis.annotate(
                f"{value:.3f}", (end, height), xytext=(4, 0), textcoords="offset points", va="center", fontsize=7
            )
    axis.axvline(1.0, color="#444444", linewidth=1, label="no overhead")
    axis.axvline(1.08, color="#999999", linewidth=1, linestyle="--", label="goal of the worst")
    axis.set_xscale("log")
    axis.set_yticks(_centres(lines), [name for name, _ in lines])
    axis.invert_yaxis()
    axis.set_xlabel("time probed over time plain (x)")
    axis.set_ylabel("arm")
    canvas.expect.update(name for name, _ in lines)


def _plot_gaps(canvas: Canvas, lines: Lines) -> None:
    from ..harness.figure import COLOURS

    axis = canvas.axes[1]
    for way, colour in COLOUR.items():
        heights, rows = _places(lines, way)
        some = [(height, row) for height, row in zip(heights, rows, strict=True) if "gap_p50_us" in row]
        if not some:
            continue
        axis.barh(
            [height for height, _ in some],
            [row["gap_p99_us"] - row["gap_p1_us"] for _, row in some],
            left=[row["gap_p1_us"] for _, row in some],
            height=0.34,
            color=COLOURS[colour],
            alpha=0.45,
            label=f"{LABEL[way]}: p1 to p99",
        )
        axis.plot(
            [row["gap_p50_us"] for _, row in some],
            [height for height, _ in some],
            "|",
            color=COLOURS[colour],
            markersize=9,
            markeredgewidth=2,
            label=f"{LABEL[way]}: median",
        )
    axis.axvline(GAP_GOAL_US, color="#999999", linewidth=1, linestyle="--", label="goal of p99")
    axis.set_xscale("log")
    axis.set_yticks(_centres(lines), [name for name, _ in lines])
    axis.invert_yaxis()
    axis.set_xlabel("time between two looks (us)")
    axis.set_ylabel("arm")
