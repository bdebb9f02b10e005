"""Connections of runtimes: between two, of one to itself, on kthreads that steal, and on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Program = Callable[..., Callable[..., str]]


@pytest.mark.parametrize(("kthreads", "connections", "size"), [(1, 100, 10_000), (2, 100, 100_000), (4, 30, 300_000)])
def test_every_byte_comes_back(c_program: Program, kthreads: int, connections: int, size: int) -> None:
    assert c_program("tests/libos/net/tcp/c/runtimes.c")(kthreads, connections, size) == "ok\n"


@pytest.mark.parametrize(("kthreads", "connections", "size"), [(1, 30, 200), (4, 20, 3000)])
def test_a_connection_is_woken_by_others(c_program: Program, kthreads: int, connections: int, size: int) -> None:
    assert c_program("tests/libos/net/tcp/c/woken.c")(kthreads, connections, size) == "ok\n"


@pytest.mark.parametrize("kthreads", [1, 2])
@pytest.mark.parametrize("loss", [0, 20])
def test_equal_seeds_are_equal_on_a_virtual_clock(c_program: Program, kthreads: int, loss: int, seed: int) -> None:
    run = c_program("tests/libos/net/tcp/c/virtual.c", one_thread=True)
    first, again = (run(seed, kthreads, 20, 50_000, loss, 1000) for _ in range(2))
    assert first == again
    if loss:
        assert " 0 resent" not in first


def test_many_connections_of_a_neighbour_that_is_not_known_yet(c_program: Program) -> None:
    """All SYNs are answered at once, to where they came from; data waits until ARP says where."""
    assert c_program("tests/libos/net/tcp/c/neighbours.c", one_thread=True)() == "ok\n"


def test_loss_at_a_round_trip_of_20_us_costs_little_on_a_virtual_clock(c_program: Program) -> None:
    """Timers come from a wheel of 16 us, and turns take what has come meanwhile: still no time-out, and 0.6 or more."""
    run = c_program("tests/libos/net/tcp/c/virtual.c", one_thread=True)
    none, some = (run(1, 1, 1, 2_000_000, loss, 10) for loss in (0, 10))
    none_us, some_us = (int(out.split(" us")[0]) for out in (none, some))
    assert " 0 resent" not in some
    assert " 0 timeouts" in some
    assert none_us / some_us >= 0.6


def test_dctcp_keeps_the_queue_short(c_program: Program, seed: int) -> None:
    """A queue that marks from 30 kB on never grows to 200 kB. Without marks it does, and loses."""
    run = c_program("tests/libos/net/tcp/c/virtual.c", one_thread=True)
    marked = run(seed, 1, 3, 2_000_000, 0, 100, "dctcp", 200_000, 30_000)
    assert " 0 resent" in marked
    assert " 0 marks" not in marked
    full = run(seed, 1, 3, 2_000_000, 0, 100, "cubic", 200_000, 0)
    assert " 0 resent" not in full
    assert " 0 marks" in full


def test_answers_that_come_together_leave_by_one_system_call(c_program: Program) -> None:
    """Each connection's turn is a request: that all of a burst take long together does not make one slow."""
    assert c_program("tests/libos/net/tcp/c/doorbells.c", one_thread=True)() == "ok\n"


def test_turns_that_are_written_down_as_a_group_are_told_as_they_were(c_program: Program) -> None:
    assert c_program("tests/libos/net/tcp/c/traced.c", one_thread=True)() == "ok\n"


def test_a_borrowed_kthread_answers_several_by_one_doorbell(c_program: Program) -> None:
    assert c_program("tests/libos/net/tcp/c/borrowed.c")() == "ok\n"


def test_a_connection_with_a_home_is_told_of_there(c_program: Program, seed: int) -> None:
    assert c_program("tests/libos/net/tcp/c/homes.c", one_thread=True)(seed) == "ok\n"


def test_the_event_form_is_called_from_outside_of_its_callbacks(c_program: Program) -> None:
    assert c_program("tests/libos/net/tcp/c/called.c")() == "ok\n"


@pytest.mark.parametrize("kthreads", [1, 2])
def test_data_of_a_burst_is_seen_ahead(c_program: Program, kthreads: int) -> None:
    """By the listener's user, before it comes to the connections, so that their cache misses can overlap."""
    assert c_program("tests/libos/net/tcp/c/ahead.c", one_thread=True)(kthreads) == "ok\n"


@pytest.mark.parametrize("kthreads", [1, 2])
def test_pages_of_what_connections_need_next_are_fetched_while_nothing_is_to_be_done(
    c_program: Program, kthreads: int
) -> None:
    assert c_program("tests/libos/net/tcp/c/fetched.c")(kthreads) == "ok\n"
