"""Ordered handlers: one datagram of a flow at a time, in order, whatever other flows do; bounds; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host

from corelane import libos
from corelane.libos._native import ffi, lib
from corelane.libos.numba import calls
from corelane.libos.numba.atomics import atomic_add, load_atomic, store_atomic
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
HOLD = 255
LOGGED = 4  # words of the state before the log


def logs(request, reply, state):  # type: ignore[no-untyped-def]  # numba types it
    """Bytes: flow, number. state: [0] holding, [1] let go, [2] how many are logged, then flow << 8 | number of each."""
    if request[1] == 255:
        store_atomic(state, 0, 1)
        while load_atomic(state, 1) == 0:
            if calls.sleep_ns(np.uint64(200_000)) != 0:
                return 0  # the runtime stops
    at = atomic_add(state, 2, 1)
    store_atomic(state, 4 + at, np.uint64(request[0]) << np.uint64(8) | np.uint64(request[1]))
    reply[:2] = request[:2]
    return 2


def _request(flow: int, number: int) -> bytes:
    return CLIENT.datagram(SERVER, bytes([flow, number]), 20_000 + flow, 9000)


def _holding(serve: Serve, kthreads: int = 1) -> tuple[Any, Any]:
    """A runtime whose handler holds flow 1, which sleeps meanwhile."""
    state = np.zeros(1000, np.uint64)
    served = serve(libos.udp(9000, state=state, ordered=True)(logs), kthreads=kthreads)
    served.send(_request(1, HOLD))
    wait_until(lambda: state[0] == 1, 60, lambda: "the handler to hold the flow")
    return served, state


def _log(state: Any) -> list[tuple[int, int]]:
    return [divmod(int(word), 256) for word in state[LOGGED : LOGGED + int(state[2])]]


@pytest.mark.parametrize("kthreads", [1, 2])
def test_a_flow_waits_for_its_handler_and_others_do_not(serve: Serve, kthreads: int) -> None:
    served, state = _holding(serve, kthreads)
    served.send(*[_request(1 + n % 2, n // 2) for n in range(40)])
    answers = sorted(d.payload for d in served.datagrams(20))  # of two kthreads they leave in any order
    assert answers == [bytes([2, n]) for n in range(20)]
    assert _log(state) == [(2, n) for n in range(20)]
    state[1] = 1
    answers = sorted(d.payload for d in served.datagrams(21))
    assert answers == [bytes([1, n]) for n in (*range(20), HOLD)]
    assert _log(state)[20:] == [(1, HOLD), *((1, n) for n in range(20))]


def test_what_is_too_much_for_one_flow_is_dropped_and_counted(serve: Serve) -> None:
    served, state = _holding(serve)
    queue = int(lib.CL_UDP_FLOW_QUEUE)
    served.send(*[_request(1, n) for n in range(queue + 10)], _request(3, 0))
    stats = served.settled(lambda s: s.net["replied"] == 1)
    assert stats.dropped["flow_queue_full"] == 11, "the one that is handled counts among those of its flow"
    state[1] = 1
    assert [d.payload for d in served.datagrams(queue + 1)][2:] == [bytes([1, n]) for n in range(queue - 1)]


def test_flows_together_hold_a_part_of_the_buffers(serve: Serve) -> None:
    state = np.zeros(1000, np.uint64)
    handler = libos.udp(9000, state=state, ordered=True)(logs)
    served = serve(handler, link={"buffers": 1024})
    for flow in range(1, 9):
        served.send(_request(flow, HOLD), *[_request(flow, n) for n in range(50)])
    stats = served.settled(lambda s: s.net["rx_frames"] >= 8 * 51)
    assert stats.dropped["flow_budget"] >= 8 * 50 - 256
    state[1] = 1
    served.settled(lambda s: s.net["replied"] == s.net["delivered"])


def test_what_waits_when_the_runtime_stops_is_handled(serve: Serve) -> None:
    served, state = _holding(serve)
    served.send(*[_request(1, n) for n in range(10)])
    served.settled(lambda s: s.net["rx_frames"] == 11)
    assert served.runtime.stop() == 0
    assert _log(state) == [(1, n) for n in range(10)]


def test_plain_handlers_go_on_beside(serve: Serve) -> None:
    served, state = _holding(serve, 2)
    served.runtime.bind(libos.udp(9001)(sends_back))
    assert served.ask(b"\7", 9001) == b"\7"
    assert served.runtime.stats().dropped["udp_no_port"] == 0
    state[1] = 1
    served.receive()


def sends_back(request, reply):  # type: ignore[no-untyped-def]  # numba types it
    reply[0] = request[0]
    return 1


def test_a_c_function(serve: Serve) -> None:
    from corelane.apps._native import ffi, lib

    echo = ffi.addressof(lib, "cl_echo")
    assert serve(libos.c_handler(echo, 9000, ordered=True)).ask(b"hello") == b"hello"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: libos.udp(9000, ordered=True, compiled=False), "compile the handler"),
        (lambda: libos.udp(9000, ordered=True, classify=sends_back, targets_us=(1, 2)), "leave out either"),
        (lambda: libos.c_handler(ffi.cast("cl_udp_burst_handler", 1), 9000, ordered=True), "give a cl_udp_handler"),
    ],
)
def test_what_cannot_be_ordered_is_one_clear_error(make: Callable[[], object], says: str) -> None:
    with pytest.raises(CorelaneError, match="order datagrams by flow") as error:
        make()
    assert says in str(error.value)
