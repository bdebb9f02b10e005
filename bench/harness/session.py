"""One run of one benchmark, by the rules.

    with Session("ring", seconds=5) as s:
        rates = s.interleave({"ours": one_round, "theirs": other_round}, rounds=5)   # A B A B, canary in between
        s.arm("ours", rate=median(rates["ours"]))
        s.ratio_figure("ring.something", rates["ours"], rates["theirs"])             # pair by pair
    document = s.document()

A session holds the power setting for all arms, measures the cache-line round trip between its cores at both ends, and
takes the canary on them. Progress goes to stderr; nothing else is printed here.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TextIO, TypeVar

from ...runtime.errors import CorelaneError
from ...runtime.placement import choose
from ...runtime.topology import Topology
from . import document as doc
from . import machine, rest
from .goals import GOALS
from .jitter import LOST_MOST, Canary, Gaps, together, watch, worst
from .numbers import Ratio, number, pairwise, plain_all
from .openloop import Curve, Measure, Point, sweep_in_turns
from .patience import LOOK_S, Patience
from .power import ShallowIdle
from .stops import Stop

T = TypeVar("T")
ASLEEP_S = 1.0  # for what was measured last to fall asleep: it polls on for some ms, and may have a backlog
DISTURBED = "the canary had company"


def choose_cores(wanted: Sequence[int] | None) -> tuple[int, ...]:
    """The cores to measure on: those given, else the two that an iokernel and its application would be given.

    CorelaneError if a given one is not allowed. One core only if there is no second.
    """
    allowed = machine.allowed_cpus()
    if not wanted:
        plan = choose(Topology.read(), kthreads=1)
        return tuple(dict.fromkeys((*plan.iokernel[:1], *plan.kthreads[:1])))
    for cpu in wanted:
        if cpu not in allowed:
            raise CorelaneError(f"core {cpu} may not be used by this process: choose from {allowed} with --cores")
    return tuple(wanted)


class Session:
    """State of a run. Public attributes: name, seconds, cores, baseline, options, settings, arms, stops,
    stops_because."""

    def __init__(
        self,
        name: str,
        *,
        seconds: float = 10.0,
        cores: Sequence[int] | None = None,
        baseline: bool = True,
        options: argparse.Namespace | None = None,
        shallow_idle: bool = True,
        patient: float = 0.0,
        progress: TextIO | None = None,
    ) -> None:
        self.name = name
        self.seconds = seconds
        self.cores = choose_cores(cores)
        self.baseline = baseline
        self.options = options or argparse.Namespace()
        self.settings: dict[str, Any] = {}
        self.arms: list[dict[str, Any]] = []
        self.figures: dict[str, dict[str, Any]] = {}
        self.stops: dict[str, str] = {}
        self.stops_because: dict[str, dict[str, Any]] = {}
        self.skipped: dict[str, str] = {}
        self.notes: list[str] = []
        self.tables: list[dict[str, Any]] = []
        self.canary = Canary(self.cores)
        self.patience = Patience(patient)
        self.cacheline_ns: list[float] = []
        self._power = ShallowIdle(wanted=shallow_idle)
        self._progress = sys.stderr if progress is None else progress
        self._machine: dict[str, Any] = {}
        self._affinity: set[int] = set()
        self._started = time.monotonic()
        self._stolen_at_start = machine.steal_seconds()

    @property
    def two_cores(self) -> tuple[int, int]:
        """The first two cores; CorelaneError if there is only one."""
        if len(self.cores) < 2:
            raise CorelaneError("this benchmark needs two cores and this process may use one: allow it a second one")
        return self.cores[0], self.cores[1]

    def __enter__(self) -> Session:
        self._affinity = os.sched_getaffinity(0)
        self._power.__enter__()
        self._machine = machine.describe(self.cores)
        self.measure_cacheline()
        self.take_canary()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        try:
            if kind is None:
                self.take_canary()
                self.measure_cacheline()
        finally:
            self._power.close()
            os.sched_setaffinity(0, self._affinity)  # a benchmark may pin itself; the next one wants all cores

    def say(self, text: str) -> None:
        """Show progress."""
        elapsed = time.monotonic() - self._started
        print(f"  [{elapsed:5.1f} s] {self.name}: {text}", file=self._progress, flush=True)

    def take_canary(self, seconds: float | None = None) -> None:
        """One slice of the canary on all measured cores, now: a twentieth of the run, at most half a second.

        If something of ours does not sleep meanwhile, as it should, the notes say so, once."""
        self.canary.count(self._look(seconds))

    def _look(self, seconds: float | None, least_s: float = 0.0) -> list[Gaps]:
        """A slice that the canary has not counted."""
        busy = rest.awake(ASLEEP_S)
        if busy and not any(note.startswith(DISTURBED) for note in self.notes):
            self.note(f"{DISTURBED}: {busy}; its gaps are not the machine's alone")
        usual_s = min(max(self.seconds / 20, 0.01), 0.5)
        return watch(self.cores, max(usual_s if seconds is None else seconds, least_s))

    def measure_cacheline(self, seconds: float | None = None) -> float:
        """Measure the cache-line round trip between the first two cores now; its median in ns. 0 with one core.

        seconds: a fiftieth of the run, at most a tenth of a second, unless given.
        """
        if len(self.cores) < 2:
            return 0.0
        slice_s = min(max(self.seconds / 50, 0.01), 0.1) if seconds is None else seconds
        values = machine.cacheline_roundtrip_ns(*self.two_cores, seconds=slice_s)
        self.cacheline_ns.append(statistics.median(values))
        return self.cacheline_ns[-1]

    def interleave(
        self,
        arms: Mapping[str, Callable[[], T]],
        rounds: int = 5,
        canary_s: float | None = None,
        *,
        back_and_forth: bool = False,
    ) -> dict[str, list[T]]:
        """Run the arms A B .. A B .., `rounds` times, with a slice of the canary before each round.

        Returns what each arm returned, by arm, in the order of the rounds: value i of one arm pairs with value i of
        another. canary_s: length of a slice, if not the usual one (see `take_canary`). back_and_forth: A B .. B A, so
        that no arm always runs behind the same one. A patient session may return fewer rounds (see `rounds`).
        """

        def measure(i: int) -> dict[str, T]:
            found = {}
            for name in reversed(list(arms)) if back_and_forth and i % 2 else arms:
                self.say(f"round {i + 1} of {rounds}: {name}")
                found[name] = arms[name]()
            return found

        got = self.rounds(rounds, measure, canary_s)
        return {name: [one[name] for one in got] for name in arms}

    def rounds(self, count: int, measure: Callable[[int], T], canary_s: float | None = None) -> list[T]:
        """Call `measure` with the number of each round, from 0, with a slice of the canary before each.

        With --patient, loud rounds are measured again, and those that stay loud may be missing (see patience.py). So
        `measure` returns all that it finds, and adds nothing to what earlier rounds have found.
        """
        if self.patience:
            return self.patience.take(count, measure, lambda: self._look(canary_s, LOOK_S), self.canary)
        got = []
        for i in range(count):
            self.take_canary(canary_s)
            got.append(measure(i))
        return got

    def watched(self, measure: Callable[[], T], canary_s: float = LOOK_S) -> tuple[T, bool]:
        """What `measure` gives, and whether the machine was quiet: whether the canary, just before it and just after
        it, lost no more of a core than a run may lose. What it saw around what was not quiet is left out of the run's.
        """
        around = [self._look(canary_s)]
        value = measure()
        around.append(self._look(canary_s))
        quiet = worst(together(around)).lost_fraction <= LOST_MOST
        for gaps in around:
            self.canary.count(gaps, left_out=not quiet)
        return value, quiet

    def arm(self, arm: str, **values: Any) -> dict[str, Any]:
        """Add a row to "arms". Values are numbers, strings or lists; units are in their names."""
        row = {"name": arm, **values}
        self.arms.append(row)
        return row

    def point(self, arm: str, point: Point) -> dict[str, Any]:
        """Add a load point as a row of "arms"."""
        row = point.row(arm)
        self.arms.append(row)
        return row

    def curve(self, arm: str, curve: Curve) -> None:
        """Add a curve: a row a point, and why it stops."""
        for point in curve.points:
            self.point(arm, point)
        self.stop(arm, curve.stop, curve.because)

    def stop(self, arm: str, why: str, because: Stop) -> None:
        """Where an arm's curve stops and why, and the resource that is used up there, by counters (stops.py)."""
        self.stops[arm] = f"{why}: {because}"
        self.stops_because[arm] = because.document()

    def stop_uncounted(self, arm: str, why: str) -> None:
        """The same of what has no counters: a simulation, and servers that are others'."""
        self.stops[arm] = why

    def curves(
        self,
        arms: Mapping[str, Measure],
        peaks_rps: Mapping[str, float],
        *,
        seconds: float,
        fractions: Sequence[float] = (),
        explain: Mapping[str, Measure] | None = None,
    ) -> None:
        """Latency against load, each arm up to its own peak: all arms at a load, then at the next one.

        A slice of the canary before each load. seconds: for all arms together. An arm that carried no load is skipped.
        explain: of the arms whose counters can be read, Load.explain as a rule: it says why their curves stop.
        """
        carried = {name: measure for name, measure in arms.items() if peaks_rps[name] > 0}
        for name in arms:
            if name not in carried:
                self.skip(f"{name}, curve", "no load was carried")

        def before(number: int) -> None:
            self.take_canary(min(max(self.seconds / 100, 0.01), 0.1))
            self.say(f"latency against load, load {number}: {', '.join(carried)}")

        if carried:
            swept = sweep_in_turns(
                carried, peaks_rps, seconds=seconds, fractions=fractions, before_load=before, explain=explain
            )
            for name, curve in swept.items():
                self.curve(name, curve)

    def skip(self, arm: str, reason: str) -> None:
        """Say that an arm was left out, and why."""
        self.skipped[arm] = reason
        self.say(f"skipped {arm}: {reason}")

    def note(self, text: str) -> None:
        """A sentence that belongs beside the result: what bounded it, what it does not cover."""
        self.notes.append(text)

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Values of several arms that are to be read beside each other: a row each, its name first."""
        self.tables.append({"title": title, "head": list(head), "rows": [list(row) for row in rows]})

    def figure(
        self,
        name: str,
        value: float | None = None,
        *,
        runs: Sequence[float] = (),
        reason: str | None = None,
        undecided: str = "",
        beside: Mapping[str, float] | None = None,
    ) -> None:
        """Set a figure of goals.py, with the values of the single runs; or None with the reason why not.

        undecided: why the value is neither met nor missed, if so.
        beside: the same taken in another way, by its name, which a reader ought to see with it.
        """
        if name not in GOALS:
            raise KeyError(f"figure {name} is not declared in bench/harness/goals.py")
        if value is not None and not math.isfinite(value):
            value, reason = None, f"half of the runs or more gave {value}: requests stayed unanswered"
        self.figures[name] = doc.figure(name, value, [float(r) for r in runs], reason)
        if undecided and value is not None:
            self.figures[name] |= {"met": None, "reason": undecided}
            self.note(f"{name} is not judged: {undecided}")
        if beside:
            self.figures[name]["beside"] = dict(beside)

    def ratio_figure(
        self, name: str, above: Sequence[float], below: Sequence[float], *, beside: Mapping[str, float] | None = None
    ) -> Ratio:
        """Set a figure to the median of above[i] / below[i] over the rounds. beside: as of `figure`."""
        ratio = pairwise(above, below)
        self.figure(name, ratio.median, runs=ratio.pairs, beside=beside)
        return ratio

    def finish(self, figures: Sequence[str]) -> None:
        """Excuse every figure of `figures` that the run did not set, with the arms that it skipped as the reason."""
        why = "; ".join(f"{arm}: {reason}" for arm, reason in self.skipped.items()) or "the benchmark did not take it"
        for name in figures:
            if name not in self.figures:
                self.figure(name, None, reason=why)

    def document(self) -> dict[str, Any]:
        """The document of the run so far."""
        described = dict(self._machine or machine.describe(self.cores))
        described["cacheline_roundtrip_ns"] = (
            machine.summary(self.cacheline_ns) | {"cores": list(self.cores[:2])} if self.cacheline_ns else None
        )
        described["stolen_s"] = round(machine.steal_seconds() - self._stolen_at_start, 3)
        canary = self.canary.document()
        simulated = bool(self.settings.get("simulated"))
        in_virtual_time = all(GOALS[name].virtual for name in self.figures) if self.figures else simulated
        canary["loud"] = canary["loud"] and not in_virtual_time
        notes, patient = self.notes, {}
        if self.patience:
            notes, patient = [*notes, str(self.patience)], {"patient": self.patience.document()}
        settings = {
            "seconds": self.seconds,
            "power": self._power.state,
            "baseline": self.baseline,
            "stops": self.stops,
            "stops_because": self.stops_because,
            "skipped": self.skipped,
            "notes": notes,
            **({"tables": self.tables} if self.tables else {}),
            **patient,
            **self.settings,
        }
        whole = {
            "bench": self.name,
            "version": doc.corelane_version(),
            "machine": described,
            "settings": settings,
            "canary": canary,
            "arms": [self._marked(row) for row in self.arms],
            "figures": doc.judged(self.figures, canary),
        }
        out: dict[str, Any] = plain_all(whole)
        return out

    def _marked(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row with the percentiles that the canary alone explains: of what was modelled it explains none."""
        if row.get("modelled"):
            return row
        latencies = {
            k.removesuffix("_us"): number(v) for k, v in row.items() if k in ("p50_us", "p90_us", "p99_us", "p999_us")
        }
        return row | {"explained_by_canary": self.canary.explained(latencies)} if latencies else row
