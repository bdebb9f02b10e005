"""Handlers of batches: which requests are handled together, what is dropped, what a mistake costs, what is refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host

from corelane import libos
from corelane.apps._native import ffi as apps_ffi
from corelane.apps._native import lib as apps_lib
from corelane.libos._native import ffi
from corelane.libos.numba import calls
from corelane.libos.numba.atomics import load_atomic, store_atomic
from corelane.runtime.errors import CorelaneError

Serve = Callable[..., Any]

SERVER, CLIENT = Host("02:00:00:00:00:01", "10.0.0.1"), Host("02:00:00:00:00:02", "10.0.0.2")
HOLD = 255
LONG_US = 2**32 - 1  # over an hour
HELD_S, SHORT_LIMIT_US = 0.2, 5_000
LOGGED = 4  # words of the state before the log


def logs(requests, replies, lengths, state):  # type: ignore[no-untyped-def]  # numba types it
    """state: [0] holding, [1] let go, [2] words logged: of each batch its size, and each request's first byte."""
    at = np.uint64(4) + state[2]
    state[at] = len(requests)
    for i in range(len(requests)):
        if requests[i][0] == 255:
            store_atomic(state, 0, 1)
            while load_atomic(state, 1) == 0:
                pass
        state[at + np.uint64(1) + np.uint64(i)] = requests[i][0]
        replies[i][:1] = requests[i][:1]
        lengths[i] = 1
    state[2] += np.uint64(1 + len(requests))


def _request(number: int, port: int = 9000, sport: int = 5555) -> bytes:
    return CLIENT.datagram(SERVER, bytes([number]), sport, port)


def _log(state: Any) -> list[list[int]]:
    """What was handled together, batch by batch."""
    words, found = [int(word) for word in state[LOGGED : LOGGED + int(state[2])]], []
    while words:
        found.append(words[1 : 1 + words[0]])
        del words[: 1 + words[0]]
    return found


def _held(serve: Serve, n: int, held_s: float = 0.0, **how: Any) -> tuple[list[list[int]], Any]:
    """The batches of n requests that come while the kthread is held for at least so long, and the last statistics."""
    state = np.zeros(1000, np.uint64)
    served = serve(libos.udp(9000, state=state, **how)(logs))
    served.send(_request(HOLD))
    wait_until(lambda: state[0] == 1, 60, lambda: "the handler to hold the kthread")
    served.send(*[_request(number) for number in range(n)])
    until = time.monotonic() + held_s
    wait_until(lambda: time.monotonic() >= until, 60, lambda: "time to pass")
    state[1] = 1
    stats = served.done_with(1 + n)
    batches = _log(state)
    assert batches[0] == [HOLD], "who comes while nothing runs does not wait"
    assert (stats.net["batches"], stats.net["batched"]) == (len(batches), sum(map(len, batches)))
    return batches[1:], stats


def test_a_batch_is_what_came_while_the_one_before_ran(serve: Serve) -> None:
    batches, _ = _held(serve, 40, batch=32)
    assert batches == [[*range(32)], [*range(32, 40)]]


@pytest.mark.parametrize("kthreads", [1, 2])
def test_requests_wait_until_a_batch_is_full(serve: Serve, kthreads: int) -> None:
    state = np.zeros(1000, np.uint64)
    served = serve(libos.udp(9000, state=state, batch=4, wait_us=LONG_US)(logs), kthreads=kthreads)
    served.send(*[_request(number) for number in range(3)])
    served.settled(lambda s: s.net["rx_frames"] == 3)
    wait_until(lambda: served.runtime.batch_profile(9000).waiting == 3, 60, lambda: "three to wait")
    assert served.runtime.stats().net["handled"] == 0
    served.send(_request(3))
    served.receive(4)
    assert _log(state) == [[0, 1, 2, 3]]


