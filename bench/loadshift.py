"""Load shift: the load jumps tenfold and back from one request to the next; what happens in the 100 us windows around.

A batch job shares the worker core with the spin application, whose requests take a microsecond. Before a jump the job
has nearly all of the core, after it the server needs a good part: how soon does the core follow, and what does the tail
see?
Arms: corelane with the policies `delay` and `shenango`, where the server is guaranteed nothing; `static`, where the
core is guaranteed to it, so that it has it all the time and the job none; and the same server behind a kernel socket
with the job under SCHED_IDLE.

The same shift is repeated in runs of eight, the arms in turns, for as long as there is time (rows have `shifts`). The
requests of a window in all shifts of a run share a histogram, and a window's percentile is the median of its runs',
with their quartiles beside it: so a pause of the machine, which takes a core for milliseconds some times a second,
spoils the windows that it falls in of one run and not the curve. At the low load a window of a run has a dozen
requests, and its p99 is the longest of them. The schedule is drawn beforehand, as always: a request that is late in a
window is charged to it, and one that is not answered is infinite.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..apps.spin import Options as SpinOptions
from ..apps.spin import Spin
from ..drivers.linux import netns
from ..drivers.nic.loadgen.loadgen import Echo, Loadgen, Phase
from ..drivers.nic.loadgen.runs import Latency
from ..iokernel import UserConfig
from .baseline.sockets import LinuxUdp
from .harness import rest, rig
from .harness.numbers import percentile, plain
from .harness.plot import Canvas
from .harness.session import Session
from .tenant import shared
from .tenant.tenant import Tenant

SUMMARY = "the load jumps tenfold and back within a microsecond: the tail in windows of 100 us around the jumps"
FIGURES: tuple[str, ...] = ()

SERVICE_US = 1.0
LOW_RPS, HIGH_RPS = 15_000.0, 150_000.0  # what a server on a kernel socket carries as well
WINDOW_S = 100e-6
BEFORE, DURING, AFTER = 5, 20, 15  # windows: at the low load, at the high one, at the low one again
PAUSE_S = 2e-3  # at the low load, not measured: from one shift to the next
RUN_SHIFTS = (
    8  # of a run: 120 requests of a window at the high load; more shifts a run, and pauses spoil more of the runs
)
RUN_COSTS_S = 0.06  # what starting and ending one takes
ROUNDS, ROUNDS_LEAST = 11, 3
CANARY_S = 0.03
SETTLED_US = 50.0  # a p99 up to this: the server has the core that its load needs
PORT = 9001
LINUX = "Linux, batch under SCHED_IDLE"


@dataclass
class Windows:
    """What the shifts of an arm came to: the latencies of each run by window, and counts."""

    runs: list[dict[int, Latency]] = field(default_factory=list)
    sent: int = 0
    answered: int = 0
    late: int = 0
    shifts: int = 0
    work: float = 0.0  # units of the job
    seconds: float = 0.0

    def add(self, generator: Loadgen, shifts: int, work: int, seconds: float) -> None:
        """Add the run that the generator has just ended."""
        self.runs.append(generator.series())
        for result in generator.results():
            self.sent += result.sent
            self.answered += result.answered
            self.late += result.late
        self.shifts += shifts
        self.work += work
        self.seconds += seconds

    def percentiles_us(self, percent: float) -> list[list[float]]:
        """Of each window in order: the runs' values, ascending, without those in which it had no request."""
        found = []
        for number in sorted(self.runs[0]) if self.runs else ():
            values = sorted(run[number].percentile_us(percent) for run in self.runs if number in run)
            found.append([value for value in values if not math.isnan(value)])
        return found

    def requests(self) -> list[int]:
        """Of each window in order, in all runs."""
        return [sum(run[number].count for run in self.runs) for number in sorted(self.runs[0])] if self.runs else []


Arm = Callable[[Windows, float], None]  # (where to add to, seconds)


def schedule(shifts: int) -> list[Phase]:
    """So many shifts. Window i has series i + 1; window BEFORE is the first at the high load."""
    rates = [LOW_RPS] * BEFORE + [HIGH_RPS] * DURING + [LOW_RPS] * AFTER
    one = [Phase(PAUSE_S, LOW_RPS, measured=False)]
    one += [Phase(WINDOW_S, rate, series=i) for i, rate in enumerate(rates, 1)]
    return one * shifts


def shift_s() -> float:
    """How long one takes."""
    return sum(phase.seconds for phase in schedule(1))


