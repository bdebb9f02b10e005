"""Batch applications that do not let go of a core: the latency application gets it all the same (docs/cores.md).

Real processes, a real iokernel, one core. Each time a bounded open-loop run of requests is answered to the last one,
the counters and the log say by which step the core was taken, and that each move to the latency application ended, and
afterwards all is as before: counters balance, no buffer is missing, and a new batch application gets the core. How long
anything takes is not looked at: `corelane top` and its JSON have the times by step.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cltest import soak, wait_until
from cltest.cores import LIARS, RINGING, TRACED, FightingApp, before_others, fighting_ground
from cltest.fairness import Watch, until_in_fair_rounds
from cltest.moves import DONE, EVICTED, INTERRUPTED, RELEASES, WANTED, Move, MoveLog
from cltest.switching import assert_balanced, stats_of

from corelane.drivers.nic.loadgen.loadgen import Loadgen, Phase
from corelane.iokernel import Iokernel
from corelane.runtime.clock import default_clock

WAIT_S = 60.0
STEPS = ("idle", "wake", "parked", "ask", "interrupt", "evict")  # CL_IO_STEP_*


CEDE_US, INTERRUPT_US = 10, 50  # the iokernel's own (struct cl_io_config)


def ticks(us: int) -> int:
    return us * default_clock().hz // 1_000_000


class Fight:
    """An iokernel with one worker core, a latency application on it, and a generator of requests for that."""

    def __init__(self, io: Iokernel, generator: Loadgen, add: Callable[[str, str, int], FightingApp]) -> None:
        self.io, self.generator, self.add = io, generator, add
        self.echo = add("echo", "latency", 0)
        self.echo.await_ready()
        self.log = MoveLog(io)
        self.moves: list[Move] = []

    def batch(self, kind: str, name: str = "batch", nice: int = 0) -> FightingApp:
        """A batch application that has the core."""
        app = self.add(name, kind, nice)
        app.await_ready()
        app.await_work()
        return app

    def begin(self, rate: float = 2000, seconds: float = 0.15) -> None:
        self.generator.start([Phase(seconds, rate)])

    def all_answered(self) -> None:
        """The run that was begun is over, and each of its requests was answered, once and rightly."""
        self.generator.wait(WAIT_S)
        result = self.generator.result()
        assert result.offered > 0
        assert (result.answered, result.wrong, result.errors, result.dropped) == (result.offered, 0, 0, 0)

    def serve(self, rate: float = 2000, seconds: float = 0.15) -> None:
        self.begin(rate, seconds)
        self.all_answered()

    def counted(self, name: str = "") -> dict[str, int]:
        """Of an application, or of the allocator."""
        return stats_of(self.io, name)["cores"] if name else self.io.stats()["cores"]["allocators"][0]

    def ends(self) -> Counter[str]:
        """How each move to the latency application ended: by which step, or taken back, or overtaken. None goes on."""
        self.moves += self.log.read()
        assert self.log.lost == 0
        ends: Counter[str] = Counter()
        on_its_way = False
        for move in self.moves:
            if move.what in (WANTED, *RELEASES):
                ends["overtaken" if move.what == WANTED else "taken back"] += on_its_way
                on_its_way = move.new == self.echo.slot
            elif move.what == DONE and on_its_way:
                ends[STEPS[move.step]] += 1
                on_its_way = False
        assert not on_its_way
        return +ends

    def took(self, step: str) -> int:
        """Moves in which the new owner began after this step."""
        return int(self.counted()["actuation"][step]["n"])  # type: ignore[index]

    def taken_from(self, slot: int) -> list[list[Move]]:
        """The moves to the latency application for which that kthread was asked: the decision, what else the log has of
        the move, and what ended it, if anything did. Each in the order of the steps, and none before its time."""
        self.moves += self.log.read()
        assert self.log.lost == 0
        found: list[list[Move]] = []
        goes_on = False
        for move in self.moves:
            if goes_on:
                found[-1].append(move)
            goes_on = goes_on and move.what in (INTERRUPTED, EVICTED)
            if move.what == WANTED and (move.old, move.new, STEPS[move.step]) == (slot, self.echo.slot, "ask"):
                found.append([move])
                goes_on = True
        for steps in found:
            asked = steps[0]
            interrupted, evicted = ([m for m in steps[1:] if m.what == what] for what in (INTERRUPTED, EVICTED))
            assert [m.tsc for m in steps] == sorted(m.tsc for m in steps)
            assert all(m.tsc - asked.tsc >= ticks(CEDE_US) for m in interrupted)
            # A signal that the application's limit of system calls forbids is left out, and counted.
            assert not evicted or interrupted or self.counted()["interrupts_limited"]
            first = interrupted[0] if interrupted else asked
            assert all(m.tsc - first.tsc >= ticks(INTERRUPT_US) for m in evicted)
        return found

    def why(self, batch: FightingApp) -> str:
        """What came of the moves from that application, for who has to find out why not all steps were taken."""
        shapes = Counter("-".join(str(m.what) for m in steps) for steps in self.taken_from(batch.slot))
        mine = {how: self.counted(batch.name)[how] for how in ("asked", "interrupted", "evicted", "starved", "blocked")}
        counted = {name: n for name, n in self.counted().items() if isinstance(n, int)}  # no histograms
        return f"entries of its moves {dict(shapes)}, of it {mine}, of all {counted}"

    def logged(self, what: int) -> int:
        self.moves += self.log.read()
        return sum(move.what == what for move in self.moves)

    def gone(self, name: str = "batch") -> None:
        wait_until(lambda: name not in self.io.apps, WAIT_S, f"{name} to be removed")

    def sound(self) -> None:
        """Afterwards: requests are answered, beside a new batch application, which gets the core between them."""
        fresh = self.batch("probed", "fresh")
        self.serve()
        fresh.await_work()
        assert self.counted()["asked"] > 0
        fresh.kill()
        self.gone("fresh")
        self.serve()
        assert_balanced(self.io)


@pytest.fixture
def fight(socket_path: str, tmp_path: Path) -> Iterator[Fight]:
    with contextlib.ExitStack() as stack:
        io, generator = stack.enter_context(fighting_ground(socket_path, WAIT_S))

        def add(name: str, kind: str, nice: int) -> FightingApp:
            app = FightingApp(socket_path, name, kind, tmp_path, nice)
            stack.callback(app.kill)
            return app

        yield Fight(io, generator, add)


def test_one_that_never_looks_is_interrupted(fight):
    batch = fight.batch("unprobed")
    fight.serve()
    wait_until(lambda: (fight.serve(), fight.took("interrupt"))[1], WAIT_S, "a move by the signal")
    assert fight.ends()["interrupt"] > 0

    def asks() -> tuple[int, int]:
        """Asks, and those of them that no signal followed, nor is one left out for its limit of system calls."""
        asked, interrupted = (fight.counted("batch")[how] for how in ("asked", "interrupted"))
        return asked, asked - interrupted - fight.counted()["interrupts_limited"]

    def asks_go_on_to_a_signal() -> bool:
        """But for one that comes while its runtime looks by itself, since it has just got the core back."""
        fight.serve()
        asked, alone = asks()
        return asked >= 20 and 0 <= alone <= asked // 20

    wait_until(asks_go_on_to_a_signal, 3 * WAIT_S, lambda: f"the signal after each ask: asks, without one {asks()}")
    batch.await_work()  # between requests the core is its own
    batch.kill()
    fight.gone()
    fight.sound()


def test_one_that_blocks_the_signal_is_evicted(fight):
    batch = fight.batch("blocking")
    # Not the moves that ended by it: on a busy machine the new owner may begin while the old one is being demoted, and
    # from then on it needs no eviction.
    wait_until(lambda: (fight.serve(), fight.counted("batch")["evicted"])[1], WAIT_S, "an eviction")
    assert fight.counted()["evictions_failed"] == 0
    assert fight.ends().total() > 0

    def each_ask_went_on_to_the_last_step() -> bool:
        asked, evicted = (fight.counted("batch")[how] for how in ("asked", "evicted"))
        return asked == evicted > 0

    wait_until(each_ask_went_on_to_the_last_step, WAIT_S, "an eviction after each ask")
    batch.await_work()  # at what the kernel gives it
    batch.kill()
    fight.gone()
    fight.sound()


@pytest.fixture
def first_in_line() -> Iterator[None]:
    with before_others():
        yield


def both_had_the_core(*apps: FightingApp) -> Callable[[], bool]:
    """From now on: that they had nine tenths of it together, and that no thread of the iokernel waited for long."""
    had, loop = Watch(*(app.process.pid for app in apps)), Watch(os.getpid())
    return lambda: not had.known or (had.ran() > 0.9 and loop.waited() < 0.1)


@pytest.mark.usefixtures("first_in_line")
@pytest.mark.parametrize("kind", LIARS)
def test_one_that_says_what_is_not_so_is_demoted(fight, kind):
    """It cedes by its word, or runs again by it, and spins on: the kernel knows how long it ran.

    One that runs again before the new owner has begun is evicted, and has not got as far as to be caught. What is
    caught is a quarter of the core in two windows on end of 50 ms in which it might not run, while the loop looks. A
    machine with much else to do gives neither of them that, hence their priority, and the liar's above the other's: at
    the same one it gets about that quarter, since a kthread's slices are short. The more requests, the sooner a window
    is over. Rounds in which the machine gave it or the loop less all the same are repeated."""
    batch = fight.batch(kind, nice=-20)
    caught = ("overruns",) if kind == "cedes" else ("overruns", "evicted")
    until_in_fair_rounds(
        lambda: (fight.serve(10_000, 0.5), sum(fight.counted("batch")[how] for how in caught))[1],
        lambda: both_had_the_core(batch, fight.echo),
        "it to be caught",
    )
    assert (fight.counted()["evictions_failed"], fight.counted()["overrun_unread"]) == (0, 0)
    assert fight.counted("echo")["overruns"] == 0
    assert fight.ends().total() > 0
    fight.serve()
    batch.await_work()  # at what the kernel gives it, and after a while by right
    batch.kill()
    fight.gone()
    fight.sound()


@pytest.mark.parametrize("kind", ["probed", "unprobed"])
def test_one_that_exits_while_it_has_the_core(fight, kind):
    times = 3
    for _ in range(times):
        batch = fight.batch(kind)
        fight.begin()
        batch.tell("x")
        batch.reap(WAIT_S)
        fight.all_answered()
        fight.gone()
        assert fight.ends().total() > 0
    assert {"apps": times, "buffers_lost": 0}.items() <= fight.io.stats()["departed"].items()
    fight.sound()


def test_one_that_is_stopped_while_it_has_the_core_is_evicted(fight):
    """The signal of the second step does not reach it, so that the third is taken. It goes on when it is continued."""
    batch = fight.batch("probed")
    evicted = 0
    for _ in range(3):
        batch.await_work()
        batch.signal(signal.SIGSTOP)
        fight.serve()
        assert fight.ends().total() > 0
        evicted += fight.counted("batch")["evicted"] > 0
        batch.signal(signal.SIGCONT)
        batch.await_work()
        fight.serve()
    assert evicted
    batch.kill()
    fight.gone()
    fight.sound()


@pytest.mark.soak(short=True, takes_s=30)
def test_one_that_is_killed_at_any_point_of_hand_overs(fight, rng):
    """Requests come all the time, so that hundreds of hand-overs a second are cut off somewhere."""
    for i in range(soak.examples(5, 100)):
        batch = fight.batch(rng.choice(["probed", "probed", "unprobed"]))
        fight.begin(rate=rng.choice([500, 5000]))
        enough = fight.counted()["asked"] + rng.randrange(1, 60)
        wait_until(lambda n=enough: fight.counted()["asked"] >= n or not fight.generator.running, WAIT_S)
        batch.kill()
        fight.all_answered()
        fight.gone()
        assert fight.ends().total() > 0
        assert {"apps": i + 1, "buffers_lost": 0}.items() <= fight.io.stats()["departed"].items()
    fight.sound()


@pytest.mark.parametrize("kind", ["probed", "unprobed"])
def test_who_is_moved_away_from_its_futex_is_served(fight, child, socket_path, kind):
    """Anybody may move those that sleep on a grant to a futex of its own, where no wake reaches them."""
    batch = fight.batch(kind)
    fight.serve(200)  # a request now and then, so that kthreads go to sleep in between
    hostile = child("requeuer.py", socket_path, "hostile")
    assert hostile.stdout.readline() == "moved\n"  # of its own: whoever sleeps is
    roused = fight.counted("echo")["roused"]
    wait_until(lambda: (fight.serve(200), fight.counted("echo")["roused"] > roused)[1], WAIT_S, "it to be signalled")
    batch.await_work()
    assert hostile.poll() is None
    hostile.kill()
    hostile.wait()
    fight.gone("hostile")
    fight.serve(200)  # one that sleeps there still is found, too
    batch.await_work()
    batch.kill()
    fight.gone()
    fight.sound()


RINGS_PER_S, RINGS_AT_ONCE = 200_000, 4  # iokernel/cores/rung.c


@pytest.mark.parametrize("policy", ["delay", "attained"])
def test_one_that_rings_for_ever_gets_no_more_than_its_share_of_decisions(fight, policy):
    """It rings, and writes garbage beside that, whenever it has the core, which is nearly always."""
    fight.io.set_policy(policy, "")
    begin = time.monotonic()
    batch = fight.batch(RINGING)
    wait_until(
        lambda: (fight.serve(), fight.counted("batch")["rings_delayed"] > 1000)[1], WAIT_S, "rings that come too soon"
    )
    rings = fight.counted("batch")["rings"]
    assert 0 < rings <= RINGS_PER_S * (time.monotonic() - begin) + RINGS_AT_ONCE
    assert fight.ends().total() > 0
    assert fight.counted()["violations"] + fight.counted()["violations_asleep"] == 0
    batch.await_work()
    batch.kill()
    fight.gone()
    fight.sound()


ALL_STEPS = (WANTED, INTERRUPTED, EVICTED)


def whats(moves: list[list[Move]]) -> set[tuple[int, ...]]:
    return {tuple(move.what for move in steps) for steps in moves}


def firsts(moves: list[list[Move]]) -> set[tuple[int, ...]]:
    return {what[:3] for what in whats(moves)}


def test_the_log_has_the_signal_between_the_ask_and_the_end_of_one_that_ignores_the_flag(fight):
    batch = fight.batch("unprobed")
    by_signal = (WANTED, INTERRUPTED, DONE)
    wait_until(lambda: (fight.serve(), by_signal in whats(fight.taken_from(batch.slot)))[1], WAIT_S, "a move by signal")
    moves = fight.taken_from(batch.slot)
    assert {STEPS[steps[-1].step] for steps in moves if tuple(m.what for m in steps) == by_signal} == {"interrupt"}
    wait_until(lambda: fight.logged(INTERRUPTED) == fight.counted()["interrupted"], WAIT_S, "all signals in the log")


def test_one_with_probes_by_the_compiler_cedes_when_asked(fight):
    """The program ignores the flag and blocks all signals otherwise, and is evicted."""
    batch = fight.batch(TRACED)

    def by_itself() -> bool:
        fight.serve()
        moves = fight.taken_from(batch.slot)
        return any([m.what for m in steps] == [WANTED, DONE] and STEPS[steps[-1].step] == "ask" for steps in moves)

    wait_until(by_itself, WAIT_S, "a move by the ask alone")
    batch.await_work()
    batch.kill()
    fight.gone()
    fight.sound()


@pytest.mark.usefixtures("first_in_line")
def test_the_log_has_all_three_steps_of_one_that_blocks_signals(fight):
    """With no other entry between them. Where others have the core, it is not: an owner that did not have the CPU for
    the time of a step is spared for a while (iokernel/cores/starved.c), and the new one begins before its eviction. So
    both come before what else the machine does, and only rounds count in which the two had the core. Each round has one
    of its own: one that was evicted has to wait long for the core that the next eviction could take from it."""
    batch = None

    def one_more() -> Callable[[], bool]:
        nonlocal batch
        if batch:
            batch.kill()
            fight.gone()
        batch = fight.batch("blocking")
        return both_had_the_core(batch, fight.echo)

    until_in_fair_rounds(
        lambda: (fight.serve(), ALL_STEPS in firsts(fight.taken_from(batch.slot)))[1],
        one_more,
        lambda: f"all three steps: {fight.why(batch)}",
    )
    wait_until(lambda: fight.logged(EVICTED) == fight.counted()["evicted"], WAIT_S, "all evictions in the log")


def test_the_log_has_all_three_steps_of_one_that_is_stopped(fight):
    batch = fight.batch("probed")

    def by_all_steps() -> bool:
        batch.await_work()
        batch.signal(signal.SIGSTOP)
        fight.serve()
        batch.signal(signal.SIGCONT)
        return ALL_STEPS in firsts(fight.taken_from(batch.slot))

    wait_until(by_all_steps, WAIT_S, "all three steps")


@pytest.mark.soak(short=True, takes_s=30)
def test_the_steps_of_one_that_is_killed_come_in_their_order_as_far_as_they_come(fight, rng):
    """It ignores the flag, so that it is in the middle of a step most of the time. What is dead is neither interrupted
    nor evicted; and each move to the latency application has its end."""
    for _ in range(soak.examples(3, 100)):
        batch = fight.batch("unprobed")
        fight.begin(rate=5000)
        enough = fight.counted()["asked"] + rng.randrange(1, 30)
        wait_until(lambda n=enough: fight.counted()["asked"] >= n or not fight.generator.running, WAIT_S)
        batch.kill()
        fight.all_answered()
        fight.gone()
        assert fight.ends().total() > 0
        assert fight.taken_from(batch.slot)
    fight.sound()


def test_a_core_that_nobody_owns_is_not_busy(fight):
    batch = fight.batch("probed")
    fight.echo.kill()
    fight.gone("echo")
    batch.await_work()

    def core() -> dict[str, float]:
        return fight.io.stats()["cores"]["cpus"][0]

    assert core()["busy"]
    busy_s = core()["busy_s"]
    batch.kill()
    fight.gone()
    nobody = core()
    assert not nobody["busy"]
    assert nobody["busy_s"] >= busy_s
    assert [core()["busy_s"] for _ in range(100)] == [nobody["busy_s"]] * 100
    fight.batch("probed", "fresh")
    assert core()["busy_s"] >= nobody["busy_s"]


def test_core_time_goes_on_while_the_loop_sleeps(fight):
    """Only one application wants the core, so that there is nothing to decide."""
    batch = fight.batch("probed")
    loops = fight.io.stats

    def asleep() -> bool:
        sleeps, decisions = loops()["loops"][0]["sleeps"], fight.counted()["decisions"]
        before, work = fight.counted("batch")["core_s"], batch.work
        wait_until(lambda: batch.work > work + 100_000, WAIT_S)
        after = fight.counted("batch")["core_s"]
        assert after >= before
        slept = (loops()["loops"][0]["sleeps"], fight.counted()["decisions"]) == (sleeps, decisions)
        return slept and after > before

    wait_until(asleep, WAIT_S, "core time to be told of without a decision")
    asked = fight.counted("batch")["core_s"]
    fight.serve()  # the loop wakes, and accounts for it
    assert fight.counted("batch")["core_s"] >= asked
