"""Channels between Python threads and compiled code."""

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
from corelane.libos.numba.calls import (
    channel_close,
    channel_count,
    channel_receive,
    channel_select,
    channel_send,
    scope_close,
    scope_open,
    scope_spawn,
)
from corelane.runtime.errors import CorelaneError


@pytest.fixture
def runtime() -> Iterator[libos.Runtime]:
    nic, end = memory_link((2, 1), ipv4=("10.0.0.1", "10.0.0.2"))
    with nic, end, libos.Runtime(nic=nic) as runtime:
        yield runtime.start()


@libos.batch
def double(jobs: int, results: int) -> int:
    """Each job's double, until there are no more."""
    one = np.zeros(1, np.int64)
    while channel_receive(jobs, one, -1) == 0:
        one[0] *= 2
        channel_send(results, one, -1)
    return 0


@libos.batch
def double_all(jobs: int, results: int, workers: int) -> int:
    scope = scope_open(-1)
    for _ in range(workers):
        scope_spawn(scope, double, jobs, results)
    rc = scope_close(scope)
    channel_close(results)
    return rc


def test_jobs_and_results_cross(runtime: libos.Runtime) -> None:
    jobs, results = runtime.channel(np.int64, 4), runtime.channel(np.int64, 0)
    job = runtime.batch(double_all, np.uint64(jobs.address), np.uint64(results.address), 3)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(int(value) for value in results))
    thread.start()
    for i in range(50):
        jobs.send(i)
    jobs.close()
    thread.join()
    assert sorted(found) == [2 * i for i in range(50)]
    assert job.result(10) == 0
    assert (jobs.closed, results.closed, len(jobs)) == (True, True, 0)
    assert jobs.counters["sent"] == jobs.counters["received"] == 50
    with pytest.raises(CorelaneError, match="it is closed") as caught:
        jobs.send(1)
    assert caught.value.errno == errno.EPIPE


@libos.batch
def select(first: int, second: int, out: Any) -> int:
    a, b = np.zeros(1, np.int64), np.zeros(1, np.int64)
    out[0] = channel_select((first, second), (a, b), 0, 0)
    out[1] = channel_select((first, second), (a, b), 0b10, -1)  # receive from the one, or send to the other
    out[2] = channel_select((first, second), (a, b), 0, -1)
    a[0] = 5
    out[3] = channel_select((first, second), (a, b), 0b01, -1)
    out[4] = channel_count(first)
    channel_close(second)
    out[5] = channel_select((second, first), (b, a), 0, -1)
    out[6] = channel_select((first, second), (a, b), 0, -1)
    out[7] = channel_send(first, out, -1)  # of another size
    out[8] = channel_select((first, second), (a, out), 0, -1)
    return channel_receive(first, a, 1000)


def test_select_in_compiled_code(runtime: libos.Runtime) -> None:
    first, second = (runtime.channel(np.int64, 1) for _ in range(2))
    out = np.zeros(9, np.int64)
    job = runtime.batch(select, np.uint64(first.address), np.uint64(second.address), out)
    assert job.result(10) == -errno.ETIMEDOUT
    invalid = -errno.EINVAL
    assert out.tolist() == [-errno.EAGAIN, 1, 1, 0, 1, -1000, 0, invalid, invalid]


def test_a_python_thread_waits_for_a_time_or_until_an_interrupt(runtime: libos.Runtime) -> None:
    channel = runtime.channel([("a", "u4"), ("b", "f8")], 1)
    with pytest.raises(TimeoutError, match="it is empty"):
        channel.receive(0)
    with pytest.raises(TimeoutError, match="it is empty"):
        channel.receive(0.01)
    channel.send((7, 0.5))
    with pytest.raises(TimeoutError, match="it is full"):
        channel.send((8, 0.5), 0.01)
    assert channel.receive().tolist() == (7, 0.5)

    before = channel.counters["waits"]

    def interrupt() -> None:
        wait_until(lambda: channel.counters["waits"] > before, 60, "somebody waits")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        channel.receive()
    thread.join()
    channel.send((9, 1))  # nothing was lost or left waiting
    assert channel.receive()["a"] == 9


def test_what_cannot_be(runtime: libos.Runtime) -> None:
    with pytest.raises(CorelaneError, match="an element has 1 to 4096 bytes"):
        runtime.channel("S5000", 1)
    for kind in (object, dict, [("id", "u4"), ("of", "O")]):  # what was received was freed long before
        with pytest.raises(CorelaneError, match=r"make a channel: .* is kept as a Python object, which C cannot copy"):
            runtime.channel(kind, 1)
    with pytest.raises(CorelaneError, match=r"make a channel: 5 is no dtype of numpy \(give one as np\.uint64"):
        runtime.channel(5, 1)
    channel = runtime.channel(np.uint8, 1)
    runtime.stop(10)
    with pytest.raises(CorelaneError):
        channel.receive(1)
    runtime.close()
    with pytest.raises(CorelaneError, match="its runtime is closed"):
        channel.send(1)
