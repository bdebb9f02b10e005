"""The persistent log: against a model, cut at every sector, torn, flipped, full, wrapped, concurrent."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cltest import soak

Program = Callable[..., Callable[..., str]]
SANITIZED = bool(os.environ.get("CORELANE_SANITIZE"))
C = "tests/libos/storage/log/c"


@pytest.mark.soak(short=True, takes_s=2)
@pytest.mark.parametrize("in_flight", [1, 2, 4])
@pytest.mark.parametrize("kib", [512, 4096])
def test_against_a_model_with_power_cuts_and_kills(c_program: Program, seed: int, kib: int, in_flight: int) -> None:
    steps = 5_000 if SANITIZED else soak.examples(10_000, 30_000)
    out = c_program(f"{C}/model.c", one_thread=True)(seed, steps, kib << 10, in_flight)
    assert out.endswith("ok\n")


@pytest.mark.parametrize("in_flight", [1, 4])
def test_against_a_model_while_it_is_re_packed(c_program: Program, seed: int, in_flight: int) -> None:
    run = c_program(f"{C}/model.c", one_thread=True)
    for i in range(3 if SANITIZED else 10):
        assert run(seed + i, 10_000, 512 << 10, in_flight, "churn").endswith("ok\n")


@pytest.mark.parametrize("kthreads", [1, 2])
@pytest.mark.parametrize("fails", [0, 1])
def test_many_uthreads(c_program: Program, seed: int, kthreads: int, fails: int) -> None:
    appends = 30 if SANITIZED else 200
    assert c_program(f"{C}/shared.c")(seed, 64, appends, kthreads, fails).endswith("ok\n")


@pytest.mark.parametrize(
    ("kthreads", "mode"), [(1, 2), (2, 2), (1, 3), (1, 4)], ids=["alone", "not alone", "the call fails", "it goes on"]
)
def test_writes_in_the_call(c_program: Program, seed: int, kthreads: int, mode: int) -> None:
    appends = 30 if SANITIZED else 200
    assert c_program(f"{C}/shared.c")(seed, 64, appends, kthreads, mode).endswith("ok\n")


@pytest.mark.parametrize("kthreads", [1, 3])
@pytest.mark.parametrize("scenario", ["sleeps", "others_run", "room", "close", "confirmed"])
def test_waiting_costs_no_core(c_program: Program, seed: int, scenario: str, kthreads: int) -> None:
    assert c_program(f"{C}/wait.c")(scenario, seed, kthreads).endswith("ok\n")


@pytest.mark.parametrize("scenario", ["lone", "burst"])
def test_when_a_flush_goes(c_program: Program, seed: int, scenario: str) -> None:
    assert c_program(f"{C}/wait.c")(scenario, seed, 1).endswith("ok\n")


@pytest.mark.parametrize(
    "scenario",
    [
        "serial",
        "pairs",
        "side_by_side",
        "stalls",
        "mended",
        "lone",
        "soon",
        "given",
        "one",
        "sizes",
        "sizes_serial",
        "odd_times",
    ],
)
def test_how_many_flushes_fly(c_program: Program, seed: int, scenario: str) -> None:
    assert c_program(f"{C}/width.c", one_thread=True)(scenario, seed).endswith("ok\n")


@pytest.mark.parametrize("scenario", ["appends", "superblocks"])
def test_opened_again_after_writes_failed(c_program: Program, seed: int, scenario: str) -> None:
    assert c_program(f"{C}/reopened.c", one_thread=True)(seed, scenario).endswith("ok\n")


@pytest.mark.parametrize("scenario", ["wrong_once", "wrong_at_first", "forgotten"])
def test_a_tail_of_which_two_reads_differ(c_program: Program, seed: int, scenario: str) -> None:
    assert c_program(f"{C}/twice.c", one_thread=True)(seed, scenario) == "ok\n"


@pytest.mark.parametrize("in_flight", [1, 4])
def test_every_sector_wise_cut(c_program: Program, seed: int, in_flight: int) -> None:
    appends = 60 if SANITIZED else 1000
    assert c_program(f"{C}/cuts.c", one_thread=True)(seed, appends, in_flight).endswith("ok\n")


@pytest.mark.parametrize(
    ("ring_kib", "flush_kib"),
    [(700, 8), (6 << 10, 64), (40 << 10, 256), (12 << 10, 700), (24 << 10, 3 << 10)],
    ids=["of few segments", "of many", "in huge pages", "larger segments", "flushes of several segments"],
)
def test_reading_ahead(c_program: Program, seed: int, ring_kib: int, flush_kib: int) -> None:
    assert c_program(f"{C}/stream.c", one_thread=True)(seed, ring_kib, flush_kib).endswith("ok\n")


@pytest.mark.soak(short=True, takes_s=3)
@pytest.mark.parametrize(
    "what",
    [
        "flips",
        "closed",
        "confirmed",
        "unreadable",
        "leftovers",
        "gap",
        "reopened",
        "copied",
        "acknowledged",
    ],
)
def test_what_is_not_as_it_was_left(c_program: Program, seed: int, what: str) -> None:
    stride = 11 if SANITIZED else soak.examples(5, 1)  # prime to a block: each header is flipped at other bytes
    assert c_program(f"{C}/rot.c", one_thread=True)(seed, what, stride).endswith("ok\n")


LIMITS = ("full", "votes", "no_space", "reserve", "ranges", "freed", "snapshots", "behind", "emptied", "older")
REPACKED = ("garbage", "churn", "read_on", "version", "given_up", "hurried")


@pytest.mark.parametrize("limit", LIMITS)
def test_at_its_limits(c_program: Program, seed: int, limit: str) -> None:
    assert c_program(f"{C}/limits.c", one_thread=True)(seed, limit).endswith("ok\n")


@pytest.mark.parametrize("what", REPACKED)
def test_re_packed(c_program: Program, seed: int, what: str) -> None:
    assert c_program(f"{C}/repacked.c", one_thread=True)(seed, what).endswith("ok\n")


@pytest.mark.parametrize("state", ["forged", "cut", "zeros", "grown", "read", "stale", "version"])
def test_opened_again_or_read_in_a_rare_state(c_program: Program, seed: int, state: str) -> None:
    assert c_program(f"{C}/again.c", one_thread=True)(seed, state) == "ok\n"


def test_what_was_acknowledged_is_confirmed(c_program: Program, seed: int) -> None:
    assert c_program(f"{C}/confirm.c", one_thread=True)(seed) == "ok\n"


def test_an_area_that_grows(c_program: Program, seed: int) -> None:
    assert c_program(f"{C}/grow.c", one_thread=True)(seed).endswith("ok\n")


def test_fuzz_with_own_mutator(c_program: Program, seed: int) -> None:
    assert c_program(f"{C}/fuzz_log.c", one_thread=True)(seed, 1_000 if SANITIZED else 10_000) == "ok\n"


@pytest.mark.soak(takes_s=15)
def test_fuzz_with_libfuzzer(c_fuzzer: Program, seed: int) -> None:
    runs = 3000
    out = c_fuzzer(f"{C}/fuzz_log.c", cflags=["-DFUZZ"])(f"-runs={runs}", f"-seed={seed}", "-max_len=300")
    assert f"Done {runs} runs" in out  # and whatever the program checks ends it with an error