def run(session: Session) -> None:
    """Measure all arms in turns."""
    cores = session.two_cores
    session.settings |= {
        "message": f"one request of 22 bytes that takes {SERVICE_US:g} us, and its reply",
        "low_rps": LOW_RPS,
        "high_rps": HIGH_RPS,
        "window_us": WINDOW_S * 1e6,
        "settled_us": SETTLED_US,
        "windows_before_during_after": [BEFORE, DURING, AFTER],
        "job": "products of two 32 by 32 matrices of doubles",
        "series": {"along": "window_start_us", "of": ["window_p50_us", "window_p99_us"]},
        "checksums": rig.CHECKSUMS,
    }
    with contextlib.ExitStack() as stack:
        ours = Ours(stack, cores)
        arms: dict[str, Arm] = {
            "delay": partial(ours.shift, "delay", 0),
            "shenango": partial(ours.shift, "shenango", 0),
            "static": partial(ours.shift, "static", 1),
        }
        add_linux(session, arms, stack, cores)
        arm_s, run_s = 0.85 * session.seconds / len(arms), RUN_SHIFTS * shift_s() + RUN_COSTS_S
        rounds = min(ROUNDS, max(ROUNDS_LEAST, int(arm_s / run_s)))
        bodies = {name: partial(slot, arm, arm_s / rounds) for name, arm in arms.items()}
        got = session.interleave(bodies, rounds, CANARY_S)
    for name, slots in got.items():
        add_rows(session, name, together(slots))


def slot(arm: Arm, seconds: float) -> Windows:
    """What an arm comes to in a round."""
    windows = Windows()
    arm(windows, seconds)
    return windows


def together(slots: Sequence[Windows]) -> Windows:
    """All rounds of an arm."""
    out = Windows()
    for one in slots:
        out.runs += one.runs
        out.sent += one.sent
        out.answered += one.answered
        out.late += one.late
        out.shifts += one.shifts
        out.work += one.work
        out.seconds += one.seconds
    return out


def play(generator: Loadgen, job: Tenant, into: Windows, seconds: float) -> None:
    """Runs for about so long: one at least, a short one where there is no time for RUN_SHIFTS."""
    runs = max(1, round(seconds / (RUN_SHIFTS * shift_s() + RUN_COSTS_S)))
    shifts = RUN_SHIFTS if runs > 1 else min(RUN_SHIFTS, max(1, round((seconds - RUN_COSTS_S) / shift_s())))
    for _ in range(runs):
        generator.start(schedule(shifts))
        shared.await_begin(generator)  # what the job does before, it does beside no load
        before, began = job.work, time.monotonic()
        time.sleep(shifts * shift_s())
        work, took = job.work - before, time.monotonic() - began
        generator.wait()
        into.add(generator, shifts, work, took)


