"""Kthreads that a signal samples, where the kernel lets nobody else do so (sampled.c)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from corelane import libos
from corelane.libos.numba.calls import now_ns
from corelane.libos.trace.profile import samples_of
from corelane.libos.trace.symbols import Symbols
from corelane.runtime import perf
from corelane.runtime._native import ffi, lib
from corelane.runtime.perf import mapped_code
from corelane.runtime.trace import Segment

HZ = 997


def computes(request, reply):  # type: ignore[no-untyped-def]
    begun = now_ns()
    while now_ns() - begun < 30_000_000:
        pass
    reply[0] = request[0]
    return 1


def own(name: str) -> Segment:
    (mine,) = [s for s in Segment.all_of_process(os.getpid()) if s.name == name]
    return mine


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel lets nobody sample."""
    monkeypatch.setattr(perf, "permitted", lambda: False)


def test_samples_come_as_records_once_they_are_asked_for(refused: None, serve: Any) -> None:
    served = serve(libos.udp(9000)(computes), name="sampled", trace="full")
    with own("sampled") as segment:
        assert served.ask(b"1") == b"1"
        assert len(segment.read().samples) == 0
        assert segment.ask_samples(HZ, 60.0)
        found: list[Any] = []
        for _ in range(100):
            assert served.ask(b"2") == b"2"
            records = segment.read()
            assert records.garbage == 0
            found += samples_of(records)
            if len(found) >= 20:
                break
        segment.ask_samples(HZ, 0.001)  # and no more
    assert len(found) >= 20
    assert {sample.number for sample in found} == {0}
    symbols = Symbols(mapped_code(os.getpid()))
    names = {symbols.name_of(pc - 1).partition(" (")[0] for sample in found for pc in sample.chain}
    assert names & {"computes", "cl_sched_now_ns", "cl_kthread_main", "cl_round"}, names


def test_nobody_is_asked_where_the_kernel_samples(serve: Any) -> None:
    serve(libos.udp(9000)(computes), name="by-the-kernel")
    if perf.permitted():
        with own("by-the-kernel") as segment:
            assert not segment.ask_samples(HZ, 1.0)


TAKEN = """
import os, signal
signal.signal(signal.SIGPROF, lambda *_: None)
from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.runtime import perf
from corelane.runtime.trace import Segment
perf.permitted = lambda: False
nic, end = memory_link(ipv4=("10.0.0.1", None), ipv4_prefix=24)
with nic, end, libos.Runtime(nic=nic) as runtime:
    runtime.start()
    with Segment.of_process(os.getpid()) as segment:
        assert not segment.ask_samples(100, 1.0)
"""


def test_a_signal_that_is_anothers_stays_so() -> None:
    done = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_cannot_be_asked_for_is_refused() -> None:
    for pid, number, hz, ms in ((0, 27, 1, 1), (1, 0, 1, 1), (1, 27, 0, 1), (1, 27, 4096, 1), (1, 27, 1, 1 << 20)):
        assert lib.cl_trace_ask_samples(pid, number, hz, ms) == -22
    assert lib.cl_trace_ask_samples(2**22 + 1, signal.SIGPROF, 1, 1) == -3


def test_records_of_samples_are_bounded() -> None:
    made = ffi.new("struct cl_trace_sample *", {"kind": lib.CL_TRACE_SAMPLE, "n": 5, "stands": 1})
    assert lib.cl_trace_valid(made)
    for field, value in (("n", 0), ("n", 6), ("stands", 0)):
        wrong = ffi.new("struct cl_trace_sample *", {"kind": lib.CL_TRACE_SAMPLE, "n": 5, "stands": 1})
        setattr(wrong, field, value)
        assert not lib.cl_trace_valid(wrong)
