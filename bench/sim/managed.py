"""The machine's side of a check of the simulator: an iokernel that moves worker cores between the spin application and
batch jobs under a policy, what its mechanisms cost, and what requests and jobs saw. The load is a recorded one, which
the generator replays.

Costs are measured by themselves at light load, none by what is then compared (`costing`): the steps of moves from the
iokernel's log, its own time for a decision, and what a request costs from further runs. Those are of single requests,
alone on the core (the way there and back), on a core whose owner has parked, and on one that a job had; and of short
trains of requests, alone (what each takes of the worker core, from one answer to the next).
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...drivers.nic.loadgen.loadgen import Echo, Replay
from ...iokernel.control.moves import SEEN, SIGHT, WORD, Move
from ..handoff import moves as log
from ..harness import rig
from ..tenant import shared
from .model import Bimodal, Costs
from .recorded import Recorded

SHORT_NS, LONG_NS, LONG_SHARE = 8_000.0, 28_000.0, 0.1
MEAN_NS = (1 - LONG_SHARE) * SHORT_NS + LONG_SHARE * LONG_NS
WINDOW_S = 0.01
PORT = 9001
INTERVAL_NS, URGENT_NS = 5000, 1000  # of the iokernel
SERVICE = Bimodal(SHORT_NS, LONG_NS, LONG_SHARE)
# Of the costs' runs: single requests, far enough apart to find no queue and near enough to find caches as warm as under
# load; or trains of TRAIN requests that come a little faster than they are served.
TRAIN, AHEAD_NS, SINGLES_NS, TRAINS_NS = 10, 500, 40_000, 160_000
SPINS = ("--spin-us", str(rig.SPIN_US))  # where nobody else wants the core


@dataclass
class Slot:
    """What became of a load. latency_ns: of each request, inf: it was not answered; loop_gaps: rows of when the
    iokernel's loop stood still and for how long, ns; jobs_per_s: units of all jobs together; crossing_ns: of a move
    between a job and the application, on average, as policies are told of it; 0: there was none.
    """

    load: Recorded
    latency_ns: Any
    loop_gaps: Any
    jobs_per_s: float
    moves_per_s: float
    log: list[Move]
    crossing_ns: float = 0.0

    @property
    def median_ns(self) -> float:
        return float(np.median(self.latency_ns)) if len(self.load) else math.nan

    def windows(self, latency_ns: Any, percent: float) -> list[float]:
        """A percentile of these latencies of its load in each window of WINDOW_S, us."""
        window = self.load.at_ns // round(WINDOW_S * 1e9)
        found = [latency_ns[window == one] for one in np.unique(window)]
        return [float(np.percentile(part, percent, method="higher")) / 1e3 for part in found]


class Box:
    """An iokernel on cores[0] that manages the others, the spin application with a kthread for each and as many batch
    jobs of one kthread. guaranteed: cores of the application, which `static` goes by."""

    def __init__(self, stack: contextlib.ExitStack, cores: tuple[int, ...], guaranteed: int) -> None:
        self.workers = len(cores) - 1
        names = [f"batch{i}" for i in range(self.workers)]
        apps = {"spin": shared.latency(guaranteed_cores=guaranteed)}
        apps |= {name: shared.batch(max_cores=1) for name in names}
        traffic = Echo(service_us=SHORT_NS / 1e3, long_us=LONG_NS / 1e3, long_fraction=LONG_SHARE)
        made = shared.shared(cores, apps=apps, policy=shared.BETWEEN, traffic=traffic, port=PORT)
        self.made = stack.enter_context(made)
        self.made.run(["spin", "--kthreads", str(self.workers), "--option", "distribution=request", *SPINS], "spin")
        self._jobs = [self.made.tenant("batch", name, paused=True) for name in names]

    def slot(self, policy: str, load: Recorded, jobs: bool = True) -> Slot:
        """The load under a policy, beside the jobs or alone."""
        with self.made.working(self._jobs if jobs else (), policy):
            self.made.moves()
            replay = Replay(load.at_ns, load.service_ns)
            self.made.generator.replay(replay)
            shared.await_begin(self.made.generator)
            before = self.made.counts()
            jobs_per_s, moves_per_s = self._counted(replay.seconds)
            crossing_ns = mean_crossing_ns(before, self.made.counts())
            self.made.generator.wait()
            time.sleep(shared.SETTLE_S)  # moves under way end
            entries = self.made.moves()
        answered = replay.answered_ns.astype(np.float64)
        latency = np.where(answered > 0, answered - load.at_ns, np.inf)
        gaps = np.stack(replay.gaps, axis=1).astype(np.int64)
        return Slot(load, latency, gaps, jobs_per_s, moves_per_s, entries, crossing_ns)

    def idle(self, policy: str, seconds: float) -> Slot:
        """The jobs alone."""
        with self.made.working(self._jobs, policy):
            jobs_per_s, moves_per_s = self._counted(seconds)
        return Slot(Recorded((), ()), np.empty(0), np.empty((0, 2), np.int64), jobs_per_s, moves_per_s, [])

    def _counted(self, seconds: float) -> tuple[float, float]:
        """Units of work and moves a second, for so long from now on."""
        done, counted, began = self._work(), self.made.counts()["moves"], time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        return (self._work() - done) / took, (self.made.counts()["moves"] - counted) / took

    def _work(self) -> int:
        return sum(job.work for job in self._jobs)


@dataclass(frozen=True)
class Calibration:
    """What the mechanisms of this machine cost, ns (medians). request_ns: of the worker core for a request besides its
    service."""

    costs: Costs
    request_ns: float

    def rows(self) -> dict[str, float]:
        """Costs by name, for the document."""
        return {"request_ns": self.request_ns} | {k: v for k, v in vars(self.costs).items() if v}


def mean_crossing_ns(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """Of the moves between two readings of the iokernel's counts; 0: there was none."""
    gained = {key: after[key] - before[key] for key in ("crossings", "crossing_ns")}
    return gained["crossing_ns"] / gained["crossings"] if gained["crossings"] else 0.0


