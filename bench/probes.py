"""What probes cost in numeric kernels compiled by numba, and how far apart the looks at the flag are.

Every kernel (probes_kernels.py) runs plain and probed in turn, one after the other, and the figure is the median of the
rounds' ratios. Where code happens to lie can matter more than probes do: the same short loop takes up to half as long
again when it straddles cache lines. So both arms are compiled once for each of PLACES, all of them run in every round,
and a round's ratio is that of the geometric means over the places; `plain_places` is how far apart the plain arm's
places are (slowest over fastest). A third arm, in one place, puts a probe at every loop's end before the optimiser
runs, the obvious way, to show what strips save. Gaps are those of a build whose probes always call a function that
notes when (gaps.h); what noting takes is within them, and is given as `noting_ns`. The first two calls of each kernel,
in which intervals are still being found, are left out of times and gaps alike.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

from ..runtime.errors import CorelaneError
from ._native import ffi, lib
from .harness.numbers import pairwise, percentile
from .harness.plot import Canvas
from .harness.session import Session

SUMMARY = "run time of probed numba kernels over plain ones, and the time between two looks"
FIGURES = ("probes.overhead_geomean", "probes.overhead_worst", "probes.gap_p99_us")

ROOM = 1 << 20  # gaps kept of a kernel
PAIRS_AT_LEAST = 5
PLACES = (0, 16, 32, 48)  # bytes behind the begin of a cache line where functions begin; LLVM aligns loops to 16
SHORT_S = 5.0  # a run shorter than this compiles for the first place only

Arms = dict[tuple[str, int], Any]  # an arm's name and its place: the compiled function


def _ns(function: Callable[..., Any], args: tuple[Any, ...]) -> int:
    start = time.perf_counter_ns()
    function(*args)
    return time.perf_counter_ns() - start


def _compile(function: Any, target: Any, places: tuple[int, ...], *, naive: bool) -> Arms:
    """Both arms in all places, and the third."""
    import numba

    from ..libos.batch_compile import NaiveLibrary, PlainLibrary, ProbedLibrary, probed_compiler

    wanted = [("plain", PlainLibrary, at) for at in places] + [("probed", ProbedLibrary, at) for at in places]
    wanted += [("naive", NaiveLibrary, places[0])] if naive else []
    return {
        (name, at): numba.njit(
            nogil=True, pipeline_class=probed_compiler(dataclasses.replace(target, pad=at), library)
        )(function)
        for name, library, at in wanted
    }


def _rounds(took: dict[tuple[str, int], list[int]], name: str) -> list[float]:
    """An arm's time in each round: the geometric mean over its places."""
    columns = [times for (arm, _), times in took.items() if arm == name]
    return [statistics.geometric_mean(row) for row in zip(*columns, strict=True)]


def _pairs(arms: Arms, args: tuple[Any, ...], seconds: float) -> dict[tuple[str, int], list[int]]:
    """Times of all arms in turn, the order turned round each time, for about so long."""
    took: dict[tuple[str, int], list[int]] = {name: [] for name in arms}
    order = list(arms)
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(took[order[0]]) < PAIRS_AT_LEAST:
        for name in order:
            took[name].append(_ns(arms[name], args))
        order.reverse()
    return took


def _noting_ticks() -> float:
    """What noting a gap takes: the median of gaps of calls back to back."""
    kept = ffi.new("uint32_t[]", 10_000)
    lib.cl_bench_gaps_begin(kept, 10_000)
    for _ in range(3):
        lib.cl_bench_gaps_repeat(3_000)
    lib.cl_bench_gaps_end()
    return float(statistics.median(kept[0:8_000]))


def _gaps(function: Any, args: tuple[Any, ...], seconds: float) -> tuple[list[int], int]:
    """Gaps in ticks, sorted, and how many there were."""
    kept = ffi.new("uint32_t[]", ROOM)
    end = time.monotonic() + seconds
    lib.cl_bench_gaps_begin(kept, ROOM)
    while time.monotonic() < end:
        function(*args)
        lib.cl_bench_gaps_pause()
    taken = lib.cl_bench_gaps_end()
    return sorted(kept[0 : min(taken, ROOM)]), taken


