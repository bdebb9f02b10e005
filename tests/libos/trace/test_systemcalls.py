"""System calls of handlers as stages (systemcalls.py), on records with known ones and over the whole path."""

from __future__ import annotations

import dataclasses
import os
import time
from typing import Any

import numpy
import pytest
from cltest import wait_until
from maderequests import HZ, NAMES, Made, ticks

from corelane import libos
from corelane.libos.trace.blame import of_service
from corelane.libos.trace.pieces import joined
from corelane.libos.trace.stages import RUNS, STOPPED, Table, table
from corelane.libos.trace.stopped import NO_CPU
from corelane.libos.trace.systemcalls import CALLS, array_of, lines_of, placed
from corelane.runtime import syscalls
from corelane.runtime._native import ffi, lib
from corelane.runtime.errors import SystemLimit
from corelane.runtime.layout import dtype
from corelane.runtime.perf import kthreads_of
from corelane.runtime.syscalls import Call, SystemCalls
from corelane.runtime.trace import Records, Segment, close_all

READ = next(number for number, name in syscalls.names().items() if name == "read")
SLEEP = next(number for number, name in syscalls.names().items() if name == "clock_nanosleep")
OF_READ = (*CALLS, "read")
SLOW_US = 12.0  # a request comes each 20 us, and handlers do not overlap


def made(n: int = 2000, some: int = 50) -> Made:
    """On one kthread, each `some`-th one slow."""
    of = Made(n, 1)
    of.kthread[:] = 0
    of.us["runs"][::some] += SLOW_US + 1
    return of


def call(message: Any, after_us: float, us: float, number: int = READ, kthread: int = 0) -> Call:
    """So long after the start of a handler. The clock of calls counts ticks."""
    begin = int(message["begin"]) + int(message["start"]) + int(ticks(after_us))
    return Call(kthread, number, begin, begin + int(ticks(us)))


def seen(records: Records, calls: list[Call]) -> Table:
    out = table(records, NAMES, HZ, 0.0, array_of(calls, int))
    assert numpy.allclose(numpy.sum(list(out.stages.values()), axis=0), out.total)
    return out


def test_blame_goes_down_to_the_call_and_says_how_many_and_how_long() -> None:
    records = made().records()
    found = of_service(seen(records, [call(m, 0.5, SLOW_US) for m in records.messages[::50]]), "UDP 9000", 0.99)
    assert found is not None
    assert found.first == OF_READ
    assert found.alone
    assert found.cause is not None
    assert found.cause.word == "system call"
    calls = f"read: {found.n_slow} calls in {found.n_slow} of {found.n_slow}, 12.0 us each, 12.0 at most"
    assert calls in found.evidence
    assert found.what_if_us < 10


def test_a_call_is_of_the_handler_that_ran_and_of_no_other() -> None:
    """Not one between two handlers, nor of another kthread; what goes on after the end is cut off."""
    records = made().records()
    m = records.messages
    calls = [call(m[50], 1, 6), call(m[50], 8, 3, 10**6), call(m[100], 1, 10**3), call(m[101], -0.2, 0.1)]
    out = seen(records, [*calls, call(m[150], 1, 5, kthread=1)])
    assert out.stages[OF_READ][50] == pytest.approx(6, abs=0.01)
    assert out.stages[*CALLS, "number 1000000"][50] == pytest.approx(3, abs=0.01)
    ran = (int(m[100]["end"]) - int(m[100]["start"])) * 1e6 / HZ
    assert out.stages[OF_READ][100] == pytest.approx(ran - 1, abs=0.01)
    assert out.stages[RUNS][100] == pytest.approx(1, abs=0.01)
    assert numpy.count_nonzero(out.stages[OF_READ]) == 2


