"""The plot of `corelane bench sim`: what the studies found, and how far the simulator is from the machine."""

from __future__ import annotations

import math
from typing import Any

from ..harness.numbers import number
from ..harness.plot import STYLES, Canvas
from . import quantum
from .interval import ARRIVALS, LOAD, PHASE_NS, SWING
from .interval import CORES as INTERVAL_CORES
from .managed_check import POLICIES as MANAGED
from .sampling import GOAL
from .studies import CORES, JAIN_LEAST, LIMIT_US, ONE_LOOP_LOAD, POLICIES


def draw(document: dict[str, Any]) -> Canvas:
    """From the left: p99.9 against load, policies by colour, cores by line style; p99.9 against cores behind one loop;
    cores held against the interval; latency of the machine and of the simulator on the same requests; p99.9 of the
    slowdown against load, quanta by colour; the largest load for a goal against the cost of a preemption; p99 and batch
    work of an iokernel and of the simulator, if that was measured."""
    rows = document["arms"]
    points = [r for r in rows if "policy" in r and "loops" not in r]
    managed = [r for r in rows if "under" in r]
    canvas = Canvas(
        "sim: policies, cores and the price of deciding rarely",
        message=document["settings"]["message"],
        n=sum(int(r["n"]) for r in rows if "under" not in r),
        panels=8 if managed else 6,
        rows=2,
        size=(26.0, 21.0) if managed else (20.0, 21.0),
    )
    lines = [*STYLES.values(), ("-.", "D")]
    for i, policy in enumerate(POLICIES):
        for j, cores in enumerate(CORES):
            mine = [r for r in points if r["policy"] == policy and r["cores"] == cores]
            _draw_tails(canvas, mine, "load", label=f"{policy}, {cores}", colour=i, line=lines[j])
    canvas.axes[0].set_yscale("log")
    canvas.axes[0].set_xlabel("load, on 4 to 256 cores (share of all cores)")
    canvas.axes[0].set_ylabel("p99.9 latency (us)")
    _draw_one_loop(canvas, [r for r in rows if "policy" in r and "loops" in r])
    _draw_intervals(canvas, [r for r in rows if "interval_us" in r])
    between = tuple(f"{policy}, {cores} cores" for policy in POLICIES for cores in CORES[1:-1])
    for arm, why in document["settings"]["stops"].items():
        if arm not in between and quantum.LOG_NORMAL not in arm:  # those are in the document
            canvas.caption(f"{arm}: {why}.")
    canvas.caption("A curve ends at the load that is said above, else at the last one that was tried.")
    canvas.caption(
        f"First and second: bars are one standard error; hollow: not known to {100 * GOAL:g} %, or not carried, with "
        "no steady tail."
    )
    jains = [
        f"{policy} {', '.join(f'{value:.4f} ({kind})' for kind, value in least.items())}"
        for policy, least in document["settings"]["least_jain"].items()
    ]
    canvas.caption(
        "Jain's index of equal applications' core time, the least of all points that are carried and in which they "
        f"held {100 * JAIN_LEAST:g} % of the cores: {'; '.join(jains)}."
    )
    _draw_box(canvas, [r for r in rows if "servers" in r])
    _draw_slowdowns(canvas, [r for r in rows if "p99_slowdown" in r and r["workload"] == quantum.BIMODAL])
    _draw_goal(canvas, [r for r in rows if "load_for_goal" in r])
    if managed:
        _draw_managed(canvas, managed)
    return canvas


def _draw_tails(
    canvas: Canvas,
    rows: list[dict[str, Any]],
    along: str,
    what: str = "p999_us",
    *,
    label: str,
    colour: int,
    line: tuple[str, str] = ("-", "o"),
    panel: int = 0,
) -> None:
    """p99.9 with bars of one standard error; hollow where it is not known to GOAL."""
    kept = [r for r in rows if math.isfinite(number(r[what]))]
    if not kept:
        return
    x, y = [float(r[along]) for r in kept], [number(r[what]) for r in kept]
    canvas.curve(x, y, label=label, colour=colour, style=line[0], marker=line[1], panel=panel)
    error = [at * min(number(r["p999_error"]), 0.9) for r, at in zip(kept, y, strict=True)]
    sure = [bool(r["known"]) for r in kept]
    canvas.error_bars(x, y, error, sure, colour=colour, marker=line[1], panel=panel)


