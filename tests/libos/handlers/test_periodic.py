"""Periodic work: it is called, it ends with the runtime, and what goes wrong is counted and said."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cltest import wait_until

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.libos.numba import atomics, calls
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]
HOUR_MS = 3_600_000


def test_compiled_work_is_done_again_and_again_beside_requests(serve: Serve) -> None:
    state = np.zeros(1, np.uint64)

    @libos.every(ms=0.5, state=state)
    def tick(state: Any) -> None:
        atomics.atomic_add(state, 0, 1)

    @libos.udp(9000, state=state)
    def ticks(request: Any, reply: Any, state: Any) -> int:
        reply[0] = min(255, atomics.load_atomic(state, 0))
        return 1

    served = serve(ticks, tick)
    wait_until(lambda: served.ask(b"?")[0] >= 20, 60, "twenty calls")
    assert tick.counters["calls"] >= 20
    assert served.runtime.stop(30) == 0
    counters, seen = tick.counters, int(state[0])
    assert counters == {"calls": seen, "skipped": counters["skipped"], "errors": 0}


def test_python_work(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    @libos.every(ms=1, compiled=False)
    def tick() -> None:
        seen.append(None)

    @libos.every(ms=1, compiled=False, state=seen)
    def with_state(state: list[object]) -> str:
        state.append("state")
        return "what it returns says nothing"

    @libos.every(ms=1, compiled=False)
    def fails() -> None:
        raise LookupError("no such thing")

    with caplog.at_level(logging.ERROR, "corelane.libos"):
        served = serve(echo_handler("c"), tick, with_state)
        served.runtime.bind(fails)  # once it runs
        wait_until(lambda: seen.count(None) > 2 and seen.count("state") > 2, 60, "calls")
        wait_until(lambda: fails.counters["errors"] > 2, 60, "errors")
    assert served.ask(b"x") == b"x"
    (record,) = caplog.records
    assert "fails" in record.getMessage()
    assert tick.counters["errors"] == with_state.counters["errors"] == 0


def test_errors_of_compiled_work_are_counted(serve: Serve) -> None:
    @libos.every(ms=1)
    def negative() -> int:
        return -1

    @libos.every(ms=1, state=np.zeros(1))
    def raises(state: Any) -> None:
        if state[0] == 0:
            raise ValueError("nought")

    told: list[str] = []
    with pytest.warns(UserWarning, match="raises may raise ValueError"):
        serve(negative, raises, on_event=lambda _, text: told.append(text))
    wait_until(lambda: negative.counters["errors"] > 1 and raises.counters["errors"] > 1, 30, "errors")
    wait_until(lambda: bool(told), 60, "an event")
    assert told[0].startswith(f"periodic work {raises.function.__qualname__} raised ValueError: nought (File ")


@pytest.mark.parametrize("kthreads", [1, 2])
def test_calls_do_not_overlap_and_what_is_missed_is_skipped(serve: Serve, kthreads: int) -> None:
    state = np.zeros(3, np.uint64)

    @libos.every(ms=0.1, state=state)
    def slow(state: Any) -> None:
        if atomics.atomic_add(state, 0, 1) != 0:
            atomics.atomic_add(state, 1, 1)
        calls.sleep_ns(2_000_000)
        atomics.atomic_sub(state, 0, 1)
        atomics.atomic_add(state, 2, 1)

    serve(slow, kthreads=kthreads)
    wait_until(lambda: slow.counters["calls"] > 5, 60, "calls")
    assert slow.counters["skipped"] >= 5 * 19
    assert state[1] == 0


def test_it_ends_with_the_runtime_at_once(serve: Serve) -> None:
    """A period of an hour: the stop does not wait for it, nor is it left behind."""
    called: list[int] = []
    work = [
        libos.every(ms=HOUR_MS, compiled=False)(lambda: called.append(1)),
        libos.every(ms=HOUR_MS)(lambda: None),
    ]
    served = serve(*work, kthreads=2)
    assert served.runtime.stop(60) == 0
    assert not called
    with pytest.raises(CorelaneError, match="start periodic work"):
        served.runtime.bind(work[0])


def test_one_that_never_started_is_freed() -> None:
    from corelane.drivers.nic.memory import memory_link

    nic, end = memory_link(ipv4=("10.0.0.1", None))
    with nic, end, libos.Runtime(nic=nic) as runtime:
        work = libos.every(ms=1, compiled=False)(lambda: None)
        runtime.bind(work)
    assert work.counters["calls"] == 0


def test_background_work_learns_of_the_stop(serve: Serve) -> None:
    """What compiled code sees: a sleep that is cut short, stopping(), a socket that is shut."""
    state = np.zeros(8, np.uint64)
    sockets: list[Any] = []

    @libos.every(ms=0.1, state=state)
    def background(state: Any) -> None:
        if atomics.exchange_atomic(state, 4, 1) == 0:
            while calls.stopping() == 0:
                state[0] = np.uint64(np.int64(-calls.sleep_ns(3_600_000_000_000)))
            state[1] = 1

    @libos.every(ms=0.1, state=state)
    def reader(state: Any) -> None:
        state[2] = np.uint64(np.int64(-calls.udp_recv(state[3], state[5:], -1)))

    def before(runtime: libos.Runtime) -> None:
        sockets.append(runtime.open_udp(7000))
        state[3] = sockets[0].address

    served = serve(background, reader, kthreads=2, before=before)
    wait_until(lambda: state[4] == 1, 60, "the loop")
    assert served.runtime.stop(60) == 0
    assert state[1] == 1
    assert state[0] in (0, 108)  # ESHUTDOWN; 0: it was asked before it went to sleep
    assert state[2] in (0, 108)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: libos.every(), "missing a required (keyword-only )?argument: 'ms'"),
        (lambda: libos.every(100), "too many positional arguments"),
        (lambda: libos.every(is_async), r"work is_async: @every is called with options .write @every\(ms=...\)"),
        (lambda: libos.every(ms="100"), "ms is '100' .expected a number"),
        (lambda: libos.every(ms=0), r"ms is 0 .0.01 or more"),
        (lambda: libos.every(ms=-1), "ms is -1"),
        (lambda: libos.every(ms=float("nan")), "ms is nan"),
        (lambda: libos.every(ms=float("inf")), "ms is inf"),
        (lambda: libos.every(ms=1, states=1), "did you mean 'state'"),
        (lambda: libos.every(ms=1)(3), "cannot be called"),
    ],
)
def test_periods_that_cannot_be(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(CorelaneError, match=says):
        make()


async def is_async() -> None:
    pass


@pytest.mark.parametrize(
    ("options", "function", "says"),
    [
        ({}, lambda state: None, r"is called with nothing, and takes \(state\) .*every\(state=array\)"),
        ({"state": np.zeros(1)}, lambda: None, r"is called with state, and takes \(\) .write def lambda\(state\)"),
        ({"state": [1]}, lambda state: None, "numpy array"),
        ({}, lambda: 0.5, "it returns float64 .*return nothing, or an integer"),
        ({}, print, "is no function that numba compiles"),
        ({"compiled": False}, lambda state: None, r"is called with nothing, and takes \(state\)"),
        ({"compiled": False, "state": 3}, lambda: None, r"is called with its state, and takes \(\)"),
        ({"compiled": False}, is_async, "is async or yields"),
    ],
)
def test_work_of_another_shape_is_refused(
    serve: Serve, options: dict[str, Any], function: Callable[..., Any], says: str
) -> None:
    with pytest.raises(CorelaneError, match=says):
        serve(libos.every(ms=1, **options)(function))


def test_it_has_no_port(serve: Serve) -> None:
    served = serve(echo_handler("c"))
    with pytest.raises(CorelaneError, match="leave the port out"):
        served.runtime.bind(libos.every(ms=1)(lambda: None), port=9000)
    assert libos.every(ms=1)(lambda: 7)() == 7
