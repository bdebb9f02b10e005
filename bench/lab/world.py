"""A run of the laboratory: cores, costs, a load and a policy, and what became of each job.

ran = World(load, Machine(cores=64)).run(policy.load("fifo"))
ran.jobs["finish_ns"] - load.jobs["at_ns"]
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...runtime.errors import CorelaneError
from . import engine, loads
from . import state as st
from . import table as t
from .policy import Policy, known
from .watch import N_WATCHED

MOST_CORES, MOST_SEATS = 4096, 1024
MOST_COST_NS = 1_000_000_000
CALL_MOST_S = 10.0  # of a policy: longer, and it does not come back


@dataclass(frozen=True)
class Costs:
    """What changes cost, ns. switch_ns: a core that ran another job last; move_ns: on top, for a job that ran elsewhere
    before; loop_ns: on top, if that was in another loop; actuate_ns: of the loop, for each core given;
    decide_ns, look_ns: of the first loop, for a call, and for each job that is there; notice_ns: from an event to the
    call that it makes; late_ns: after its end a quantum is seen to be over, at most, drawn evenly."""

    switch_ns: int = 0
    move_ns: int = 0
    loop_ns: int = 0
    actuate_ns: int = 0
    decide_ns: int = 0
    look_ns: int = 0
    notice_ns: int = 0
    late_ns: int = 0


@dataclass(frozen=True)
class Machine:
    """cores: logical ones. speeds: of each, in turns; 1 is that of which a load's work is told. pairs: two and two are
    siblings, and each goes at pair_speed while both are in use. loops: of the iokernel, each with its part of the
    cores. seats: jobs that may share a core. capacity: of a loop for each of its cores: receive, transmit, memory,
    budget; (): without bounds."""

    cores: int
    speeds: tuple[float, ...] = (1.0,)
    pairs: bool = False
    pair_speed: float = 0.6
    loops: int = 1
    seats: int = 1
    capacity: tuple[float, ...] = ()
    costs: Costs = Costs()

    def __post_init__(self) -> None:
        for name, value, most in (("cores", self.cores, MOST_CORES), ("seats", self.seats, MOST_SEATS)):
            if not 1 <= value <= most:
                raise CorelaneError("simulate", f"{value} {name}", f"1 to {most}")
        if not 1 <= self.loops <= min(t.MAX_LOOPS, self.cores):
            raise CorelaneError("simulate", f"{self.loops} loops", f"1 to {min(t.MAX_LOOPS, self.cores)}")
        if not self.speeds or not all(0 < speed < math.inf for speed in self.speeds):
            raise CorelaneError("simulate", f"speeds {self.speeds}", "numbers above 0")
        if self.pairs and (self.cores % 2 or not 0 < self.pair_speed <= 1):
            raise CorelaneError("simulate", f"{self.cores} cores in pairs at speed {self.pair_speed}", "two and two")
        if self.capacity and (len(self.capacity) != t.N_RESOURCES or min(self.capacity) <= 0):
            raise CorelaneError("simulate", f"capacities {self.capacity}", f"{t.N_RESOURCES} numbers above 0, or none")
        if not all(0 <= cost <= MOST_COST_NS for cost in asdict(self.costs).values()):
            raise CorelaneError("simulate", f"{self.costs}", "costs of 0 or more, of a second at most")

    @property
    def power(self) -> float:
        """Sum of the speeds."""
        return float(sum(self.speeds[c % len(self.speeds)] for c in range(self.cores)))


@dataclass(frozen=True)
class Ran:
    """What became of a load. jobs: rows of table.RESULT. series: rows of `bucket_ns`, ns summed of cores held, of cores
    at work, and of jobs that waited. held_ns: of each row, for how long it had jobs. calls: of the policy; gifts: cores
    given; refused: cores given that could not be; watched: see watch.py. decided_ns: what
    decisions took of the first loop."""

    load: loads.Load
    machine: Machine
    policy: Policy
    jobs: Any
    series: Any
    held_ns: Any
    watched: Any
    bucket_ns: int
    end_ns: int
    events: int
    calls: int
    gifts: int
    refused: int
    decided_ns: int

    @property
    def over(self) -> Any:
        """Which jobs are done."""
        return self.jobs["outcome"] == t.OVER

    @property
    def completion_ns(self) -> Any:
        """Of each job, from its arrival to its end; inf: it was refused, or is not done."""
        out = np.full(len(self.load), np.inf)
        out[self.over] = (self.jobs["finish_ns"] - self.load.jobs["at_ns"])[self.over]
        return out

    @property
    def wait_ns(self) -> Any:
        """Of each job, until it first ran; inf: it never did."""
        out = np.full(len(self.load), np.inf)
        ran = self.jobs["start_ns"] >= 0
        out[ran] = (self.jobs["start_ns"] - self.load.jobs["at_ns"])[ran]
        return out


def compile_loop() -> None:
    """Have the event loop's code on disk, so that processes that begin at the same time need not all compile it."""
    world = World(loads.Load((loads.Kind(),), loads.jobs([0], [1.0])), Machine(1))
    state, tables, keep = world.prepared(known("fifo"))
    engine.run(0, 0, np.uint64(0), tables, state)
    del keep


