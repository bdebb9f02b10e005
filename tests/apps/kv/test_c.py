"""The C programs: threads on one store, and arbitrary bytes to the command layer. Also under ASan and TSan."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from cltest import soak

Make = Callable[..., Callable[..., str]]


@pytest.mark.parametrize("partitions", [1, 4])
def test_threads_on_one_store(c_program: Make, seed: int, partitions: int) -> None:
    rounds = (20_000 if os.environ.get("CORELANE_SANITIZE") else 50_000) * partitions
    run = c_program("tests/apps/kv/c/kv_stress.c")
    assert "evictions" in run(4, rounds, partitions, seed, "mixed")


def test_no_count_is_lost(c_program: Make, seed: int) -> None:
    rounds = 10_000 if os.environ.get("CORELANE_SANITIZE") else 50_000
    c_program("tests/apps/kv/c/kv_stress.c")(4, rounds, 2, seed, "counting")


@pytest.mark.soak(short=True, takes_s=3)
def test_readers_of_chains_that_grow_and_shrink(c_program: Make, seed: int) -> None:
    rounds = 3_000 if os.environ.get("CORELANE_SANITIZE") else soak.examples(6_000, 20_000)
    assert "retries" in c_program("tests/apps/kv/c/kv_chains.c")(3, rounds, seed)


def test_mutated_commands(c_program: Make, seed: int) -> None:
    rounds = 20_000
    assert f"{rounds} inputs" in c_program("tests/apps/kv/c/fuzz_commands.c", one_thread=True)(rounds, seed)


@pytest.mark.soak(takes_s=15)
def test_fuzz_commands(c_fuzzer: Make) -> None:
    run = c_fuzzer("tests/apps/kv/c/fuzz_commands.c", cflags=["-DFUZZER"])
    run(f"-runs={30_000}", "-seed=1", "-max_len=1500", "-max_total_time=40")


def test_one_thread_is_told_to_store_an_item_anew(c_program: Make) -> None:
    keys = 5_000
    assert f"{keys} and {keys} wins" in c_program("tests/apps/kv/c/kv_win.c")(4, keys)
