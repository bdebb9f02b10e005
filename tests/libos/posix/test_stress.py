"""Many threads on sockets of ours at one time: also under ASan and TSan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("kthreads", [1, 3])
def test_threads_open_use_copy_and_close(c_program: Callable[..., Any], kthreads: int) -> None:
    run = c_program("tests/libos/posix/c/stress.c")
    assert run("30", str(kthreads), timeout_s=60) == "90 opened, 90 closed\n"


@pytest.mark.parametrize("kthreads", [1, 3])
def test_a_process_ends_in_the_middle_of_calls(c_program: Callable[..., Any], kthreads: int) -> None:
    run = c_program("tests/libos/posix/c/ends.c")
    for connections in range(1, 40, 6):
        assert run("process", str(connections), str(kthreads), timeout_s=60) == "ends\n"


@pytest.mark.parametrize("kthreads", [1, 3])
def test_a_listener_is_shut_while_others_accept(c_program: Callable[..., Any], kthreads: int) -> None:
    run = c_program("tests/libos/posix/c/ends.c")
    assert run("listener", "20", str(kthreads), timeout_s=60) == "ends\n"


@pytest.mark.parametrize("kthreads", [1, 3])
def test_threads_send_and_receive_datagrams(c_program: Callable[..., Any], kthreads: int) -> None:
    run = c_program("tests/libos/posix/c/datagram_stress.c")
    assert run("20", str(kthreads), timeout_s=60) == "60 answered\n"


@pytest.mark.parametrize("kthreads", [3, 5])
@pytest.mark.parametrize("how", ["blocks", "computes"])
def test_a_gathered_answer_waits_for_no_call(c_program: Callable[..., Any], kthreads: int, how: str) -> None:
    """The thread goes on when its peer says that it has the answer. It gathers once, and then learns."""
    run = c_program("tests/libos/posix/c/gathered.c")
    assert run(str(kthreads), how, timeout_s=60) == "gathered, rescued, learned\n"


def test_a_thread_that_goes_on_gathers(c_program: Callable[..., Any]) -> None:
    assert c_program("tests/libos/posix/c/gathered.c")("3", "goes", timeout_s=60).startswith("gathered")


def test_what_has_left_is_not_counted_again(c_program: Callable[..., Any]) -> None:
    """Of more answers than leave together, those behind a doorbell are gathered, too, with reads between them."""
    assert "anew" in c_program("tests/libos/posix/c/gathered.c")("3", "each", timeout_s=60)


def test_who_connects_while_the_runtime_is_made_finds_the_listeners(c_program: Callable[..., Any]) -> None:
    run = c_program("tests/libos/posix/c/first.c")
    for _ in range(3):
        assert run("60", timeout_s=60) == "all connected\n"


def test_how_congestion_is_answered_is_kept_for_the_connection(c_program: Callable[..., Any]) -> None:
    assert c_program("tests/libos/posix/c/congestion.c")() == "newreno newreno newreno cubic\n"