class Ours:
    """The iokernel with the server and the job. For `static`, the server is one that is guaranteed the core: it is
    started anew when the guarantee changes, since under the other policies it has to earn the core by its load."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, int]) -> None:
        apps = {"spin": shared.latency(), "batch": shared.batch()}
        may = UserConfig(guaranteed_cores=1)
        made = shared.shared(cores, apps=apps, user_defaults=may, traffic=traffic(), port=PORT)
        self.made = stack.enter_context(made)
        self.job = self.made.tenant("batch", "batch", paused=True)
        self._server: rig.App | None = None
        self._guaranteed = 0

    def shift(self, policy: str, guaranteed: int, into: Windows, seconds: float) -> None:
        """Shifts under a policy, the server with so many guaranteed cores."""
        self._serve(guaranteed)
        with self.made.working([self.job], policy):
            play(self.made.generator, self.job, into, seconds)

    def _serve(self, guaranteed: int) -> None:
        if self._server is not None and self._guaranteed != guaranteed:
            self._server.close()
            self._server = None
        if self._server is None:
            words = ["spin", "--option", "distribution=request", "--guaranteed", str(guaranteed)]
            self._server, self._guaranteed = self.made.run(words, "spin"), guaranteed


def traffic() -> Echo:
    """Requests that say how long they take."""
    return Echo(service_us=SERVICE_US)


def add_linux(session: Session, arms: dict[str, Arm], stack: contextlib.ExitStack, cores: tuple[int, int]) -> None:
    """The arm on Linux, or why there is none."""
    why = None if session.baseline else "--no-baseline was given"
    why = why or netns.missing()
    if why:
        session.skip(LINUX, why)
        return
    link = rig.LinuxLink(stack, cores, traffic=traffic(), port=PORT)
    spin = Spin(SpinOptions(distribution="request"))
    stack.callback(spin.close)
    where = {"address": link.far.address, "port": PORT, "netns": link.far.namespace.name}
    server = LinuxUdp(poll="block", batch=32, cpu=cores[1], spin=spin, **where)  # type: ignore[arg-type]
    stack.enter_context(server)
    job = stack.enter_context(Tenant("batch", cpu=cores[1], policy="idle", paused=True))

    def shift(into: Windows, seconds: float) -> None:
        rest.demand(LINUX)
        with job.working():
            play(link.generator, job, into, seconds)

    arms[LINUX] = shift


def add_rows(session: Session, name: str, windows: Windows) -> None:
    """One row an arm, with the windows as lists: the time of each, the medians of its runs' p50 and p99, the quartiles
    of the p99, and how many requests it had."""
    by_run = {percent: windows.percentiles_us(percent) for percent in (50, 99)}
    p50, p99 = ([percentile(values, 0.5) for values in by_run[percent]] for percent in (50, 99))
    session.arm(
        name,
        shifts=windows.shifts,
        runs=len(windows.runs),
        sent=windows.sent,
        answered=windows.answered,
        late=windows.late,
        work_per_s=windows.work / windows.seconds if windows.seconds else None,
        p99_before_us=plain(_worst(p99[:BEFORE])),
        p99_first_window_us=plain(p99[BEFORE]) if len(p99) > BEFORE else None,
        p99_worst_us=plain(_worst(p99)),
        high_windows_over_settled=over_settled(p99),
        low_window_requests=min(windows.requests()[:BEFORE], default=0),
        high_window_requests=min(windows.requests()[BEFORE : BEFORE + DURING], default=0),
        window_start_us=[(number - BEFORE) * WINDOW_S * 1e6 for number in range(len(p99))],
        window_p50_us=[plain(v) for v in p50],
        window_p99_us=[plain(v) for v in p99],
        window_p99_lower_us=[plain(percentile(values, 0.25)) for values in by_run[99]],
        window_p99_upper_us=[plain(percentile(values, 0.75)) for values in by_run[99]],
        window_requests=windows.requests(),
    )


def _worst(values: Sequence[float]) -> float:
    return max((v for v in values if not math.isnan(v)), default=math.nan)


def over_settled(p99_us: Sequence[float]) -> int | None:
    """Of the windows at the high load: those whose p99 is above SETTLED_US, one bound for all arms. None: there are not
    as many windows."""
    high = p99_us[BEFORE : BEFORE + DURING]
    return sum(value > SETTLED_US for value in high) if len(high) == DURING else None


def plot(document: dict[str, Any]) -> Canvas:
    """p99 and p50 by window."""
    arms: Sequence[Mapping[str, Any]] = document["arms"]
    canvas = Canvas(
        f"loadshift: {LOW_RPS:,.0f} to {HIGH_RPS:,.0f} requests/s and back, a batch job on the same core",
        message=document["settings"]["message"],
        n=sum(int(a["sent"]) for a in arms),
        panels=2,
        size=(13, 6.5),
    )
    for panel, key in enumerate(("p99", "p50")):
        for i, arm in enumerate(arms):
            values = [math.nan if v is None else float(v) for v in arm[f"window_{key}_us"]]
            if not any(map(math.isfinite, values)):
                canvas.caption(f"{arm['name']}: every {key} is infinite.")
                continue
            middle = [at + WINDOW_S * 0.5e6 for at in arm["window_start_us"]]
            canvas.curve(middle, values, label=str(arm["name"]), colour=i, panel=panel)
            if key == "p99":
                canvas.band(middle, arm["window_p99_lower_us"], arm["window_p99_upper_us"], colour=i, panel=panel)
        axis = canvas.axes[panel]
        axis.axvline(0, color="#999999", linestyle="--", linewidth=1.2, label="the load goes up")
        down = DURING * WINDOW_S * 1e6
        axis.axvline(down, color="#999999", linestyle=":", linewidth=1.2, label="and down again")
        axis.set_yscale("log")
        axis.set_xlabel("time since the jump, windows of 100 us (us)")
        axis.set_ylabel(f"{key} of the window's requests, median of the runs (us)")
    shifts = ", ".join(f"{a['name']}: {a['shifts']} in {a['runs']} runs" for a in arms)
    canvas.caption(
        f"Shifts: {shifts}. Bands are quartiles of the runs. The curves end at the next pause at the low load."
    )
    return canvas