def test_nobody_waits_for_longer_than_it_may(serve: Serve) -> None:
    state = np.zeros(1000, np.uint64)
    served = serve(libos.udp(9000, state=state, batch=32, wait_us=1000)(logs))
    for number in range(3):
        served.send(_request(number))
        assert served.datagrams(1)[0].payload == bytes([number])
    assert _log(state) == [[0], [1], [2]]


def test_waiting_ends_before_the_limit_does(serve: Serve) -> None:
    state = np.zeros(1000, np.uint64)
    served = serve(libos.udp(9000, state=state, batch=32, limit_us=20_000_000, wait_us=LONG_US)(logs))
    served.send(_request(0))
    served.receive()  # at once: nothing was measured yet
    assert _log(state) == [[0]]


def test_the_limit_ends_the_waiting(serve: Serve) -> None:
    state = np.zeros(1000, np.uint64)
    limit_us = 400_000
    served = serve(libos.udp(9000, state=state, batch=32, limit_us=limit_us, wait_us=LONG_US, early_drop=False)(logs))
    served.send(_request(0))
    served.receive()
    served.send(_request(1), _request(2))
    served.settled(lambda s: s.net["rx_frames"] == 3)
    served.receive(2)
    assert _log(state) == [[0], [1, 2]]


def test_who_comes_too_late_is_dropped_and_counted(serve: Serve) -> None:
    """The batch that was held says that nobody can be in time: so one is handled all the same, to see whether it is
    still so, and that is the youngest, for all are late."""
    batches, stats = _held(serve, 5, HELD_S, batch=32, limit_us=SHORT_LIMIT_US)
    assert batches == [[4]]
    assert {k: v for k, v in stats.dropped.items() if v} == {"batch_late": 4}


def test_without_early_drop_all_are_answered(serve: Serve) -> None:
    batches, stats = _held(serve, 5, HELD_S, batch=32, limit_us=SHORT_LIMIT_US, early_drop=False)
    assert batches == [[*range(5)]]
    assert not any(stats.dropped.values())


def test_what_is_too_much_is_dropped_and_counted(serve: Serve) -> None:
    batches, stats = _held(serve, 20, batch=8, queue=8)
    assert (batches, stats.dropped["batch_queue_full"]) == ([[*range(8)]], 12)


def test_with_a_limit_the_oldest_makes_room(serve: Serve) -> None:
    batches, stats = _held(serve, 20, batch=8, queue=8, limit_us=LONG_US)
    assert stats.dropped["batch_queue_full"] == 12
    assert batches == [[*range(12, 20)]]


def test_what_waits_when_the_runtime_stops_is_given_back(serve: Serve) -> None:
    state = np.zeros(1000, np.uint64)
    served = serve(libos.udp(9000, state=state, batch=4, wait_us=LONG_US)(logs))
    served.send(*[_request(number) for number in range(3)])
    served.settled(lambda s: s.net["rx_frames"] == 3)
    assert served.runtime.stop() == 0
    assert served.runtime.stats().net["unhandled"] == 3


def test_a_profile_is_measured(serve: Serve) -> None:
    served = serve(libos.udp(9000, batch=8, limit_us=LONG_US)(answers_all), libos.udp(9001)(answers_one))
    for _ in range(20):
        served.ask(b"x")
    wait_until(lambda: served.runtime.batch_profile(9000).batches == 20, 60, lambda: "the last batch to be measured")
    profile = served.runtime.batch_profile(9000)
    assert profile.waiting == 0
    assert profile.batch_us(1) > 0
    with pytest.raises(CorelaneError, match=r"no handler of UDP port 9001 .*batch="):
        served.runtime.batch_profile(9001)


