"""Scopes of Python threads: they end before their block does, by whatever way it is left."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cltest import wait_until

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.libos.numba import atomics
from corelane.libos.numba.calls import sleep_ns
from corelane.runtime.errors import CorelaneError

HOUR_NS = 3_600_000_000_000
CANCELED = -errno.ECANCELED


@libos.batch
def add(sums: Any, value: int) -> int:
    sleep_ns(10_000)
    atomics.atomic_add(sums, 0, value)
    return 2 * value


@libos.batch
def sleep_long(sums: Any) -> int:
    atomics.atomic_add(sums, 0, 1)
    return sleep_ns(HOUR_NS)


@libos.batch
def fail(sums: Any, value: int) -> int:
    if sums[0] >= value:
        raise LookupError("nothing there")
    return 0


@pytest.fixture
def runtime() -> Iterator[libos.Runtime]:
    nic, end = memory_link((2, 1), ipv4=("10.0.0.1", "10.0.0.2"))
    with nic, end, libos.Runtime(nic=nic) as runtime:
        yield runtime.start()


@pytest.fixture
def sums() -> Any:
    return np.zeros(1, np.int64)


def test_it_waits_for_all(runtime: libos.Runtime, sums: Any) -> None:
    with runtime.scope() as scope:
        jobs = [scope.start(add, sums, i) for i in range(20)]
        assert not scope.cancelled
    assert sums[0] == 190
    assert scope.running == 0
    assert [job.result(0) for job in jobs] == [2 * i for i in range(20)]
    assert not runtime.scopes


def test_an_exception_on_a_uthread_cancels_the_rest(runtime: libos.Runtime, sums: Any) -> None:
    others = []

    def block() -> None:
        with runtime.scope() as scope:
            others.extend(scope.start(sleep_long, sums) for _ in range(5))
            scope.start(fail, sums, 0)

    with pytest.raises(LookupError, match="nothing there"):
        block()
    assert [job.result(0) for job in others] == [CANCELED] * 5


def test_an_exception_in_the_block_does_so_too(runtime: libos.Runtime, sums: Any) -> None:
    jobs = []

    def block() -> None:
        with runtime.scope() as scope:
            jobs.append(scope.start(sleep_long, sums))
            raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        block()
    assert jobs[0].result(0) == CANCELED


def test_time_and_cancel(runtime: libos.Runtime, sums: Any) -> None:
    with pytest.raises(TimeoutError, match=r"after 0\.02 s"), runtime.scope(0.02) as scope:
        job = scope.start(sleep_long, sums)
    assert job.result(0) == CANCELED
    with runtime.scope() as scope:
        job = scope.start(sleep_long, sums)
        scope.cancel()
        with pytest.raises(CorelaneError, match="it is cancelled, and nothing more is started in it"):
            scope.start(add, sums, 1)
    assert job.result(0) == CANCELED
    with runtime.scope(3600) as scope:
        scope.start(add, sums, 1)


def test_an_interrupt_cancels_and_is_raised_when_all_have_ended(runtime: libos.Runtime, sums: Any) -> None:
    jobs: list[Any] = []

    def interrupt() -> None:
        wait_until(lambda: bool(jobs) and sums[0] == 1, 60, "it sleeps")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt), runtime.scope() as scope:
        jobs.append(scope.start(sleep_long, sums))
    thread.join()
    assert jobs[0].result(0) == CANCELED


def test_a_runtime_that_stops_or_closes_lets_its_block_go(runtime: libos.Runtime, sums: Any) -> None:
    scope = runtime.scope()
    with scope:
        scope.start(add, sums, 1)
        assert runtime.stop(10) == 0
    with pytest.raises(CorelaneError, match="it was entered before"), scope:
        pass
    with runtime.scope() as scope:
        runtime.close()
        with pytest.raises(CorelaneError):
            scope.start(add, sums, 1)
    assert (scope.running, scope.cancelled) == (0, False)
    scope.cancel()


def test_what_cannot_be_cancelled_is_refused(runtime: libos.Runtime) -> None:
    with runtime.scope() as scope, pytest.raises(CorelaneError, match="plain Python, which runs to its end"):
        scope.start(libos.batch(print, compiled=False))
    with pytest.raises(CorelaneError, match="it is not open"):
        runtime.scope().start(add, np.zeros(1, np.int64), 1)
