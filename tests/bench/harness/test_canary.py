"""The canary: its C part sees a real gap, its arithmetic agrees with brute force, its marks are right."""

import itertools
import os
import random
import time

import pytest

from corelane.bench._native import lib
from corelane.bench.harness import machine
from corelane.bench.harness.jitter import Canary, Gaps, delay_us, watch
from corelane.runtime.errors import CorelaneError

CPU = min(os.sched_getaffinity(0))


def test_buckets_ascend_without_holes() -> None:
    starts = [lib.cl_canary_bucket_start(i) for i in range(400)]
    assert starts == sorted(set(starts))
    assert all(b <= a * 9 // 8 or a < 16 for a, b in itertools.pairwise(starts))


def test_watch_sees_a_thread_that_takes_the_core() -> None:
    """Another thread pinned to the watched core takes its share, so that there are gaps of scheduler length."""
    deadline = time.monotonic() + 20
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.sched_setaffinity(0, {CPU})
        os.write(write_end, b"x")
        while time.monotonic() < deadline:
            pass
        os._exit(0)
    try:
        assert os.read(read_end, 1) == b"x"
        seen = watch([CPU], 0.1)[0]
        while seen.max_ns < 100_000 and time.monotonic() < deadline:
            seen.add(watch([CPU], 0.1)[0])
        assert seen.max_ns >= 100_000
        assert sum(total for _, total in seen.buckets.values()) <= seen.seconds * 1e9 * 1.01
        assert 0 < seen.lost_fraction < 1
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        os.close(read_end)
        os.close(write_end)


def test_a_core_that_is_not_ours_is_refused() -> None:
    with pytest.raises(CorelaneError, match="canary could not run"):
        watch([100_000], 0.01)


def test_delay_agrees_with_brute_force(seed: int) -> None:
    rng = random.Random(seed)
    gaps = [rng.choice((500.0, 20_000.0, 90_000.0)) for _ in range(300)]
    total_s = 0.1
    buckets = {g: (gaps.count(g), g * gaps.count(g)) for g in set(gaps)}
    seen = Gaps(0, total_s, 1, max(gaps), buckets)
    for q in (0.9, 0.95, 0.99, 0.999):
        d = delay_us([seen], q) * 1e3
        over = sum(max(g - d, 0.0) for g in gaps) / (total_s * 1e9)
        if d > 0:
            assert over == pytest.approx(1 - q, rel=1e-6)
        else:
            assert over <= 1 - q


def test_no_gaps_no_delay() -> None:
    assert delay_us([Gaps(0, 1.0)], 0.999) == 0
    assert delay_us([], 0.5) == 0


def test_gaps_of_two_cores_add_up() -> None:
    one = Gaps(0, 1.0, 1, 1e5, {1e5: (100, 1e7)})
    assert delay_us([one, one], 0.99) > delay_us([one], 0.99)


def test_marks_what_the_canary_alone_explains() -> None:
    canary = Canary([CPU])
    # One gap of 100 us in every 2 ms: 5 % of the time is lost.
    canary.by_cpu[CPU] = Gaps(CPU, 1.0, 1, 1e5, {1e5: (500, 5e7)})
    alone = canary.delay_us(0.99)
    assert 70 < alone < 90
    latencies = {"p50": 1.0, "p90": 2.0, "p99": 1.9 * alone, "p999": 1e6}
    assert canary.explained(latencies) == ["p99"]
    assert canary.explained({"p99": float("inf")}) == []


def test_document_counts_every_slice() -> None:
    canary = Canary([CPU])
    canary.slice(0.01)
    canary.slice(0.01)
    document = canary.document()
    assert document["slices"] == 2
    assert document["seconds"] == pytest.approx(sum(c["seconds"] for c in document["cores"]))
    assert document["cores"][0]["polls"] > 0
    for core in document["cores"]:
        for start, count, total in core["gaps"]:
            assert count > 0
            assert total >= start * count * 0.99


def test_cacheline_roundtrip_between_two_cores() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("needs two cores that this process may use")
    values = machine.cacheline_roundtrip_ns(cpus[0], cpus[1], seconds=0.2)
    assert values
    assert all(1 < v < 1e9 for v in values)
    with pytest.raises(CorelaneError, match="two different cpus"):
        machine.cacheline_roundtrip_ns(cpus[0], cpus[0])


def test_cores_that_do_not_run_together_at_first_are_given_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the look was to be: a busy machine may have one of them away for as long."""
    limits_s: list[float] = []

    class Busy:
        @staticmethod
        def cl_cacheline_roundtrip(
            a: int, b: int, rounds: int, batches: int, limit_ns: int, out: object, e: object
        ) -> int:
            limits_s.append(limit_ns / 1e9)
            return 1 if limits_s[-1] >= machine.LONGEST_S else -1

    monkeypatch.setattr(machine, "lib", Busy)
    assert len(machine.cacheline_roundtrip_ns(0, 1, seconds=0.01)) == 1
    assert limits_s == sorted(limits_s)
    assert sum(limits_s) < 10
