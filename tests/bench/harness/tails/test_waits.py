"""How long others had the CPU of threads that are named: by the kernel's counts, which a test makes up."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

import pytest

from corelane.bench.harness.tails import since, waits
from corelane.bench.harness.tails.waits import WAKE_S, Look, Waits

SERVER, CLIENT, OTHER = 11, 12, 13  # the first two answer and ask; the third is the arm's own
CPUS = {SERVER: {1}, CLIENT: {0}, OTHER: {0, 1}}


def others_s(monkeypatch: pytest.MonkeyPatch, gained: Mapping[int, Look], cpus: Mapping[int, set[int]] = CPUS) -> float:
    """What `Waits` says of threads that gained so much."""
    had = Look(5.0, 2.0, 1000)
    one = Waits(())
    one.threads, one._cpus = frozenset({SERVER, CLIENT}), {tid: set(cpus[tid]) for tid in cpus}
    looks = [
        dict.fromkeys(gained, had),
        {tid: Look(had.ran_s + g.ran_s, had.waited_s + g.waited_s, had.times + g.times) for tid, g in gained.items()},
    ]
    monkeypatch.setattr(one, "_look", lambda: looks.pop(0))
    with one.watching():
        pass
    return one.others_s


def test_it_is_that_of_the_thread_that_lost_most(monkeypatch: pytest.MonkeyPatch) -> None:
    gained = {SERVER: Look(0.01, 0.005, 0), CLIENT: Look(0.01, 0.007, 0)}
    assert others_s(monkeypatch, gained) == pytest.approx(0.007)


def test_threads_that_sleep_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither do those that wait for a lock: they ran a twentieth of the time, and were not ready besides."""
    assert others_s(monkeypatch, {SERVER: Look(0.001, 0.0, 3), CLIENT: Look(0.001, 0.0, 3)}) == 0


def test_what_the_arms_own_threads_ran_is_the_arms(monkeypatch: pytest.MonkeyPatch) -> None:
    gained = {SERVER: Look(0.01, 0.005, 0), CLIENT: Look(0.02, 0.0, 0), OTHER: Look(0.005, 0.0, 0)}
    assert others_s(monkeypatch, gained) == pytest.approx(0, abs=1e-9)
    assert others_s(monkeypatch, gained, CPUS | {OTHER: {0}}) == pytest.approx(0.005)  # it has another CPU


def test_a_cpu_that_was_idle_takes_a_while_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    times = 400
    gained = {SERVER: Look(0.01, times * WAKE_S + 0.003, times), CLIENT: Look(0.02, 0.0, 0)}
    assert others_s(monkeypatch, gained) == pytest.approx(0.003)


def test_a_thread_that_has_ended_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Waits(())
    one.threads, one._cpus = frozenset({SERVER}), {SERVER: {1}}
    looks: list[dict[int, Look]] = [{SERVER: Look(1.0, 1.0, 1)}, {}]
    monkeypatch.setattr(one, "_look", lambda: looks.pop(0))
    one.begin()
    assert one.end() == 0


def test_the_kernels_counts_are_read() -> None:
    me = threading.get_native_id()
    with Waits((me,), (os.getpid(),)) as one:
        if not one._files:
            pytest.skip("this kernel does not count")
        first, second = one._look()[me], one._look()[me]
    assert 0 < first.ran_s <= second.ran_s
    assert 0 <= first.waited_s <= second.waited_s
    assert 0 < first.times <= second.times
    assert one._look() == {}


def test_threads_of_the_kernel_are_those_that_do_what_interrupts_leave() -> None:
    """They are asked beside those that are named."""
    me = threading.get_native_id()
    with Waits((me,)) as one:
        assert one.threads == {me, *waits.kernels()}
    for tid in waits.kernels():
        with open(f"/proc/{tid}/comm") as name:
            assert name.read().startswith("ksoftirqd/")


def test_threads_since_then() -> None:
    before, ready, done = {threading.get_native_id()}, threading.Event(), threading.Event()

    def run() -> None:
        ready.set()
        done.wait()

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    found = since(before)
    done.set()
    thread.join()
    assert thread.native_id in found
    assert before.isdisjoint(found)
