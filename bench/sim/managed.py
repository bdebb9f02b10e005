"""The machine's side of a check of the simulator: an iokernel that moves worker cores between the spin application and
batch jobs under a policy, what its mechanisms cost, and what requests and jobs saw.

Costs are measured by themselves, none by what is then compared (`costing`): the steps of moves from the iokernel's log,
its own time for a decision, and what a request costs from further runs: alone and seldom (the way there and back),
alone and in overload (what of it is on the worker core), and seldom on a core whose owner has parked, and on one that
a job had.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...drivers.nic.loadgen.loadgen import Echo, Phase, Result
from ...iokernel.control.moves import SEEN, SIGHT, WORD, Move
from ..handoff import moves as log
from ..harness import rig
from ..tenant import shared
from .model import Bimodal, Costs, Distribution

SHORT_NS, LONG_NS, LONG_SHARE = 8_000.0, 28_000.0, 0.1
MEAN_NS = (1 - LONG_SHARE) * SHORT_NS + LONG_SHARE * LONG_NS
WINDOW_S = 0.01
EDGE_S = 0.01  # of load before and after what is measured
PORT = 9001
INTERVAL_NS, URGENT_NS = 5000, 1000  # of the iokernel
SELDOM_RPS = 5_000.0
OVERLOAD = 1.5
SPINS = ("--spin-us", str(rig.SPIN_US))  # where nobody else wants the core


@dataclass
class Slot:
    """What a turn of load saw. p50_us, p99_us: of each window; jobs_per_s: units of all jobs together."""

    p50_us: list[float]
    p99_us: list[float]
    short_p50_us: float
    requests: int
    achieved_rps: float
    jobs_per_s: float
    moves_per_s: float
    log: list[Move]


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

    def slot(self, policy: str, rate: float, seconds: float, jobs: bool = True) -> Slot:
        """So many requests a second for so long under a policy, beside the jobs or alone. rate 0: the jobs alone."""
        with self.made.working(self._jobs if jobs else (), policy):
            self.made.moves()
            if rate:
                self._begin(rate, seconds)
            done, counted, began = self._work(), self.made.counts(), time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - began
            work, moves = self._work() - done, self.made.counts()["moves"] - counted["moves"]
            result = self._end() if rate else None
            entries = self.made.moves()
        windows = [w for w in result.windows or [result] if w.latency.count] if result else []
        return Slot(
            [w.percentile_us(50) for w in windows],
            [w.percentile_us(99) for w in windows],
            result.short.percentile_us(50) if result and result.short else float("nan"),
            result.sent if result else 0,
            result.achieved_rps if result else 0.0,
            work / took,
            moves / took,
            entries,
        )

    def _begin(self, rate: float, seconds: float) -> None:
        """Load that is measured for `seconds`, from now or a moment ago, and goes on a little beyond."""
        windows = max(1, round(seconds / WINDOW_S))
        edge = Phase(EDGE_S, rate, measured=False)
        phases = [Phase(seconds / windows, rate, series=i) for i in range(1, windows + 1)]
        self.made.generator.start([edge, *phases, edge])
        shared.await_begin(self.made.generator)
        time.sleep(EDGE_S)

    def _end(self) -> Result:
        self.made.generator.wait()
        time.sleep(shared.SETTLE_S)  # moves under way end
        return self.made.generator.result()

    def _work(self) -> int:
        return sum(job.work for job in self._jobs)


@dataclass(frozen=True)
class Calibration:
    """What the mechanisms of this machine cost, ns (medians). request_ns: of the worker core for a request besides its
    service."""

    costs: Costs
    request_ns: float

    @property
    def service(self) -> Distribution:
        """Time on the worker core of a request."""
        return Bimodal(SHORT_NS + self.request_ns, LONG_NS + self.request_ns, LONG_SHARE)

    def rows(self) -> dict[str, float]:
        """Costs by name, for the document."""
        costs = {k: v for k, v in vars(self.costs).items() if v and k != "pauses_ns"}
        pauses = self.costs.pauses_ns
        return {"request_ns": self.request_ns} | costs | ({"pause_mean_ns": statistics.fmean(pauses)} if pauses else {})


def costing(moved: Box, kept: Box) -> dict[str, Callable[[float], Slot]]:
    """Runs from which costs are made, each of so many seconds; see `calibrate`.

    moved: a box of one worker that policies move; kept: one of which `static` moves none.
    """
    return {
        "alone": lambda s: kept.slot("static", SELDOM_RPS, s, jobs=False),
        "full": lambda s: kept.slot("static", OVERLOAD / MEAN_NS * 1e9, s, jobs=False),
        "parked": lambda s: kept.slot("static", SELDOM_RPS, s),
        "taken": lambda s: moved.slot("shenango", SELDOM_RPS, s),
    }


def calibrate(slots: Mapping[str, Sequence[Slot]], decision_ns: float, stalled: float) -> Calibration:
    """Costs, from the slots of all rounds by the runs of `costing`.

    Steps are the medians of the moves of all slots, the others of the slots', the lower one of two. decision_ns: of the
    loop. stalled: part of the time that the machine kept the worker core for itself.
    """

    def middle(run: str, of: Callable[[Slot], float]) -> float:
        values = [value for value in map(of, slots[run]) if math.isfinite(value)]
        return statistics.median_low(values) if values else 0.0

    def way(run: str) -> float:
        return middle(run, lambda slot: slot.short_p50_us * 1e3 - SHORT_NS)

    step = moved_steps([slot.log for slot in slots["taken"]])
    each_ns = middle("full", lambda slot: 1e9 / max(slot.achieved_rps, 1.0))
    request_ns = max((1 - stalled) * each_ns - MEAN_NS, 0.0)
    alone_ns = way("alone")
    costs = Costs(
        move_busy_ns=round(step["ask"]),
        move_idle_ns=round(step["back"]),
        seen_ns=round(step["seen"]),
        sight_ns=round(step["sight"]),
        notice_ns=round(step["notice"]),
        decide_ns=round(decision_ns / 2),
        transit_ns=round(max(alone_ns - request_ns, 0.0)),
        wake_ns=round(max(way("parked") - alone_ns, 0.0)),
        first_ns=round(max(way("taken") - alone_ns - step["ask"] - step["notice"] - decision_ns, 0.0)),
    )
    return Calibration(costs, request_ns)


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
