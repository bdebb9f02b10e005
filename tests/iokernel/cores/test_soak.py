"""Applications that fight for a core for a while, and die at any moment: what the log says, and what they noted.

A real iokernel and real processes: one answers requests, the others compute with probes, without, with signals
blocked, or lie about having ceded. At random they are stopped, killed, in the middle of hand-overs as well,
exit while they have the core, and come again; policies change. At any time a core has one owner by the log, and nobody
ran who was not (but for who was evicted, and liars, who are caught as they are, and nobody else is). Then the same with
two loops that have a core each, and with one loop that has two, for applications of two kthreads.
2 seconds; CORELANE_SOAK_S=300 for longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cltest import wait_until
from cltest.cores import LIARS, FightingApp, fighting_ground
from cltest.moves import DONE, EVICTED, OVERRUN, WANTED, MoveChecker, MoveLog, ran_unowned
from cltest.switching import assert_balanced, stats_of

from corelane.drivers.nic.loadgen.loadgen import Loadgen, Phase
from corelane.iokernel import Iokernel
from corelane.runtime.clock import default_clock, tsc

SOAK_S = float(os.environ.get("CORELANE_SOAK_S", "2"))
WAIT_S = 30.0
SKEW_NS = 2000
MOST_JOBS = 4
FEWEST_ACTS = 15  # on a machine where the start alone takes the time
POLICIES = [("delay", ""), ("delay", "target_us=50"), ("shenango", ""), ("fair", ""), ("fair", "slice_us=200")]
KINDS = ["probed", "unprobed", "blocking", "preemptible", *LIARS]


class Soak:
    """The applications that live, and what is known of those that do not."""

    def __init__(self, io: Iokernel, generator: Loadgen, folder: Path, rng: random.Random, kthreads: int) -> None:
        self.kthreads = kthreads
        self.io, self.generator, self.folder, self.rng = io, generator, folder, rng
        loops = range(len(io.stats()["loops"]))
        self.logs, self.checkers = [MoveLog(io, loop) for loop in loops], [MoveChecker() for _ in loops]
        self.apps: dict[str, FightingApp] = {}
        self.born: dict[str, int] = {}
        self.runs: dict[str, list[list[np.ndarray]]] = {}  # by kthread
        self.stopped: dict[str, float] = {}  # until when
        self.did: Counter[str] = Counter()
        self.faults: list[str] = []
        self.noted = self.started = 0
        self.come("echo", "latency")

    def come(self, name: str, kind: str) -> FightingApp:
        born = tsc()
        app = self.apps[name] = FightingApp(self.io.socket_path, name, kind, self.folder, kthreads=self.kthreads)
        app.await_ready(WAIT_S)
        self.born[name], self.runs[name] = born, [[] for _ in app.notes]
        for checker in self.checkers:
            for k in range(self.kthreads):
                checker.came(app.slot + k, born)
        return app

    def come_as_job(self) -> None:
        self.started += 1
        kind = KINDS[self.started % len(KINDS)]
        self.did[kind] += 1
        self.come(f"{kind}{self.started}", kind)

    def look(self) -> None:
        """Read what was logged and noted since."""
        for log, checker in zip(self.logs, self.checkers, strict=True):
            checker.feed(log.read())
        for name, app in self.apps.items():
            for runs, notes in zip(self.runs[name], app.notes, strict=True):
                runs.append(notes.runs())

    def go(self, name: str, how: str) -> None:
        """An application ends; afterwards what it noted is compared with the log. Liars run when they may not: they are
        caught instead, and nobody else is."""
        app = self.apps[name]
        liar = app.kind in LIARS
        caught = stats_of(self.io, name)["cores"]["overruns"]
        self.did[f"{app.kind} caught"] += caught
        if caught and not liar:
            self.faults.append(f"{name} was demoted as if it had used another's core")
        if how == "exit":
            app.tell("x")
            app.signal(signal.SIGCONT)
        else:
            app.process.kill()
        app.process.wait(WAIT_S)
        wait_until(lambda: name not in self.io.apps, WAIT_S, f"{name} to be removed")
        self.look()
        gone = tsc()
        life, skew = (self.born[name], gone), default_clock().ns_to_ticks(SKEW_NS)
        for k, (noted, notes) in enumerate(zip(self.runs.pop(name), app.notes, strict=True)):
            runs = np.concatenate([*noted, notes.last_runs()])
            spans = [span for checker in self.checkers for span in checker.went(app.slot + k, gone)]  # by one of them
            found = [] if liar else ran_unowned(runs, spans, life, app.gap_ticks, skew)
            self.noted += len(runs)
            self.faults += [f"{name}, kthread {k}: {fault}" for fault in found[:10]]
            assert notes.lost == 0, f"notes of {name} were not read in time"
        self.stopped.pop(name, None)
        app.reap(WAIT_S)
        del self.apps[name]

    @property
    def jobs(self) -> list[str]:
        return [name for name in self.apps if name != "echo"]

    def act(self) -> None:
        """One random thing."""
        what = self.rng.choice(["come", "come", "kill", "exit", "cut", "cut", "stop", "stop", "stop echo", "policy"])
        jobs = self.jobs
        if what == "come":
            if len(jobs) < MOST_JOBS:
                self.come_as_job()
        elif what == "policy":
            self.io.set_policy(*self.rng.choice(POLICIES))
        elif what == "stop echo":
            self.stop("echo", 0.02)
        elif not jobs:
            return
        elif what == "stop":
            self.stop(self.rng.choice(jobs), 0.05)
        elif what == "cut":  # in the middle of hand-overs, which come by the hundred
            moves = self.moves() + self.rng.randrange(1, 30)
            end = time.monotonic() + 0.5
            wait_until(lambda: self.moves() >= moves or time.monotonic() > end, WAIT_S, "moves", poll_s=0.0005)
            self.go(self.rng.choice(jobs), "kill")
        else:
            self.go(self.rng.choice(jobs), what)
        self.did[what] += 1

    def stop(self, name: str, most_s: float) -> None:
        self.apps[name].signal(signal.SIGSTOP)
        self.stopped[name] = time.monotonic() + self.rng.uniform(0, most_s)

    def resume(self, at: float) -> None:
        """Those whose time is over by then go on."""
        for name, until in list(self.stopped.items()):
            if until <= at:
                self.apps[name].signal(signal.SIGCONT)
                del self.stopped[name]

    def moves(self) -> int:
        return sum(allocator["moves"] for allocator in self.io.stats()["cores"]["allocators"])

    def load(self) -> None:
        """One run of requests after the other; each was answered to the last request."""
        if self.generator.running:
            return
        if self.did["load"]:
            self.generator.wait(WAIT_S)
            got = self.generator.result()
            assert got.offered > 0
            assert (got.answered, got.wrong, got.errors, got.dropped) == (got.offered, 0, 0, 0)
        self.did["load"] += 1
        if self.rng.random() < 0.1 and self.did["load"] > 1:
            self.go("echo", "kill")
            self.come("echo", "latency")
            self.did["echo restarted"] += 1
        self.generator.start([Phase(self.rng.uniform(0.1, 0.5), self.rng.choice([200, 2000, 5000]))])

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for _ in KINDS:
            self.come_as_job()
        acts = 0
        while time.monotonic() < end or acts < FEWEST_ACTS:
            acts += 1
            self.resume(time.monotonic())
            self.load()
            self.act()
            self.look()
            time.sleep(min(self.rng.expovariate(100), 0.05))
        self.resume(float("inf"))
        self.generator.wait(WAIT_S)
        for name in list(self.apps):
            self.go(name, "kill")
        for checker in self.checkers:
            checker.check_owners()

    def sound(self) -> None:
        """Nothing was wrong, and what was counted fits what was logged."""
        for log, checker, allocator in zip(
            self.logs, self.checkers, self.io.stats()["cores"]["allocators"], strict=True
        ):
            print(dict(checker.seen), {k: v for k, v in allocator.items() if isinstance(v, int)})
            assert log.lost == 0
            assert checker.faults == []
            ended = allocator["actuation"]["evict"]["n"] + allocator["evicted_late"] + allocator["evicted_void"]
            assert allocator["evicted"] == checker.seen[EVICTED] == ended
            assert checker.seen[WANTED] == allocator["moves"] > 0
            assert allocator["violations"] == 0
            assert checker.seen[OVERRUN] == allocator["overruns"]
            assert checker.seen[DONE] > 0
        print(dict(self.did), f"{self.noted} runs")
        assert self.faults == []
        assert self.noted > 0
        assert_balanced(self.io)

    def all_cores_had_owners(self) -> None:
        assert {cpu for checker in self.checkers for cpu in checker.cpus} == {
            core["cpu"] for core in self.io.stats()["cores"]["cpus"]
        }


@pytest.fixture
def soak(socket_path: str, tmp_path: Path, rng: random.Random, request: pytest.FixtureRequest) -> Iterator[Soak]:
    """request.param: how many loops, cores, kthreads of each application."""
    loops, cores, kthreads = request.param
    with contextlib.ExitStack() as stack:
        io, generator = stack.enter_context(fighting_ground(socket_path, WAIT_S, loops=loops, cores=cores))
        soak = Soak(io, generator, tmp_path, rng, kthreads)
        stack.callback(lambda: [app.kill() for app in soak.apps.values()])
        yield soak


@pytest.mark.soak(short=True)
@pytest.mark.parametrize("soak", [(1, 1, 1)], indirect=True)
def test_the_core_has_one_owner_whatever_happens_to_the_applications(soak):
    soak.run(SOAK_S / 2)
    soak.sound()
    allocator = soak.io.stats()["cores"]["allocators"][0]
    assert allocator["interrupted"] > 0
    assert allocator["evicted"] > 0


@pytest.mark.soak(short=True)
@pytest.mark.parametrize("soak", [(2, 2, 1)], indirect=True)
def test_cores_of_two_loops_have_one_owner_each(soak):
    """Loops have no CPU of their own here, so that nothing is quick."""
    soak.run(SOAK_S / 4)
    soak.sound()
    soak.all_cores_had_owners()


@pytest.mark.soak(short=True)
@pytest.mark.parametrize("soak", [(1, 2, 2)], indirect=True)
def test_two_cores_of_a_loop_have_one_owner_each(soak):
    """Applications have two kthreads, which lose and get cores one by one, and die or stop together."""
    soak.run(SOAK_S / 4)
    soak.sound()
    soak.all_cores_had_owners()


def test_a_run_is_noted_on_the_cpu_that_it_is_on(socket_path, tmp_path):
    """What the soaks compare with the log. Who is moved goes on at once, much sooner than a run would end by itself."""
    with fighting_ground(socket_path, WAIT_S, cores=2) as (io, _), contextlib.ExitStack() as stack:
        app = FightingApp(io.socket_path, "moved", "unprobed", tmp_path)
        stack.callback(app.kill)
        app.await_ready(WAIT_S)
        app.await_work(WAIT_S)

        def moved_to(cpu: int) -> bool:
            """Pins it again at each look: a grant of the iokernel in between pins it elsewhere."""
            for task in os.listdir(f"/proc/{app.process.pid}/task"):
                os.sched_setaffinity(int(task), {cpu})
            return bool(app.notes[0].head["open"]["cpu"][0] == cpu)

        for cpu in 3 * [core["cpu"] for core in io.stats()["cores"]["cpus"]]:
            wait_until(lambda cpu=cpu: moved_to(cpu), WAIT_S, f"a run on CPU {cpu}")
