"""The floor of the key-value store answers the generator as a store would, with the right bytes."""

from __future__ import annotations

import os

import pytest

from corelane.bench.kv.lines import Lines
from corelane.drivers.nic.loadgen.loadgen import Memcached
from corelane.runtime.errors import CorelaneError

CPUS = sorted(os.sched_getaffinity(0))
CORES = (CPUS[0], CPUS[-1])


@pytest.mark.parametrize(
    "traffic",
    [
        Memcached(keys=3000),
        Memcached(keys=1, get_fraction=0.5),
        Memcached(keys=700, value_bytes=8),
        Memcached(keys=500, value_bytes=1300, get_fraction=0.9),
    ],
    ids=["64 bytes", "one key", "8 bytes", "1300 bytes"],
)
def test_what_was_set_is_what_is_got(traffic: Memcached) -> None:
    with Lines(traffic, CORES) as floor:
        for _ in range(2):
            for _ in range(10):  # beside others little is sent or answered in so short a time
                point = floor.measure(5000, 0.04)
                if point.answered == point.sent > 0:
                    break
            assert point.answered == point.sent > 0
            assert point.extra["hits"] + point.extra["stored"] == point.answered
            assert point.extra["misses"] == 0
            assert "wrong" not in point.extra
        answered, ignored = floor.counts
    assert answered >= traffic.keys + point.answered, "all keys are set before the first run"
    assert ignored == 0


def test_what_is_no_request_is_dropped() -> None:
    with Lines(Memcached(keys=8), CORES) as floor:
        floor.load.generator.stop_client()
        before = floor.nic.buffers_free
        client = floor.client
        frames = [bytes(60), bytes(54), bytes(50) + b"get " + b"z" * 16, bytes(50) + b"get " + b"p" * 16]
        with floor.serving():
            assert client.send(frames) == len(frames)
            while floor.counts[1] < len(frames):
                pass
        assert client.recv(8) == []
        assert floor.nic.buffers_free == before
        assert floor.counts == (0, len(frames))


def test_a_core_that_is_not_there_is_refused() -> None:
    with Lines(Memcached(keys=8), (CORES[0], 100_000)) as floor, pytest.raises(CorelaneError, match="out of range"):
        floor.measure(1000, 0.01)
