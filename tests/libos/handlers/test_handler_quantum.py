"""Handlers in Python have probes: with a quantum, one that computes on end lets the requests behind it go first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host, read_datagram

from corelane import libos
from corelane.libos.handlers.compile import compile_classifier, compile_handler
from corelane.libos.numba.atomics import atomic_add, load_atomic, store_atomic

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
LONG, SHORT = b"\1", b"\0"

# Words of the handlers' state: a long one has begun; it is to end although no short one came; short ones handled.
BEGUN, LET_GO, SHORTS = 0, 1, 2


def spin(state: Any) -> int:
    """Turns until a short request was handled."""
    before, turns = load_atomic(state, 2), 0
    store_atomic(state, 0, 1)
    while load_atomic(state, 2) == before and load_atomic(state, 1) == 0:
        turns += 1
    return turns


spin_of_njit = numba.njit(spin)
spin_of_batch = libos.batch(spin)


def loops(request, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    if request[0] == 0:
        atomic_add(state, 2, 1)
    else:
        before, turns = load_atomic(state, 2), 0
        store_atomic(state, 0, 1)
        while load_atomic(state, 2) == before and load_atomic(state, 1) == 0:
            turns += 1
        reply[1] = turns > 0
    reply[0] = request[0]
    return 1


def calls_njit(request, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    if request[0] == 0:
        atomic_add(state, 2, 1)
    else:
        reply[1] = spin_of_njit(state) > 0
    reply[0] = request[0]
    return 1


def calls_batch(request, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    if request[0] == 0:
        atomic_add(state, 2, 1)
    else:
        reply[1] = spin_of_batch(state) > 0
    reply[0] = request[0]
    return 1


def first_byte(request):  # type: ignore[no-untyped-def]  # numba types it
    return request[0]


@pytest.mark.parametrize("types", [{}, {"classify": first_byte, "targets_us": (10, 1000)}], ids=["plain", "typed"])
@pytest.mark.parametrize("handler", [loops, calls_njit, calls_batch])
def test_a_long_request_ends_by_a_short_one_behind_it(
    serve: Callable[..., Any], handler: Callable[..., int], types: dict[str, Any]
) -> None:
    """There is one kthread, and the long request does not end unless a short one is handled meanwhile."""
    state = np.zeros(3, np.uint64)
    served = serve(libos.udp(9000, state=state, **types)(handler), scheduler=libos.Scheduler(quantum_us=20))
    try:
        for n in range(1, 6):
            state[BEGUN] = 0
            served.send(CLIENT.datagram(SERVER, LONG, 5555, 9000))
            wait_until(lambda: state[BEGUN] == 1, 60, "the long request to begin")
            served.send(CLIENT.datagram(SERVER, SHORT, 5555, 9000))
            answers = [read_datagram(frame).payload for frame in served.receive(2)]
            assert sorted(answers) == [SHORT, LONG]
            assert state[SHORTS] == n
    finally:
        state[LET_GO] = 1
    assert served.runtime.stats().net["requeued"] > 0 or not types


def test_a_handler_without_loops_pays_nothing() -> None:
    def short(request, reply):  # type: ignore[no-untyped-def]  # numba types it
        reply[0] = request[0]
        return 1

    def counts(request):  # type: ignore[no-untyped-def]  # numba types it
        n = 0
        for byte in request:
            n += byte == 0
        return n

    def text(made: Any) -> str:
        return str(made.keep[1].inspect_llvm())

    assert "cl_probe_slow" in text(compile_handler(loops, np.zeros(3, np.uint64), cache=False))
    assert "cl_probe_slow" not in text(compile_handler(short, cache=False))
    assert "cl_probe_slow" not in text(compile_classifier(counts, cache=False)), "it runs in the scheduler's loop"
