"""Frames that nobody correct sends: each is refused and counted, and none breaks a node."""

from __future__ import annotations

from collections.abc import Callable

Make = Callable[..., Callable[..., str]]
PROGRAM = "tests/apps/raft/c/fuzz_frames.c"


def test_mutated_frames(c_program: Make, seed: int) -> None:
    rounds = 20_000
    assert f"{rounds} inputs" in c_program(PROGRAM)(rounds, seed)


def test_fuzz_frames(c_fuzzer: Make) -> None:
    c_fuzzer(PROGRAM, cflags=["-DFUZZER"])("-runs=20000", "-seed=1", "-max_len=1200", "-max_total_time=40")
