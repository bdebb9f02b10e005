"""Program counters that the kernel samples (perf.py)."""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from typing import Any

import pytest

from corelane.runtime import perf
from corelane.runtime.errors import CorelaneError, SystemLimit


def samples_of(tid: int, enough: int = 20) -> list[perf.Sample]:
    """As many of this thread, which must use its CPU meanwhile; a skip says why there are none."""
    try:
        sampler = perf.Sampler({tid: 7}, 2000)
    except SystemLimit as error:
        pytest.skip(str(error))
    found: list[perf.Sample] = []
    with sampler:
        while len(found) < enough:
            sum(range(20_000))
            found += sampler.read()
        assert sampler.lost == 0
    return found


def test_a_thread_that_computes_is_where_its_code_is() -> None:
    before = time.monotonic_ns()
    found = samples_of(threading.get_native_id())
    assert {sample.number for sample in found} == {7}
    assert all(before < sample.ns <= time.monotonic_ns() for sample in found)
    assert [sample.ns for sample in found] == sorted(sample.ns for sample in found)
    code = perf.mapped_code(os.getpid())
    inside = [any(m.begin <= sample.chain[0] < m.end for m in code) for sample in found]
    assert sum(inside) >= len(inside) - 1, "but for one that the kernel was entered in"


def test_what_the_kernel_refuses_is_told_with_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(tid: int, hz: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(perf, "_open", refused)
    with pytest.raises(SystemLimit, match=r"Permission denied \(sysctl kernel.perf_event_paranoid=2"):
        perf.Sampler({1: 0}, 100)


def test_kthreads_are_known_by_their_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    with pytest.raises(CorelaneError, match="there is no such process"):
        perf.kthreads_of(999_999_999)
    with pytest.raises(CorelaneError, match="it has no kthreads"):
        perf.kthreads_of(1)


def record(kind: int, body: bytes) -> bytes:
    return struct.pack("<IHH", kind, 2, 8 + len(body)) + body


def sample(ns: int, *chain: int) -> bytes:
    body = struct.pack("<QIIQQ", chain[-1], 1, 1, ns, len(chain)) + struct.pack(f"<{len(chain)}Q", *chain)
    return record(9, body)


def sampler_of(number: int, memory: Any) -> perf.Sampler:
    """One whose ring is this memory."""
    ring, sampler = object.__new__(perf.Ring), object.__new__(perf.Sampler)
    ring._fd, ring._memory = -1, memory
    sampler.lost, sampler._rings = 0, [(number, ring)]
    return sampler


def test_records_are_read_across_the_end_of_their_ring() -> None:
    """And contexts in a chain, records of other kinds, and those that were lost."""
    user = 2**64 - 512
    data = sample(5, user, 10, 20) + record(2, struct.pack("<QQ", 1, 3)) + record(1, b"other   ") + sample(6, 30)
    size = perf.PAGES * perf.mmap.PAGESIZE
    for begin in (0, size - 20, 5 * size - len(data), 3 * size - 8):
        ring: Any = bytearray(perf.mmap.PAGESIZE + size)
        for i, byte in enumerate(data):
            ring[perf.mmap.PAGESIZE + (begin + i) % size] = byte
        struct.pack_into("<QQ", ring, 1024, begin + len(data), begin)
        sampler = sampler_of(4, ring)
        found = sampler.read()
        assert found == [perf.Sample(4, 5, (10, 20)), perf.Sample(4, 6, (30,))]
        assert sampler.lost == 3
        assert struct.unpack_from("<Q", ring, 1032)[0] == begin + len(data)


def test_a_ring_of_garbage_is_left_at_its_end() -> None:
    ring: Any = bytearray(perf.mmap.PAGESIZE * (1 + perf.PAGES))
    struct.pack_into("<QQ", ring, 1024, 100, 0)
    assert sampler_of(0, ring).read() == []
