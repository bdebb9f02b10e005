"""Scopes in compiled code: they wait for what was started in them, and a cancel reaches what waits on the network."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from cltest import wait_until
from cltest.packets import Host

from corelane import libos
from corelane.apps.echo import handler as echo_handler
from corelane.drivers.nic.memory import memory_link
from corelane.libos.handlers.warn import HandlerWarning
from corelane.libos.numba import atomics
from corelane.libos.numba.calls import (
    cancelled,
    log_append,
    poll_wait,
    scope_cancel,
    scope_close,
    scope_fail,
    scope_open,
    scope_spawn,
    scope_why,
    shield_enter,
    shield_leave,
    sleep_ns,
    tcp_accept,
    tcp_close,
    tcp_connect,
    tcp_listen,
    tcp_read,
    tcp_write,
    udp_recv,
)
from corelane.libos.storage.log.log import Log

Serve = Callable[..., Any]
SERVER = Host("02:00:00:00:00:01", "10.0.0.1")
CLIENT = Host("02:00:00:00:00:02", "10.0.0.2")
HOUR_NS = 3_600_000_000_000
MS_NS = 1_000_000
CANCELED, TIMEDOUT = -errno.ECANCELED, -errno.ETIMEDOUT


@numba.njit
def add(sums: Any, at: Any, value: Any) -> None:
    sleep_ns(1000)
    atomics.atomic_add(sums, at, value)


@numba.njit
def sleep_long(sums: Any) -> Any:
    rc = sleep_ns(HOUR_NS)
    atomics.atomic_add(sums, 1, 1)
    return rc


@numba.njit
def fail_at_once(rc: Any) -> Any:
    return rc


@numba.njit
def raise_at_once(none: Any) -> Any:
    if none[0] == 0:
        raise ValueError("nothing there")
    return 0


def run(served: Any, function: Any, *args: Any) -> Any:
    """On a uthread."""
    return served.runtime.batch(function, *args).result(30)


def test_close_waits_for_all_and_returns_the_first_error(serve: Serve) -> None:
    def many(sums: Any, n: int, rc: int) -> Any:
        scope = scope_open(-1)
        for i in range(n):
            scope_spawn(scope, add, sums, 0, i)
        if rc:
            for _ in range(3):
                scope_spawn(scope, sleep_long, sums)
            scope_spawn(scope, fail_at_once, rc)
        return scope_close(scope)

    served = serve(echo_handler("c"), kthreads=2)
    sums = np.zeros(2, np.int64)
    assert run(served, many, sums, 100, 0) == 0
    assert sums.tolist() == [4950, 0]
    assert run(served, many, sums, 0, -errno.EIO) == -errno.EIO
    assert sums.tolist() == [4950, 3]


def test_an_array_lives_as_long_as_the_uthread_that_has_it(serve: Serve) -> None:
    def lend(sums: Any) -> Any:
        scope = scope_open(-1)
        for i in range(20):
            scope_spawn(scope, add_all, sums, np.full(1000, i))  # nobody else has this one
        return scope_close(scope)

    served = serve(echo_handler("c"), kthreads=2)
    sums = np.zeros(1, np.int64)
    assert run(served, lend, sums) == 0
    assert sums[0] == 190_000


@numba.njit
def add_all(sums: Any, values: Any) -> None:
    sleep_ns(1000)
    atomics.atomic_add(sums, 0, np.int64(values.sum()))


def test_an_exception_is_an_error_and_a_scope_has_a_reason(serve: Serve) -> None:
    def raising(sums: Any) -> Any:
        scope = scope_open(-1)
        scope_spawn(scope, sleep_long, sums)
        scope_spawn(scope, raise_at_once, np.zeros(1))
        return scope_close(scope)

    def failing(sums: Any) -> Any:
        scope = scope_open(-1)
        scope_spawn(scope, sleep_long, sums)
        before = scope_why(scope)
        scope_fail(scope, -errno.EBADMSG)
        scope_cancel(scope)  # no more happens
        sums[0] = before + scope_why(scope)
        return scope_close(scope)

    def shielded(sums: Any) -> Any:
        scope = scope_open(0)  # over before it begins
        sums[0] = cancelled()
        shield_enter()
        sums[1] = 10 * cancelled() + sleep_ns(1000)
        shield_leave()
        return scope_close(scope)

    served = serve(echo_handler("c"))
    sums = np.zeros(2, np.int64)
    assert run(served, raising, sums) == -errno.ENOTRECOVERABLE
    assert sums.tolist() == [0, 1]
    assert run(served, failing, sums) == -errno.EBADMSG
    assert sums.tolist() == [-errno.EBADMSG, 2]
    assert run(served, shielded, sums) == TIMEDOUT
    assert sums.tolist() == [1, 0]


@numba.njit
def in_udp(results: Any, at: Any, socket: Any) -> None:
    results[at] = udp_recv(socket, np.zeros(8, np.uint8), -1)


@numba.njit
def in_poll(results: Any, at: Any, poll: Any) -> None:
    results[at] = poll_wait(poll, np.zeros(2, np.uint64), HOUR_NS)


@numba.njit
def in_accept(results: Any, at: Any, listener: Any) -> None:
    results[at] = tcp_accept(listener, -1)


@numba.njit
def in_connect(results: Any, at: Any, runtime: Any) -> None:
    results[at] = tcp_connect(runtime, 0x0A000002, 80, HOUR_NS)  # whom nobody answers for


@numba.njit
def in_read(results: Any, at: Any, stream: Any) -> None:
    results[at] = tcp_read(stream, np.zeros(8, np.uint8), -1)


@numba.njit
def in_write(results: Any, at: Any, stream: Any) -> None:
    block = np.zeros(1 << 16, np.uint8)
    rc = 1
    while rc > 0:  # until neither buffer has room: what was written before is said first
        rc = tcp_write(stream, block, HOUR_NS)
    results[at] = rc


def network(results: Any, runtime: Any, socket: Any, poll: Any, own_ipv4: Any) -> Any:
    listener = tcp_listen(runtime, 7001, 4)
    ours = tcp_connect(runtime, own_ipv4, 7001, -1)
    theirs = tcp_accept(listener, -1)
    if listener < 0 or ours < 0 or theirs < 0:
        return -1
    scope = scope_open(5 * MS_NS)
    scope_spawn(scope, in_udp, results, 0, socket)
    scope_spawn(scope, in_poll, results, 1, poll)
    scope_spawn(scope, in_accept, results, 2, listener)
    scope_spawn(scope, in_connect, results, 3, runtime)
    scope_spawn(scope, in_read, results, 4, ours)
    scope_spawn(scope, in_write, results, 5, ours)
    rc = scope_close(scope)
    tcp_close(ours)
    tcp_close(theirs)
    tcp_close(listener)
    return rc


@pytest.mark.parametrize("kthreads", [1, 2])
def test_a_deadline_reaches_what_waits_on_the_network(kthreads: int) -> None:
    nic, end = memory_link((kthreads, 1), ipv4=(SERVER.ip, CLIENT.ip), ipv4_prefix=24)
    results = np.ones(6, np.int64)
    with nic, end, libos.Runtime(nic=nic) as runtime:
        socket, poll = runtime.open_udp(9100), runtime.open_poll()
        runtime.start()
        args = (np.uint64(at) for at in (runtime.pointer, socket.address, poll.address, 0x0A000001))
        assert runtime.batch(network, results, *args).result(30) == TIMEDOUT
        assert runtime.stop(10) == 0
    assert results.tolist() == [CANCELED] * 6


def test_an_append_that_has_not_begun_is_refused(serve: Serve, tmp_path: Path) -> None:
    def append(log: Any, results: Any) -> Any:
        results[0] = log_append(log, np.zeros(4, np.uint8))
        scope = scope_open(-1)
        results[1] = log_append(log, np.zeros(4, np.uint8))
        scope_cancel(scope)
        results[2] = log_append(log, np.zeros(4, np.uint8))
        shield_enter()
        results[3] = log_append(log, np.zeros(4, np.uint8))
        shield_leave()
        return scope_close(scope)

    Log.create(tmp_path / "log", 1 << 20)
    results = np.zeros(4, np.int64)
    shared: list[Any] = []
    with Log.open(tmp_path / "log") as log:
        served = serve(echo_handler("c"), before=lambda runtime: shared.append(runtime.share(log)))
        first = shared[0].address
        assert run(served, append, np.uint64(first), results) == CANCELED
        served.runtime.stop(10)
        assert results[2] == CANCELED
        assert results[[1, 3]].tolist() == [results[0] + 1, results[0] + 2]


def test_what_a_handler_leaves_open_is_closed_before_the_next_request(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by code from the cache."""
    monkeypatch.setenv("CORELANE_CACHE_DIR", str(tmp_path))
    for cached in (False, True):
        state = np.zeros(2, np.int64)
        forget = make_forget(state)
        with pytest.warns(HandlerWarning, match="may raise ValueError"):
            served = serve(forget)
        assert forget._prepared is not None
        (made,) = (kept for kept in forget._prepared.keep if hasattr(kept, "from_cache"))
        assert made.from_cache == cached
        assert served.ask(b"\0") == b"\0"
        served.send(CLIENT.datagram(SERVER, b"\1", 5555, 9000))
        served.settled(lambda s: s.net["handler_faults"] == 1)
        assert served.ask(b"\0") == b"\0"
        wait_until(lambda state=state: state[1] == 3, 60, "the uthreads of three requests to end")


def make_forget(state: Any) -> libos.Handler:
    @libos.udp(9000, state=state)
    def forget(request: Any, reply: Any, state: Any) -> Any:
        scope = scope_open(-1)
        scope_spawn(scope, sleep_long, state)
        reply[0] = cancelled()
        if request[0] == 1:
            raise ValueError("leaves it in a hurry")
        return 1

    return forget


def test_what_cannot_be_started_is_said(serve: Serve) -> None:
    def no_function(x: Any) -> Any:
        return scope_spawn(scope_open(-1), 5, x)

    def no_integer(x: Any) -> Any:
        return scope_spawn(scope_open(-1), halve, x)

    served = serve(echo_handler("c"))
    with pytest.raises(Exception, match=r"give a function that numba\.njit or libos\.batch has wrapped"):
        run(served, no_function, 1)
    with pytest.raises(Exception, match="return nothing, or an integer, negative for an error"):
        run(served, no_integer, 1)


@numba.njit
def halve(x: Any) -> Any:
    return x / 2