def _draw_one_loop(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    """p99.9 against cores for each policy."""
    for i, policy in enumerate(POLICIES):
        mine = [r for r in rows if r["policy"] == policy]
        _draw_tails(canvas, mine, "cores", label=f"{policy}, one loop", colour=i, panel=1)
    canvas.axes[1].set_xscale("log")
    canvas.axes[1].set_yscale("log")
    canvas.axes[1].set_xlabel(f"cores at load {ONE_LOOP_LOAD:g}, one iokernel loop (cores)")
    canvas.axes[1].set_ylabel("p99.9 latency (us)")


def _draw_intervals(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    """Cores held and worked against the interval, for steady and for shifting load; hollow where it is not known."""
    for i, arrivals in enumerate(ARRIVALS):
        mine = [r for r in rows if r["arrivals"] == arrivals]
        x, held = [float(r["interval_us"]) for r in mine], [float(r["cores_held"]) for r in mine]
        canvas.curve(x, held, label=f"cores held, {arrivals} load", colour=i, panel=2)
        canvas.error_bars(x, held, [0.0] * len(x), [bool(r["known"]) for r in mine], colour=i, panel=2)
        worked = [float(r["cores_worked"]) for r in mine]
        label = f"cores' worth of work, {arrivals} load"
        canvas.curve(x, worked, label=label, colour=i, style="--", marker="s", panel=2)
    canvas.axes[2].set_xscale("log")
    canvas.axes[2].set_ylim(bottom=0)
    canvas.axes[2].set_xlabel("time between decisions (us)")
    canvas.axes[2].set_ylabel(f"cores of {INTERVAL_CORES} (cores)")
    canvas.caption(
        f"Third: least headroom that keeps p99.9 under {LIMIT_US:g} us at {100 * LOAD:g} % load, log-normal service; "
        f"steady: Poisson arrivals; shifting: their rate is {1 + SWING:g} and {1 - SWING:g} times the mean in turns of "
        f"{PHASE_NS / 1e3:g} us on average. Hollow: that headroom, or one core less, is not known well enough."
    )


def _draw_box(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    """p50 and p90 of the machine (markers) and the simulator (lines) against load."""
    axes = canvas.axes[3]
    for i, servers in enumerate(sorted({r["servers"] for r in rows})):
        mine = [r for r in rows if r["servers"] == servers]
        for j, p in enumerate((50, 90)):
            colour = 2 * i + j
            x = [r["load"] for r in mine]
            name = f"p{p}, {servers} core{'s' if servers > 1 else ''}"
            canvas.curve(x, [r[f"model_p{p}_us"] for r in mine], label=f"simulator {name}", colour=colour, panel=3)
            y = [r[f"box_p{p}_us"] for r in mine]
            canvas.curve(x, y, label=f"machine {name}", colour=colour, style=" ", marker="x", panel=3)
    axes.set_yscale("log")
    axes.set_xlabel("load (share of the cores)")
    axes.set_ylabel("latency (us)")
    canvas.caption("Fourth: crosses are this machine on the same requests, exponential service of 20 us.")


def _draw_slowdowns(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    """p99.9 of the slowdown against load, quanta by colour and cores by line style, and the goal."""
    axes, lines = canvas.axes[4], list(STYLES.values())
    for i, quantum_us in enumerate(quantum.QUANTA_US):
        for j, cores in enumerate(sorted({r["cores"] for r in rows})):
            mine = [r for r in rows if r["quantum_us"] == quantum_us and r["cores"] == cores]
            label = f"{f'quantum {quantum_us} us' if quantum_us else 'no quantum'}, {cores}"
            _draw_tails(canvas, mine, "load", "p999_slowdown", label=label, colour=i, line=lines[j], panel=4)
    axes.axhline(quantum.GOAL, color="#999999", linestyle="--", linewidth=1.2, label="goal")
    axes.set_yscale("log")
    axes.set_xlabel("load, on 16 and 64 cores (share of all cores)")
    axes.set_ylabel("p99.9 of latency over length (x)")
    canvas.caption(
        f"Fifth: {quantum.BIMODAL}: 0.5 us, 0.5 % of the requests 500 us; a preemption takes {quantum.PROBE_US} us, "
        "one queue for all cores; hollow as in the first."
    )


def _draw_goal(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    """The largest load that meets the goal against the cost of a preemption, quanta by colour, workloads by style; a
    horizontal line is that without a quantum."""
    axes, lines = canvas.axes[5], list(STYLES.values())
    rows = [r for r in rows if r["central"] and r["cores"] == quantum.CORES[0]]
    for j, workload in enumerate(quantum.WHAT_IF):
        for i, quantum_us in enumerate(quantum.QUANTA_US):
            mine = [r for r in rows if r["workload"] == workload and r["quantum_us"] == quantum_us]
            y = [r["load_for_goal"] for r in mine]
            if quantum_us:
                x, label = [r["preempt_us"] for r in mine], f"quantum {quantum_us} us, {workload}"
            else:
                x, y, label = [min(quantum.COSTS_US), max(quantum.COSTS_US)], y * 2, f"no quantum, {workload}"
            canvas.curve(x, y, label=label, colour=i, style=lines[j][0], marker=lines[j][1], panel=5)
    axes.set_xlabel("what a preemption takes of a core (us)")
    axes.set_ylabel("largest load that meets the goal (share)")
    canvas.caption(
        f"Sixth: the goal is a p99.9 slowdown of {quantum.GOAL:g}; {quantum.CORES[0]} cores, one queue; loads in steps "
        f"of {quantum.LOADS[1] - quantum.LOADS[0]:g}."
    )


def _draw_managed(canvas: Canvas, rows: list[dict[str, Any]]) -> None:
    """p99 and the jobs' share of the worker cores against load by policy: iokernel (crosses), simulator (lines)."""
    for panel, measure, unit in ((6, "p99_us", "p99 latency"), (7, "batch_share", "batch work")):
        for i, policy in enumerate(MANAGED):
            mine = [r for r in rows if r["under"] == policy]
            if not mine:  # left out, which is said below all
                continue
            for side, style, marker in (("model", "-", "o"), ("box", " ", "x")):
                label = f"{'simulator' if side == 'model' else 'iokernel'}, {policy}"
                kept = [(100 * r["load"], number(r[f"{side}_{measure}"])) for r in mine]
                kept = [(x, y) for x, y in kept if math.isfinite(y)]
                if kept:
                    x, y = zip(*kept, strict=True)
                    canvas.curve(x, y, label=label, colour=i, style=style, marker=marker, panel=panel)
                else:
                    canvas.caption(f"{label}: every {unit} is infinite, or no request was served.")
        canvas.axes[panel].set_xlabel("load (% of the worker cores)")
        canvas.axes[panel].set_ylabel(f"{unit} ({'us' if panel == 6 else 'of what the jobs do alone'})")
    canvas.axes[6].set_yscale("log")
    requests = sum(int(r["n"]) for r in rows)
    canvas.caption(
        f"Seventh and eighth: an iokernel with {rows[0]['workers']} worker core{'s' * (rows[0]['workers'] > 1)}, "
        f"requests of 8 us (10 %: 28 us) and a batch job, beside the simulator with costs measured by themselves; n = "
        f"{requests:,}, p99 is the median of windows of 10 ms. Crosses are the machine."
    )