def singles(seconds: float) -> Recorded:
    """Short requests, one at a time."""
    at = SINGLES_NS * np.arange(1, max(round(seconds * 1e9 / SINGLES_NS), 20) + 1)
    return Recorded(at, np.full(len(at), round(SHORT_NS)))


def trains(seconds: float) -> Recorded:
    """Short requests, TRAIN of them behind each other."""
    starts = TRAINS_NS * np.arange(1, max(round(seconds * 1e9 / TRAINS_NS), 20) + 1)
    at = (starts[:, None] + (round(SHORT_NS) - AHEAD_NS) * np.arange(TRAIN)).ravel()
    return Recorded(at, np.full(len(at), round(SHORT_NS)))


def costing(moved: Box, kept: Box) -> dict[str, Callable[[float], Slot]]:
    """Runs from which costs are made, each of so many seconds; see `calibrate`.

    moved: a box of one worker that policies move; kept: one of which `static` moves none.
    """
    return {
        "alone": lambda s: kept.slot("static", singles(s), jobs=False),
        "trains": lambda s: kept.slot("static", trains(s), jobs=False),
        "parked": lambda s: kept.slot("static", singles(s)),
        "taken": lambda s: moved.slot("shenango", singles(s)),
    }


def calibrate(slots: Mapping[str, Slot], decision_ns: float) -> Calibration:
    """Costs, from a slot of each run of `costing`: medians. decision_ns: of the loop."""

    def way(run: str) -> float:
        ns = slots[run].median_ns - SHORT_NS
        return ns if math.isfinite(ns) else 0.0

    step = moved_steps([slots["taken"].log])
    each_ns = each_of_train(slots["trains"])
    request_ns = max(each_ns - SHORT_NS, 0.0) if math.isfinite(each_ns) else 0.0
    alone_ns = way("alone")
    told_ns = (step["ask"] + step["back"]) / 2 + step["sight"]  # of a move there and one back
    costs = Costs(
        move_busy_ns=round(step["ask"]),
        move_idle_ns=round(step["back"]),
        seen_ns=round(step["seen"]),
        sight_ns=round(step["sight"]),
        longer_ns=round(max(slots["taken"].crossing_ns - told_ns, 0.0)),
        notice_ns=round(step["notice"]),
        decide_ns=round(decision_ns / 2),
        transit_ns=round(max(alone_ns - request_ns, 0.0)),
        wake_ns=round(max(way("parked") - alone_ns, 0.0)),
        first_ns=round(max(way("taken") - alone_ns - step["ask"] - step["notice"] - decision_ns, 0.0)),
    )
    return Calibration(costs, request_ns)


def each_of_train(slot: Slot) -> float:
    """ns from one answer to the next in a train, without the first, which find an idle core; median of the trains."""
    answered = (slot.load.at_ns + slot.latency_ns).reshape(-1, TRAIN)
    whole = answered[np.isfinite(answered).all(axis=1)]
    return float(np.median(whole[:, -1] - whole[:, 1])) / (TRAIN - 2) if len(whole) else math.nan


def moved_steps(logs: Sequence[Sequence[Move]]) -> dict[str, float]:
    """Median ns of one core's moves, of all logs together, by step; 0: there was none.

    "ask": of those that were asked for, "seen": of that until the old owner saw it, "sight": from its end until the
    loop did. "back": of those from an owner that had parked, "notice": from there to the decision.
    """
    asked = [pair for moves in logs for pair in log.pairs(moves, shared.STEPS["ask"])]
    back = [pair for moves in logs for pair in log.parked(moves)]
    steps = [one for one in (log.broken_down(*pair) for pair in asked) if one]
    noticed = [shared.tsc_ns((done.decided - done.left) % WORD) for _, done, _ in back if done.left and done.decided]
    found = {
        "ask": log.timed(asked, {})[0],
        "seen": [one[SEEN] for one in steps],
        "sight": [one[SIGHT] for one in steps],
        "back": log.timed(back, {})[0],
        "notice": [ns for ns in noticed if ns < 1e9],
    }
    return {name: statistics.median(ns) if ns else 0.0 for name, ns in found.items()}