def answers_all(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        n = len(requests[i])
        replies[i][:n] = requests[i]
        lengths[i] = n


def answers_one(request, reply):  # type: ignore[no-untyped-def]  # numba types it
    reply[0] = request[0]
    return 1


@pytest.mark.parametrize("kthreads", [1, 3])
def test_all_are_answered_once_whoever_handles_them(serve: Serve, kthreads: int) -> None:
    """Three handlers of different rules, and one that has none."""
    handlers = [
        libos.udp(9000, batch=32)(answers_all),
        libos.udp(9001, batch=8, wait_us=100)(answers_all),
        libos.udp(9002, batch=4, limit_us=LONG_US, wait_us=200)(answers_all),
        libos.udp(9003)(answers_one),
    ]
    served = serve(*handlers, kthreads=kthreads)
    asked = 0
    for turn in range(40):
        sent = {(9000 + n % 4, 10_000 + n) for n in range(1 + turn)}
        served.send(*[_request(sport % 251, port, sport) for port, sport in sorted(sent)])
        got = served.datagrams(len(sent))
        assert {(d.sport, d.dport) for d in got} == sent
        assert all(d.payload == bytes([d.dport % 251]) for d in got)
        asked += len(sent)
    assert served.settled(lambda s: s.net["replied"] == asked).net["handled"] == asked


def second_byte(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        replies[i][0] = requests[i][1]  # beyond a request of one byte
        lengths[i] = 1


def two_bytes(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        replies[i][0] = calls.be16(requests[i], 0) & 255
        lengths[i] = 1


def beyond_the_burst(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        lengths[i] = 1
    lengths[len(requests)] = 1


def reads_beyond_the_burst(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        lengths[i] = 1
    lengths[0] = len(requests[len(requests)]) + len(replies[-len(requests) - 1]) + 1


def raises_on_zero(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        lengths[i] = 1
        if requests[i][0] == 0:
            raise ValueError("zero")


def negative_on_zero(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        lengths[i] = 1
        if requests[i][0] == 0:
            return -1
    return 0


def not_from_servers(requests, replies, lengths):  # type: ignore[no-untyped-def]  # numba types it
    for i in range(len(requests)):
        lengths[i] = 0 if requests.from_server(i) else 1


def _full(serve: Serve, function: Any, *frames: bytes) -> Any:
    """Statistics when a batch of just these has been handled."""
    served = serve(libos.udp(9000, batch=len(frames), wait_us=LONG_US)(function))
    served.send(*frames)
    return served.settled(lambda s: s.net["replied"] + s.net["unanswered"] + s.net["handler_errors"] == len(frames))


@pytest.mark.parametrize("function", [second_byte, two_bytes])
def test_a_fault_is_that_of_its_own_request(serve: Serve, function: Any) -> None:
    frames = [CLIENT.datagram(SERVER, b"ab"[: 1 + n % 2], 5555, 9000) for n in range(6)]
    net = _full(serve, function, *frames).net
    assert (net["replied"], net["handler_errors"], net["handler_faults"]) == (3, 3, 3)


@pytest.mark.parametrize("function", [beyond_the_burst, reads_beyond_the_burst])
def test_an_index_beyond_the_batch_is_a_fault_of_all(serve: Serve, function: Any) -> None:
    net = _full(serve, function, *map(_request, range(3))).net
    assert (net["replied"], net["handler_faults"]) == (0, 3)


@pytest.mark.filterwarnings("ignore::corelane.libos.handlers.warn.HandlerWarning")
@pytest.mark.parametrize("function", [raises_on_zero, negative_on_zero])
def test_what_fails_fails_its_batch(serve: Serve, function: Any) -> None:
    served = serve(libos.udp(9000, batch=3, wait_us=LONG_US)(function), on_event=lambda *_: None)
    served.send(*map(_request, (1, 0, 2)))
    served.settled(lambda s: s.net["handler_errors"] == 3)
    served.send(*map(_request, (3, 4, 5)))
    assert len(served.datagrams(3)) == 3, "the next one is fine"


def test_who_asks_from_a_server_is_known(serve: Serve) -> None:
    net = _full(serve, not_from_servers, _request(1), _request(1, sport=53), _request(1, sport=9000)).net
    assert (net["replied"], net["unanswered"]) == (1, 2)


def test_a_c_function(serve: Serve) -> None:
    burst = apps_ffi.addressof(apps_lib, "cl_echo_burst")
    assert serve(libos.c_handler(burst, 9000, burst=True, batch=4, limit_us=LONG_US)).ask(b"hello") == b"hello"


def test_it_can_be_called_without_a_network() -> None:
    handler = libos.udp(9000, batch=4)(answers_all)
    requests = [np.frombuffer(b"ab", np.uint8), np.frombuffer(b"c", np.uint8)]
    replies, lengths = [np.zeros(8, np.uint8) for _ in requests], np.zeros(2, np.int64)
    handler(requests, replies, lengths)
    assert lengths.tolist() == [2, 1]
    assert bytes(replies[0][:2]) == b"ab"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"batch": 0}, "batch is 0 (give a whole number from 1 to 32)"),
        ({"batch": 33}, "give a whole number from 1 to 32"),
        ({"batch": 2.5}, "give a whole number from 1 to 32"),
        ({"limit_us": 2000}, "limit_us was given without batch"),
        ({"wait_us": 2000}, "wait_us was given without batch"),
        ({"batch": 8, "limit_us": 0}, "limit_us is 0"),
        ({"batch": 8, "wait_us": -1}, "wait_us is -1"),
        ({"batch": 8, "queue": 7}, "queue is 7 (give a whole number from 8 to 512)"),
        ({"batch": 8, "early_drop": True}, "give limit_us, too"),
        ({"batch": 8, "ordered": True}, "leave out either batch or ordered"),
        ({"batch": 8, "classify": answers_one, "targets_us": (1, 2)}, "leave out either batch or classify"),
    ],
)
def test_wrong_options_are_one_clear_error(options: dict[str, Any], says: str) -> None:
    with pytest.raises(CorelaneError, match="handle requests in batches") as error:
        libos.udp(9000, **options)
    assert says in str(error.value)


def test_a_c_handler_of_one_request_takes_no_batches() -> None:
    with pytest.raises(CorelaneError, match="give a cl_udp_burst_handler"):
        libos.c_handler(ffi.cast("cl_udp_handler", 1), 9000, batch=4)


def test_a_handler_of_another_shape_is_told_the_right_one() -> None:
    with pytest.raises(CorelaneError, match=r"write def answers_one\(requests, replies, lengths\)"):
        libos.udp(9000, batch=4)(answers_one).prepare()


def test_the_rule_may_change_while_it_runs(serve: Serve) -> None:
    state = np.zeros(1000, np.uint64)
    served = serve(libos.udp(9000, state=state, batch=4, wait_us=LONG_US)(logs), libos.udp(9001)(answers_one))
    served.send(*map(_request, range(3)))
    wait_until(lambda: served.runtime.batch_profile(9000).waiting == 3, 60, lambda: "three to wait")
    served.runtime.set_batching(9000, batch=2)
    served.receive(3)
    assert _log(state) == [[0, 1], [2]], "who waits has waited long enough"
    served.send(_request(3))
    assert served.datagrams(1)[0].payload == b"\3"
    for wrong, says in (({"batch": 33}, "from 1 to 32"), ({"limit_us": 5}, "without batch"), ({}, "say how many")):
        with pytest.raises(CorelaneError, match=says):
            served.runtime.set_batching(9000, **wrong)
    with pytest.raises(CorelaneError, match="no handler of UDP port 9001"):
        served.runtime.set_batching(9001, batch=2)


def test_a_runtime_has_room_for_so_many(serve: Serve) -> None:
    handler = libos.udp(batch=4)(answers_all)
    served = serve(libos.udp(9000, batch=4)(answers_all))
    for port in range(9001, 9016):
        served.runtime.bind(handler, port)
    with pytest.raises(CorelaneError, match="16 handlers of this runtime"):
        served.runtime.bind(handler, 9016)
    with pytest.raises(CorelaneError, match="UDP port 9000 is in use"):
        served.runtime.bind(handler, 9000)
    assert served.ask(b"x", 9015) == b"x"