def _run_beside(policy: Policy, given: tuple[Any, ...], keep: object, world: Any) -> None:
    """Run the loop on a thread, and look whether it goes on."""

    def call() -> None:
        try:
            engine.run(*given)
        finally:
            ended.set()
            del refs[:]

    if not engine.run.signatures:  # what that takes is no call's
        compile_loop()
    refs, ended = [keep], threading.Event()
    threading.Thread(target=call, daemon=True).start()
    seen, wait_s, since = (-1, -1), 0.001, time.monotonic()
    while not ended.wait(wait_s):
        wait_s = min(2 * wait_s, 0.1)
        at, seen = seen, (int(world[st.EVENTS]), int(world[st.CALLS]))
        if at != seen:
            since = time.monotonic()
        elif time.monotonic() - since > CALL_MOST_S:
            raise lost_in_a_call(policy)


def lost_in_a_call(policy: Policy) -> CorelaneError:
    """Of a policy that does not come back."""
    why = f"it has not come back from a call for {CALL_MOST_S:g} s: it may loop for ever"
    return CorelaneError(f"run {policy.name}", why, "let each of its loops end: lists end at -1")


class World:
    """A load and a machine, on which policies run one after the other, each from the start.

    room: jobs that can be there at a time; what comes beyond is counted (table.NO_ROOM). interval_ns: between ticks; 0:
    none. buckets: rows of the time series. seed: of the randomness that a policy may use, and of `Costs.late_ns`.
    watched: note what watch.py watches for; a run is then slower. stops: rows of (ns, core, ns), ascending: from when
    on which core stands still, and for how long. No policy sees it, or anything else while all cores do.
    """

    def __init__(
        self,
        load: loads.Load,
        machine: Machine,
        *,
        interval_ns: int = 0,
        room: int = 4096,
        buckets: int = 200,
        seed: int = 1,
        watched: bool = False,
        stops: Any = (),
    ) -> None:
        if interval_ns < 0 or room < 1 or buckets < 1:
            raise CorelaneError("simulate", f"interval {interval_ns}, room {room}, {buckets} buckets", "none below 0")
        self.load, self.machine, self._watched = load, machine, watched
        self._stops = np.array(stops, np.int64).reshape(-1, 3)
        at, core, length = self._stops.T
        if (np.diff(at) < 0).any() or (core < 0).any() or (core >= machine.cores).any() or (length < 0).any():
            raise CorelaneError("simulate", "its stops cannot be", "rows of time, core and length, ascending in time")
        self._interval, self._room, self._buckets, self._seed = interval_ns, min(room, len(load) + 1), buckets, seed

    def run(self, policy: Policy, *, events: int = 1 << 60, until_ns: int = st.FAR - 1) -> Ran:
        """Until all jobs are over, the policy leaves what is left alone, or so many events or ns have passed.
        CorelaneError if a user's own policy does not come back from a call; the thread that calls it is lost then."""
        state, tables, keep = self.prepared(policy)
        given = (events, until_ns, np.uint64(policy.address), tables, state)
        if policy.own:
            _run_beside(policy, given, keep, state.world)
        else:
            engine.run(*given)
        del keep
        return self.result(policy, state)

    def prepared(self, policy: Policy) -> tuple[st.State, tuple[Any, ...], tuple[Any, ...]]:
        """The arrays of a run that begins, the addresses that the policy is called with, and what these are of."""
        if policy.ticks and not self._interval:
            raise CorelaneError(f"run {policy.name}", "it is called at intervals only", "give interval_ns")
        state = self._state(policy)
        memory = np.zeros(max(int(state.told[0]["n_memory"]), 1))
        params = np.array([*policy.settings.values(), 0.0])
        future = state.future if policy.oracle else np.zeros(1, t.FUTURE)
        arrays = (state.told, state.jobs, state.cores, state.kinds, memory, future, params)
        return state, tuple(np.uint64(a.ctypes.data) for a in arrays), arrays

    def result(self, policy: Policy, state: st.State) -> Ran:
        """What became of the load. CorelaneError if the policy asked to be called for ever, or left its tables."""
        world = state.world
        if world[st.STUCK]:
            why, hint = {
                t.NO_CORE: ("it gives a core that is not there", "rows of cores are 0 to view.n_cores - 1, -1 is none"),
                t.NO_ROW: (
                    "it looks beyond the end of a table",
                    "slots of jobs are below view.room, WORDS says how long memory is, -1 is none",
                ),
            }.get(
                int(world[st.STUCK]),
                (
                    f"it asks to be called again at once, {st.MOST_CALLS} times over",
                    "call wake_at(view, now) only after something was given",
                ),
            )
            raise CorelaneError(f"run {policy.name}", f"{why}, at {int(world[st.NOW])} ns", hint)
        whole = (int(world[i]) for i in (st.NOW, st.EVENTS, st.CALLS, st.GIVEN, st.REFUSED_GIFTS, st.DECIDED_NS))
        bucket = int(state.settings[st.BUCKET])
        arrays = (state.results, state.series, state.held_ns, state.watched)
        return Ran(self.load, self.machine, policy, *arrays, bucket, *whole)

    def _state(self, policy: Policy) -> st.State:
        m, room = self.machine, self._room
        rows = m.cores * m.seats
        slots = 1 << (rows - 1).bit_length()
        when = np.full(slots, st.FAR, np.int64)
        tree = np.zeros(2 * slots, np.int64)
        tree[slots:] = np.arange(slots)
        for node in range(slots - 1, 0, -1):
            tree[node] = tree[2 * node]
        results = np.zeros(len(self.load), t.RESULT)
        results["start_ns"] = results["finish_ns"] = -1
        state = st.State(
            when=when,
            tree=tree,
            told=self._view(policy, rows),
            jobs=np.zeros(room, t.JOB),
            cores=self._cores(rows),
            kinds=self.load.tables[0].copy(),  # a policy may write into it
            load=self.load.jobs,
            truth=self.load.tables[1],
            hidden=np.zeros(room, t.HIDDEN),
            future=np.zeros(room if policy.oracle else 0, t.FUTURE),
            results=results,
            finish=np.full(rows, st.FAR, np.int64),
            quantum=np.full(rows, st.FAR, np.int64),
            busy=np.zeros(m.cores, np.int64),
            level=np.full(m.cores, -1.0),
            pair=np.array([c ^ 1 if m.pairs else -1 for c in range(m.cores)], np.int64),
            squeeze=np.ones(m.loops * t.N_RESOURCES),
            loop_dirty=np.zeros(m.loops, np.int64),
            loop_free=np.zeros(m.loops, np.int64),
            charged=np.zeros(rows),
            held_ns=np.zeros(rows, np.int64),
            free=np.arange(room, dtype=np.int64)[::-1].copy(),
            dirty=np.zeros(room, np.int64),
            flows=np.zeros(1),
            stops=self._stops,
            stopped=np.zeros(rows, np.int64),
            series=np.zeros((self._buckets, 3)),
            watched=np.zeros(N_WATCHED),
            settings=self._settings(policy),
            world=np.zeros(st.N_WORLD, np.int64),
        )
        state.world[st.FREE_SLOTS], state.world[st.DRAWN] = room, self._seed
        state.world[st.ARRIVES] = int(self.load.jobs["at_ns"][0])
        state.world[st.BUCKET_ENDS] = state.settings[st.BUCKET] if self._buckets > 1 else st.FAR
        state.world[st.TICKS_AT] = self._interval or st.FAR
        state.world[st.WAKES_AT] = st.FAR
        state.world[st.STOPS_AT] = int(self._stops[0, 0]) if len(self._stops) else st.FAR
        return state

    def _settings(self, policy: Policy) -> Any:
        costs, m = self.machine.costs, self.machine
        settings = np.zeros(st.N_SETTINGS, np.int64)
        settings[[st.NOTICE, st.DECIDE, st.LOOK]] = costs.notice_ns, costs.decide_ns, costs.look_ns
        settings[[st.ACTUATE, st.SWITCH]] = costs.actuate_ns, costs.switch_ns
        settings[[st.MOVE, st.LOOP_MOVE]] = costs.move_ns, costs.loop_ns
        settings[[st.TICKS_ONLY, st.SEATS, st.INTERVAL]] = policy.ticks, m.seats, self._interval
        settings[[st.RESOURCES, st.LOSSES]] = bool(m.capacity), any(k.loss_scale for k in self.load.kinds)
        settings[[st.WATCHED, st.LATE]] = self._watched, costs.late_ns
        work = float(self.load.jobs["work_ns"].sum()) / m.power
        settings[st.BUCKET] = max(1, int(max(work, float(self.load.jobs["at_ns"][-1])) / self._buckets))
        return settings

    def _cores(self, rows: int) -> Any:
        m = self.machine
        cores = np.zeros(rows, t.CORE)
        cores["core"] = np.arange(rows) // m.seats
        cores["pair"] = (cores["core"] ^ 1) * m.seats if m.pairs else -1
        cores["loop"] = cores["core"] * m.loops // m.cores
        cores["speed"] = np.array(m.speeds)[cores["core"] % len(m.speeds)]
        for name in ("job", "next", "before", "last_job"):
            cores[name] = -1
        # Row by row: of a core's seats the first ones come first, then its neighbours' second ones.
        order = np.argsort(np.arange(rows) % m.seats, kind="stable")
        cores["next_idle"][order] = np.append(order[1:], -1)
        cores["idle_before"][order] = np.append(-1, order[:-1])
        cores["pace"] = cores["share"] = 1.0
        return cores

    def _view(self, policy: Policy, rows: int) -> Any:
        m, kinds = self.machine, self.load.kinds
        view = np.zeros(1, t.VIEW)
        for name in ("job", "core", "first", "last", "changed", "wake_ns"):
            view[name] = -1
        view["waiting"], view["waiting_last"] = -1, -1
        view["n_cores"] = view["n_idle"] = rows
        view["n_loops"], view["n_kinds"], view["room"] = m.loops, len(kinds), self._room
        view["n_classes"] = 1 + max(kind.cls for kind in kinds)
        view["interval_ns"], view["pair_speed"] = self._interval, m.pair_speed if m.pairs else 1.0
        view["switch_ns"], view["move_ns"] = m.costs.switch_ns, m.costs.move_ns
        view["random"] = self._seed
        if m.capacity:
            per_loop = np.array(m.capacity) * m.cores / m.loops
            view["capacity"] = per_loop
        fixed, per_job, per_core, per_kind = policy.words
        view["n_memory"] = fixed + per_job * self._room + per_core * rows + per_kind * len(kinds)
        view["n_params"] = len(policy.settings)
        return view