def run(session: Session) -> None:
    """Compile, then measure kernel by kernel for about session.seconds in all."""
    import os

    import numba

    from ..libos.batch_compile import default_target, probed_compiler
    from .probes_kernels import kernels

    os.sched_setaffinity(0, {session.cores[-1]})
    target = default_target()
    noting = dataclasses.replace(target, slow="cl_bench_gap", always=True)
    places = PLACES if session.seconds >= SHORT_S else PLACES[:1]
    noting_ns = _noting_ticks() / target.ticks_per_us * 1e3
    every = kernels()
    slice_s = session.seconds / len(every)
    ratios, p99s, held_out = {}, {}, []
    for kernel in every:
        session.say(kernel.name)
        arms = _compile(kernel.function, target, places, naive=session.baseline)
        noted = numba.njit(nogil=True, pipeline_class=probed_compiler(noting))(kernel.function)
        for function in (*arms.values(), noted):
            function(*kernel.args)
            function(*kernel.args)
        took = _pairs(arms, kernel.args, 0.8 * slice_s)
        plain = _rounds(took, "plain")
        ratio = pairwise(_rounds(took, "probed"), plain)
        gaps, taken = _gaps(noted, kernel.args, 0.2 * slice_s)
        if not gaps:
            raise CorelaneError(f"probes: {kernel.name} never looked at the flag")
        us = {q: percentile(gaps, x) / target.ticks_per_us for q, x in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
        ratios[kernel.name], p99s[kernel.name] = ratio.median, us["p99"]
        if kernel.held_out:
            held_out.append(kernel.name)
        naive = {"naive_over_plain": pairwise(_rounds(took, "naive"), plain).median} if session.baseline else {}
        report = noted.overloads[noted.signatures[0]].library.report
        by_place = [statistics.median(took["plain", at]) for at in places]
        session.arm(
            kernel.name,
            probed_over_plain=ratio.median,
            ratio_min=ratio.min,
            ratio_max=ratio.max,
            **naive,
            plain_us=statistics.median(plain) / 1e3,
            plain_places=max(by_place) / min(by_place),
            n=len(ratio.pairs),
            gaps=taken,
            **{f"gap_{q}_us": value for q, value in us.items()},
            gap_max_us=gaps[-1] / target.ticks_per_us,
            held_out=int(kernel.held_out),
            strips=report.strips,
            countdowns=report.countdowns,
        )
    values = list(ratios.values())
    session.figure("probes.overhead_geomean", statistics.geometric_mean(values) - 1, runs=[r - 1 for r in values])
    session.figure("probes.overhead_worst", max(values) - 1)
    session.figure("probes.gap_p99_us", max(p99s.values()), runs=list(p99s.values()))
    session.settings["noting_ns"] = noting_ns
    session.settings["held_out"] = held_out
    session.settings["places"] = list(places)
    worst, widest = max(ratios, key=ratios.__getitem__), max(p99s, key=p99s.__getitem__)
    session.note(f"worst overhead: {worst}; widest p99 of gaps: {widest}; noting a gap takes {noting_ns:.0f} ns of it")
    faster = [name for name, value in ratios.items() if value < 0.97]
    if faster:
        session.note(
            f"{', '.join(faster)}: probed faster than plain, by how the code happens to lie; counted as measured"
        )


def plot(document: dict[str, Any]) -> Canvas:
    """Ratios by kernel."""
    rows = document["arms"]
    canvas = Canvas(
        "probes: what they cost in numeric kernels",
        message="run time of the probed kernel over the plain one",
        n=sum(row["n"] for row in rows),
    )
    canvas.bars(
        [row["name"] + (" (held out)" if row["held_out"] else "") for row in rows],
        [row["probed_over_plain"] for row in rows],
        ylabel="time probed over time plain (x)",
        colours=[int(row["held_out"]) for row in rows],
    )
    canvas.caption("Median of the ratios of pairs that ran one after the other. 1.00: probes cost nothing.")
    return canvas
