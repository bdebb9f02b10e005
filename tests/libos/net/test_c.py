"""The network stack's C programs: sockets on uthreads, the inbox under stress, the fuzzer. Under sanitizers too."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cltest import soak

Program = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("kthreads", [1, 2, 4])
def test_sockets(c_program: Program, kthreads: int) -> None:
    assert c_program("tests/libos/net/c/udp_sockets.c")(40, kthreads) == "ok\n"


@pytest.mark.parametrize("kthreads", [1, 2, 4])
def test_a_runtime_reaches_itself(c_program: Program, kthreads: int) -> None:
    assert c_program("tests/libos/net/c/loopback.c")(kthreads) == "ok\n"


@pytest.mark.parametrize("kthreads", [1, 2, 4])
def test_what_a_runtime_sends_itself_stays_in_the_senders_order(c_program: Program, kthreads: int) -> None:
    datagrams = 100 if os.environ.get("CORELANE_SANITIZE") else 1000
    assert c_program("tests/libos/net/c/loop_order.c")(kthreads, datagrams) == "ok\n"


@pytest.mark.parametrize("kthreads", [1, 2, 4])
def test_connected_sockets_and_shared_ports(c_program: Program, kthreads: int) -> None:
    assert c_program("tests/libos/net/c/connected.c")(kthreads) == "ok\n"


def test_memory_of_bytes_is_bounded_and_comes_back(c_program: Program) -> None:
    assert c_program("tests/libos/net/c/chunks.c")() == "ok\n"


@pytest.mark.soak(short=True, takes_s=2)
@pytest.mark.parametrize("kthreads", [1, 2, 4])
def test_poll_sets(c_program: Program, kthreads: int) -> None:
    rounds = 300 if os.environ.get("CORELANE_SANITIZE") else soak.examples(500, 20_000)
    assert c_program("tests/libos/net/c/poll_sets.c")(kthreads, rounds) == "ok\n"


@pytest.mark.soak(short=True, takes_s=3)
@pytest.mark.parametrize("kthreads", [2, 4])
def test_sockets_that_are_closed_and_opened_again_under_load(c_program: Program, kthreads: int) -> None:
    rounds = 30_000 if os.environ.get("CORELANE_SANITIZE") else soak.examples(40_000, 500_000)
    assert c_program("tests/libos/net/c/socket_reuse.c")(rounds, kthreads) == "ok\n"


@pytest.mark.soak(short=True, takes_s=3)
@pytest.mark.parametrize("kthreads", [2, 4])
@pytest.mark.parametrize("mode", ["adaptive", "block"])
def test_no_frame_is_slept_on(c_program: Program, kthreads: int, mode: str, seed: int) -> None:
    rounds = 3_000 if os.environ.get("CORELANE_SANITIZE") else soak.examples(8_000, 30_000)
    assert c_program("tests/libos/net/c/steal_wake.c")(kthreads, mode, rounds, seed).endswith("ok\n")


def test_thieves_and_kthread_keep_to_flows_of_their_own(c_program: Program, seed: int) -> None:
    assert c_program("tests/libos/net/c/parts.c")(seed) == "ok\n"


@pytest.mark.parametrize("kthreads", [2, 4])
def test_nothing_is_lost_where_flows_are_in_parts(c_program: Program, kthreads: int, seed: int) -> None:
    rounds = 200 if os.environ.get("CORELANE_SANITIZE") else 1000
    assert c_program("tests/libos/net/c/parts.c")(seed, kthreads, rounds) == "ok\n"


@pytest.mark.parametrize("typed", [0, 1], ids=["plain", "typed"])
def test_requests_of_one_runner_are_told_apart(c_program: Program, typed: int) -> None:
    assert c_program("tests/libos/net/c/each_request.c")(typed) == "ok\n"


def test_no_answer_is_lost_to_a_queue_that_is_full_for_a_while(c_program: Program) -> None:
    assert c_program("tests/libos/net/c/full_tx.c")() == "ok\n"


def test_a_burst_is_answered_by_one_system_call_and_a_lone_request_at_once(c_program: Program) -> None:
    assert c_program("tests/libos/net/c/doorbells.c", one_thread=True)() == "ok\n"


@pytest.mark.soak(short=True, takes_s=5)
def test_inbox_stress(c_program: Program) -> None:
    assert c_program("tests/libos/net/c/inbox_stress.c", [])(soak.examples(50_000, 200_000)) == "ok\n"


def test_arp_cache(c_program: Program) -> None:
    assert c_program("tests/libos/net/c/arp_cache.c", one_thread=True)() == "ok\n"


def test_fuzz_with_own_mutator(c_program: Program, seed: int) -> None:
    assert c_program("tests/libos/net/c/fuzz_input.c", one_thread=True)(seed, 60_000) == "ok\n"


@pytest.mark.soak(takes_s=40)
def test_fuzz_with_libfuzzer(c_fuzzer: Program, seed: int) -> None:
    c_fuzzer("tests/libos/net/c/fuzz_input.c", cflags=["-DFUZZ"])(
        "-runs=2000000", f"-seed={seed}", "-max_len=200", "-max_total_time=30"
    )


@pytest.mark.soak(short=True, takes_s=4)
@pytest.mark.parametrize(("kthreads", "mode"), [(1, "adaptive"), (3, "adaptive"), (4, "block")])
def test_flows_are_handled_in_order_whoever_is_away(c_program: Program, kthreads: int, mode: str, seed: int) -> None:
    datagrams = 8_000 if os.environ.get("CORELANE_SANITIZE") else soak.examples(20_000, 2_000_000)
    assert c_program("tests/libos/net/c/flow_order.c")(kthreads, mode, datagrams, seed).endswith("ok\n")