def test_what_is_called_while_a_handler_waits_is_not_its_own() -> None:
    of = made()
    of.us["blocked"][50], of.us["blocked"][100] = 3.0, 3.0
    records = of.records()
    waits = records.waits
    waits["begin"][:] += int(ticks(5))
    m = records.messages
    calls = [call(m[50], 2, 2), call(m[50], 6, 1), call(m[50], 9, 3), call(m[100], 2, 2)]
    got = placed(m, waits[:1], array_of(calls, int))
    assert list(got["row"]) == [50, 50], "of the other one it is not written down when it waited"
    assert list(got["ticks"]) == pytest.approx([ticks(2), ticks(3)], abs=1)


def test_those_that_share_a_handler_have_its_calls_each() -> None:
    records = made().records()
    m = records.messages
    for field in ("begin", "pickup", "start", "end", "sent"):
        m[field][51] = m[field][50]
    out = seen(records, [call(m[50], 1, 6)])
    assert list(out.stages[OF_READ][49:53]) == pytest.approx([0, 6, 6, 0], abs=0.01)
    assert out.calls is not None
    told = lines_of(out.calls, m["id"][50:52], OF_READ, HZ, {READ: "read"})
    assert told == ["read: 1 calls in 2 of 2, 6.0 us each, 6.0 at most"]


def test_a_call_that_sleeps_is_no_stop_of_the_kthread() -> None:
    """The kernel says that the thread had no CPU; another such time in the same handler stays one."""
    records = made().records()
    m = records.messages
    gaps = numpy.zeros(2, dtype(ffi, "struct cl_trace_gap"))
    gaps["kind"] = lib.CL_TRACE_GAP
    start = int(m[50]["begin"]) + int(m[50]["start"])
    for row, (after, us) in zip(gaps, ((1, 6), (9, 3)), strict=True):
        row["begin"], row["end"] = start + int(ticks(after)), start + int(ticks(after + us))
        row["gone"] = int(ticks(us))
    out = seen(dataclasses.replace(records, gaps=gaps), [call(m[50], 1, 6)])
    assert out.stages[OF_READ][50] == pytest.approx(6, abs=0.01)
    assert out.stages[STOPPED, NO_CPU][50] == pytest.approx(3, abs=0.01)


def test_a_handler_that_sleeps_in_the_kernel_has_that_as_a_stage(serve: Any) -> None:
    """Over the whole path: a runtime that writes all down, and the kernel that tells of its kthread's calls."""

    @libos.udp(9000, compiled=False)
    def sleeps(request: bytes) -> bytes:
        time.sleep(0.002)
        return request

    served = serve(sleeps, name="sleeps", trace="full")
    segments = {segment.name: segment for segment in Segment.all_of_process(os.getpid())}
    segment = segments.pop("sleeps")
    close_all(list(segments.values()))
    with segment, asked_of_the_kernel() as calls:
        segment.read()
        for n in range(5):
            served.ask(b"x" * (n + 1))
        found: list[Records] = []

        def all_written() -> bool:
            found.append(segment.read())
            return sum(len(part.messages) for part in found) == 5

        wait_until(all_written, 60, "the five to be written down")
        seen = table(joined(found), segment.services(), segment.hz, calls=array_of(calls.read(), segment.tsc_of))
    assert seen.calls is not None
    slept = seen.calls[seen.calls["call"] == SLEEP]
    longest_us = [slept["ticks"][slept["id"] == one].max() * 1e6 / segment.hz for one in seen.messages["id"]]
    assert min(longest_us) >= 1950, longest_us  # no sleep is shorter; a stamp and the kernel's time differ by 0.1 us
    assert (seen.stages[*CALLS, "clock_nanosleep"] > 0).any(), "but for what the machine took of it"
    assert numpy.allclose(sum(seen.stages.values()), seen.total, atol=0.01)


def asked_of_the_kernel() -> SystemCalls:
    """The system calls of this process's kthreads."""
    try:
        return SystemCalls(kthreads_of(os.getpid()))
    except SystemLimit as error:
        pytest.skip(str(error))
